//! `Config`: file, environment and flags, turned into checked values; all problems at
//! once.
//!
//! Past this point nobody checks again. `mqlet.toml` is read by `file`, variables and
//! flags come from `overrides`; `problem` shows what is wrong to people and programs.

pub(crate) mod api;
pub(crate) mod budgets;
mod compile;
pub(crate) mod connection;
pub(crate) mod file;
pub(crate) mod folders;
pub(crate) mod overrides;
pub(crate) mod problem;
mod sources;

use std::borrow::Cow;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use plugin_lifecycle::Ceiling;
use plugin_lifecycle::document::{Document, Override};
use plugin_lifecycle::manifest::{Manifest, folder};
use plugin_lifecycle::problem::{Fault, Problem};
use plugin_lifecycle::signature::SignaturePolicy;
use plugin_lifecycle::source::SourcesConfig;
use protocol::topic;

use crate::cli::{GlobalArguments, HostArguments, LogFormat};
use crate::config::api::ApiConfig;
use crate::config::connection::ConnectionConfig;
use crate::reach::ReachConfig;

/// What a command reads when it is given no file.
pub(crate) const CONFIG_FILE_NAME: &str = "mqlet.toml";

/// Everything a host is told.
#[derive(Debug)]
pub(crate) struct Config {
    /// The process.
    pub(crate) host: HostConfig,
    /// Its log.
    pub(crate) log: LogConfig,
    /// At least one, by name.
    pub(crate) tenants: Vec<TenantConfig>,
}

/// `[host]`, `[control]` and `[compile]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct HostConfig {
    /// Threads of the runtime.
    pub(crate) worker_threads: usize,
    /// Calls under way, all tenants together.
    pub(crate) calls_max: u32,
    /// Fetched and not finished, all tenants together.
    pub(crate) buffer_bytes: u64,
    /// Slots of the instance pool.
    pub(crate) instances_max: u32,
    /// Compiled components; made with mode 0700.
    pub(crate) cache_dir: PathBuf,
    /// What must outlive the process.
    pub(crate) state_dir: PathBuf,
    /// Where commands reach the host.
    pub(crate) control: ControlConfig,
    /// Where components come from that are not on this machine.
    pub(crate) sources: SourcesConfig,
    /// How long calls under way may take to end.
    pub(crate) drain_timeout: Duration,
    /// How long a revision that was replaced stays warm.
    pub(crate) rollback_window: Duration,
    /// What compiling a component may take.
    pub(crate) compile: wasm::CompileLimits,
}

/// `[control]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ControlConfig {
    /// Its path.
    pub(crate) socket: PathBuf,
    /// Nobody chose it: a host that cannot make it runs without.
    pub(crate) is_default: bool,
    /// The same over TCP.
    pub(crate) api: Option<ApiConfig>,
}

/// `[log]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LogConfig {
    /// A filter that `tracing` can read.
    pub(crate) level: String,
    /// Text or JSON.
    pub(crate) format: LogFormat,
}

/// `[tenants.NAME]`: one cluster and its plugins.
#[derive(Debug)]
pub(crate) struct TenantConfig {
    /// The table's name.
    pub(crate) name: Arc<str>,
    /// Its cluster.
    pub(crate) connection: ConnectionConfig,
    /// Folder of manifests.
    pub(crate) plugins_folder: PathBuf,
    /// Its manifests, by path; names and groups are unique. Not empty.
    pub(crate) plugins: Vec<Manifest>,
    /// Calls under way; at most the host's.
    pub(crate) calls_max: u32,
    /// Fetched and not finished; all shares fit the host's.
    pub(crate) buffer_bytes: u64,
    /// Its part of the CPU, beside the other tenants'.
    pub(crate) weight: NonZeroU32,
    /// The most that its plugins may be granted.
    pub(crate) ceiling: Option<Ceiling>,
    /// What they may reach together.
    pub(crate) reach: ReachConfig,
    /// Who must have signed their components.
    pub(crate) signatures: Arc<SignaturePolicy>,
    /// What its plugins may use together.
    pub(crate) budgets: wasm::Budgets,
}

/// What a file was found to say: as much of it as could be read, and every problem.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// `None` beside problems.
    pub(crate) config: Option<Config>,
    /// Manifests that are in order, tenant by tenant, whatever else is wrong: `check`
    /// looks at their components too.
    pub(crate) manifests: Vec<(Arc<str>, Manifest)>,
    /// Not to be run when there is one.
    pub(crate) problems: Vec<Problem>,
}

impl Config {
    /// Reads a configuration file and every manifest it names. Opens no socket.
    pub(crate) fn load(file: &Path, overrides: Vec<Override>) -> Loaded {
        let nothing = |problems| Loaded {
            config: None,
            manifests: Vec::new(),
            problems,
        };
        let text = match folder::read(file) {
            Ok(text) => text,
            Err(problem) => return nothing(vec![problem]),
        };
        let document = match Document::parse(file, &text, overrides) {
            Ok(document) => document,
            Err(problems) => return nothing(problems),
        };
        let (host, log, tenants) = file::read(&document);
        let mut problems = document.into_problems();

        let mut manifests = Vec::new();
        let mut complete = Vec::new();
        let mut read_folders: Vec<PathBuf> = Vec::new();
        for mut tenant in tenants {
            let (plugins, of_plugins) = folder::load(&tenant.plugins_folder);
            // Two tenants may share a folder; what is wrong in it is said once.
            if !read_folders.contains(&tenant.plugins_folder) {
                problems.extend(of_plugins);
                read_folders.push(tenant.plugins_folder.clone());
            }
            let named = plugins
                .iter()
                .map(|plugin| (Arc::clone(&tenant.name), plugin.clone()));
            manifests.extend(named);
            tenant.plugins = plugins;
            complete.push(tenant);
        }
        problems.extend(shared_groups(&complete));
        let each = |find: fn(&TenantConfig, &Manifest) -> Option<Problem>| {
            let plugins = complete
                .iter()
                .flat_map(|tenant| tenant.plugins.iter().map(move |plugin| (tenant, plugin)));
            plugins.filter_map(move |(tenant, plugin)| find(tenant, plugin))
        };
        problems.extend(each(|tenant, plugin| {
            name_in_the_namespace(&tenant.name, &tenant.connection, plugin)
        }));
        problems.extend(each(|tenant, plugin| long_name(&tenant.connection, plugin)));
        problems.extend(complete.iter().flat_map(beyond_ceilings));
        let config = Config {
            host,
            log,
            tenants: complete,
        };
        Loaded {
            config: problems.is_empty().then_some(config),
            manifests,
            problems,
        }
    }
}

/// The connection of one tenant of a file, whatever else is in it.
///
/// # Errors
/// The file cannot be read, has no such tenant, or says of it what cannot be.
pub(crate) fn tenant_connection(
    file: &Path,
    name: &str,
    overrides: Vec<Override>,
) -> Result<ConnectionConfig, Vec<Problem>> {
    let text = folder::read(file).map_err(|problem| vec![problem])?;
    let document = Document::parse(file, &text, overrides)?;
    let (_, _, tenants) = file::read(&document);
    let found = tenants.into_iter().find(|tenant| &*tenant.name == name);
    if found.is_none() {
        let fault = Fault::new(
            format!("has no tenant \"{name}\""),
            format!("name another, or add a table [tenants.{name}]"),
        );
        document.fault("tenants", fault);
    }
    let table = format!("tenants.{name}");
    let mut problems = document.into_problems();
    problems.retain(|problem| {
        let key = problem.key.as_deref().unwrap_or("tenants");
        key == "tenants"
            || key
                .strip_prefix(&table)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    });
    match found {
        Some(tenant) if problems.is_empty() => Ok(tenant.connection),
        _ => Err(problems),
    }
}

/// `[host]` and `[log]` of a command that has no file.
///
/// # Errors
/// All problems of the environment and the flags.
pub(crate) fn without_file(
    overrides: Vec<Override>,
) -> Result<(HostConfig, LogConfig), plugin_lifecycle::Problems> {
    // Tenants are the file's; a variable about one says nothing here.
    let overrides = overrides
        .into_iter()
        .filter(|one| !one.key.starts_with("tenants."))
        .collect();
    let document = Document::parse(Path::new("mqlet.toml"), "", overrides)
        .map_err(plugin_lifecycle::Problems)?;
    let root = document.root();
    let host = file::host(&document, &root);
    let log = file::log(root.section("log"));
    plugin_lifecycle::Problems::none_or(document.into_problems(), (host, log))
}

/// Where a running host listens, by its file and the environment. What else is wrong with
/// the file is the host's business.
///
/// # Errors
/// The file that was named cannot be read.
pub(crate) fn control_socket(
    file: Option<&Path>,
    global: &GlobalArguments,
) -> anyhow::Result<PathBuf> {
    Ok(host_of(file, global)?.control.socket)
}

/// Where a host keeps what outlives it; otherwise as [`control_socket`].
///
/// # Errors
/// The file that was named cannot be read.
pub(crate) fn state_dir(file: Option<&Path>, global: &GlobalArguments) -> anyhow::Result<PathBuf> {
    Ok(host_of(file, global)?.state_dir)
}

fn host_of(file: Option<&Path>, global: &GlobalArguments) -> anyhow::Result<HostConfig> {
    let overrides = overrides::collect(global, &HostArguments::default());
    let default = Path::new(CONFIG_FILE_NAME);
    let file = match file {
        Some(file) => Some(file),
        None => default.is_file().then_some(default),
    };
    let text = match file.map(folder::read) {
        Some(Ok(text)) => text,
        Some(Err(problem)) => return Err(problem::refused(&[problem]).into()),
        None => String::new(),
    };
    let document = Document::parse(file.unwrap_or(default), &text, overrides)
        .map_err(|problems| problem::refused(&problems))?;
    let root = document.root();
    Ok(file::host(&document, &root))
}

/// Tenants are clusters, but two may name the same one: a group has one plugin there too.
fn shared_groups(tenants: &[TenantConfig]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (index, second) in tenants.iter().enumerate() {
        let same_cluster = tenants[..index]
            .iter()
            .filter(|first| first.connection.shares_cluster_with(&second.connection));
        for first in same_cluster {
            for plugin in &second.plugins {
                let mut others = first.plugins.iter();
                let shared = others.find_map(|other| {
                    shared_group((&second.connection, plugin), (&first.connection, other))
                });
                problems.extend(shared);
            }
        }
    }
    problems
}

/// Two plugins of clusters that are one, on one group there.
fn shared_group(
    (of_second, second): (&ConnectionConfig, &Manifest),
    (of_first, first): (&ConnectionConfig, &Manifest),
) -> Option<Problem> {
    (group_at_the_brokers(of_second, second) == group_at_the_brokers(of_first, first))
        .then(|| second.consumer_group_problem(folder::shared_group(second, first)))
}

/// The same for a plugin that comes while others serve.
pub(crate) fn taken_group(
    newcomer: (&ConnectionConfig, &Manifest),
    serving: (&ConnectionConfig, &Manifest),
) -> Option<Problem> {
    let is_one_cluster = newcomer.0.shares_cluster_with(serving.0);
    is_one_cluster.then(|| shared_group(newcomer, serving))?
}

/// What is wrong with the name of a plugin's group in its tenant, whatever others there
/// are.
pub(crate) fn group_name_problems(
    tenant: &str,
    connection: &ConnectionConfig,
    plugin: &Manifest,
) -> Vec<Problem> {
    let in_the_namespace = name_in_the_namespace(tenant, connection, plugin);
    let long = long_name(connection, plugin);
    in_the_namespace.into_iter().chain(long).collect()
}

/// The name with the namespace in front.
fn group_at_the_brokers<'a>(connection: &ConnectionConfig, plugin: &'a Manifest) -> Cow<'a, str> {
    topic::wrap_namespace(&connection.namespace, plugin.consumer_group())
}

/// Commands and listings know a group by the name without the namespace: it has one name.
fn name_in_the_namespace(
    tenant: &str,
    connection: &ConnectionConfig,
    plugin: &Manifest,
) -> Option<Problem> {
    let namespace = connection.namespace.as_str();
    let group = plugin.consumer_group();
    let short = topic::without_namespace(namespace, group);
    if short == group {
        return None;
    }
    let what = format!(
        "has the namespace \"{namespace}\" in it, which tenant \"{tenant}\" puts in front of every name"
    );
    let fault = Fault::new(what, format!("write \"{short}\""));
    Some(plugin.consumer_group_problem(fault))
}

/// Of each plugin, what its tenant may not have.
fn beyond_ceilings(tenant: &TenantConfig) -> Vec<Problem> {
    let ceiling = tenant.ceiling.iter();
    let exceeded = ceiling.flat_map(|ceiling| {
        let plugins = tenant.plugins.iter();
        plugins.flat_map(|plugin| ceiling.exceeded_by(plugin))
    });
    exceeded.collect()
}

/// With its namespace in front a name may be too long for brokers.
fn long_name(connection: &ConnectionConfig, plugin: &Manifest) -> Option<Problem> {
    let namespace = connection.namespace.as_str();
    let error = topic::check_group_name(&group_at_the_brokers(connection, plugin)).err()?;
    let what = format!("is too long in namespace \"{namespace}\": {error}");
    Some(plugin.consumer_group_problem(Fault::new(what, "shorten one of the two")))
}
