//! Core modules to components.
//!
//! Works for what rustc, clang and zig make: modules that carry their world in a
//! custom section. WASI preview 1, where a module uses it, is put behind the adapter
//! of the wasmtime version that will run it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use wasi_preview1_component_adapter_provider as adapter;
use wit_component::ComponentEncoder;

/// First bytes of every component: magic, version 13, layer 1.
const COMPONENT_HEADER: [u8; 8] = *b"\0asm\x0d\0\x01\0";

/// The bytes are no component and do not become one.
#[derive(Debug, thiserror::Error)]
pub enum ComponentizeError {
    /// Neither module nor component, or one that names no world.
    #[error(
        "cannot make a component: {reason}; the module must be built against a world of mqlet:listener"
    )]
    Module {
        /// The encoder's words.
        reason: String,
    },
    /// A file.
    #[error("cannot {action} {}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

/// Makes a component of a core module. A component stays as it is.
///
/// # Errors
/// [`ComponentizeError::Module`] when the bytes are not WebAssembly or carry no world.
pub fn componentize(module: Vec<u8>) -> Result<Vec<u8>, ComponentizeError> {
    if module.starts_with(&COMPONENT_HEADER) {
        return Ok(module);
    }
    let encode = || {
        ComponentEncoder::default()
            .validate(true)
            .adapter(
                adapter::WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME,
                adapter::WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER,
            )?
            .module(&module)?
            .encode()
    };
    encode().map_err(|error| ComponentizeError::Module {
        reason: format!("{error:#}"),
    })
}

/// Reads `module`, makes a component of it and writes that to `component`, by rename:
/// whoever watches the file never sees half of it. Folders are made as needed.
///
/// # Errors
/// As [`componentize`], and for every file that cannot be read or written.
pub fn write_component(module: &Path, component: &Path) -> Result<(), ComponentizeError> {
    let file_error = |action, path: &Path| {
        let path = path.to_owned();
        move |source| ComponentizeError::File {
            action,
            path,
            source,
        }
    };
    let bytes = fs::read(module).map_err(file_error("read", module))?;
    let bytes = componentize(bytes)?;
    if let Some(folder) = component.parent() {
        fs::create_dir_all(folder).map_err(file_error("create", folder))?;
    }
    let new = component.with_extension("wasm.new");
    fs::write(&new, bytes).map_err(file_error("write", &new))?;
    fs::rename(&new, component).map_err(file_error("replace", component))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn component_stays_as_it_is() {
        let component = COMPONENT_HEADER.to_vec();
        assert_eq!(
            componentize(component.clone()).expect("passed on"),
            component
        );
    }

    #[test]
    fn bytes_that_are_not_webassembly_are_refused() {
        for bytes in [&b""[..], b"\0asm", b"#!/bin/sh\n"] {
            let error = componentize(bytes.to_vec()).expect_err("refused");
            assert!(
                error.to_string().starts_with("cannot make a component: "),
                "{error}"
            );
        }
    }

    #[test]
    fn missing_module_is_named() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let module = folder.path().join("missing.wasm");
        let error = write_component(&module, &folder.path().join("out.wasm")).expect_err("refused");
        assert_eq!(
            error.to_string(),
            format!("cannot read {}", module.display())
        );
    }

    #[test]
    fn failure_leaves_the_previous_component() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (module, component) = (
            folder.path().join("in.wasm"),
            folder.path().join("out.wasm"),
        );
        fs::write(&module, b"broken").expect("writable");
        fs::write(&component, b"previous").expect("writable");
        write_component(&module, &component).expect_err("refused");
        assert_eq!(fs::read(&component).expect("readable"), b"previous");
    }
}
