//! Names between brokers, who know them with a namespace, and users, who do not.

use super::*;
use crate::client::SubscribeError;
use crate::config::AllocateMessageQueueStrategy;
use crate::pause::PauseError;
use crate::subscriptions::ChangeSubscriptionError;
use crate::testing::{CLIENT_ID, stored};
use crate::{SeekForward, SeekTo};
use protocol::RemotingCommand;
use protocol::header::{
    ConsumeMessageDirectlyResultRequestHeader, GetConsumerRunningInfoRequestHeader, Header,
};

/// `ns%T1` with two queues.
fn in_namespace() -> Harness {
    let mut t = Harness::new(|config| config.namespace = "ns".to_owned());
    t.topic("ns%T1", &[("broker-a", 2)]);
    let retry = t.cluster.topics.remove("%RETRY%G1").expect("made with it");
    t.cluster.topics.insert("%RETRY%ns%G1".to_owned(), retry);
    t
}

#[test]
fn a_message_that_is_consumed_directly_reaches_its_listener() {
    let mut t = in_namespace();
    t.subscribe(config(group("T1")));
    t.settle();
    let header = ConsumeMessageDirectlyResultRequestHeader {
        consumer_group: "ns%G1".to_owned(),
        client_id: Some(CLIENT_ID.to_owned()),
        broker_name: Some("broker-a".to_owned()),
        ..ConsumeMessageDirectlyResultRequestHeader::default()
    };
    let body = stored(&TestMessage::new("ns%T1", 77));
    let command = RemotingCommand::request(309, header.encode()).with_body(body);
    t.asked("consume it", command);
    let call = t.calls().next().expect("a call");
    assert_eq!(&*call.consumer_group, "G1");
    assert_eq!(&*call.topic, "T1");
    assert_eq!(&*call.message_queue.topic, "T1");
}

#[test]
fn who_completes_the_running_info_knows_the_group_by_its_own_name() {
    let mut t = in_namespace();
    t.subscribe(config(group("T1")));
    t.settle();
    let header = GetConsumerRunningInfoRequestHeader {
        consumer_group: "ns%G1".to_owned(),
        client_id: CLIENT_ID.to_owned(),
        jstack_enable: None,
    };
    let command = RemotingCommand::request(307, header.encode());
    t.asked("how is G1?", command);
    let told = t.transcript().contains("  running info of G1\n");
    assert!(told, "{}", t.transcript());
}

#[test]
fn configured_queues_are_those_of_the_namespace() {
    let mut t = in_namespace();
    let strategy = AllocateMessageQueueStrategy::Config {
        message_queues: vec![queue("T1@broker-a:1")],
    };
    let builder = group("T1").allocate_message_queue_strategy(strategy);
    t.subscribe(config(builder));
    t.settle();
    t.request("PullMessage ns%T1@broker-a:1 ");
}

#[test]
fn refusals_speak_of_what_the_user_named() {
    let mut t = in_namespace();
    let id = t.subscribe(config(group("T1")));
    t.settle();
    let now = t.now();
    let client = &mut t.client;
    let twice = client.subscribe(config(group("T1")), now);
    let consumer_group = "G1".into();
    assert_eq!(twice, Err(SubscribeError::Duplicate { consumer_group }));
    let other = queue("T1@broker-a:9");
    client.seek(id, &other, SeekTo::MaxOffset, SeekForward::Skips, now);
    let (_, sought) = client.poll_seek_result().expect("at once");
    let error = sought.expect_err("not ours").to_string();
    assert_eq!(
        error,
        "T1@broker-a:9 is not ours; seek where its owner runs"
    );
    let by = "somebody".into();
    let scope = PauseScope::Queue(other.clone());
    let paused = client.pause(id, &scope, PauseKind::Pause, &by, now);
    assert_eq!(paused, Err(PauseError::NotHeld { queue: other }));
    let scope = PauseScope::Topic("T2".into());
    let paused = client.pause(id, &scope, PauseKind::Pause, &by, now);
    let topic = "T2".into();
    assert_eq!(paused, Err(PauseError::NotSubscribed { topic }));
    let resumed = client.resume(id, &PauseScope::Topic("T1".into()), now);
    let scope = PauseScope::Topic("T1".into());
    assert_eq!(resumed, Err(PauseError::NotPaused { scope }));
    let changed = client.change_subscription(id, SubscriptionData::all("T2"), now);
    let topic = "T2".to_owned();
    assert_eq!(
        changed,
        Err(ChangeSubscriptionError::UnknownTopic { topic })
    );
    let assigned = client.assign(id, Vec::new(), now);
    let error = assigned.expect_err("it divides").to_string();
    assert!(
        error.starts_with("consumer group \"G1\" divides"),
        "{error}"
    );
}
