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
//! `invariants`, `recovery` and `handover`; `batch` runs many seeds.

mod assigned;
pub mod batch;
mod broadcast;
mod clock;
mod cluster;
mod faults;
mod handover;
mod history;
mod in_order;
mod invariants;
mod ledger;
mod member;
mod network;
mod pull_tasks;
mod recovery;
mod resets;
mod servers;
mod setup;
mod spoiled;
mod swaps;
mod workload;

pub use history::History;
pub use invariants::Violation;

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
}

impl Summary {
    fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.deliveries += other.deliveries;
        self.repeats += other.repeats;
        self.dead += other.dead;
        self.seconds += other.seconds;
        self.steps += other.steps;
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
