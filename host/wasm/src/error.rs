//! What can go wrong before a plugin serves. What goes wrong in a call is an outcome,
//! not an error (`outcome.rs`).

use std::io;

use crate::component::{ComponentProblem, ListenerKind};
use crate::failure::FailureRecord;

/// The engine cannot start.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// wasmtime refuses its settings or the machine.
    #[error("wasmtime cannot run here: {reason}")]
    Wasmtime {
        /// Its words.
        reason: String,
    },
    /// No thread for the epoch ticker.
    #[error("no thread for the epoch ticker: {source}")]
    Thread {
        /// Why.
        source: io::Error,
    },
}

/// A plugin cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The component is refused; everything that is wrong with it.
    #[error("the component is refused: {}", lines(.0))]
    Refused(Vec<ComponentProblem>),
    /// wasmtime does not compile it.
    #[error("the component cannot be compiled: {reason}")]
    Compile {
        /// Its words.
        reason: String,
    },
    /// The compiled code is of another engine, or damaged: compile again.
    #[error("the compiled component cannot be loaded: {reason}")]
    Artefact {
        /// wasmtime's words.
        reason: String,
    },
    /// An import has a type that the host does not have.
    #[error(
        "the component cannot be linked: {reason}; build it with an SDK of this mqlet's version"
    )]
    Link {
        /// wasmtime's words.
        reason: String,
    },
    /// An export has a type that the contract does not have.
    #[error(
        "the component's exports do not fit the contract: {reason}; build it with an SDK of this mqlet's version"
    )]
    Contract {
        /// wasmtime's words.
        reason: String,
    },
    /// The manifest asks for a listener that is not there.
    #[error("the component is no {} plugin; it is refused", .0.name())]
    NoSuchListener(ListenerKind),
    /// The first instance needs memory that the tenant does not have.
    #[error(
        "its first instance needs more memory than is left of the tenant's budgets.memory; raise it, or stop another plugin"
    )]
    TenantMemory,
    /// The first instance could not be made, or its `init` failed.
    #[error("{0}")]
    FirstInstance(Box<FailureRecord>),
}

fn lines(problems: &[ComponentProblem]) -> String {
    problems
        .iter()
        .map(|problem| format!("{problem}; {}", problem.remedy()))
        .collect::<Vec<_>>()
        .join("\n")
}
