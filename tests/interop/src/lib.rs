//! A real Apache RocketMQ and its Java client, started by the tests themselves.
//!
//! Each test starts its own cluster on free ports and kills it at the end, so that a
//! test may stop or crash a broker without asking anybody. Nothing here is skipped:
//! without Java and Maven these tests fail with the words of `rocketmq.sh`.

pub mod account;
pub mod broker;
pub mod cluster;
pub mod host;
pub mod java;
pub mod joined;
pub mod schedule;
pub mod stream;
pub mod tenant;
pub mod watch;
