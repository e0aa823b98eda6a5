//! Who is compared, and the account of a kind.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use end_to_end::host_process::HostProcess;
use interop::account::Seen;
use interop::host::{self, HostSettings};
use interop::java;
use tempfile::TempDir;

/// The topic of every trial.
pub(crate) const TOPIC: &str = "Sound";

/// Whose client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Java,
    Mqlet,
}

impl Kind {
    pub(crate) const BOTH: [Self; 2] = [Self::Java, Self::Mqlet];

    /// Its group.
    pub(crate) fn group(self) -> &'static str {
        match self {
            Self::Java => "java-group",
            Self::Mqlet => "mqlet-group",
        }
    }
}

/// Starts members; keeps their folders.
pub(crate) struct Members {
    component: PathBuf,
    folders: Vec<TempDir>,
}

impl Members {
    pub(crate) fn new() -> Self {
        Self {
            component: guest_artifacts::path("ledger"),
            folders: Vec::new(),
        }
    }

    /// A member of its kind's group.
    pub(crate) fn start(&mut self, kind: Kind, namesrv_addr: &str) -> HostProcess {
        match kind {
            Kind::Java => HostProcess::spawn(&mut java::program(
                "Member",
                &[namesrv_addr, kind.group(), TOPIC, "AVG"],
            )),
            Kind::Mqlet => {
                let folder = tempfile::tempdir().expect("a temporary folder");
                let settings = HostSettings {
                    component: &self.component,
                    namesrv_addr,
                    consumer_group: kind.group(),
                    topic: TOPIC,
                    consume: "",
                };
                let process = host::start(folder.path(), &settings);
                self.folders.push(folder);
                process
            }
        }
    }
}

/// Everything that any of these consumed.
pub(crate) fn seen(members: &[HostProcess]) -> Vec<Seen> {
    let all = members.iter().flat_map(HostProcess::timed_deliveries);
    all.collect()
}

/// The bodies of it.
pub(crate) fn bodies(members: &[HostProcess]) -> BTreeSet<String> {
    let all = seen(members).into_iter();
    all.map(|(_, delivery)| delivery.body).collect()
}

/// The most memory a process had, in MiB.
pub(crate) fn peak_memory(process: &HostProcess) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

/// In seconds, for a table.
pub(crate) fn seconds(duration: Option<Duration>) -> String {
    duration.map_or("never".to_owned(), |duration| {
        format!("{:.1} s", duration.as_secs_f64())
    })
}
