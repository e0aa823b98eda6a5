//! What brokers ask of us.

use super::*;
use crate::listener::MessageOutcome;
use crate::testing::{CLIENT_ID, stored};
use bytes::Bytes;
use protocol::header::{
    ConsumeMessageDirectlyResultRequestHeader, GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader, Header,
};
use protocol::{ExtFields, RemotingCommand};

#[test]
fn requests_of_brokers_are_served_or_refused() {
    let (mut t, _) = pulling(group("T1"));
    t.shows_bodies = true;
    let header = GetConsumerStatusRequestHeader {
        topic: "T1".to_owned(),
        group: "G1".to_owned(),
        client_addr: None,
    };
    t.asked(
        "offsets of T1?",
        RemotingCommand::request(221, header.encode()),
    );
    t.asked(
        "a question without its header",
        RemotingCommand::request(221, ExtFields::default()),
    );
    t.asked(
        "a reply to a request",
        RemotingCommand::request(326, ExtFields::default()),
    );
    t.asked(
        "nonsense, one-way",
        RemotingCommand::request(9999, ExtFields::default()).oneway(),
    );
    check("server_request", &t);
}

fn running_info(group: &str) -> RemotingCommand {
    let header = GetConsumerRunningInfoRequestHeader {
        consumer_group: group.to_owned(),
        client_id: CLIENT_ID.to_owned(),
        jstack_enable: Some(true),
    };
    RemotingCommand::request(307, header.encode())
}

#[test]
fn a_group_says_how_it_is_doing() {
    let (mut t, _) = pulling(group("T1"));
    t.answer_found("PullMessage T1", &messages(0..3));
    t.skip(seconds(1));
    t.result(1, success());
    t.answer_found("PullMessage T1", &messages(3..5));
    t.forget_transcript();
    t.shows_bodies = true;
    t.asked("how is G1?", running_info("G1"));
    t.asked("how is G9?", running_info("G9"));
    t.asked(
        "a question without its header",
        RemotingCommand::request(307, ExtFields::default()),
    );
    check("server_request_running_info", &t);
}

fn directly(group: &str, body: Bytes) -> RemotingCommand {
    let header = ConsumeMessageDirectlyResultRequestHeader {
        consumer_group: group.to_owned(),
        client_id: Some(CLIENT_ID.to_owned()),
        broker_name: Some("broker-b".to_owned()),
        ..ConsumeMessageDirectlyResultRequestHeader::default()
    };
    RemotingCommand::request(309, header.encode()).with_body(body)
}

#[test]
fn one_message_is_consumed_directly_and_nothing_else_comes_of_it() {
    let (mut t, id) = pulling(group("T1").consume_thread_max(1));
    t.answer_found("PullMessage T1", &messages(0..1));
    t.take_commits();
    t.forget_transcript();
    t.shows_bodies = true;
    t.comment("beside a call that takes the group's only one");
    let message = TestMessage::new("T1", 77);
    for group in ["G1", "G9"] {
        let body = stored(&message);
        t.asked(&format!("consume 77 with {group}"), directly(group, body));
    }
    t.skip(Duration::from_millis(12));
    t.result(2, success());
    let results = [
        ConcurrentlyStatus::ReconsumeLater {
            delay_level: Some(3),
        },
        ConcurrentlyStatus::ConsumeSuccess {
            ack_index: Some(-1),
        },
        ConcurrentlyStatus::Each(vec![MessageOutcome::DeadLetter {
            reason: "no such order".into(),
        }]),
    ];
    for (call, status) in (3..).zip(results) {
        t.asked("again", directly("G1", stored(&message)));
        t.result(call, ConsumeResult::Concurrently(status));
    }
    t.comment("a listener that breaks is one that throws, with its reason");
    t.asked("again", directly("G1", stored(&message)));
    let reason = "trap: unreachable".into();
    t.result(6, ConsumeResult::Failed { reason });
    t.comment("what is no message");
    for body in [&b""[..], b"nonsense", &[0; 200]] {
        t.asked("broken", directly("G1", Bytes::copy_from_slice(body)));
    }
    let mut damaged = TestMessage::new("T1", 78);
    damaged.wrong_crc = true;
    t.asked("damaged", directly("G1", stored(&damaged)));
    t.comment("killed with its group");
    t.asked("again", directly("G1", stored(&message)));
    t.does("unsubscribe", |client, now| client.unsubscribe(id, now));
    t.result(7, ConsumeResult::NotFinished);
    t.result(1, success());
    t.settle();
    let retry = queue("%RETRY%G1@broker-a:0");
    assert_eq!(
        t.take_commits(),
        [(queue("T1@broker-a:0"), 1), (retry, 0)],
        "where it began is told again, and nothing of the direct calls"
    );
    check("server_request_directly", &t);
}

#[test]
fn few_messages_are_consumed_directly_at_once_and_none_that_nobody_waits_for() {
    let (mut t, _) = pulling(group("T1"));
    t.shows_events = false;
    let message = TestMessage::new("T1", 77);
    for _ in 0..30 {
        t.asked("consume 77", directly("G1", stored(&message)));
    }
    assert_eq!(t.calls().count(), 4);
    let busy = t.transcript().matches("too many messages").count();
    assert_eq!(busy, 10, "four under way, sixteen wait");
    t.skip(seconds(11));
    t.result(1, success());
    assert_eq!(
        t.calls().count(),
        3,
        "the broker has given up on the others"
    );
    let late = t.transcript().matches("no permit for a call").count();
    assert_eq!(late, 16);
}
