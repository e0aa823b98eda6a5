//! `mqlet check`: validates everything, opens no socket.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use plugin_lifecycle::manifest::folder;
use plugin_lifecycle::preflight::{self, Preflight};
use plugin_lifecycle::{Manifest, Problem, Problems};
use serde::Serialize;
use wasm::ListenerKind;

use crate::cli::{GlobalArguments, HostArguments};
use crate::config::problem::ProblemView;
use crate::config::{CONFIG_FILE_NAME, Config, overrides};
use crate::exit::{self, Exit};
use crate::output::Output;
use crate::reach;
use crate::revisions::changes::Changes;

/// Validate configuration, manifests and components; connect to nothing
#[derive(Args, Debug)]
#[command(
    after_help = exit::HELP,
    long_about = "\
Validates a configuration file, the manifests it names and their components (are they
components, which world, which imports, are these granted). Opens no socket and changes
nothing; of a component that has to be fetched it says so. Lists all problems at once, each
with file, key, value and remedy, and ends with 3 when there is one. Of each plugin that a
host has served from here (state_dir), says what changes against the revision that served
last.

Examples:
  mqlet check                              mqlet.toml and everything it names
  mqlet check plugins/hello/rust           one plugin
  mqlet check plugins/hello/rust/plugin.toml
  mqlet check plugins                      a folder of manifests
  mqlet check mqlet.toml --output json     for a pipeline"
)]
pub(crate) struct CheckArguments {
    /// A configuration file, a plugin's manifest, or a folder of one or more plugins
    #[arg(default_value = "mqlet.toml")]
    pub(crate) path: PathBuf,
    #[command(flatten)]
    pub(crate) host: HostArguments,
}

/// See [`CheckArguments`].
pub(crate) fn execute(
    global: &GlobalArguments,
    arguments: &CheckArguments,
    output: &mut Output,
) -> anyhow::Result<Exit> {
    let overrides = overrides::collect(global, &arguments.host);
    let alone = |manifest| (None::<Arc<str>>, manifest);
    let mut state_dir = None;
    let (manifests, mut problems) = match what(&arguments.path) {
        What::Config(file) => {
            let loaded = Config::load(&file, overrides);
            state_dir = loaded.config.map(|config| config.host.state_dir);
            let manifests = loaded.manifests.into_iter();
            let manifests = manifests.map(|(tenant, manifest)| (Some(tenant), manifest));
            (manifests.collect::<Vec<_>>(), loaded.problems)
        }
        What::Manifest(file) => match Manifest::load(&file) {
            Ok(manifest) => (vec![alone(manifest)], Vec::new()),
            Err(Problems(problems)) => (Vec::new(), problems),
        },
        What::Folder(folder) => {
            let (manifests, problems) = folder::load(&folder);
            (manifests.into_iter().map(alone).collect(), problems)
        }
        What::Nothing(problem) => (Vec::new(), vec![problem]),
    };
    let mut plugins = Vec::new();
    for (tenant, manifest) in &manifests {
        if manifest.component().is_remote() {
            problems.extend(reach::missing_secrets(manifest));
            plugins.push(PluginView::new(tenant.as_deref(), manifest, None));
            continue;
        }
        match preflight::check(manifest) {
            Ok(found) => {
                // Read and forgotten: what is missing is found before the plugin is loaded.
                problems.extend(reach::missing_secrets(manifest));
                let place = state_dir.as_deref().zip(tenant.as_deref());
                let changes = place.and_then(|(state_dir, tenant)| {
                    Changes::of_checked(state_dir, tenant, manifest, &found)
                });
                plugins.push(PluginView {
                    changes,
                    ..PluginView::new(tenant.as_deref(), manifest, Some(&found))
                });
            }
            Err(of_component) => problems.extend(of_component),
        }
    }
    let report = Report {
        ok: problems.is_empty(),
        plugins,
        problems: problems.iter().map(ProblemView::from).collect(),
    };
    output.result(report.text(&problems), &report)?;
    Ok(if report.ok { Exit::Done } else { Exit::Refused })
}

/// What a path means.
enum What {
    Config(PathBuf),
    Manifest(PathBuf),
    Folder(PathBuf),
    Nothing(Problem),
}

/// A folder is a plugin's, a host's, or one of manifests; a file is what its first
/// keys say, and a configuration when they say nothing.
fn what(path: &Path) -> What {
    if path.is_dir() {
        let manifest = path.join(folder::MANIFEST_FILE_NAME);
        let config = path.join(CONFIG_FILE_NAME);
        return if manifest.is_file() {
            What::Manifest(manifest)
        } else if config.is_file() {
            What::Config(config)
        } else {
            What::Folder(path.to_owned())
        };
    }
    let text = match folder::read(path) {
        Ok(text) => text,
        Err(problem) => return What::Nothing(problem),
    };
    let first_line_of_manifest = |line: &str| {
        ["name", "component", "consumer_group"].iter().any(|key| {
            let rest = line.trim_start().strip_prefix(key);
            rest.is_some_and(|rest| rest.trim_start().starts_with('='))
        })
    };
    if text.lines().any(first_line_of_manifest)
        || path
            .file_name()
            .is_some_and(|name| name == folder::MANIFEST_FILE_NAME)
    {
        What::Manifest(path.to_owned())
    } else {
        What::Config(path.to_owned())
    }
}

/// The answer, as JSON.
#[derive(Serialize)]
struct Report<'a> {
    ok: bool,
    plugins: Vec<PluginView<'a>>,
    problems: Vec<ProblemView<'a>>,
}

impl Report<'_> {
    fn text(&self, problems: &[Problem]) -> String {
        // What is in order would only hide what is not.
        let mut lines: Vec<String> = if problems.is_empty() {
            self.plugins.iter().map(PluginView::text).collect()
        } else {
            problems.iter().map(Problem::to_string).collect()
        };
        lines.push(match problems.len() {
            0 => "nothing is wrong".to_owned(),
            1 => "1 problem".to_owned(),
            count => format!("{count} problems"),
        });
        lines.join("\n")
    }
}

/// A plugin that is in order.
#[derive(Serialize)]
struct PluginView<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<&'a str>,
    plugin: &'a str,
    listener: &'static str,
    #[serde(skip)]
    kind: ListenerKind,
    file: String,
    consumer_group: &'a str,
    topics: Vec<String>,
    component: String,
    /// This and what follows: `None` for what has to be fetched first.
    component_bytes: Option<u64>,
    sha256: Option<String>,
    revision: Option<String>,
    /// Imports that reach outside; all of them are granted.
    wants: Vec<String>,
    /// What it is granted, in words.
    grants: Vec<String>,
    /// Against what serves or served last, when a host has run here.
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<Changes>,
}

impl<'a> PluginView<'a> {
    fn new(tenant: Option<&'a str>, manifest: &'a Manifest, found: Option<&Preflight>) -> Self {
        let group = manifest.group_config();
        Self {
            tenant,
            plugin: manifest.name().as_str(),
            listener: found.map_or(manifest.kind(), |found| found.listener).name(),
            kind: found.map_or(manifest.kind(), |found| found.listener),
            file: manifest.file().display().to_string(),
            consumer_group: manifest.consumer_group(),
            topics: group
                .subscriptions()
                .iter()
                .map(|one| one.topic.clone())
                .collect(),
            component: manifest.component().to_string(),
            component_bytes: found.map(|found| found.component.bytes().len() as u64),
            sha256: match found {
                Some(found) => Some(found.digest.to_string()),
                None => manifest.sha256().map(|digest| digest.to_string()),
            },
            revision: found.map(|found| found.revision.to_string()),
            wants: found.map_or_else(Vec::new, |found| {
                found.component.reaches().map(str::to_owned).collect()
            }),
            grants: manifest.grants().words(),
            changes: None,
        }
    }

    fn text(&self) -> String {
        let tenant = self
            .tenant
            .map(|tenant| format!("{tenant}/"))
            .unwrap_or_default();
        let (verb, how) = match self.kind {
            ListenerKind::Concurrent => ("consumes", ""),
            ListenerKind::Orderly => ("consumes", " in order"),
            ListenerKind::ScheduledPull => ("pulls", ""),
        };
        let mut text = format!(
            "{}: plugin \"{tenant}{}\" {verb} {}{how} as {}, {}",
            self.file,
            self.plugin,
            self.topics.join(", "),
            self.consumer_group,
            match &self.revision {
                Some(revision) => format!("revision {revision} of {}", self.component),
                None => format!(
                    "its component is {}, which is fetched when it is deployed: only then it is known what it imports and whether it is signed",
                    self.component
                ),
            },
        );
        if !self.wants.is_empty() {
            text.push_str(&format!("\n  it imports {}", self.wants.join(", ")));
        }
        for grant in &self.grants {
            text.push_str(&format!("\n  it {grant}"));
        }
        if let Some(changes) = &self.changes {
            text.push_str(&format!("\n  {}", changes.text()));
        }
        text
    }
}
