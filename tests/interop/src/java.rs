//! Programs over RocketMQ's Java client, in `java/`.

use std::process::Command;

use crate::cluster;

/// A Java program of this crate, by its file name without ending.
pub fn program(name: &str, arguments: &[&str]) -> Command {
    program_of_version(cluster::VERSION, name, arguments)
}

/// The same with the client of another release.
pub fn program_of_version(version: &str, name: &str, arguments: &[&str]) -> Command {
    let mut command = cluster::script(version);
    command
        .arg("java")
        .arg(cluster::folder().join("java").join(format!("{name}.java")));
    command.args(arguments);
    // They run for seconds: the optimising compiler costs more than it gains.
    command.env("ROCKETMQ_TIER", "1");
    command
}
