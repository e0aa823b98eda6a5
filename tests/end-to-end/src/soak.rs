//! Many tenants in one host for a while, some of them hostile: the healthy ones lose
//! nothing and get nothing twice, and the host's memory stays flat.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::eventually::eventually;
use crate::host_folder::HostFolder;
use crate::ledger;
use crate::workspace;

/// What a tenant is hostile with: its name, guest, manifest, and the body that provokes it.
pub const HOSTILE: [(&str, &str, &str, &str); 5] = [
    (
        "loops",
        "never_return",
        "[limits]\ncompute_time = \"500ms\"",
        "x",
    ),
    ("hoards", "grow_memory", "", "x"),
    ("talks", "flood_log", "", "x"),
    ("traps", "trap_on", "", "trap"),
    (
        "sleeps",
        "wait_forever",
        "[consume]\nconsume_timeout = \"1s\"",
        "x",
    ),
];

/// The ledger writes every message down.
const ALL_LINES: &str = "[limits]\nlog_lines_per_second = 1000000\nlog_bytes_per_call = \"1MiB\"";
/// Messages in one send.
const SEND_BATCH: usize = 20;
/// The last messages, after the sending has ended.
const SETTLE_MAX: Duration = Duration::from_secs(120);

/// How much, and for how long.
#[derive(Clone, Debug)]
pub struct Soak {
    /// Where the brokers are.
    pub namesrv_addr: String,
    /// Tenants that do what they should, beside the hostile ones.
    pub healthy_tenants: usize,
    /// Plugins of every tenant.
    pub plugins_each: usize,
    /// Of sending.
    pub duration: Duration,
}

/// What was seen.
#[derive(Clone, Debug)]
pub struct Soaked {
    /// To healthy plugins.
    pub sent: usize,
    /// Never delivered.
    pub lost: usize,
    /// Delivered more than once.
    pub repeated: usize,
    /// From before a send to the last of its messages, milliseconds; 50 and 99 of 100.
    pub latency_ms: (u128, u128),
    /// Resident memory in MiB: the mean of the second third, and of the last.
    pub resident_mib: (u64, u64),
    /// Calls of hostile plugins that were ended.
    pub kills: u64,
}

impl Soak {
    /// Runs it to its end.
    ///
    /// # Panics
    /// When a program cannot be started or a bound passes.
    pub fn run(&self, guest: impl Fn(&str) -> std::path::PathBuf) -> Soaked {
        let mut folder = HostFolder::new(&self.namesrv_addr, "drain_timeout = \"1s\"").with_plugin(
            "test-0",
            &guest("ledger"),
            ALL_LINES,
        );
        let mut healthy = vec!["test-0".to_owned()];
        for tenant in 0..self.healthy_tenants {
            let tenant = format!("healthy-{tenant}");
            folder = folder.with_empty_tenant(&tenant, &self.namesrv_addr);
            for plugin in 0..self.plugins_each {
                let name = format!("{tenant}-{plugin}");
                folder = folder.with_plugin_of(&tenant, &name, &guest("ledger"), ALL_LINES);
                healthy.push(name);
            }
        }
        let mut hostile = Vec::new();
        for (tenant, component, more, body) in HOSTILE {
            folder = folder.with_empty_tenant(tenant, &self.namesrv_addr);
            for plugin in 0..self.plugins_each {
                let name = format!("{tenant}-{plugin}");
                folder = folder.with_plugin_of(tenant, &name, &guest(component), more);
                hostile.push((name, body));
            }
        }
        let plugins = healthy.len() + hostile.len();
        let mut host = folder.run(&[]);
        host.wait_for_line(&format!("serving {plugins} plugins"), SETTLE_MAX);

        let started = Instant::now();
        let mut sent = 0;
        let mut resident = Vec::new();
        let mut asked: BTreeMap<String, Instant> = BTreeMap::new();
        for turn in 0.. {
            if started.elapsed() >= self.duration {
                break;
            }
            let (topic, body) = &hostile[turn % hostile.len()];
            self.send(topic, &vec![(*body).to_owned(); SEND_BATCH]);
            for offset in 0..2 {
                let topic = &healthy[(turn * 2 + offset) % healthy.len()];
                let bodies: Vec<String> =
                    (0..SEND_BATCH).map(|n| format!("m{}", sent + n)).collect();
                let at = Instant::now();
                self.send(topic, &bodies);
                asked.extend(bodies.into_iter().map(|body| (body, at)));
                sent += SEND_BATCH;
            }
            resident.push(resident_mib(host.id()));
        }
        eventually("the last of the healthy messages", SETTLE_MAX, || {
            (host.delivery_count() >= sent).then_some(())
        });

        let deliveries = host.timed_deliveries();
        let counts = ledger::counts(deliveries.iter().map(|(_, delivery)| delivery));
        let mut latencies: Vec<u128> = deliveries
            .iter()
            .filter_map(|(at, delivery)| {
                let asked = asked.get(&delivery.body)?;
                Some(at.duration_since(*asked).as_millis())
            })
            .collect();
        latencies.sort_unstable();
        let latency = |percent: usize| {
            let place = latencies.len() * percent / 100;
            latencies.get(place).copied().unwrap_or(0)
        };
        let third = resident.len() / 3;
        let mean = |part: &[u64]| part.iter().sum::<u64>() / (part.len().max(1) as u64);
        let soaked = Soaked {
            sent,
            lost: asked
                .keys()
                .filter(|body| !counts.contains_key(body.as_str()))
                .count(),
            repeated: counts.values().filter(|count| **count > 1).count(),
            latency_ms: (latency(50), latency(99)),
            resident_mib: (
                mean(&resident[third..2 * third]),
                mean(&resident[2 * third..]),
            ),
            kills: kills(folder.path()),
        };
        host.interrupt();
        host.wait(SETTLE_MAX);
        soaked
    }

    fn send(&self, topic: &str, bodies: &[String]) {
        let mut process =
            crate::embedded_broker::send(&["send", topic, "--namesrv-addr", &self.namesrv_addr]);
        process.write(&(bodies.join("\n") + "\n"));
        process.close_stdin();
        let status = process.wait(SETTLE_MAX);
        assert!(status.success(), "{status}: {:?}", process.lines());
    }
}

/// Ended phases of all plugins, as `mqlet usage` counts them.
fn kills(folder: &Path) -> u64 {
    let output = Command::new(workspace::mqlet())
        .arg("usage")
        .current_dir(folder)
        .output()
        .expect("mqlet can be started");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let tenants = text.lines().filter(|line| line.starts_with("tenant"));
    tenants
        .filter_map(|line| line.split_whitespace().last()?.parse::<u64>().ok())
        .sum()
}

fn resident_mib(process: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok());
    kibibytes.unwrap_or(0) / 1024
}
