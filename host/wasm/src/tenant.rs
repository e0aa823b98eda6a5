//! What the plugins of one tenant share in this crate: their part of the CPU, their
//! budgets, and what each of them has used.
//!
//! A budget that is used up never fails a call: [`Tenant::over_budget`] says so to whoever
//! starts calls, and they begin later. Sending may overdraw its budget, which is paid off
//! before the next call. Memory may not: what does not fit is taken back, and the messages
//! of its call are not finished.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::instance_pool::InstancePool;
use crate::rate::Rate;
use crate::usage::{Usage, UsageSnapshot};

/// Weight of a tenant that says nothing.
pub const WEIGHT_DEFAULT: NonZeroU32 = NonZeroU32::new(100).unwrap();
/// More would not be told apart.
pub const WEIGHT_MAX: u32 = 10_000;
/// No call begins above this part of the memory budget, in percent: those that run need
/// room to grow.
const MEMORY_MARK: u64 = 90;
/// While memory is short it is looked at so often.
const MEMORY_LOOK: Duration = Duration::from_millis(20);

/// What a tenant may use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TenantConfig {
    /// Its name.
    pub name: Arc<str>,
    /// When guests of several tenants want to compute, each tenant gets CPU time in
    /// proportion to its weight, at most [`WEIGHT_MAX`].
    pub weight: NonZeroU32,
    /// Its budgets.
    pub budgets: Budgets,
}

/// Bounds of all plugins of a tenant together; `None`: the host's alone.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Budgets {
    /// Bytes of the linear memories of all instances, idle ones too.
    pub memory: Option<u64>,
    /// Messages handed to guests.
    pub messages_per_second: Option<u32>,
    /// Bytes that guests send.
    pub bytes_out_per_second: Option<u64>,
    /// Log lines; more are dropped and counted.
    pub log_lines_per_second: Option<u32>,
}

impl TenantConfig {
    /// Of the default weight, without budgets.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            weight: WEIGHT_DEFAULT,
            budgets: Budgets::default(),
        }
    }
}

/// A tenant. Its plugins name it in their [`crate::PluginConfig`].
pub struct Tenant {
    id: TenantId,
    config: TenantConfig,
    /// Bytes of linear memories now.
    memory: AtomicU64,
    messages: Option<Rate>,
    bytes_out: Option<Rate>,
    log_lines: Option<Rate>,
    shared: Mutex<Shared>,
}

/// Held for a look.
#[derive(Default)]
struct Shared {
    /// By plugin; kept when a plugin goes, so that sums never fall.
    usages: BTreeMap<Arc<str>, Arc<Usage>>,
    /// Who has instances to give back.
    pools: Vec<Weak<InstancePool>>,
}

/// Tells tenants apart, whatever their names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct TenantId(pub(crate) u64);

/// A budget that is used up, and when to look again. `Display` is for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OverBudget {
    budget: Budget,
    /// From now.
    pub look_again: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Budget {
    Memory { used: u64, budget: u64 },
    Messages { per_second: u32 },
    BytesOut { per_second: u64 },
}

impl fmt::Display for OverBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.budget {
            Budget::Memory { used, budget } => write!(
                f,
                "the tenant's instances hold {used} bytes of budgets.memory = {budget}"
            ),
            Budget::Messages { per_second } => {
                write!(
                    f,
                    "the tenant is at budgets.messages_per_second = {per_second}"
                )
            }
            Budget::BytesOut { per_second } => {
                write!(
                    f,
                    "the tenant has sent more than budgets.bytes_out_per_second = {per_second}"
                )
            }
        }
    }
}

impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenant")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl Tenant {
    /// A tenant that has used nothing.
    pub fn new(config: TenantConfig) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let budgets = &config.budgets;
        let now = Instant::now();
        let rate = |per_second| Rate::of(per_second, now);
        Arc::new(Self {
            id: TenantId(NEXT.fetch_add(1, Ordering::Relaxed)),
            memory: AtomicU64::new(0),
            messages: budgets.messages_per_second.map(u64::from).map(rate),
            bytes_out: budgets.bytes_out_per_second.map(rate),
            log_lines: budgets.log_lines_per_second.map(u64::from).map(rate),
            shared: Mutex::default(),
            config,
        })
    }

    /// What it was made with.
    pub fn config(&self) -> &TenantConfig {
        &self.config
    }

    /// What each of its plugins has used, by name, those that are gone among them.
    pub fn usage(&self) -> Vec<(Arc<str>, UsageSnapshot)> {
        let shared = self.shared();
        let each = shared.usages.iter();
        each.map(|(plugin, usage)| (Arc::clone(plugin), usage.snapshot()))
            .collect()
    }

    /// Why no call should begin now. When memory is short, instances that idle are given
    /// back; needs a tokio runtime then.
    pub fn over_budget(&self) -> Option<OverBudget> {
        self.over_budget_at(Instant::now())
    }

    fn over_budget_at(&self, now: Instant) -> Option<OverBudget> {
        let budgets = &self.config.budgets;
        if let Some(budget) = budgets.memory {
            let used = self.memory.load(Ordering::Relaxed);
            if used > budget / 100 * MEMORY_MARK {
                self.reclaim();
                return Some(OverBudget {
                    budget: Budget::Memory { used, budget },
                    look_again: MEMORY_LOOK,
                });
            }
        }
        let owed = |rate: &Option<Rate>| rate.as_ref().and_then(|rate| rate.owed(now));
        if let (Some(per_second), Some(look_again)) =
            (budgets.messages_per_second, owed(&self.messages))
        {
            return Some(OverBudget {
                budget: Budget::Messages { per_second },
                look_again,
            });
        }
        if let (Some(per_second), Some(look_again)) =
            (budgets.bytes_out_per_second, owed(&self.bytes_out))
        {
            return Some(OverBudget {
                budget: Budget::BytesOut { per_second },
                look_again,
            });
        }
        None
    }

    /// Messages are on their way to guests.
    pub fn spend_messages(&self, messages: usize) {
        if let Some(rate) = &self.messages {
            rate.spend(messages as u64, Instant::now());
        }
    }

    pub(crate) fn id(&self) -> TenantId {
        self.id
    }

    pub(crate) fn weight(&self) -> NonZeroU32 {
        self.config.weight
    }

    /// The counters of a plugin, the same for all its revisions.
    pub(crate) fn usage_of(&self, plugin: &Arc<str>) -> Arc<Usage> {
        Arc::clone(self.shared().usages.entry(Arc::clone(plugin)).or_default())
    }

    /// A pool whose idle instances can be taken back.
    pub(crate) fn add_pool(&self, pool: &Arc<InstancePool>) {
        let mut shared = self.shared();
        shared.pools.retain(|pool| pool.strong_count() > 0);
        shared.pools.push(Arc::downgrade(pool));
    }

    /// False: it does not fit, and nothing was taken.
    pub(crate) fn try_take_memory(&self, bytes: usize) -> bool {
        let bytes = bytes as u64;
        let budget = self.config.budgets.memory.unwrap_or(u64::MAX);
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= budget);
        let taken = self
            .memory
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        taken.is_ok()
    }

    pub(crate) fn give_memory_back(&self, bytes: usize) {
        self.memory.fetch_sub(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes leave, whatever it costs later.
    pub(crate) fn spend_bytes_out(&self, bytes: usize) {
        if let Some(rate) = &self.bytes_out {
            rate.spend(bytes as u64, Instant::now());
        }
    }

    pub(crate) fn take_log_line(&self) -> bool {
        self.log_lines
            .as_ref()
            .is_none_or(|rate| rate.take(1, Instant::now()))
    }

    /// Instances that idle go; their memory is free when they have shut down.
    pub(crate) fn reclaim(&self) {
        let pools = self.shared().pools.clone();
        for pool in pools.iter().filter_map(Weak::upgrade) {
            pool.reclaim();
        }
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        // Nothing can panic under this lock, so a poisoned one is as good.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(budgets: Budgets) -> Arc<Tenant> {
        Tenant::new(TenantConfig {
            budgets,
            ..TenantConfig::new("t")
        })
    }

    #[test]
    fn tenant_without_budgets_is_never_over_one() {
        let tenant = tenant(Budgets::default());
        assert!(tenant.try_take_memory(usize::MAX / 2));
        tenant.spend_messages(1_000_000);
        tenant.spend_bytes_out(1 << 40);
        assert_eq!(tenant.over_budget(), None);
    }

    #[test]
    fn memory_beyond_the_budget_is_not_given() {
        let tenant = tenant(Budgets {
            memory: Some(1000),
            ..Budgets::default()
        });
        assert!(tenant.try_take_memory(600));
        assert!(!tenant.try_take_memory(401));
        assert!(tenant.try_take_memory(400));
        let over = tenant.over_budget().expect("it is used up");
        assert!(over.to_string().contains("budgets.memory"), "{over}");
        tenant.give_memory_back(200);
        assert_eq!(tenant.over_budget(), None);
    }

    #[test]
    fn what_is_overdrawn_is_paid_off_before_the_next_call() {
        let tenant = tenant(Budgets {
            messages_per_second: Some(10),
            ..Budgets::default()
        });
        assert_eq!(tenant.over_budget(), None);
        let now = Instant::now();
        tenant.spend_messages(32);
        // As of before it was spent, so that nothing has come in since.
        let over = tenant.over_budget_at(now).expect("22 too many");
        assert!(over.to_string().contains("messages_per_second = 10"));
        assert_eq!(over.look_again, Duration::from_millis(2300));
        assert_eq!(tenant.over_budget_at(now + Duration::from_secs(10)), None);
    }
}
