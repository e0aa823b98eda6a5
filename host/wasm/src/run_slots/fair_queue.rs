//! Whose turn it is: pure rules of a weighted fair queue over tenants.
//!
//! Each tenant has a virtual time: the CPU time its guests were charged, divided by its
//! weight. A free slot goes to the waiting tenant with the least of it, within a tenant to
//! the call that waited longest. A tenant that comes back from being idle starts where the
//! busy ones are, so that idling saves nothing; what it owes it still owes.
//!
//! What nobody else wanted is owed to nobody: when all are idle they are even, and a tenant
//! that had free slots to itself is never further ahead of one that waits than
//! [`LEAD_MAX`].

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU32;

use crate::tenant::TenantId;

/// How far a tenant may be ahead of one that waits, in virtual time: 100 ms of CPU time of
/// a tenant with the default weight, and one tick of one with the smallest.
const LEAD_MAX: u128 = 100_000_000 * (10_000 / 100);

/// Accounts at which those that say nothing are looked for and dropped.
const ACCOUNTS_SWEPT_MIN: usize = 64;

/// Names a call that waits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Ticket(u64);

/// The slots, who has them and who waits.
#[derive(Debug)]
pub(super) struct FairQueue {
    free: usize,
    waiting: usize,
    next_ticket: u64,
    accounts: BTreeMap<TenantId, Account>,
    /// No busy tenant is behind this.
    virtual_time: u128,
    sweep_at: usize,
}

#[derive(Debug, Default)]
struct Account {
    virtual_time: u128,
    running: usize,
    waiting: VecDeque<Ticket>,
}

impl Account {
    fn is_busy(&self) -> bool {
        self.running > 0 || !self.waiting.is_empty()
    }
}

impl FairQueue {
    pub(super) fn new(slots: usize) -> Self {
        Self {
            free: slots,
            waiting: 0,
            next_ticket: 0,
            accounts: BTreeMap::new(),
            virtual_time: 0,
            sweep_at: ACCOUNTS_SWEPT_MIN,
        }
    }

    /// Calls that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Takes a slot if one is free; then nobody waits.
    pub(super) fn try_acquire(&mut self, tenant: TenantId) -> bool {
        if self.free == 0 {
            return false;
        }
        debug_assert_eq!(self.waiting, 0, "a free slot while calls wait");
        self.free -= 1;
        self.busy(tenant).running += 1;
        true
    }

    /// Waits in its tenant's line.
    pub(super) fn enqueue(&mut self, tenant: TenantId) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.waiting += 1;
        let account = self.busy(tenant);
        account.waiting.push_back(ticket);
        if account.waiting.len() == 1 {
            let most = account.virtual_time + LEAD_MAX;
            for other in self.accounts.values_mut() {
                other.virtual_time = other.virtual_time.min(most);
            }
        }
        ticket
    }

    /// Leaves the line. False: it was not in it any more.
    pub(super) fn cancel(&mut self, tenant: TenantId, ticket: Ticket) -> bool {
        let Some(account) = self.accounts.get_mut(&tenant) else {
            return false;
        };
        let before = account.waiting.len();
        account.waiting.retain(|waiting| *waiting != ticket);
        let left = before - account.waiting.len();
        self.waiting -= left;
        left > 0
    }

    /// Charges CPU time, in nanoseconds, to a tenant that has a slot.
    pub(super) fn charge(&mut self, tenant: TenantId, weight: NonZeroU32, used: u64) {
        let account = self.busy(tenant);
        // Weights are at most 10,000: nothing that matters is lost by the division.
        account.virtual_time += u128::from(used) * 10_000 / u128::from(weight.get());
        if self.waiting == 0 {
            return;
        }
        let waiting = self.accounts.values();
        let waiting = waiting.filter(|account| !account.waiting.is_empty());
        let least = waiting.map(|account| account.virtual_time).min();
        if let Some(least) = least
            && let Some(account) = self.accounts.get_mut(&tenant)
        {
            account.virtual_time = account.virtual_time.min(least + LEAD_MAX);
        }
    }

    /// Whether a call that holds a slot should hand it on: somebody waits who had less, or
    /// another call of its own tenant does.
    pub(super) fn must_give_way(&self, tenant: TenantId) -> bool {
        let Some(own) = self.accounts.get(&tenant) else {
            return false;
        };
        self.waiting > 0
            && self
                .accounts
                .values()
                .any(|other| !other.waiting.is_empty() && other.virtual_time <= own.virtual_time)
    }

    /// Gives a slot back; answers the call that has it now.
    pub(super) fn release(&mut self, tenant: TenantId) -> Option<Ticket> {
        if let Some(account) = self.accounts.get_mut(&tenant) {
            debug_assert!(account.running > 0, "given back more slots than were taken");
            account.running = account.running.saturating_sub(1);
        }
        let waiting = self.accounts.values_mut();
        let next = waiting
            .filter(|account| !account.waiting.is_empty())
            .min_by_key(|account| account.virtual_time);
        let ticket = next.and_then(|account| {
            account.running += 1;
            account.waiting.pop_front()
        });
        match ticket {
            Some(_) => self.waiting -= 1,
            None => self.free += 1,
        }
        ticket
    }

    /// The account of a tenant that wants or has a slot.
    fn busy(&mut self, tenant: TenantId) -> &mut Account {
        let is_busy = self.accounts.get(&tenant).is_some_and(Account::is_busy);
        if !is_busy {
            let busy = self.accounts.values().filter(|account| account.is_busy());
            let least = busy.map(|account| account.virtual_time).min();
            let all = self.accounts.values().map(|account| account.virtual_time);
            let start = least.or_else(|| all.max()).unwrap_or(0);
            self.virtual_time = self.virtual_time.max(start);
            self.sweep();
        }
        let virtual_time = self.virtual_time;
        let account = self.accounts.entry(tenant).or_default();
        if !is_busy {
            account.virtual_time = account.virtual_time.max(virtual_time);
        }
        account
    }

    /// An idle tenant that owes nothing is as good as an unknown one.
    fn sweep(&mut self) {
        if self.accounts.len() < self.sweep_at {
            return;
        }
        let virtual_time = self.virtual_time;
        self.accounts
            .retain(|_, account| account.is_busy() || account.virtual_time > virtual_time);
        self.sweep_at = (self.accounts.len() * 2).max(ACCOUNTS_SWEPT_MIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: u64 = 1_000_000;

    fn weight(weight: u32) -> NonZeroU32 {
        NonZeroU32::new(weight).unwrap()
    }

    /// Tenants whose calls compute without end, so many calls each.
    struct Spinning {
        queue: FairQueue,
        weights: Vec<NonZeroU32>,
        had: Vec<u64>,
        running: VecDeque<usize>,
        owners: BTreeMap<Ticket, usize>,
    }

    impl Spinning {
        fn new(slots: usize, tenants: &[(u32, usize)]) -> Self {
            let mut all = Self {
                queue: FairQueue::new(slots),
                weights: Vec::new(),
                had: Vec::new(),
                running: VecDeque::new(),
                owners: BTreeMap::new(),
            };
            for &(weight, calls) in tenants {
                all.join(weight, calls);
            }
            all
        }

        fn join(&mut self, share: u32, calls: usize) {
            let tenant = self.weights.len();
            self.weights.push(weight(share));
            self.had.push(0);
            for _ in 0..calls {
                self.want(tenant);
            }
        }

        fn want(&mut self, tenant: usize) {
            let id = TenantId(tenant as u64);
            if self.queue.try_acquire(id) {
                self.running.push_back(tenant);
            } else {
                let ticket = self.queue.enqueue(id);
                self.owners.insert(ticket, tenant);
            }
        }

        /// One slot's tick; the call goes on afterwards.
        fn tick(&mut self) -> usize {
            let tenant = self.running.pop_front().expect("somebody runs");
            let id = TenantId(tenant as u64);
            self.had[tenant] += TICK;
            self.queue.charge(id, self.weights[tenant], TICK);
            if self.queue.must_give_way(id) {
                let next = self.queue.release(id).expect("somebody waits");
                let owner = self.owners.remove(&next).expect("known");
                self.running.push_back(owner);
                self.want(tenant);
            } else {
                self.running.push_back(tenant);
            }
            tenant
        }

        fn ticks(&mut self, ticks: usize) {
            for _ in 0..ticks {
                self.tick();
            }
        }

        fn share(&self, tenant: usize) -> f64 {
            let total: u64 = self.had.iter().sum();
            self.had[tenant] as f64 / total as f64
        }
    }

    fn about(share: f64, wanted: f64) -> bool {
        (share - wanted).abs() < 0.01
    }

    #[test]
    fn many_calls_get_no_more_than_one() {
        let mut spinning = Spinning::new(1, &[(100, 1), (100, 20)]);
        spinning.ticks(1_000);
        assert!(about(spinning.share(0), 0.5), "{:?}", spinning.had);
    }

    #[test]
    fn shares_follow_weights() {
        let mut spinning = Spinning::new(2, &[(100, 4), (200, 4), (100, 4)]);
        spinning.ticks(4_000);
        assert!(about(spinning.share(0), 0.25), "{:?}", spinning.had);
        assert!(about(spinning.share(1), 0.5), "{:?}", spinning.had);
    }

    #[test]
    fn what_one_tenant_does_not_want_the_others_have() {
        // One call cannot have more than one of three slots.
        let mut spinning = Spinning::new(3, &[(10_000, 1), (1, 5)]);
        spinning.ticks(3_000);
        assert!(about(spinning.share(0), 1.0 / 3.0), "{:?}", spinning.had);
    }

    #[test]
    fn tenant_that_was_idle_has_saved_nothing() {
        let mut spinning = Spinning::new(1, &[(100, 3)]);
        spinning.ticks(10_000);
        spinning.had[0] = 0;
        spinning.join(100, 3);
        spinning.ticks(1_000);
        assert!(about(spinning.share(1), 0.5), "{:?}", spinning.had);
    }

    #[test]
    fn tenant_that_goes_and_comes_at_once_still_owes_what_it_had() {
        let mut queue = FairQueue::new(1);
        let (greedy, other) = (TenantId(0), TenantId(1));
        assert!(queue.try_acquire(greedy));
        let waits = queue.enqueue(other);
        queue.charge(greedy, weight(100), 50 * TICK);
        assert_eq!(queue.release(greedy), Some(waits));
        // Idle for a moment, with 50 ticks more than the other had.
        queue.enqueue(greedy);
        queue.charge(other, weight(100), 10 * TICK);
        assert!(!queue.must_give_way(other));
        queue.charge(other, weight(100), 40 * TICK);
        assert!(queue.must_give_way(other));
    }

    #[test]
    fn tenant_that_was_alone_and_idle_between_its_calls_owes_nobody() {
        let mut queue = FairQueue::new(1);
        let (old, new) = (TenantId(0), TenantId(1));
        for _ in 0..10_000 {
            assert!(queue.try_acquire(old));
            queue.charge(old, weight(100), TICK);
            assert_eq!(queue.release(old), None);
        }
        assert!(queue.try_acquire(new));
        let waits = queue.enqueue(old);
        queue.charge(new, weight(100), TICK);
        assert!(queue.must_give_way(new), "after a tick, as among equals");
        assert_eq!(queue.release(new), Some(waits));
    }

    #[test]
    fn tenant_that_used_free_slots_owes_no_more_than_a_moment() {
        let mut spinning = Spinning::new(4, &[(100, 1), (100, 3)]);
        spinning.ticks(40_000);
        spinning.had = vec![0; 2];
        spinning.join(100, 8);
        spinning.ticks(4_000);
        // The first has no second call; the others share what it leaves.
        let greedy = spinning.share(1);
        assert!((0.3..0.45).contains(&greedy), "{:?}", spinning.had);
    }

    #[test]
    fn within_a_tenant_a_slot_goes_to_who_waited_longest() {
        let mut queue = FairQueue::new(1);
        let tenant = TenantId(0);
        assert!(queue.try_acquire(tenant));
        let first = queue.enqueue(tenant);
        let second = queue.enqueue(tenant);
        assert!(queue.must_give_way(tenant));
        assert_eq!(queue.release(tenant), Some(first));
        assert!(queue.cancel(tenant, second));
        assert!(!queue.cancel(tenant, second), "it is gone");
        assert_eq!(queue.release(tenant), None);
        assert!(queue.try_acquire(tenant));
    }

    #[test]
    fn tenants_that_went_leave_nothing_behind() {
        let mut queue = FairQueue::new(1);
        for tenant in 0..100_000 {
            let id = TenantId(tenant);
            assert!(queue.try_acquire(id));
            assert_eq!(queue.release(id), None);
        }
        assert!(
            queue.accounts.len() <= ACCOUNTS_SWEPT_MIN,
            "{}",
            queue.accounts.len()
        );
    }
}
