//! What the rules answer to a history, written down: `testdata/*.txt`. A change there is a
//! change of behaviour; `UPDATE_EXPECT=1 cargo test -p consumer` rewrites them, and the
//! difference is for a person to judge.

mod access;
mod assign;
mod broadcast;
mod compare;
mod consume;
mod dead_letters;
mod flow_control;
mod hold;
mod lock_hand_over;
mod lost_commits;
mod namespace;
mod orderly;
mod pause;
mod publish;
mod pull;
mod pull_task;
mod rebalance;
mod refused_groups;
mod reset;
mod retry;
mod returns;
mod route;
mod server_request;
mod shared_offsets;
mod situations;
mod slave;
mod start;
mod status;
mod steps;
mod stop;
mod subscriptions;
mod told_in_order;
mod turns;

use std::time::Duration;

use expect_test::expect_file;
use protocol::subscription::{ExpressionType, SubscriptionData};
use protocol::{Instant, MessageQueue, QueueOffset};

use crate::client::{Client, GroupId};
use crate::config::{GroupConfig, GroupConfigBuilder};
use crate::listener::{ConcurrentlyStatus, ConsumeResult};
use crate::pause::{PauseKind, PauseScope};
use crate::testing::{Harness, TestMessage};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The body of a reset of `T1@broker-a:0`, as RocketMQ writes it for tools in Java.
fn reset_to(offset: u64) -> String {
    let queue = r#"{"brokerName":"broker-a","queueId":0,"topic":"T1"}"#;
    format!("{{\"offsetTable\":{{{queue}:{offset}}}}}")
}

/// `G1`, reading every message of a topic.
fn group(topic: &str) -> GroupConfigBuilder {
    tagged_group(topic, "*")
}

fn tagged_group(topic: &str, expression: &str) -> GroupConfigBuilder {
    let subscription = SubscriptionData::build(topic, expression, ExpressionType::Tag);
    GroupConfig::builder("G1").subscription(subscription.expect("an expression"))
}

fn config(builder: GroupConfigBuilder) -> GroupConfig {
    builder.build().expect("a valid group")
}

/// A client whose group pulls `T1@broker-a:0` and its retry topic; how that came about is
/// not shown.
fn pulling(builder: GroupConfigBuilder) -> (Harness, GroupId) {
    let mut t = Harness::default();
    let group = pull_with(&mut t, builder);
    (t, group)
}

fn pull_with(t: &mut Harness, builder: GroupConfigBuilder) -> GroupId {
    if t.cluster.topics.is_empty() {
        t.topic("T1", &[("broker-a", 1)]);
    }
    let group = t.subscribe(config(builder));
    t.settle();
    // The heartbeat of the new assignment.
    t.wait(Duration::from_millis(10));
    t.settle();
    t.forget_transcript();
    group
}

fn messages(offsets: std::ops::Range<u64>) -> Vec<TestMessage> {
    offsets
        .map(|offset| TestMessage::new("T1", offset))
        .collect()
}

fn success() -> ConsumeResult {
    ConsumeResult::Concurrently(ConcurrentlyStatus::ConsumeSuccess { ack_index: None })
}

fn queue(text: &str) -> MessageQueue {
    let (topic, rest) = text.split_once('@').expect("topic@broker:id");
    let (broker, id) = rest.split_once(':').expect("topic@broker:id");
    MessageQueue::new(topic, broker, id.parse().expect("a number"))
}

fn pause(client: &mut Client, group: GroupId, now: Instant) {
    let by = "somebody".into();
    let paused = client.pause(group, &PauseScope::Group, PauseKind::Pause, &by, now);
    paused.expect("a group that can be paused");
}

fn resume(client: &mut Client, group: GroupId, now: Instant) {
    let resumed = client.resume(group, &PauseScope::Group, now);
    resumed.expect("a group that is paused");
}

fn check(name: &str, t: &Harness) {
    let path = format!("{}/testdata/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    expect_file![path].assert_eq(t.transcript());
}
