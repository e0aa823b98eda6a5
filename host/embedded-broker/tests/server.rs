//! The broker behind a real port: answers over sockets, timers, faults, stopping.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use embedded_broker::script::{Fault, Rule};
use embedded_broker::{EmbeddedBroker, Event, ServerConfig};
use protocol::code::{request_code, response_code};
use protocol::header::{
    Header, PullMessageRequestHeader, SendMessageRequestHeader, SendMessageRequestHeaderV2,
};
use protocol::sys_flag::PullSysFlag;
use protocol::{Address, RemotingCommand};
use remoting::{
    ClientHandler, ConnectionError, InvokeError, RemotingClient, RemotingConfig, Responder,
};

const PATIENCE: Duration = Duration::from_secs(20);

struct NoRequests;

impl ClientHandler for NoRequests {
    fn connected(&self, _: &Address) {}
    fn disconnected(&self, _: &Address, _: &ConnectionError, _: bool) {}
    fn request(&self, _: &Address, _: RemotingCommand, _: Responder) {}
}

fn socket_address(address: &Address) -> std::net::SocketAddr {
    address.to_string().parse().expect("a socket address")
}

fn client() -> RemotingClient {
    RemotingClient::new(RemotingConfig::default(), Arc::new(NoRequests))
}

/// The name server at this address, the broker at a free port.
fn config_at(namesrv: std::net::SocketAddr) -> ServerConfig {
    let mut config = ServerConfig::listening_on(namesrv);
    config.broker_listen.set_port(0);
    config
}

async fn broker() -> EmbeddedBroker {
    let listen = "127.0.0.1:0".parse().expect("an address");
    EmbeddedBroker::start(ServerConfig::listening_on(listen))
        .await
        .expect("a free port")
}

fn route(topic: &str) -> RemotingCommand {
    let fields = [("topic", topic)].into_iter().collect();
    RemotingCommand::request(request_code::GET_ROUTEINFO_BY_TOPIC, fields)
}

fn send(body: &'static str) -> RemotingCommand {
    let header = SendMessageRequestHeaderV2(SendMessageRequestHeader {
        producer_group: "P".to_owned(),
        topic: "T".to_owned(),
        default_topic: "TBW102".to_owned(),
        default_topic_queue_nums: 1,
        ..SendMessageRequestHeader::default()
    });
    RemotingCommand::request(request_code::SEND_MESSAGE_V2, header.encode()).with_body(body)
}

fn pull(offset: i64, suspend_timeout_millis: i64) -> RemotingCommand {
    let header = PullMessageRequestHeader {
        consumer_group: "G".to_owned(),
        topic: "T".to_owned(),
        queue_offset: offset,
        max_msg_nums: 32,
        sys_flag: PullSysFlag::SUBSCRIPTION.with(PullSysFlag::SUSPEND).0,
        subscription: Some("*".to_owned()),
        suspend_timeout_millis,
        ..PullMessageRequestHeader::default()
    };
    RemotingCommand::request(request_code::PULL_MESSAGE, header.encode())
}

async fn ask(
    client: &RemotingClient,
    broker: &EmbeddedBroker,
    request: RemotingCommand,
) -> Result<RemotingCommand, InvokeError> {
    client.invoke(broker.broker_addr(), request, PATIENCE).await
}

#[tokio::test]
async fn name_server_leads_to_the_broker_at_a_port_of_its_own() {
    let (broker, client) = (broker().await, client());
    let answer = client
        .invoke(broker.namesrv_addr(), route("TBW102"), PATIENCE)
        .await
        .expect("an answer");
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    let address = format!(r#""0":"{}""#, broker.broker_addr());
    assert!(text.contains(&address), "{text} has {address}");
    assert_ne!(broker.broker_addr(), broker.namesrv_addr());
    assert_ne!(broker.broker_addr().port(), 0);
}

#[tokio::test]
async fn waiting_pull_gets_the_next_message_and_ends_in_time_without_one() {
    let (broker, client) = (broker().await, client());
    ask(&client, &broker, send("m0")).await.expect("an answer");
    let waiting = tokio::spawn({
        let (client, address) = (client.clone(), broker.broker_addr().clone());
        async move { client.invoke(&address, pull(1, 15_000), PATIENCE).await }
    });
    ask(&client, &broker, send("m1")).await.expect("an answer");
    let answer = waiting.await.expect("no panic").expect("an answer");
    assert_eq!(answer.code, response_code::SUCCESS);
    let answer = ask(&client, &broker, pull(2, 100))
        .await
        .expect("an answer");
    assert_eq!(answer.code, response_code::PULL_NOT_FOUND);
}

#[tokio::test]
async fn scripted_faults_reach_the_wire() {
    let broker = broker().await;
    broker.with_broker(|machine, _| {
        machine.add_rule(Rule::on(request_code::GET_ROUTEINFO_BY_TOPIC, Fault::Cut).times(1));
        machine.add_rule(
            Rule::on(
                request_code::GET_ROUTEINFO_BY_TOPIC,
                Fault::Garbage(Bytes::from_static(&[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0])),
            )
            .times(1),
        );
        machine.add_rule(
            Rule::on(
                request_code::GET_ROUTEINFO_BY_TOPIC,
                Fault::Delay(Duration::from_millis(50)),
            )
            .times(1),
        );
    });
    // A client that lost its connection waits before it connects again.
    for _ in 0..2 {
        let error = ask(&client(), &broker, route("TBW102"))
            .await
            .expect_err("a lost connection");
        assert!(!matches!(error, InvokeError::Timeout { .. }), "{error:?}");
    }
    let answer = ask(&client(), &broker, route("TBW102"))
        .await
        .expect("a late answer");
    assert_eq!(answer.code, response_code::SUCCESS);
}

#[tokio::test]
async fn lost_connection_is_noticed_and_events_are_told_in_order() {
    let events = Arc::new(Mutex::new(Vec::new()));
    let mut config = ServerConfig::listening_on("127.0.0.1:0".parse().expect("an address"));
    let heard = Arc::clone(&events);
    config.observer = Arc::new(move |event| heard.lock().expect("no panic").push(event.clone()));
    let broker = EmbeddedBroker::start(config).await.expect("a free port");
    let client = client();
    ask(&client, &broker, send("m0")).await.expect("an answer");
    client.close().await;
    let kinds = || -> Vec<&'static str> {
        events
            .lock()
            .expect("no panic")
            .iter()
            .map(|event| match event {
                Event::Connected { .. } => "connected",
                Event::Disconnected { .. } => "disconnected",
                Event::TopicCreated { .. } => "topic",
                _ => "other",
            })
            .collect()
    };
    tokio::time::timeout(PATIENCE, async {
        while kinds() != ["connected", "topic", "disconnected"] {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap_or_else(|_| panic!("events: {:?}", kinds()));
}

#[tokio::test]
async fn dropped_broker_stops_by_itself() {
    let broker = broker().await;
    let address = socket_address(broker.namesrv_addr());
    drop(broker);
    let again = async {
        loop {
            let config = config_at(address);
            match EmbeddedBroker::start(config).await {
                Ok(broker) => return broker,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    let again = tokio::time::timeout(PATIENCE, again).await;
    again.expect("the port is free soon").stop().await;
}

#[tokio::test]
async fn stopped_broker_frees_its_port() {
    let broker = broker().await;
    let address = socket_address(broker.namesrv_addr());
    let taken = EmbeddedBroker::start(config_at(address)).await;
    let error = taken.expect_err("the port is taken").to_string();
    assert!(
        error.contains(&format!("cannot listen on {address}")),
        "{error}"
    );
    broker.stop().await;
    let again = EmbeddedBroker::start(config_at(address))
        .await
        .expect("the port is free");
    again.stop().await;
}
