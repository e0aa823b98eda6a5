//! A fresh instance for every call (`isolation = "batch"`): what one costs, and that a
//! million of them leave nothing behind, neither memory nor mappings of the kernel.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use consumer::listener::{CancelSignal, ConsumeResult, MessageListener};
use wasm::Isolation;

use crate::listener::{self, Guest};
use crate::report::{Report, Target};
use crate::{Options, machine, messages};

/// A small guest, one with the SDK in it, and one with tables of its own.
const GUESTS: [&str; 3] = ["succeed", "sdk_succeed", "compute_hash"];
/// What may come on top between a tenth of the calls and all of them: an allocator's noise.
const GROWTH_MIB_MAX: f64 = 4.0;
const GROWTH_MAPPINGS_MAX: f64 = 8.0;

pub(crate) fn run(options: &Options) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(measure(options))
}

async fn measure(options: &Options) -> Result<()> {
    let engine = listener::engine(|_| {})?;
    let mut report = Report::new("fresh", "a fresh instance for each call");
    let calls: u32 = options.pick(100_000, 1_000_000);
    for (place, name) in GUESTS.into_iter().enumerate() {
        let guest = Guest::compile(&engine, name).await?;
        // All of them for the smallest; the others show their price.
        let calls = if place == 0 { calls } else { calls / 20 };
        let (fresh, _) = guest
            .load_with(|limits| limits.isolation = Isolation::Batch)
            .await?;
        let request = messages::request(1, 1)?;
        let mut at_a_tenth = (0.0, 0.0);
        let (began, cpu_before) = (Instant::now(), machine::thread_cpu());
        for number in 0..calls {
            let called = fresh.consume_message(Arc::clone(&request), CancelSignal::default());
            let result = called.await;
            ensure!(
                matches!(result, ConsumeResult::Concurrently(_)),
                "a call did not finish: {result:?}"
            );
            if number == calls / 10 {
                at_a_tenth = held()?;
            }
        }
        let each = 1e6 / f64::from(calls);
        let cpu = (machine::thread_cpu() - cpu_before).as_secs_f64() * each;
        let wall = began.elapsed().as_secs_f64() * each;
        let (mib, mappings) = held()?;
        report.add(
            name,
            vec![
                ("CPU us/call", cpu),
                ("wall us/call", wall),
                ("MiB", mib),
                ("mappings", mappings),
            ],
        );
        if place == 0 {
            report.judge(
                format!("MiB more after {calls} calls than after a tenth of them"),
                mib - at_a_tenth.0,
                Target::AtMost(GROWTH_MIB_MAX),
            );
            report.judge(
                format!("mappings more after {calls} calls than after a tenth of them"),
                mappings - at_a_tenth.1,
                Target::AtMost(GROWTH_MAPPINGS_MAX),
            );
        }
    }
    for name in GUESTS {
        let guest = Guest::compile(&engine, name).await?;
        let (warm, _) = guest.load_with(|_| {}).await?;
        let request = messages::request(1, 1)?;
        let time = options.pick(20, 200);
        let time = std::time::Duration::from_millis(time);
        let sample = crate::wall::round(&*warm, &request, time).await?;
        let cpu = sample.iter().find(|(column, _)| *column == "cpu");
        let cpu = cpu.map_or(f64::NAN, |(_, nanoseconds)| nanoseconds / 1e3);
        let more = report.median(name, "CPU us/call") - cpu;
        report.note(
            format!("{name}, more CPU us a call than a warm instance"),
            more,
        );
    }
    report.print()?;
    Ok(())
}

/// Resident MiB and mappings of this process.
fn held() -> Result<(f64, f64)> {
    let id = std::process::id();
    let (bytes, _) = machine::memory_and_threads_of(id).context("no /proc")?;
    let mappings = machine::mappings_of(id).context("no /proc")?;
    #[expect(clippy::cast_precision_loss, reason = "MiB")]
    let mib = bytes as f64 / f64::from(1 << 20);
    #[expect(clippy::cast_precision_loss, reason = "a count")]
    let mappings = mappings as f64;
    Ok((mib, mappings))
}
