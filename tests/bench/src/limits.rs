//! What the limits cost: the same guests with every guard, and with none.
//!
//! Off are the epoch checks in the guest's code and their callback, the clocks around a
//! call, and the bounds of the store. No manifest or flag of the product can switch them
//! off.

use std::time::Duration;

use anyhow::Result;
use wasm::Guards;

use crate::listener::Guest;
use crate::report::{Report, Target};
use crate::wall::round;
use crate::{Options, listener, messages};

/// Nothing at all, a parser's loop, SHA-256.
const GUESTS: [&str; 3] = ["succeed", "compute", "compute_hash"];

/// With limits, as a multiple of without.
const TIMES_MAX: f64 = 1.05;

pub(crate) fn run(options: &Options) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let with = listener::engine(|_| {})?;
    let without = listener::engine(|config| config.guards = Guards::OffForBenchmarks)?;
    let mut subjects = Vec::new();
    for guest in GUESTS {
        for (engine, state) in [(&with, "on"), (&without, "off")] {
            let compiled = runtime.block_on(Guest::compile(engine, guest))?;
            subjects.push((format!("{guest}, limits {state}"), compiled));
        }
    }
    // One message a call shows what is paid for the call, not for its messages.
    for messages in [32, 1] {
        let title = format!("limits, {messages} messages of 1 KiB a call");
        let mut report = Report::new(&title, "ns for one message");
        let request = messages::request(messages, 32)?;
        for _ in 0..options.rounds() {
            for (name, compiled) in &subjects {
                let listener = runtime.block_on(compiled.load())?;
                let time = options.pick(Duration::from_millis(20), Duration::from_millis(200));
                let sample = runtime.block_on(round(&*listener, &request, time))?;
                report.add(name, sample);
            }
        }
        for guest in GUESTS {
            let (on, off) = (
                format!("{guest}, limits on"),
                format!("{guest}, limits off"),
            );
            let times = report.paired((&on, &off), "cpu", |on, off| on / off);
            let what = format!("{guest}: CPU with limits / without");
            match messages {
                1 => report.note(what, times),
                _ => report.judge(what, times, Target::AtMost(TIMES_MAX)),
            }
        }
        report.print()?;
    }
    Ok(())
}
