//! Every limit of an instance, and the one place that attaches them to a store: memory,
//! tables, handles, what a guest-to-host transfer may hold, the epoch callback. Sizes
//! that WASI keeps itself (random, log lines) are constants here, used where its
//! context is built (`store.rs`).
//!
//! The instance pool is a ceiling for all plugins; what one plugin may use is its
//! store's affair, here.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wasmtime::{ResourceLimiter, Store};

use crate::engine::Guards;
use crate::plugin::Plugin;
use crate::store::State;

/// Resources of the host (streams, pollables, sockets) and handles of its own that one
/// instance may hold.
pub const RESOURCES_MAX: usize = 1_000;
/// Random bytes in one call of WASI's `get-random-bytes`.
pub const RANDOM_BYTES_MAX: u64 = 64 * 1024;
/// Core instances, tables and memories within one instance of a component; the largest
/// toolchain known (componentize-py) makes 38 core instances.
pub(crate) const CORE_INSTANCES_MAX: usize = 200;

/// How warm instances are shared.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub enum Isolation {
    /// A warm instance serves call after call, one at a time.
    #[default]
    Shared,
    /// A fresh instance for every call.
    Batch,
    /// Warm instances in a process of the plugin's own, within limits of the operating
    /// system.
    Process,
}

impl Isolation {
    /// The word of the manifest.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Batch => "batch",
            Self::Process => "process",
        }
    }
}

/// `[limits]` of a manifest. A limit is part of the revision.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Limits {
    /// Warm or fresh instances.
    pub isolation: Isolation,
    /// Bytes of the linear memories of one instance together.
    pub memory: u64,
    /// CPU time of one call.
    pub compute_time: Duration,
    /// Instantiating and `init` together, computing and waiting.
    pub init_time: Duration,
    /// Bytes that one transfer from guest to host may hold.
    pub host_memory: usize,
    /// Elements of the tables of one instance together.
    pub table_elements: usize,
    /// Log lines of the plugin, all its instances together.
    pub log_lines_per_second: u32,
    /// Text of the log lines of one call.
    pub log_bytes_per_call: usize,
    /// Calls after which an instance is replaced.
    pub recycle_after_calls: u64,
    /// Age after which an instance is replaced.
    pub recycle_after_age: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            isolation: Isolation::Shared,
            memory: 128 * 1024 * 1024,
            compute_time: Duration::from_secs(10),
            init_time: Duration::from_secs(10),
            host_memory: 16 * 1024 * 1024,
            table_elements: 100_000,
            log_lines_per_second: 100,
            log_bytes_per_call: 64 * 1024,
            recycle_after_calls: 100_000,
            recycle_after_age: Duration::from_secs(3600),
        }
    }
}

impl Limits {
    /// An instance that holds more than this after a call is replaced: 75 % of
    /// `memory`. Memory of a guest only grows.
    pub fn memory_mark(&self) -> u64 {
        self.memory / 4 * 3
    }
}

/// A limit that an instance ran into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Denied {
    Memory,
    Table,
    /// The tenant's memory budget: no fault of this instance.
    TenantMemory,
}

/// Ends a guest whose tenant has no memory left; not a failure of the guest.
#[derive(Debug, thiserror::Error)]
#[error("the instances of the tenant's plugins hold all of budgets.memory")]
pub(crate) struct TenantMemoryUsedUp;

/// Counts and bounds the memories and tables of one instance.
pub(crate) struct MemoryLimiter {
    memory_bytes: usize,
    memory_max: usize,
    table_elements: usize,
    table_elements_max: usize,
    /// Granted and not yet known to have worked.
    growing: usize,
    denied: Option<Denied>,
    plugin: Arc<Plugin>,
}

impl MemoryLimiter {
    pub(crate) fn new(plugin: &Arc<Plugin>) -> Self {
        let limits = &plugin.config.limits;
        Self {
            memory_bytes: 0,
            memory_max: usize::try_from(limits.memory).unwrap_or(usize::MAX),
            table_elements: 0,
            table_elements_max: limits.table_elements,
            growing: 0,
            denied: None,
            plugin: Arc::clone(plugin),
        }
    }

    /// Bytes of all linear memories.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory_bytes as u64
    }

    fn give_back(&self, bytes: usize) {
        self.plugin.usage.remove_memory(bytes);
        self.plugin.config.tenant.give_memory_back(bytes);
    }

    /// Whether the guest was ended because its tenant has no memory left.
    pub(crate) fn is_over_tenant_budget(&self) -> bool {
        self.denied == Some(Denied::TenantMemory)
    }

    /// What was refused since the last call of this; a guest mostly traps soon after.
    pub(crate) fn take_denied(&mut self) -> Option<Denied> {
        self.denied.take()
    }
}

/// The store is gone, and its memories with it.
impl Drop for MemoryLimiter {
    fn drop(&mut self) {
        self.give_back(self.memory_bytes);
    }
}

impl ResourceLimiter for MemoryLimiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let growing = desired.saturating_sub(current);
        let total = self.memory_bytes.saturating_add(growing);
        if total > self.memory_max {
            self.growing = 0;
            self.denied = Some(Denied::Memory);
            return Ok(false);
        }
        let tenant = &self.plugin.config.tenant;
        if !tenant.try_take_memory(growing) {
            self.growing = 0;
            self.denied = Some(Denied::TenantMemory);
            tenant.reclaim();
            return Err(TenantMemoryUsedUp.into());
        }
        self.growing = growing;
        self.memory_bytes = total;
        self.plugin.usage.add_memory(growing);
        Ok(true)
    }

    fn memory_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        self.memory_bytes -= self.growing;
        self.give_back(self.growing);
        self.growing = 0;
        self.denied = Some(Denied::Memory);
        Ok(())
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let total = self
            .table_elements
            .saturating_add(desired.saturating_sub(current));
        if total > self.table_elements_max {
            self.denied = Some(Denied::Table);
            return Ok(false);
        }
        self.table_elements = total;
        Ok(true)
    }

    fn instances(&self) -> usize {
        CORE_INSTANCES_MAX
    }

    fn tables(&self) -> usize {
        CORE_INSTANCES_MAX
    }

    fn memories(&self) -> usize {
        CORE_INSTANCES_MAX
    }
}

/// Attaches every limit to a store that was just made. All paths that make a store go
/// through `store::new`, and that through here.
pub(crate) fn attach(store: &mut Store<State>, limits: &Limits, guards: Guards) {
    if guards == Guards::OffForBenchmarks {
        return;
    }
    store.limiter(|state| &mut state.memory);
    store.set_hostcall_fuel(limits.host_memory);
    store.set_max_component_handles(RESOURCES_MAX);
    store.data_mut().table.set_max_capacity(RESOURCES_MAX);
    // Armed by each phase (instantiate, init, call) through the clock.
    store.epoch_deadline_callback(|store| store.data().clock.tick());
    store.set_epoch_deadline(1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::testing::plugin_with_events;
    use crate::tenant::{Budgets, Tenant, TenantConfig};

    fn limiter(memory: u64) -> MemoryLimiter {
        let (plugin, _) = plugin_with_events(|config| config.limits.memory = memory);
        MemoryLimiter::new(&Arc::new(plugin))
    }

    #[test]
    fn memories_of_one_instance_are_counted_together() {
        let mut limiter = limiter(100);
        assert!(limiter.memory_growing(0, 60, None).unwrap());
        assert!(!limiter.memory_growing(0, 50, None).unwrap());
        assert!(limiter.memory_growing(60, 100, None).unwrap());
        assert_eq!(limiter.memory_bytes(), 100);
        assert_eq!(limiter.take_denied(), Some(Denied::Memory));
        assert_eq!(limiter.take_denied(), None);
    }

    #[test]
    fn memory_of_all_instances_of_a_tenant_is_counted_together() {
        let tenant = Tenant::new(TenantConfig {
            budgets: Budgets {
                memory: Some(100),
                ..Budgets::default()
            },
            ..TenantConfig::new("t")
        });
        let limiter = || {
            let tenant = Arc::clone(&tenant);
            let (plugin, _) = plugin_with_events(|config| config.tenant = tenant);
            MemoryLimiter::new(&Arc::new(plugin))
        };
        let mut first = limiter();
        let mut second = limiter();
        assert!(first.memory_growing(0, 60, None).unwrap());
        assert!(second.memory_growing(0, 41, None).is_err());
        assert!(second.is_over_tenant_budget());
        drop(first);
        assert!(second.memory_growing(0, 100, None).unwrap());
    }

    #[test]
    fn growth_that_failed_after_all_is_not_counted() {
        let mut limiter = limiter(100);
        assert!(limiter.memory_growing(0, 60, None).unwrap());
        limiter
            .memory_grow_failed(wasmtime::format_err!("the pool's slot is smaller"))
            .unwrap();
        assert_eq!(limiter.memory_bytes(), 0);
    }
}
