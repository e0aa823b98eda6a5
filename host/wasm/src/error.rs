//! What can go wrong before a plugin serves. What goes wrong in a call is an outcome,
//! not an error (`outcome.rs`).

use std::io;
use std::time::Duration;

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

/// Why compiling was stopped: a limit of `[compile]`, or the end of the process that did
/// it. `Display` is for people.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CompileStop {
    /// `compile.cpu_time`.
    #[error(
        "it takes more CPU time than compile.cpu_time = {0:?} allows; make the component smaller, or raise the limit in [compile] of the host's configuration"
    )]
    CpuTime(Duration),
    /// `compile.timeout`.
    #[error(
        "it took longer than compile.timeout = {0:?} allows; try again when the host is less busy, or raise the limit in [compile] of the host's configuration"
    )]
    Timeout(Duration),
    /// `compile.memory`.
    #[error(
        "it needs more memory than compile.memory = {0} bytes allows; make the component smaller, or raise the limit in [compile] of the host's configuration"
    )]
    Memory(u64),
    /// The process ended by itself, or somebody ended it.
    #[error("the process that compiled it ended early ({0}); try again")]
    Died(String),
    /// There is no process.
    #[error("no process can be started for it: {0}")]
    NotStarted(String),
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
    /// It was not compiled to the end.
    #[error("compiling the component was stopped: {0}")]
    CompileStopped(CompileStop),
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
    /// The manifest has `isolation = "process"`, and this is not the program for it.
    #[error(
        "limits.isolation = \"process\" needs a host that can start worker processes; this one cannot"
    )]
    NoWorker,
    /// What `isolation = "process"` does not offer.
    #[error(
        "limits.isolation = \"process\" does not go with {0}; remove it, or write \"shared\" or \"batch\""
    )]
    NotInWorker(&'static str),
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
