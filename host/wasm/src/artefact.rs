//! Compiled code as bytes, and the one place where it is loaded again.

use bytes::Bytes;
use wasmtime::component::Component;

/// A component compiled by [`Engine::compile`](crate::Engine::compile), for an engine
/// with the same compatibility key.
#[derive(Clone, Debug)]
pub struct Artefact {
    bytes: Bytes,
    component: Option<[u8; 32]>,
}

impl Artefact {
    /// Bytes that an engine of this program compiled and that nobody could change since.
    /// Loading machine code is running it: the caller vouches for where the bytes were
    /// kept (a private folder, a checksum that only we can make).
    pub fn trusted(bytes: impl Into<Bytes>) -> Self {
        Self {
            bytes: bytes.into(),
            component: None,
        }
    }

    /// Code of the component with this SHA-256: where plugins name the same one, their code
    /// is loaded once. The caller vouches for it as for the bytes.
    #[must_use]
    pub fn of_component(self, sha256: [u8; 32]) -> Self {
        Self {
            component: Some(sha256),
            ..self
        }
    }

    pub(crate) fn component(&self) -> Option<&[u8; 32]> {
        self.component.as_ref()
    }

    /// To be kept.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Fails for another wasmtime, other settings, another machine, or a cut file.
    #[expect(
        unsafe_code,
        reason = "wasmtime cannot check machine code; Artefact::trusted states who vouches for it"
    )]
    pub(crate) fn deserialize(&self, engine: &wasmtime::Engine) -> wasmtime::Result<Component> {
        // SAFETY: the bytes came from `precompile_component` unchanged, which is the
        // contract of `Artefact::trusted`, the only constructor. Version, settings and
        // target are compared by wasmtime.
        unsafe { Component::deserialize(engine, &self.bytes) }
    }
}
