//! Machine code that several plugins run is loaded once: a thousand plugins of one
//! component need not its code a thousand times.
//!
//! Code is shared while somebody runs it, by the digest of its component
//! ([`Artefact::of_component`](crate::Artefact::of_component)). Plugins of several tenants
//! may share code, which nobody can write to; instances they never share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use wasmtime::component::Component;

use crate::artefact::Artefact;

/// Entries at which those whose code is gone are dropped.
const ENTRIES_SWEPT_MIN: usize = 64;

/// The loaded code of one engine.
#[derive(Default)]
pub(crate) struct SharedCode(Mutex<Table>);

#[derive(Default)]
struct Table {
    by_component: BTreeMap<[u8; 32], Weak<Component>>,
    sweep_at: usize,
}

impl SharedCode {
    /// The code of an artefact, as it was loaded before if somebody still runs it.
    pub(crate) fn load(
        &self,
        engine: &wasmtime::Engine,
        artefact: &Artefact,
    ) -> wasmtime::Result<Arc<Component>> {
        let Some(digest) = artefact.component() else {
            return Ok(Arc::new(artefact.deserialize(engine)?));
        };
        let found = self.lock().by_component.get(digest).and_then(Weak::upgrade);
        if let Some(code) = found {
            return Ok(code);
        }
        // Without the lock: two may load the same at once, and the first one stays.
        let code = Arc::new(artefact.deserialize(engine)?);
        let mut table = self.lock();
        table.sweep();
        let entry = table.by_component.entry(*digest).or_default();
        if let Some(first) = entry.upgrade() {
            return Ok(first);
        }
        *entry = Arc::downgrade(&code);
        Ok(code)
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // Nothing can panic under this lock, so a poisoned one is as good.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn sweep(&mut self) {
        if self.by_component.len() < self.sweep_at {
            return;
        }
        self.by_component.retain(|_, code| code.strong_count() > 0);
        self.sweep_at = (self.by_component.len() * 2).max(ENTRIES_SWEPT_MIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The smallest component.
    const EMPTY: &[u8] = b"\0asm\x0d\0\x01\0";

    #[test]
    fn code_is_loaded_once_while_somebody_runs_it() {
        let engine = wasmtime::Engine::default();
        let compiled = engine.precompile_component(EMPTY).unwrap();
        let artefact = |digest: u8| Artefact::trusted(compiled.clone()).of_component([digest; 32]);
        let shared = SharedCode::default();
        let first = shared.load(&engine, &artefact(1)).unwrap();
        let again = shared.load(&engine, &artefact(1)).unwrap();
        let other = shared.load(&engine, &artefact(2)).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        assert!(!Arc::ptr_eq(&first, &other));
        drop((first, again));
        for digest in 3..=255 {
            shared.load(&engine, &artefact(digest)).unwrap();
        }
        assert!(shared.lock().by_component.len() <= ENTRIES_SWEPT_MIN + 1);
    }
}
