//! Which tenants and plugins a host has, for whoever asks: the tenants' clients, the
//! plugin of each group, and plugins that do not serve.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use plugin_lifecycle::Manifest;

use crate::app::Tenant;

/// See the module. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Directory(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Held for the time of a look or an entry, never across a wait.
    tenants: Mutex<Vec<TenantEntry>>,
}

/// One tenant and its plugins.
#[derive(Clone, Debug)]
pub(crate) struct TenantEntry {
    pub(crate) tenant: Arc<Tenant>,
    /// By group.
    pub(crate) plugins: BTreeMap<String, PluginEntry>,
}

/// The plugin of a group.
#[derive(Clone, Debug)]
pub(crate) struct PluginEntry {
    pub(crate) name: String,
    pub(crate) state: PluginState,
}

/// Whether it is called.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum PluginState {
    Loading,
    Serving,
    /// And why.
    Failed(String),
}

impl Directory {
    /// A tenant and the plugins that it is going to have.
    pub(crate) fn add<'a>(
        &self,
        tenant: &Arc<Tenant>,
        manifests: impl IntoIterator<Item = &'a Manifest>,
    ) {
        let plugins = manifests.into_iter().map(|manifest| {
            let entry = PluginEntry {
                name: manifest.name().to_string(),
                state: PluginState::Loading,
            };
            (manifest.consumer_group().to_owned(), entry)
        });
        let entry = TenantEntry {
            tenant: Arc::clone(tenant),
            plugins: plugins.collect(),
        };
        self.lock().push(entry);
    }

    /// What has become of a plugin.
    pub(crate) fn set(&self, tenant: &str, plugin: &str, state: &PluginState) {
        for entry in self.lock().iter_mut() {
            if **entry.tenant.name() != *tenant {
                continue;
            }
            for known in entry.plugins.values_mut() {
                if known.name == plugin {
                    known.state = state.clone();
                }
            }
        }
    }

    /// All tenants as they are now.
    pub(crate) fn tenants(&self) -> Vec<TenantEntry> {
        self.lock().clone()
    }

    /// The host ends: nobody is to keep its tenants.
    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<TenantEntry>> {
        let tenants = self.0.tenants.lock();
        tenants.unwrap_or_else(PoisonError::into_inner)
    }
}
