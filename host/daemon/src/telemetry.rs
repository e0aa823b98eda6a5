//! What becomes of the events of all crates: lines of the log.
//!
//! Every crate tells typed events to a function; here is the only place that knows how a
//! line looks (`telemetry::log`) and when a fault that repeats is told again
//! (`telemetry::repeats`). Nothing here waits for anybody but standard error.

pub(crate) mod log;
mod repeats;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use repeats::Repeats;

/// The observers of one host. Clones share what was told before.
#[derive(Clone, Debug, Default)]
pub(crate) struct Telemetry {
    repeats: Arc<Repeats>,
    failed_calls: Arc<AtomicU64>,
}

impl Telemetry {
    /// For a tenant's client.
    pub(crate) fn driver_observer(&self, tenant: &Arc<str>) -> driver::Observer {
        let (repeats, tenant) = (Arc::clone(&self.repeats), Arc::clone(tenant));
        Arc::new(move |event| log::driver::event(&repeats, &tenant, event))
    }

    /// For the calls of a tenant's plugins.
    pub(crate) fn wasm_observer(&self, tenant: &Arc<str>) -> wasm::Observer {
        let (repeats, tenant) = (Arc::clone(&self.repeats), Arc::clone(tenant));
        let failed_calls = Arc::clone(&self.failed_calls);
        Arc::new(move |event| {
            if let wasm::Event::CallFailed(_) = event {
                failed_calls.fetch_add(1, Ordering::Relaxed);
            }
            log::wasm::event(&repeats, &tenant, event);
        })
    }

    /// Calls that trapped, were killed or broke a limit, since the start.
    pub(crate) fn failed_calls(&self) -> u64 {
        self.failed_calls.load(Ordering::Relaxed)
    }

    /// For the deployments of a tenant's plugins.
    pub(crate) fn plugin_observer(&self, tenant: &Arc<str>) -> plugin_lifecycle::event::Observer {
        let tenant = Arc::clone(tenant);
        Arc::new(move |event| log::plugin::event(&tenant, event))
    }

    /// For an embedded broker.
    pub(crate) fn broker_observer(&self) -> embedded_broker::server::Observer {
        let repeats = Arc::clone(&self.repeats);
        Arc::new(move |event| log::broker::event(&repeats, event))
    }
}
