//! `mqlet compile-worker` and `plugin-worker`: what a host starts itself with, for work that must be able to
//! die. Nobody types them; they are not in the help.

use std::time::Duration;

use clap::Args;

use crate::exit::Exit;

/// Compile the component on standard input
#[derive(Args, Debug)]
pub(crate) struct CompileWorkerArguments {
    /// CPU time that it may take
    #[arg(long, value_parser = seconds)]
    pub(crate) cpu_seconds: Duration,
    /// Memory that it may write to
    #[arg(long)]
    pub(crate) memory_bytes: u64,
}

/// See [`CompileWorkerArguments`]; `wasm::compile_worker` says what comes and goes.
pub(crate) fn compile(arguments: &CompileWorkerArguments) -> anyhow::Result<Exit> {
    let limits = wasm::CompileLimits {
        cpu_time: arguments.cpu_seconds,
        memory: arguments.memory_bytes,
        ..wasm::CompileLimits::default()
    };
    wasm::compile_worker(&limits).map_err(anyhow::Error::msg)?;
    Ok(Exit::Done)
}

/// `wasm::plugin_worker` says what comes and goes.
pub(crate) fn plugin() -> anyhow::Result<Exit> {
    wasm::plugin_worker().map_err(anyhow::Error::msg)?;
    Ok(Exit::Done)
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|error| format!("{error}"))?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}
