//! Runs the soak of `tests/end-to-end`, with optimisation: many tenants, hostile ones
//! among them, for minutes.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{guests, process, repository};

/// How long, and against what.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Minutes of sending
    #[arg(default_value_t = 10.0)]
    minutes: f64,
    /// Name server of a cluster that makes topics when they are first sent to; without it
    /// the embedded broker
    namesrv_addr: Option<String>,
    /// Start a RocketMQ for it (needs a JDK and Maven)
    #[arg(long, conflicts_with = "namesrv_addr")]
    real: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    guests::build_all()?;
    let mut cargo = process::cargo();
    cargo.args(["build", "--release", "--locked"]);
    process::run(cargo.args(["--package", "end-to-end", "--package", "daemon"]))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(
        || repository::root().join("target"),
        std::path::PathBuf::from,
    );
    let mut soak = Command::new(target.join("release/soak"));
    soak.arg(arguments.minutes.to_string());
    if !arguments.real {
        return process::run(soak.args(&arguments.namesrv_addr));
    }
    let script = repository::root().join("tests/interop/rocketmq/rocketmq.sh");
    let folder = target.join("tmp/soak-rocketmq");
    let namesrv_addr = start(&script, &folder)?;
    let soaked = process::run(soak.arg(namesrv_addr));
    process::run(Command::new(&script).arg("stop").arg(&folder))?;
    soaked
}

fn start(script: &Path, folder: &Path) -> Result<String> {
    let ports = ["--namesrv-port", "0", "--broker-port", "0"];
    let mut command = Command::new(script);
    command.arg("start").arg(folder).args(ports);
    let output = command.output().context("cannot start RocketMQ")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let found = text
        .lines()
        .find_map(|line| line.strip_prefix("NAMESRV_ADDR="));
    found
        .map(str::to_owned)
        .with_context(|| format!("RocketMQ did not say where it is: {text}"))
}
