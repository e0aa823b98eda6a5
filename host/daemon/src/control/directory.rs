//! Which tenants and plugins a host has, for whoever asks: the tenants' clients, the
//! plugin of each group, and plugins that do not serve.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use plugin_lifecycle::Manifest;

use crate::app::Tenant;
use crate::host::Host;

/// See the module. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Directory(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Not while `mqlet dev` runs: it replaces its plugin itself.
    host: OnceLock<Weak<Host>>,
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

    /// The plugins can be replaced, by this host.
    pub(crate) fn set_host(&self, host: &Arc<Host>) {
        // There is one in a process.
        let _ = self.0.host.set(Arc::downgrade(host));
    }

    /// Who replaces plugins.
    pub(crate) fn host(&self) -> Option<Arc<Host>> {
        self.0.host.get()?.upgrade()
    }

    /// A plugin that is new, or on another group.
    pub(crate) fn put(&self, tenant: &Arc<Tenant>, manifest: &Manifest) {
        for entry in self.lock().iter_mut() {
            if !Arc::ptr_eq(&entry.tenant, tenant) {
                continue;
            }
            let name = manifest.name().to_string();
            let before = entry.plugins.values().find(|known| known.name == name);
            let state = before.map_or(PluginState::Loading, |known| known.state.clone());
            entry.plugins.retain(|_, known| known.name != name);
            let known = PluginEntry { name, state };
            entry
                .plugins
                .insert(manifest.consumer_group().to_owned(), known);
        }
    }

    /// A plugin that is no more.
    pub(crate) fn drop_plugin(&self, tenant: &str, plugin: &str) {
        for entry in self.lock().iter_mut() {
            if **entry.tenant.name() == *tenant {
                entry.plugins.retain(|_, known| known.name != plugin);
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
