//! Runs one plugin call inside its limits: the only crate that knows wasmtime.
//!
//! A component goes through here in four steps:
//!
//! 1. [`CheckedComponent::check`] looks at the bytes and says in plain words what is
//!    wrong with them (`component.rs`).
//! 2. [`Engine::compile`] makes an [`Artefact`] of it, which can be kept (`engine.rs`).
//! 3. [`ComponentListener::load`] links it, makes the first instance and runs `init`
//!    (`instance.rs`, `store.rs`, `limits.rs`).
//! 4. The listener answers `consumer`'s ports `MessageListener` and `PullTaskCallback` (`listener.rs`): it takes
//!    an instance (`instance_pool.rs`) and a run slot (`run_slots.rs`), calls the guest
//!    under two guards (`deadline.rs`), and turns what it did into outcomes
//!    (`outcome.rs`).
//!
//! What a guest finds on the other side is in `imports.rs`. Everything worth knowing is
//! an [`Event`]. No type of wasmtime appears in a public signature.

mod artefact;
mod bindings;
mod clocks;
mod component;
mod convert;
mod deadline;
mod ending;
mod engine;
mod error;
mod event;
mod failure;
mod grants;
mod http;
mod http_tap;
mod imports;
mod instance;
mod instance_pool;
mod key_value;
mod limits;
mod linked;
mod listener;
mod log_lines;
mod outbox;
mod outcome;
mod plugin;
mod rate;
mod run_slots;
mod secrets;
mod serving;
mod shared_code;
mod store;
mod tenant;
mod usage;
mod worker;

pub use artefact::Artefact;
pub use component::{COMPONENT_BYTES_MAX, CheckedComponent, ComponentProblem, ListenerKind};
pub use engine::{
    CompileLimits, Compiling, Engine, EngineConfig, Guards, POOL_MEMORY_BYTES_MAX, WASM_STACK_BYTES,
};
pub use error::{CompileStop, EngineError, LoadError};
pub use event::{
    AnswerProblem, CallReport, Event, LogLevel, LogLine, LogSource, Observer, RecycleReason,
};
pub use failure::{FAILED_MESSAGES_MAX, FailedMessage, FailureKind, FailureRecord, Phase};
pub use grants::{
    ClockGrant, Grants, HostPattern, HttpGrant, Network, ParseGrantError, ProducerGrant,
    ProducerMode, is_public,
};
pub use http::{CONNECTIONS_MAX_DEFAULT, HttpClient, HttpConfig, ResolveFuture, Resolver};
pub use http_tap::{HttpTap, HttpTapped};
pub use imports::pull_consumer::{PULL_MESSAGES_MAX, QUESTIONS_MAX};
pub use key_value::{
    BucketKey, KEY_BYTES_MAX, KEYS_PER_PAGE, KeyValueError, KeyValueFuture, KeyValueStore,
    VALUE_BYTES_MAX,
};
pub use limits::{Isolation, Limits, RANDOM_BYTES_MAX, RESOURCES_MAX};
pub use listener::{CALL_BYTES_MAX, ComponentListener};
pub use log_lines::{LAST_LOG_LINES_MAX, LOG_LINE_BYTES_MAX};
pub use outcome::REASON_BYTES_MAX;
pub use plugin::{IsHeld, PluginConfig};
pub use secrets::Secrets;
pub use tenant::{Budgets, OverBudget, Tenant, TenantConfig, WEIGHT_DEFAULT, WEIGHT_MAX};
pub use usage::{Usage, UsageSnapshot, process_cpu_time};
pub use worker::{WorkerProgram, compile_worker, plugin_worker};

/// The version of `mqlet:listener` that this host has; a component may be older.
pub const CONTRACT_VERSION: &str = "0.1.0";
/// The engine and its version, for people.
pub const ENGINE_VERSION: &str = "wasmtime 48.0.8";
