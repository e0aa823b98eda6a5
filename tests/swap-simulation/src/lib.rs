//! Plugins that are replaced all the while, in the simulated cluster of `simulation`: the
//! real rules, the real lifecycle machine, and a host in between that does what the machine
//! asks for. Swaps come at random moments, beside rebalances, crashes and lost locks.
//!
//! What must hold beside what holds anyway (nothing is lost, order is kept, everything
//! settles): a call always finds a revision; that one was warmed up and is not gone; a queue
//! in order has one revision at a time; what was replaced ends within its deadline; what was
//! taken back does not come back by itself; the newest wins. `plugin.rs` is one plugin of one
//! process, `host.rs` all of them.

mod host;
mod plugin;

use std::sync::{Arc, Mutex};

use plugin_lifecycle::lifecycle::PlantedBug;
use simulation::{History, Summary, Violation};

/// How often what the runs are about has happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Revisions that took the calls over.
    pub switches: u64,
    /// Of those, from warm.
    pub revived: u64,
    /// Canaries.
    pub canaries: u64,
    /// Revisions taken back by themselves.
    pub taken_back: u64,
    /// Calls that were ended at a drain deadline.
    pub killed: u64,
    /// Switches with calls under way.
    pub under_way: u64,
}

/// Runs one seed, with a bug planted in every lifecycle if one is given.
///
/// # Errors
/// What did not hold.
pub fn run(
    seed: u64,
    bug: Option<PlantedBug>,
    history: &History,
) -> Result<(Summary, Counts), Box<Violation>> {
    let counts = Arc::new(Mutex::new(Counts::default()));
    let host = host::Hosts::new(seed, bug, Arc::clone(&counts));
    let summary = simulation::run_with(seed, Box::new(host), history)?;
    let counts = *counts
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    Ok((summary, counts))
}
