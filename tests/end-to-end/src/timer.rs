//! A message that a plugin sends with a time of its own, on whatever broker.

use std::time::{Duration, Instant};

use crate::embedded_broker::{BOUND, send};
use crate::eventually::eventually;
use crate::host_folder::HostFolder;

/// Between sending and delivery.
const DELAY: Duration = Duration::from_secs(4);
/// RocketMQ's wheel rounds down to it.
const PRECISION: Duration = Duration::from_secs(1);

/// Runs a plugin that sends on what it gets, with a delay, and one that reads that.
///
/// # Panics
/// When the message comes too early or never, or a broker refuses it.
pub fn plugin_sends_and_the_message_comes_in_its_time(
    namesrv_addr: &str,
    guest: impl Fn(&str) -> std::path::PathBuf,
) {
    let grant = "[grants.producer]\ntopics = [\"timer-out\"]\n";
    let folder = HostFolder::new(namesrv_addr, "")
        .with_plugin("timer", &guest("send"), grant)
        .with_plugin("timer-out", &guest("ledger"), "");
    let mut host = folder.run(&[]);
    host.wait_for_line("serving 2 plugins", BOUND);
    let sent = Instant::now();
    let delay = format!("delay={}", DELAY.as_millis());
    let arguments = ["send", "timer", "late", "--property", &delay];
    let mut process = send(&[&arguments[..], &["--namesrv-addr", namesrv_addr]].concat());
    let status = process.wait(BOUND);
    assert!(status.success(), "{status}: {:?}", process.lines());
    let (at, delivery) = eventually("the late message", BOUND, || {
        host.timed_deliveries().into_iter().next()
    });
    assert_eq!(delivery.body, "late");
    let waited = at.duration_since(sent);
    assert!(waited >= DELAY - PRECISION, "it came after {waited:?}");
    host.interrupt();
    assert_eq!(host.wait(BOUND).code(), Some(0));
    assert_eq!(host.delivery_count(), 1);
}
