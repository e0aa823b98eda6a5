//! From a plugin's sources to a component.
//!
//! Three steps, one file each: [`RustToolchain`] finds what can compile Rust to
//! WebAssembly here, [`CargoBuild`] runs it and finds the artefact, [`componentize`]
//! makes a component of it when it is a core module. [`build_rust_plugin`] does all three.
//!
//! It knows nothing of manifests, of running plugins or of wasmtime, so that both
//! `mqlet dev` and `cargo xtask guests` use it: there is one way of building.

mod cargo_build;
mod componentize;
mod rust_toolchain;

pub use cargo_build::{BuildError, CargoBuild, build_rust_plugin};
pub use componentize::{ComponentizeError, componentize, write_component};
pub use rust_toolchain::{RustToolchain, ToolchainError};
