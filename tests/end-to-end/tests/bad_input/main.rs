//! What comes from outside and is wrong: peers, messages, components, files. Each gets
//! one clear message; nothing panics, hangs, or takes its neighbours with it.

mod broker;
mod message;
mod name_server;
mod refused;
mod topic;

use std::fs;

use end_to_end::embedded_broker::BOUND;
use end_to_end::host_process::HostProcess;

/// More than a host of these tests needs, and less than what hostile peers send it.
const MEMORY_MAX_KIB: u64 = 300 * 1024;

/// The most memory that a process has used so far.
fn peak_memory_kib(process: &HostProcess) -> u64 {
    let status =
        fs::read_to_string(format!("/proc/{}/status", process.id())).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let value = line.and_then(|rest| rest.trim().strip_suffix(" kB"));
    value.and_then(|value| value.parse().ok()).expect("Linux")
}

/// Lines of this tenant's, as JSON.
fn lines_of(host: &HostProcess, tenant: &str) -> Vec<String> {
    let tenant = format!("\"tenant\":\"{tenant}\"");
    let mut lines = host.lines();
    lines.retain(|line| line.contains(&tenant));
    lines
}

/// Ends a host in order; it was never in a panic.
fn stop(mut host: HostProcess) {
    assert_no_panic(&host);
    host.interrupt();
    assert_eq!(host.wait(BOUND).code(), Some(0), "an ordered end");
    assert_no_panic(&host);
}

fn assert_no_panic(host: &HostProcess) {
    let lines = host.lines();
    let panicked = lines.iter().find(|line| line.contains("panicked"));
    assert_eq!(panicked, None);
}
