//! Writes down what happens to plugins: in their books what serves and what is refused,
//! in the ledger everything. A book knows where it happens; it is written by one thread,
//! since disks may be slow. What comes faster than it can be written is left out of the
//! ledger, and that is said; of a book the newest page is written.

use std::collections::BTreeMap;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use plugin_lifecycle::event::{Observer, SwitchReport};
use plugin_lifecycle::{Event, EventKind, QueueTrace, RevisionId};
use tracing::{error, warn};

use super::Hosted;
use crate::revisions::ledger::{Entry, Ledger, QueueEntry, StepTime, SwitchEntry};
use crate::revisions::now_ms;
use crate::revisions::shared_book::SharedBook;

/// Events that wait for the disk.
const WAITING_MAX: usize = 4096;
/// Queues of one switch that are written down.
const QUEUES_MAX: usize = 1000;

/// See the module. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Journal {
    send: SyncSender<Told>,
    known: Known,
    unwritten: Unwritten,
}

type Key = (Arc<str>, String);

/// By tenant and name; held for a look.
type Known = Arc<Mutex<BTreeMap<Key, Weak<Hosted>>>>;

/// Books that know more than their files; held for an entry.
type Unwritten = Arc<Mutex<BTreeMap<Key, SharedBook>>>;

enum Told {
    Event(Arc<str>, Event),
    Removed(Arc<str>, String, String),
    End,
}

/// Its thread.
#[derive(Debug)]
pub(crate) struct JournalThread(Option<(SyncSender<Told>, JoinHandle<()>)>);

impl Journal {
    /// Starts writing. Without a ledger only the books are kept.
    pub(crate) fn start(ledger: Option<Ledger>) -> (Self, JournalThread) {
        let (send, told) = sync_channel(WAITING_MAX);
        let (known, unwritten) = (Known::default(), Unwritten::default());
        let journal = Self {
            send: send.clone(),
            known: Arc::clone(&known),
            unwritten: Arc::clone(&unwritten),
        };
        let started = std::thread::Builder::new()
            .name("mqlet-journal".to_owned())
            .spawn(move || {
                let mut writing = Writing {
                    known,
                    unwritten,
                    ledger,
                    is_failing: false,
                };
                while let Ok(told) = told.recv() {
                    let is_last = matches!(told, Told::End);
                    writing.books();
                    writing.line(told);
                    if is_last {
                        return;
                    }
                }
            });
        let thread = match started {
            Ok(thread) => Some((send, thread)),
            Err(error) => {
                error!(target: "mqlet", "nothing is written to the ledger: {error}");
                None
            }
        };
        (journal, JournalThread(thread))
    }

    /// For the plugins of a tenant.
    pub(super) fn observer(&self, tenant: &Arc<str>) -> Observer {
        let (journal, tenant) = (self.clone(), Arc::clone(tenant));
        Arc::new(move |event: &Event| {
            if is_kept(&event.kind) {
                journal.note(&tenant, event);
                journal.tell(Told::Event(Arc::clone(&tenant), event.clone()));
            }
        })
    }

    /// Whose book it is.
    pub(super) fn know(&self, hosted: &Arc<Hosted>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, one| one.strong_count() > 0);
        let key = (Arc::clone(hosted.tenant_name()), hosted.name().to_owned());
        known.insert(key, Arc::downgrade(hosted));
    }

    /// Its book knows at once.
    fn note(&self, tenant: &Arc<str>, event: &Event) {
        let key = (Arc::clone(tenant), event.plugin.to_string());
        if let Some(hosted) = hosted(&self.known, &key)
            && let Some(book) = hosted.note(&event.kind)
        {
            let mut unwritten = self
                .unwritten
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            unwritten.insert(key, book);
        }
    }

    pub(super) fn removed(&self, hosted: &Hosted, by: &str) {
        let tenant = Arc::clone(hosted.tenant_name());
        self.tell(Told::Removed(
            tenant,
            hosted.name().to_owned(),
            by.to_owned(),
        ));
    }

    fn tell(&self, told: Told) {
        if self.send.try_send(told).is_err() {
            warn!(target: "mqlet", "the disk is too slow for the ledger: an entry is left out");
        }
    }
}

impl JournalThread {
    /// Writes what was told so far, and ends. Blocks.
    pub(crate) fn end(mut self) {
        if let Some((send, thread)) = self.0.take() {
            // A thread that is gone has ended.
            let _ = send.send(Told::End);
            let _ = thread.join();
        }
    }
}

fn is_kept(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::Activated { .. }
            | EventKind::Switched(_)
            | EventKind::DeployFailed { .. }
            | EventKind::RolledBack { .. }
            | EventKind::CanaryStarted { .. }
            | EventKind::CanaryAborted { .. }
            | EventKind::ShadowStarted { .. }
            | EventKind::ShadowEnded { .. }
    )
}

fn hosted(known: &Known, key: &Key) -> Option<Arc<Hosted>> {
    let known = known.lock().unwrap_or_else(PoisonError::into_inner);
    known.get(key).and_then(Weak::upgrade)
}

/// What the thread has.
struct Writing {
    known: Known,
    unwritten: Unwritten,
    ledger: Option<Ledger>,
    /// The ledger does not take lines.
    is_failing: bool,
}

impl Writing {
    /// The newest page of each that has changed.
    fn books(&self) {
        let unwritten = {
            let mut unwritten = self
                .unwritten
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *unwritten)
        };
        for ((tenant, plugin), book) in unwritten {
            book.write_or_warn(&tenant, &plugin);
        }
    }

    fn line(&mut self, told: Told) {
        let entry = match told {
            Told::End => return,
            Told::Removed(tenant, plugin, by) => Entry {
                by: Some(by),
                ..blank(&tenant, &plugin, "removed")
            },
            Told::Event(tenant, event) => {
                let key = (Arc::clone(&tenant), event.plugin.to_string());
                let hosted = hosted(&self.known, &key);
                let Some(entry) = entry(&tenant, &event, hosted.as_deref()) else {
                    return;
                };
                entry
            }
        };
        let Some(ledger) = &mut self.ledger else {
            return;
        };
        match ledger.append(&entry) {
            Ok(()) => self.is_failing = false,
            // Once, until it works again.
            Err(error) if !self.is_failing => {
                self.is_failing = true;
                error!(target: "mqlet", "the ledger has a gap: {error:#}");
            }
            Err(_) => {}
        }
    }
}

/// What stands in the ledger.
fn entry(tenant: &str, event: &Event, hosted: Option<&Hosted>) -> Option<Entry> {
    let number_of = |revision: RevisionId| hosted?.number_of(revision);
    let of = |what: &str, revision: RevisionId| Entry {
        number: number_of(revision),
        revision: Some(revision.to_string()),
        ..blank(tenant, &event.plugin, what)
    };
    Some(match &event.kind {
        EventKind::Switched(report) => Entry {
            before: report.before.map(|before| before.to_string()),
            by: Some(report.by.to_string()),
            component: Some(report.component.to_string()),
            steps: steps(report),
            switch: Some(switch(report)),
            ..of("switched", report.revision)
        },
        EventKind::DeployFailed { step, reason, .. } => Entry {
            reason: Some(format!("{step}: {reason}")),
            ..blank(tenant, &event.plugin, "failed")
        },
        EventKind::RolledBack {
            revision,
            to,
            reason,
        } => Entry {
            by: Some("automatic rollback".to_owned()),
            before: Some(revision.to_string()),
            reason: Some(reason.clone()),
            ..of("rolled-back", *to)
        },
        EventKind::CanaryStarted { revision, .. } => of("canary-started", *revision),
        EventKind::ShadowStarted { revision, .. } => of("shadow-started", *revision),
        EventKind::ShadowEnded {
            revision, reason, ..
        } => Entry {
            reason: Some(reason.clone()),
            ..of("shadow-ended", *revision)
        },
        EventKind::CanaryAborted {
            revision, reason, ..
        } => Entry {
            reason: Some(reason.clone()),
            ..of("canary-aborted", *revision)
        },
        _ => return None,
    })
}

fn blank(tenant: &str, plugin: &str, what: &str) -> Entry {
    Entry {
        at_ms: now_ms(),
        tenant: tenant.to_owned(),
        plugin: plugin.to_owned(),
        what: what.to_owned(),
        ..Entry::default()
    }
}

fn steps(report: &SwitchReport) -> Vec<StepTime> {
    let steps = report.steps.iter().map(|(step, took)| StepTime {
        step: step.to_string(),
        ms: millis(*took),
    });
    steps.collect()
}

fn switch(report: &SwitchReport) -> SwitchEntry {
    let mut queues: BTreeMap<String, QueueEntry> = BTreeMap::new();
    let mut entry = |trace: &QueueTrace, edit: &dyn Fn(&mut QueueEntry)| {
        let queue = trace.queue.to_string();
        if queues.len() < QUEUES_MAX || queues.contains_key(&queue) {
            let entry = queues.entry(queue.clone()).or_insert(QueueEntry {
                queue,
                old_finished: None,
                new_given: None,
            });
            edit(entry);
        }
    };
    for trace in &report.queues_before {
        entry(trace, &|entry| entry.old_finished = trace.last_finished);
    }
    for trace in &report.queues {
        entry(trace, &|entry| entry.new_given = trace.first_given);
    }
    SwitchEntry {
        in_flight: report.in_flight,
        drained_after_ms: millis(report.drained_after),
        first_call_after_ms: report.first_call_after.map(millis),
        repeats: report.queues.iter().map(|trace| trace.repeats).sum(),
        queues: queues.into_values().collect(),
    }
}

/// To a thousandth.
fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}
