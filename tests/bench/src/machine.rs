//! What the operating system knows: CPU time and memory of threads and processes, load.
//! Linux alone.

use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// CPU time of the calling thread.
pub(crate) fn thread_cpu() -> Duration {
    clock(ClockId::ThreadCPUTime)
}

/// CPU time of this process, all threads that live or lived.
pub(crate) fn process_cpu() -> Duration {
    clock(ClockId::ProcessCPUTime)
}

fn clock(id: ClockId) -> Duration {
    let time = clock_gettime(id);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

/// CPU time of another process, in steps of 10 ms; `None` when it is gone.
pub(crate) fn cpu_of(process: u32) -> Option<Duration> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in parentheses, may have blanks.
    let (_, fields) = text.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let ticks: u64 = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    // USER_HZ is 100 on every Linux there is.
    Some(Duration::from_millis(ticks * 10))
}

/// The most memory that a process ever had resident, bytes; `None` when it is gone.
pub(crate) fn peak_memory_of(process: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// Resident memory in bytes and threads of a process; `None` when it is gone.
pub(crate) fn memory_and_threads_of(process: u32) -> Option<(u64, u32)> {
    let text = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let kibibytes: u64 = field("VmRSS:")?
        .trim()
        .strip_suffix("kB")?
        .trim()
        .parse()
        .ok()?;
    Some((kibibytes * 1024, field("Threads:")?.trim().parse().ok()?))
}

/// Mappings of a process's memory; `None` when it is gone.
pub(crate) fn mappings_of(process: u32) -> Option<usize> {
    let text = fs::read_to_string(format!("/proc/{process}/maps")).ok()?;
    Some(text.lines().count())
}

/// Runnable processes, mean of the last minute; this program is one of them.
pub(crate) fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split_whitespace().next();
    first.and_then(|load| load.parse().ok()).unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_process_is_seen_from_outside() {
        let id = std::process::id();
        assert!(cpu_of(id).is_some());
        assert!(peak_memory_of(id).is_some_and(|bytes| bytes > 100_000));
        assert!(load() >= 0.0);
    }
}
