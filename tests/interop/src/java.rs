//! Programs over RocketMQ's Java client, in `java/`.

use std::process::Command;

use crate::cluster;

/// A Java program of this crate, by its file name without ending.
pub fn program(name: &str, arguments: &[&str]) -> Command {
    let mut command = cluster::script();
    command
        .arg("java")
        .arg(cluster::folder().join("java").join(format!("{name}.java")));
    command.args(arguments);
    // They run for seconds: the optimising compiler costs more than it gains.
    command.env("ROCKETMQ_TIER", "1");
    command
}
