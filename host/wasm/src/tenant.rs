//! What the plugins of one tenant share in this crate: their part of the CPU, and what
//! each of them has used.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::usage::{Usage, UsageSnapshot};

/// Weight of a tenant that says nothing.
pub const WEIGHT_DEFAULT: NonZeroU32 = NonZeroU32::new(100).unwrap();
/// More would not be told apart.
pub const WEIGHT_MAX: u32 = 10_000;

/// What a tenant may use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TenantConfig {
    /// Its name.
    pub name: Arc<str>,
    /// When guests of several tenants want to compute, each tenant gets CPU time in
    /// proportion to its weight, at most [`WEIGHT_MAX`].
    pub weight: NonZeroU32,
}

impl TenantConfig {
    /// Of the default weight.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            weight: WEIGHT_DEFAULT,
        }
    }
}

/// A tenant. Its plugins name it in their [`crate::PluginConfig`].
#[derive(Debug)]
pub struct Tenant {
    id: TenantId,
    config: TenantConfig,
    /// By plugin; kept when a plugin goes, so that sums never fall. Held for a look.
    usages: Mutex<BTreeMap<Arc<str>, Arc<Usage>>>,
}

/// Tells tenants apart, whatever their names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct TenantId(pub(crate) u64);

impl Tenant {
    /// A tenant that has used nothing.
    pub fn new(config: TenantConfig) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Arc::new(Self {
            id: TenantId(NEXT.fetch_add(1, Ordering::Relaxed)),
            config,
            usages: Mutex::default(),
        })
    }

    /// What it was made with.
    pub fn config(&self) -> &TenantConfig {
        &self.config
    }

    /// What each of its plugins has used, by name, those that are gone among them.
    pub fn usage(&self) -> Vec<(Arc<str>, UsageSnapshot)> {
        let usages = self.usages.lock().unwrap_or_else(PoisonError::into_inner);
        let each = usages.iter();
        each.map(|(plugin, usage)| (Arc::clone(plugin), usage.snapshot()))
            .collect()
    }

    pub(crate) fn id(&self) -> TenantId {
        self.id
    }

    pub(crate) fn weight(&self) -> NonZeroU32 {
        self.config.weight
    }

    /// The counters of a plugin, the same for all its revisions.
    pub(crate) fn usage_of(&self, plugin: &Arc<str>) -> Arc<Usage> {
        let mut usages = self.usages.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(usages.entry(Arc::clone(plugin)).or_default())
    }
}
