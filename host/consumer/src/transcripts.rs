//! What the rules answer to a history, written down: `testdata/*.txt`. A change there is a
//! change of behaviour; `UPDATE_EXPECT=1 cargo test -p consumer` rewrites them.

use std::time::Duration;

use expect_test::expect_file;
use protocol::subscription::{ExpressionType, SubscriptionData};

use crate::config::{GroupConfig, GroupConfigBuilder};
use crate::testing::Harness;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn group(topic: &str) -> GroupConfigBuilder {
    GroupConfig::builder("G1").subscription(
        SubscriptionData::build(topic, "*", ExpressionType::Tag).expect("an expression"),
    )
}

fn config(builder: GroupConfigBuilder) -> GroupConfig {
    builder.build().expect("valid")
}

#[test]
fn start() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 2)]);
    t.subscribe(config(group("T1")));
    t.settle();
    t.comment("half a minute without messages");
    t.wait(seconds(30));
    t.settle();
    expect_file!["../testdata/start.txt"].assert_eq(t.transcript());
}
