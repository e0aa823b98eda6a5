//! Client and server together over loopback: answers, deadlines, bounds, ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::peer::{Echo, PATIENCE, Recorder, address_of, eventually, request};
use protocol::{Credentials, ExtFields, RemotingCommand};
use remoting::{
    ConnectionError, InvokeError, RemotingClient, RemotingConfig, RemotingStats, ServerConfig,
    ServerSendError,
};
use tokio::task::JoinSet;

fn client(config: RemotingConfig) -> (RemotingClient, Arc<Recorder>) {
    let recorder = Arc::new(Recorder::default());
    (
        RemotingClient::new(config, Arc::clone(&recorder) as _),
        recorder,
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_concurrent_requests_share_one_connection_and_get_their_own_answer() {
    let (echo, server) = Echo::start(ServerConfig::default()).await;
    let (client, recorder) = client(RemotingConfig::default());
    let address = address_of(server.local_addr());

    let mut calls = JoinSet::new();
    for number in 0..10_000_u32 {
        let (client, address) = (client.clone(), address.clone());
        calls.spawn(async move {
            let body = number.to_be_bytes().to_vec();
            let command =
                RemotingCommand::request(11, ExtFields::default()).with_body(body.clone());
            let answer = client.invoke(&address, command, PATIENCE).await.unwrap();
            assert_eq!(answer.body, body);
        });
    }
    while let Some(call) = calls.join_next().await {
        call.unwrap();
    }

    assert_eq!(echo.connections.lock().unwrap().len(), 1);
    assert_eq!(recorder.events(), ["connected"]);
    let stats = client.stats();
    assert_eq!((stats.in_flight, stats.unknown_opaques), (0, 0));
}

#[tokio::test]
async fn answers_may_come_in_any_order() {
    let (echo, server) = Echo::start(ServerConfig::default()).await;
    let (client, _) = client(RemotingConfig::default());
    let address = address_of(server.local_addr());

    let held = {
        let (client, address) = (client.clone(), address.clone());
        tokio::spawn(async move { client.invoke(&address, request(b"hold"), PATIENCE).await })
    };
    eventually("the request is held", || {
        !echo.held.lock().unwrap().is_empty()
    })
    .await;
    let other = client.invoke(&address, request(b"other"), PATIENCE).await;
    assert_eq!(&other.unwrap().body[..], b"other");

    let (connection, command) = echo.held.lock().unwrap().pop().unwrap();
    let answer = RemotingCommand::response_to(&command, 0).with_remark("late");
    server.send(connection, answer).unwrap();
    assert_eq!(held.await.unwrap().unwrap().remark.as_deref(), Some("late"));
}

#[tokio::test]
async fn a_request_without_answer_expires_and_the_connection_stays() {
    let (echo, server) = Echo::start(ServerConfig::default()).await;
    let (client, recorder) = client(RemotingConfig::default());
    let address = address_of(server.local_addr());
    // A longer wait first: the sweeper must hear of the shorter one.
    let long = {
        let (client, address) = (client.clone(), address.clone());
        tokio::spawn(async move { client.invoke(&address, request(b"hold"), PATIENCE).await })
    };
    eventually("the request is held", || {
        !echo.held.lock().unwrap().is_empty()
    })
    .await;

    let timeout = Duration::from_millis(50);
    let started = tokio::time::Instant::now();
    let error = client
        .invoke(&address, request(b"hold"), timeout)
        .await
        .unwrap_err();

    assert!(matches!(error, InvokeError::Timeout { .. }), "{error}");
    assert!(started.elapsed() >= timeout);
    assert!(!long.is_finished());
    assert_eq!(client.stats().in_flight, 1);
    // Its answer comes too late.
    let (connection, command) = echo.held.lock().unwrap().pop().unwrap();
    server
        .send(connection, RemotingCommand::response_to(&command, 0))
        .unwrap();
    eventually("the late answer is counted", || {
        client.stats().unknown_opaques == 1
    })
    .await;
    assert_eq!(recorder.events(), ["connected"]);
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_nothing_behind() {
    let (echo, server) = Echo::start(ServerConfig::default()).await;
    let (client, _) = client(RemotingConfig::default());
    let address = address_of(server.local_addr());
    let call = {
        let (client, address) = (client.clone(), address.clone());
        tokio::spawn(async move { client.invoke(&address, request(b"hold"), PATIENCE).await })
    };
    eventually("the request is held", || {
        !echo.held.lock().unwrap().is_empty()
    })
    .await;
    assert_eq!(client.stats().in_flight, 1);

    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());

    assert_eq!(client.stats().in_flight, 0);
}

#[tokio::test]
async fn the_bound_of_requests_in_flight_refuses_at_once() {
    let (echo, server) = Echo::start(ServerConfig::default()).await;
    let (client, _) = client(RemotingConfig {
        in_flight_max: 3,
        ..RemotingConfig::default()
    });
    let address = address_of(server.local_addr());
    let told = Arc::new(AtomicUsize::new(0));
    for _ in 0..3 {
        let told = Arc::clone(&told);
        let callback = move |result: Result<_, _>| {
            result.unwrap();
            told.fetch_add(1, Ordering::SeqCst);
        };
        client.invoke_with(&address, request(b"hold"), PATIENCE, Box::new(callback));
    }

    let error = client
        .invoke(&address, request(b"more"), PATIENCE)
        .await
        .unwrap_err();
    assert!(matches!(
        error,
        InvokeError::TooManyInFlight { in_flight_max: 3 }
    ));
    assert!(error.is_unsent());

    eventually("three are held", || echo.held.lock().unwrap().len() == 3).await;
    for (connection, command) in echo.held.lock().unwrap().drain(..) {
        server
            .send(connection, RemotingCommand::response_to(&command, 0))
            .unwrap();
    }
    eventually("three are told", || told.load(Ordering::SeqCst) == 3).await;
    client
        .invoke(&address, request(b"again"), PATIENCE)
        .await
        .unwrap();
}

#[tokio::test]
async fn one_way_requests_arrive_even_when_the_client_closes_right_after() {
    let (echo, server) = Echo::start(ServerConfig::default()).await;
    let (client, _) = client(RemotingConfig::default());
    let address = address_of(server.local_addr());
    client
        .invoke(&address, request(b"x"), PATIENCE)
        .await
        .unwrap();

    for _ in 0..100 {
        client.invoke_oneway(&address, request(b"commit")).unwrap();
    }
    client.close().await;

    eventually("all arrived", || echo.oneways.lock().unwrap().len() == 100).await;
    assert!(matches!(
        client.invoke_oneway(&address, request(b"late")),
        Err(InvokeError::Closed)
    ));
}

#[tokio::test]
async fn the_server_can_ask_and_the_client_answers() {
    let (echo, server) = Echo::start(ServerConfig::default()).await;
    let (client, recorder) = client(RemotingConfig::default());
    let address = address_of(server.local_addr());
    client
        .invoke(&address, request(b"x"), PATIENCE)
        .await
        .unwrap();
    let connection = echo.connections.lock().unwrap()[0];

    let mut question = request(b"running info");
    question.opaque = 77;
    server.send(connection, question).unwrap();
    server
        .send(connection, request(b"notify").oneway())
        .unwrap();

    eventually("two requests", || {
        recorder.requests.lock().unwrap().len() == 2
    })
    .await;
    eventually("an answer", || !echo.answers.lock().unwrap().is_empty()).await;
    let answers = echo.answers.lock().unwrap();
    assert_eq!(answers.len(), 1, "one-way requests are not answered");
    assert_eq!(answers[0].opaque, 77);
    assert_eq!(&answers[0].body[..], b"running info");
}

#[tokio::test]
async fn a_lost_connection_fails_its_requests_at_once_and_the_next_request_connects_again() {
    let (echo, server) = Echo::start(ServerConfig::default()).await;
    let (client, recorder) = client(RemotingConfig::default());
    let address = address_of(server.local_addr());
    client
        .invoke(&address, request(b"x"), PATIENCE)
        .await
        .unwrap();
    let mut calls = JoinSet::new();
    for _ in 0..10 {
        let (client, address) = (client.clone(), address.clone());
        calls.spawn(async move { client.invoke(&address, request(b"hold"), PATIENCE).await });
    }
    eventually("ten are held", || echo.held.lock().unwrap().len() == 10).await;

    let connection = echo.connections.lock().unwrap()[0];
    server.close_connection(connection);

    while let Some(call) = calls.join_next().await {
        let error = call.unwrap().unwrap_err();
        assert!(
            matches!(
                error,
                InvokeError::Disconnected {
                    source: ConnectionError::ClosedByPeer,
                    ..
                }
            ),
            "{error:?}"
        );
    }
    assert_eq!(client.stats().in_flight, 0);
    assert_eq!(recorder.count("disconnected"), 1);
    let mut last = None;
    let again = async {
        loop {
            match client.invoke(&address, request(b"again"), PATIENCE).await {
                Ok(answer) => return answer,
                Err(error) => last = Some(error),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let answer = tokio::time::timeout(PATIENCE, again).await.unwrap();
    assert_eq!(&answer.body[..], b"again");
    // At most the least time between two attempts was refused.
    assert!(last.is_none_or(|error| matches!(error, InvokeError::BackingOff { .. })));
}

#[tokio::test]
async fn closing_the_client_fails_what_waits_and_ends_the_connections() {
    let (echo, server) = Echo::start(ServerConfig::default()).await;
    let (client, _) = client(RemotingConfig::default());
    let address = address_of(server.local_addr());
    let call = {
        let (client, address) = (client.clone(), address.clone());
        tokio::spawn(async move { client.invoke(&address, request(b"hold"), PATIENCE).await })
    };
    eventually("the request is held", || {
        !echo.held.lock().unwrap().is_empty()
    })
    .await;

    client.close().await;

    assert!(matches!(call.await.unwrap(), Err(InvokeError::Closed)));
    assert_eq!(client.stats(), RemotingStats::default());
    eventually("the server sees it", || {
        echo.disconnections.lock().unwrap().len() == 1
    })
    .await;
}

#[tokio::test]
async fn dropping_the_last_client_ends_the_connections() {
    let (echo, server) = Echo::start(ServerConfig::default()).await;
    let (client, _) = client(RemotingConfig::default());
    let address = address_of(server.local_addr());
    client
        .invoke(&address, request(b"x"), PATIENCE)
        .await
        .unwrap();

    drop(client);

    eventually("the server sees it", || {
        echo.disconnections.lock().unwrap().len() == 1
    })
    .await;
}

#[tokio::test]
async fn a_panicking_callback_costs_one_connection() {
    let (_echo, server) = Echo::start(ServerConfig::default()).await;
    let (client, recorder) = client(RemotingConfig::default());
    let address = address_of(server.local_addr());
    let waiting = {
        let (client, address) = (client.clone(), address.clone());
        tokio::spawn(async move { client.invoke(&address, request(b"hold"), PATIENCE).await })
    };
    client.invoke_with(
        &address,
        request(b"x"),
        PATIENCE,
        Box::new(|_| panic!("as the test asked")),
    );

    let error = waiting.await.unwrap().unwrap_err();
    assert!(matches!(
        error,
        InvokeError::Disconnected {
            source: ConnectionError::Panicked,
            ..
        }
    ));
    assert_eq!(recorder.count("disconnected"), 1);
}

#[tokio::test]
async fn a_panicking_server_handler_costs_one_connection() {
    let (echo, server) = Echo::start(ServerConfig::default()).await;
    let (client, _) = client(RemotingConfig::default());
    let address = address_of(server.local_addr());

    client
        .invoke(&address, request(b"panic"), PATIENCE)
        .await
        .unwrap_err();

    eventually("it is told", || echo.ends.lock().unwrap().len() == 1).await;
    assert!(matches!(
        echo.ends.lock().unwrap()[0],
        ConnectionError::Panicked
    ));
    let (other, _) = self::client(RemotingConfig::default());
    other
        .invoke(&address, request(b"x"), PATIENCE)
        .await
        .unwrap();
}

#[tokio::test]
async fn shutting_the_server_down_writes_what_is_queued_and_frees_the_port() {
    let (echo, server) = Echo::start(ServerConfig::default()).await;
    let (client, recorder) = client(RemotingConfig::default());
    let address = address_of(server.local_addr());
    client
        .invoke(&address, request(b"x"), PATIENCE)
        .await
        .unwrap();
    let connection = echo.connections.lock().unwrap()[0];
    for _ in 0..100 {
        server.send(connection, request(b"bye").oneway()).unwrap();
    }

    server.shutdown().await;

    eventually("all came", || {
        recorder.requests.lock().unwrap().len() == 100
    })
    .await;
    assert!(matches!(
        server.send(connection, request(b"late")),
        Err(ServerSendError::Gone(_))
    ));
    std::net::TcpListener::bind(server.local_addr()).unwrap();
}

#[tokio::test]
async fn every_request_is_signed_and_nothing_else() {
    let (echo, server) = Echo::start(ServerConfig::default()).await;
    let credentials = Credentials::new("ak-demo", "sk-demo-secret", None).unwrap();
    let (client, _) = client(RemotingConfig {
        credentials: Some(credentials),
        ..RemotingConfig::default()
    });
    let address = address_of(server.local_addr());
    let call = tokio::spawn({
        let (client, address) = (client.clone(), address.clone());
        async move { client.invoke(&address, request(b"hold"), PATIENCE).await }
    });
    client
        .invoke_oneway(&address, request(b"{\"x\":1}"))
        .unwrap();
    eventually("both came", || {
        !echo.held.lock().unwrap().is_empty() && !echo.oneways.lock().unwrap().is_empty()
    })
    .await;

    let (_, held) = echo.held.lock().unwrap().pop().unwrap();
    let oneway = echo.oneways.lock().unwrap().pop().unwrap();
    for command in [&held, &oneway] {
        assert_eq!(command.ext_field("AccessKey"), Some("ak-demo"));
    }
    // The table's value for a body alone.
    assert_eq!(
        oneway.ext_field("Signature"),
        Some("CHB1YgR/CHXWpUObnyyY36ABobE=")
    );
    call.abort();
}
