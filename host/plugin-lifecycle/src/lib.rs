//! From a manifest to a serving revision, and its replacement.
//!
//! A plugin is declared by a [`manifest`]. Its component's bytes come from an artifact,
//! are checked, compiled (or found in the compile cache), loaded and warmed up, and then
//! take their place in a slot, which is what the consumer calls. Replacing a revision is
//! the same path again, with the old one serving until the new one is ready.
//!
//! Reading order: [`manifest`], [`revision`], [`source`], [`artifact`], [`signature`],
//! [`compile_cache`], [`lifecycle`],
//! [`breaker`], [`slot`], [`shadow`],
//! [`runner`]; then how files are read: [`document`],
//! [`value`], [`problem`].

pub mod ceiling;
pub mod changes;
pub mod manifest;
pub mod revision;

pub mod artifact;
pub mod compile_cache;
pub mod preflight;
pub mod signature;
pub mod source;

pub mod breaker;
pub mod lifecycle;
pub mod reach;
pub mod runner;
pub mod shadow;
pub mod slot;

pub mod event;

pub mod document;
pub mod problem;
pub mod value;

pub use ceiling::Ceiling;
pub use event::{Event, EventKind, Generation};
pub use manifest::Manifest;
pub use manifest::secrets::SecretPlace;
pub use problem::{Problem, Problems};
pub use reach::{Reach, ReadSecret};
pub use revision::{Digest, RevisionId};
pub use runner::{
    Change, Deploy, DeployError, DeployOutcome, Deployed, OnFetched, Plugin, RunnerConfig,
};
pub use shadow::ShadowPlan;
pub use shadow::report::{Difference, DifferenceKind, ShadowReport};
pub use slot::{CanaryPlan, QueueTrace, TrialCounts};
