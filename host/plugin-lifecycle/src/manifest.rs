//! `Manifest`: what a plugin declares (`plugin.toml`), parsed into types that cannot
//! hold a bad value. All problems are found in one pass.
//!
//! A manifest says what should be; whether the component fits it is found when it is
//! loaded. Paths in it are relative to the file.

mod assign;
pub mod breaker;
mod broadcasting;
pub mod build;
pub mod folder;
pub mod grants;
pub mod group;
pub mod limits;
pub mod name;
mod of_kind;
mod read;
pub mod secrets;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use consumer::config::{ConsumeFromWhere, GroupConfig, GroupConfigBuilder};
use wasm::{Grants, Limits, ListenerKind};

use crate::breaker::BreakerConfig;
use crate::document::Document;
use crate::manifest::build::{Build, Dev};
use crate::manifest::name::PluginName;
use crate::manifest::secrets::SecretPlace;
use crate::problem::{Fault, Place, Problem, Problems};
use crate::revision::Digest;
use crate::source::Source;

/// A larger file is not read.
pub const MANIFEST_BYTES_MAX: u64 = 1 << 20;
/// More entries in `[settings]` are refused.
pub const SETTINGS_MAX: usize = 1000;

/// Property of dead letters: whose they are.
pub const PLUGIN_PROPERTY: &str = "MQLET_PLUGIN";

/// One plugin as its author declares it.
#[derive(Clone, Debug)]
pub struct Manifest {
    file: PathBuf,
    /// Of the file; empty where it was never one.
    text: Arc<str>,
    name: PluginName,
    name_place: Place,
    source: Source,
    component_place: Place,
    kept_at: Option<PathBuf>,
    sha256: Option<Digest>,
    listener: Option<ListenerKind>,
    group: GroupConfigBuilder,
    consumer_group: String,
    consumer_group_place: Place,
    limits: Limits,
    grants: Grants,
    grants_place: Place,
    secrets: Vec<(String, SecretPlace)>,
    secrets_place: Place,
    breaker: BreakerConfig,
    settings: Vec<(String, String)>,
    build: Option<Build>,
    dev: Dev,
}

impl Manifest {
    /// Reads and parses a file.
    ///
    /// # Errors
    /// All problems, an unreadable file among them.
    pub fn load(file: &Path) -> Result<Self, Problems> {
        let text = folder::read(file).map_err(|problem| Problems(vec![problem]))?;
        Self::parse(file, &text)
    }

    /// Parses the text of a file; opens nothing.
    ///
    /// # Errors
    /// All problems.
    pub fn parse(file: &Path, text: &str) -> Result<Self, Problems> {
        let document = Document::parse(file, text, Vec::new()).map_err(Problems)?;
        let mut manifest = read::read(&document);
        if let Some(manifest) = &mut manifest {
            manifest.text = text.into();
        }
        let problems = document.into_problems();
        match manifest {
            Some(manifest) => Problems::none_or(problems, manifest),
            None => Err(Problems(problems)),
        }
    }

    /// The file it was read from.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// What the file said.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The same plugin with the component at another place.
    #[must_use]
    pub fn with_component(mut self, source: Source, sha256: Option<Digest>) -> Self {
        self.source = source;
        self.kept_at = None;
        self.sha256 = sha256;
        self
    }

    /// The same plugin, as if its file had said this.
    #[must_use]
    pub fn with_text(mut self, text: &str) -> Self {
        self.text = text.into();
        self
    }

    /// The same plugin, its component read from a copy of these bytes.
    #[must_use]
    pub fn kept_at(mut self, copy: PathBuf, digest: Digest) -> Self {
        self.kept_at = Some(copy);
        self.sha256 = Some(digest);
        self
    }

    /// The same group with another's revision: its component, settings, limits and
    /// grants.
    #[must_use]
    pub fn with_revision_of(mut self, other: &Self) -> Self {
        self.source = other.source.clone();
        self.component_place = other.component_place.clone();
        self.kept_at = other.kept_at.clone();
        self.sha256 = other.sha256;
        self.listener = other.listener;
        self.limits = other.limits.clone();
        self.grants = other.grants.clone();
        self.secrets = other.secrets.clone();
        self.settings = other.settings.clone();
        self
    }

    /// Unique in its tenant.
    pub fn name(&self) -> &PluginName {
        &self.name
    }

    /// Where the component comes from.
    pub fn component(&self) -> &Source {
        &self.source
    }

    /// Where its bytes are: at the path of the component, or where they were kept.
    /// `None`: not on this machine.
    pub fn component_bytes_at(&self) -> Option<&Path> {
        self.kept_at.as_deref().or(self.source.file())
    }

    /// Other bytes are refused.
    pub fn sha256(&self) -> Option<Digest> {
        self.sha256
    }

    /// What kind of plugin it says it is; `None`: nothing, which means concurrent.
    pub fn listener(&self) -> Option<ListenerKind> {
        self.listener
    }

    /// What kind of plugin it is.
    pub fn kind(&self) -> ListenerKind {
        self.listener.unwrap_or_default()
    }

    /// The consumer group, checked.
    pub fn consumer_group(&self) -> &str {
        &self.consumer_group
    }

    /// How the group consumes.
    pub fn group_config(&self) -> GroupConfig {
        self.group
            .clone()
            .build()
            .expect("it was built from the same values when it was read")
    }

    /// The same plugin with another start for queues without an offset.
    #[must_use]
    pub fn starting_from(mut self, consume_from_where: ConsumeFromWhere) -> Self {
        self.group = self.group.consume_from_where(consume_from_where);
        self
    }

    /// The box.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What reaches outside the box.
    pub fn grants(&self) -> &Grants {
        &self.grants
    }

    /// When it is held back because it keeps failing.
    pub fn breaker(&self) -> &BreakerConfig {
        &self.breaker
    }

    /// Texts for `init`, in their order.
    pub fn settings(&self) -> &[(String, String)] {
        &self.settings
    }

    /// How the component is built, for `mqlet dev`.
    pub fn build(&self) -> Option<&Build> {
        self.build.as_ref()
    }

    /// What `mqlet dev` sends.
    pub fn dev(&self) -> &Dev {
        &self.dev
    }

    /// Where its secrets are, by name.
    pub fn secrets(&self) -> &[(String, SecretPlace)] {
        &self.secrets
    }

    /// A problem of one of its secrets, for whoever can read them.
    pub fn secret_problem(&self, name: &str, fault: Fault) -> Problem {
        Problem {
            place: self.secrets_place.clone(),
            key: Some(format!("secrets.{name}")),
            value: None,
            what: fault.what,
            remedy: fault.remedy,
        }
    }

    /// A problem of this plugin's grants, for whoever knows its tenant.
    pub fn grants_problem(&self, key: &str, value: &str, fault: Fault) -> Problem {
        Problem {
            place: self.grants_place.clone(),
            key: Some(key.to_owned()),
            value: Some(value.to_owned()),
            what: fault.what,
            remedy: fault.remedy,
        }
    }

    /// A problem of this plugin's name, for whoever compares plugins.
    pub fn name_problem(&self, fault: Fault) -> Problem {
        problem(&self.name_place, "name", self.name.as_str(), fault)
    }

    /// A problem of this plugin's component, for whoever looks at it.
    pub fn component_problem(&self, fault: Fault) -> Problem {
        let source = self.source.to_string();
        problem(&self.component_place, "component", &source, fault)
    }

    /// A problem of this plugin's group, for whoever compares plugins.
    pub fn consumer_group_problem(&self, fault: Fault) -> Problem {
        problem(
            &self.consumer_group_place,
            "consumer_group",
            &self.consumer_group,
            fault,
        )
    }
}

fn problem(place: &Place, key: &str, value: &str, fault: Fault) -> Problem {
    Problem {
        place: place.clone(),
        key: Some(key.to_owned()),
        value: Some(format!("\"{value}\"")),
        what: fault.what,
        remedy: fault.remedy,
    }
}

#[cfg(test)]
mod tests;
