//! A compiled component, linked, with its exports looked up: what an instance is made
//! of. The host's world exports everything; what this component really has is asked
//! interface by interface, once, here.

use std::sync::Arc;

use wasmtime::component::{Component, InstancePre};

use crate::artefact::Artefact;
use crate::bindings::exports::mqlet::listener::{concurrent, lifecycle, orderly};
use crate::bindings::scheduled_pull::exports::mqlet::listener::pull_task;
use crate::component::ListenerKind;
use crate::engine::Allocator;
use crate::error::LoadError;
use crate::store::State;

#[derive(Clone)]
pub(crate) struct Linked {
    pub(crate) pre: InstancePre<State>,
    pub(crate) concurrent: Option<concurrent::GuestIndices>,
    pub(crate) orderly: Option<orderly::GuestIndices>,
    pub(crate) pull_task: Option<pull_task::GuestIndices>,
    pub(crate) lifecycle: Option<lifecycle::GuestIndices>,
    /// Others may share it as long as it is here.
    _code: Arc<Component>,
    digest: Option<[u8; 32]>,
}

impl Allocator {
    /// Loads and links compiled code. In the pool this fails when a slot cannot hold the
    /// component.
    pub(crate) fn link(&self, artefact: &Artefact) -> Result<Linked, LoadError> {
        let loaded = self.code.load(&self.engine, artefact);
        let component = loaded.map_err(|error| LoadError::Artefact {
            reason: format!("{error:#}"),
        })?;
        let pre = self
            .linker
            .instantiate_pre(&component)
            .map_err(|error| LoadError::Link {
                reason: format!("{error:#}"),
            })?;
        Ok(Linked {
            concurrent: concurrent::GuestIndices::new(&pre).ok(),
            orderly: orderly::GuestIndices::new(&pre).ok(),
            pull_task: pull_task::GuestIndices::new(&pre).ok(),
            lifecycle: lifecycle::GuestIndices::new(&pre).ok(),
            pre,
            _code: component,
            digest: artefact.component().copied(),
        })
    }
}

impl Linked {
    /// Whether the component has what the manifest says it is.
    pub(crate) fn exports(&self, kind: ListenerKind) -> bool {
        match kind {
            ListenerKind::Concurrent => self.concurrent.is_some(),
            ListenerKind::Orderly => self.orderly.is_some(),
            ListenerKind::ScheduledPull => self.pull_task.is_some(),
        }
    }

    /// The same compiled code as bytes.
    pub(crate) fn artefact(&self) -> Result<Artefact, LoadError> {
        let bytes = self
            .pre
            .component()
            .serialize()
            .map_err(|error| LoadError::Artefact {
                reason: format!("{error:#}"),
            })?;
        let artefact = Artefact::trusted(bytes);
        Ok(match self.digest {
            Some(digest) => artefact.of_component(digest),
            None => artefact,
        })
    }
}
