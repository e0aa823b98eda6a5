//! Many clients and brokers, one thread, virtual time, and everything that can go wrong.
//!
//! A run is a function of its seed. The real rules (`consumer`) talk to the real broker
//! logic (`embedded-broker`) over a network that delays, loses, repeats and cuts; members
//! come, crash, stall and leave; listeners are slow and fail. A `ledger` writes down what
//! brokers and listeners saw, and `invariants` says what must hold, at every step and
//! at the end, when everything is healed and must settle.
//!
//! Reading order: `cluster` (the loop), `setup`, `member` (one process), `network`, `servers`,
//! `faults`, `spoiled` and `swaps` (what goes wrong or changes), `workload`; `in_order`,
//! `broadcast`, `pull_tasks` and `assigned` (groups of other kinds); then `ledger`,
//! `invariants`, `recovery` and `handover`; `batch` runs many seeds; `plugins` for who brings
//! his own.

mod assigned;
pub mod batch;
mod broadcast;
mod clock;
mod cluster;
mod faults;
mod handover;
mod history;
mod holds;
mod in_order;
mod invariants;
mod ledger;
mod member;
mod network;
mod plugins;
mod pull_tasks;
mod recovery;
mod resets;
mod servers;
mod setup;
mod spoiled;
mod stored;
mod swaps;
mod workload;

pub use history::History;
pub use invariants::Violation;
pub use plugins::{Answered, PluginCall, Plugins};

use consumer::testing::PlantedBug;

/// What a run came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// Messages that brokers acknowledged.
    pub sent: usize,
    /// Messages handed to listeners.
    pub deliveries: u64,
    /// Deliveries of a message at a place where it had been done with.
    pub repeats: u64,
    /// Dead letters.
    pub dead: usize,
    /// Virtual seconds.
    pub seconds: u64,
    /// Things that happened.
    pub steps: u64,
    /// Of those that are easily never reached.
    pub kinds: Kinds,
}

/// How often what some checks are about has happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kinds {
    /// Answers to pulls damaged on their way.
    pub answers_damaged: u64,
    /// Answers to pulls too large for whoever asked.
    pub answers_too_large: u64,
    /// Queues that went on somewhere else because somebody moved them.
    pub seeks: u64,
    /// Times that queues were given by hand.
    pub assigns: u64,
    /// Members that changed a filter.
    pub filters_changed: u64,
    /// Queues unlocked while a member came or went though all was well.
    pub unlocked_in_drills: u64,
    /// Runs of guests of pull tasks.
    pub pull_task_runs: u64,
}

impl Kinds {
    fn add(&mut self, other: &Self) {
        self.answers_damaged += other.answers_damaged;
        self.answers_too_large += other.answers_too_large;
        self.seeks += other.seeks;
        self.assigns += other.assigns;
        self.filters_changed += other.filters_changed;
        self.unlocked_in_drills += other.unlocked_in_drills;
        self.pull_task_runs += other.pull_task_runs;
    }

    /// Each with its name for people.
    pub(crate) fn named(&self) -> [(&'static str, u64); 7] {
        [
            ("answers damaged", self.answers_damaged),
            ("answers too large", self.answers_too_large),
            ("seeks", self.seeks),
            ("assigns", self.assigns),
            ("filters changed", self.filters_changed),
            ("queues unlocked in drills", self.unlocked_in_drills),
            ("runs of pull tasks", self.pull_task_runs),
        ]
    }
}

impl Summary {
    fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.deliveries += other.deliveries;
        self.repeats += other.repeats;
        self.dead += other.dead;
        self.seconds += other.seconds;
        self.steps += other.steps;
        self.kinds.add(&other.kinds);
    }
}

/// Runs one seed, with a bug planted in every client if one is given.
///
/// # Errors
/// What did not hold.
pub fn run(
    seed: u64,
    bug: Option<PlantedBug>,
    history: &History,
) -> Result<Summary, Box<Violation>> {
    cluster::Cluster::new(seed, bug, history.clone()).run()
}

/// As [`run`], with plugins in the place of listeners that are always there.
///
/// # Errors
/// What did not hold.
pub fn run_with(
    seed: u64,
    plugins: Box<dyn Plugins>,
    history: &History,
) -> Result<Summary, Box<Violation>> {
    let mut cluster = cluster::Cluster::new(seed, None, history.clone());
    cluster.plugins = Some(plugins);
    cluster.run()
}
