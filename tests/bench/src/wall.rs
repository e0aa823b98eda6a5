//! The wall: what a message costs more because its listener is in the sandbox.
//!
//! Everybody does nothing with the same request, called through the port that the
//! consumer calls; what differs is the sandbox. CPU time of the one thread that all
//! happens on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use consumer::listener::{CancelSignal, ConsumeRequest, ConsumeResult, MessageListener};
use plugin_lifecycle::event::Generation;
use plugin_lifecycle::slot::{PluginSlot, Serving};

use crate::listener::{self, Guest, Native};
use crate::report::{Report, Sample, Target};
use crate::{Options, machine, messages};

const NATIVE: &str = "native";
const WASM: &str = "wasm, bare bindings";
const SDK: &str = "wasm, Rust SDK";
const SLOT: &str = "wasm, bare, in a plugin's slot";

/// More CPU time a message than native.
const MORE_NS_MAX: f64 = 700.0;

pub(crate) fn run(options: &Options) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let engine = listener::engine(|_| {})?;
    let bare = runtime.block_on(Guest::compile(&engine, "succeed"))?;
    let sdk = runtime.block_on(Guest::compile(&engine, "sdk_succeed"))?;
    for messages in [32, 1] {
        let title = format!("wall, {messages} messages of 1 KiB a call");
        let mut report = Report::new(&title, "ns for one message");
        let request = messages::request(messages, 32)?;
        for _ in 0..options.rounds() {
            let slot = PluginSlot::new();
            let serving = Serving::new(Generation(1), runtime.block_on(bare.load())?);
            slot.switch(Some(Arc::new(serving)));
            let subjects: [(&str, Arc<dyn MessageListener>); 4] = [
                (NATIVE, Arc::new(Native)),
                (WASM, runtime.block_on(bare.load())?),
                (SDK, runtime.block_on(sdk.load())?),
                (SLOT, Arc::new(slot)),
            ];
            for (name, listener) in &subjects {
                let time = options.pick(Duration::from_millis(20), Duration::from_millis(200));
                let sample = runtime.block_on(round(&**listener, &request, time))?;
                report.add(name, sample);
            }
        }
        for subject in [WASM, SDK, SLOT] {
            let more = report.paired((subject, NATIVE), "cpu", |wasm, native| wasm - native);
            let what = format!("{subject}, more CPU ns a message than native");
            match messages {
                1 => report.note(what, more),
                _ => report.judge(what, more, Target::AtMost(MORE_NS_MAX)),
            }
        }
        report.print()?;
    }
    Ok(())
}

/// Calls for about so long.
pub(crate) async fn round(
    listener: &dyn MessageListener,
    request: &Arc<ConsumeRequest>,
    time: Duration,
) -> Result<Sample> {
    // A first batch tells how many make up the time, and warms the caches.
    let mut calls = 10;
    loop {
        let (wall, cpu) = calls_of(listener, request, calls).await?;
        if wall >= time {
            let messages = f64::from(calls) * request.len() as f64;
            return Ok(vec![
                ("cpu", cpu.as_secs_f64() * 1e9 / messages),
                ("wall", wall.as_secs_f64() * 1e9 / messages),
            ]);
        }
        let factor = time.as_secs_f64() / wall.as_secs_f64().max(1e-6);
        calls = (f64::from(calls) * (factor * 1.1).clamp(1.5, 100.0)) as u32;
    }
}

async fn calls_of(
    listener: &dyn MessageListener,
    request: &Arc<ConsumeRequest>,
    calls: u32,
) -> Result<(Duration, Duration)> {
    let (began, cpu_before) = (Instant::now(), machine::thread_cpu());
    for _ in 0..calls {
        let result = listener
            .consume_message(Arc::clone(request), CancelSignal::default())
            .await;
        ensure!(
            matches!(result, ConsumeResult::Concurrently(_)),
            "a call did not finish: {result:?}"
        );
    }
    Ok((began.elapsed(), machine::thread_cpu() - cpu_before))
}
