//! Every key of `mqlet.toml`, with its default and its range.

use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use plugin_lifecycle::Ceiling;
use plugin_lifecycle::document::{Document, Section};
use plugin_lifecycle::manifest::name::check_name;
use plugin_lifecycle::problem::{Fault, Place, beside};
use plugin_lifecycle::value::bytes_text;

use crate::cli::LogFormat;
use crate::config::{
    ControlConfig, HostConfig, LogConfig, TenantConfig, api, budgets, compile, connection, folders,
    sources,
};
use crate::control::socket;
use crate::reach;

const CALLS_MAX_DEFAULT: u64 = 256;
const TENANT_CALLS_MAX_DEFAULT: u32 = 128;
const BUFFER_BYTES_DEFAULT: u64 = 1 << 30;
/// Two frames of the largest size: with less, one answer could stop a tenant for good.
const TENANT_BUFFER_BYTES_MIN: u64 = 32 << 20;
const INSTANCES_MAX_DEFAULT: u64 = 1000;
const DRAIN_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// How long a revision that was replaced stays warm, and how long trouble takes its
/// successor back by itself.
const ROLLBACK_WINDOW_DEFAULT: Duration = Duration::from_secs(600);
const ROLLBACK_WINDOW_MAX: Duration = Duration::from_secs(24 * 3600);
const DRAIN_TIMEOUT_MAX: Duration = Duration::from_secs(3600);

/// Reads the whole file. What is wrong has its default, and is a problem; a tenant that
/// cannot be told apart is left out.
pub(crate) fn read(document: &Document<'_>) -> (HostConfig, LogConfig, Vec<TenantConfig>) {
    let root = document.root();
    let host = host(document, &root);
    let log = log(root.section("log"));
    let tenants = tenants(document, &root, &host);
    root.not_yet("admin", "remove it");
    root.refuse_unknown();
    (host, log, tenants)
}

/// Reads `[host]`, `[control]`, `[sources]` and `[compile]`.
pub(crate) fn host(document: &Document<'_>, root: &Section<'_, '_>) -> HostConfig {
    let section = root.section("host");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let state_dir = folder(document, &section, "state_dir", folders::state_dir());
    let config = HostConfig {
        control: control(document, root.section("control"), &state_dir),
        sources: sources::read(document, root.section("sources")),
        worker_threads: section.or("worker_threads", cores + 1, |value| {
            value
                .count(1..=1024)
                .map(|threads| usize::try_from(threads).unwrap_or(cores + 1))
        }),
        calls_max: count(&section, "calls_max", CALLS_MAX_DEFAULT, 1..=65_536),
        buffer_bytes: section.or("buffer_bytes", BUFFER_BYTES_DEFAULT, |value| {
            value.byte_size(TENANT_BUFFER_BYTES_MIN..=1 << 40)
        }),
        instances_max: count(
            &section,
            "instances_max",
            INSTANCES_MAX_DEFAULT,
            1..=100_000,
        ),
        cache_dir: folder(document, &section, "cache_dir", folders::cache_dir()),
        state_dir,
        drain_timeout: section.or("drain_timeout", DRAIN_TIMEOUT_DEFAULT, |value| {
            value.duration(Duration::ZERO..=DRAIN_TIMEOUT_MAX)
        }),
        rollback_window: section.or("rollback_window", ROLLBACK_WINDOW_DEFAULT, |value| {
            value.duration(Duration::ZERO..=ROLLBACK_WINDOW_MAX)
        }),
        compile: compile::read(root.section("compile")),
    };
    section.refuse_unknown();
    config
}

fn control(document: &Document<'_>, section: Section<'_, '_>, state_dir: &Path) -> ControlConfig {
    let default = state_dir.join(socket::FILE_NAME);
    let path = folder(document, &section, "socket", Some(default));
    let is_default = !section.has("socket");
    if !is_default && let Err(error) = socket::check_path(&path) {
        let remedy = "write a shorter path";
        section.fault("socket", Fault::new(error.to_string(), remedy));
    }
    let api = api::read(document, &section);
    section.refuse_unknown();
    ControlConfig {
        socket: path,
        is_default,
        api,
    }
}

/// Reads `[log]`.
pub(crate) fn log(section: Section<'_, '_>) -> LogConfig {
    let config = LogConfig {
        level: section.or("level", "info".to_owned(), |value| {
            let level = value.text()?;
            if is_log_filter(level) {
                Ok(level.to_owned())
            } else {
                Err(Fault::new(
                    "is no log level",
                    "write error, warn, info, debug or trace; parts apart as in \"info,remoting=debug\"",
                ))
            }
        }),
        format: section.or("format", LogFormat::Text, |value| {
            value.choice(&[("text", LogFormat::Text), ("json", LogFormat::Json)], &[])
        }),
    };
    section.refuse_unknown();
    config
}

/// Stricter than the filter's own parser, which takes a mistyped level for the name of
/// a part.
fn is_log_filter(text: &str) -> bool {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    let has_level = |part: &str| {
        let level = part.rsplit_once('=').map_or(part, |(_, level)| level);
        LEVELS.contains(&level.trim())
    };
    text.split(',').all(has_level) && tracing_subscriber::EnvFilter::try_new(text).is_ok()
}

/// A tenant while the others' shares are not known.
struct Share<'d, 't> {
    section: Section<'d, 't>,
    tenant: TenantConfig,
    buffer_bytes: Option<u64>,
}

fn tenants(
    document: &Document<'_>,
    root: &Section<'_, '_>,
    host: &HostConfig,
) -> Vec<TenantConfig> {
    const REMEDY: &str = "add a table [tenants.NAME] with namesrv_addr = [\"10.0.0.1:9876\"] and plugins = \"plugins\"";
    let section = root.section("tenants");
    let tables = section.sections();
    if !root.has("tenants") {
        root.missing("tenants", REMEDY);
    } else if tables.is_empty() && section.is_present() {
        root.fault("tenants", Fault::new("names no tenant", REMEDY));
    }
    let mut shares: Vec<Share<'_, '_>> = Vec::new();
    for (name, table) in tables {
        if let Err(fault) = check_name(&name) {
            let what = format!("the tenant's name {}", fault.what);
            section.fault(&name, Fault::new(what, fault.remedy));
        }
        shares.extend(tenant(document, &name, table, host));
    }
    share_buffers(&mut shares, host.buffer_bytes, root);
    shares
        .into_iter()
        .map(|share| {
            share.section.refuse_unknown();
            share.tenant
        })
        .collect()
}

/// `None` when it has no folder of plugins to look at.
fn tenant<'d, 't>(
    document: &Document<'_>,
    name: &str,
    section: Section<'d, 't>,
    host: &HostConfig,
) -> Option<Share<'d, 't>> {
    let connection = connection::read(document, &section);
    let plugins = section.required("plugins", "\"plugins\"", |value| {
        let text = value.text()?;
        if text.is_empty() {
            return Err(Fault::new(
                "is empty",
                "write the path of a folder of manifests",
            ));
        }
        Ok(beside(document.file(), Path::new(text)))
    });
    let calls_max = section.optional("calls_max", |value| value.count(1..=65_536));
    if calls_max.is_some_and(|calls| calls > u64::from(host.calls_max)) {
        section.fault(
            "calls_max",
            Fault::new(
                format!("is more than the host's calls_max, {}", host.calls_max),
                "lower it, or raise calls_max of [host]",
            ),
        );
    }
    let buffer_bytes = section.optional("buffer_bytes", |value| {
        value.byte_size(TENANT_BUFFER_BYTES_MIN..=1 << 40)
    });
    let weight = section.optional("weight", |value| {
        value.count(1..=u64::from(wasm::WEIGHT_MAX))
    });
    let budgets = budgets::read(section.section("budgets"));
    let reach = reach::read(document, &section);
    let ceiling = Ceiling::read(name, section.section("grants"));
    let signatures = sources::signatures(document, section.section("signatures"));
    section.not_yet("instance_name", "remove it");
    let Some(plugins_folder) = plugins else {
        section.refuse_unknown();
        return None;
    };
    let tenant = TenantConfig {
        name: Arc::from(name),
        connection,
        plugins_folder,
        plugins: Vec::new(),
        calls_max: calls_max
            .and_then(|calls| u32::try_from(calls).ok())
            .unwrap_or(TENANT_CALLS_MAX_DEFAULT.min(host.calls_max)),
        buffer_bytes: 0,
        weight: weight
            .and_then(|weight| NonZeroU32::new(u32::try_from(weight).ok()?))
            .unwrap_or(wasm::WEIGHT_DEFAULT),
        budgets,
        ceiling,
        reach,
        signatures,
    };
    Some(Share {
        section,
        tenant,
        buffer_bytes,
    })
}

/// Gives every tenant its share: what it asks for, or an equal part of what is left.
fn share_buffers(shares: &mut [Share<'_, '_>], total: u64, root: &Section<'_, '_>) {
    let asked: u64 = shares.iter().filter_map(|share| share.buffer_bytes).sum();
    let silent = shares
        .iter()
        .filter(|share| share.buffer_bytes.is_none())
        .count() as u64;
    let left = total.saturating_sub(asked);
    let equal = left.checked_div(silent).unwrap_or(left);
    if asked > total {
        let last = shares.iter().rfind(|share| share.buffer_bytes.is_some());
        if let Some(share) = last {
            share.section.fault(
                "buffer_bytes",
                Fault::new(
                    format!(
                        "the tenants' shares are {} together, more than the host's buffer_bytes, {}",
                        bytes_text(asked),
                        bytes_text(total)
                    ),
                    "lower them, or raise buffer_bytes of [host]",
                ),
            );
        }
    } else if silent > 0 && equal < TENANT_BUFFER_BYTES_MIN {
        root.section("host").fault(
            "buffer_bytes",
            Fault::new(
                format!(
                    "leaves {} to each of {silent} tenants without a share of their own, and a tenant needs {}",
                    bytes_text(equal),
                    bytes_text(TENANT_BUFFER_BYTES_MIN)
                ),
                "raise it, or lower the tenants' buffer_bytes",
            ),
        );
    }
    for share in shares {
        share.tenant.buffer_bytes = share.buffer_bytes.unwrap_or(equal);
    }
}

fn count(
    section: &Section<'_, '_>,
    key: &'static str,
    default: u64,
    range: RangeInclusive<u64>,
) -> u32 {
    let number = section.or(key, default, |value| value.count(range));
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn folder(
    document: &Document<'_>,
    section: &Section<'_, '_>,
    key: &'static str,
    default: Option<std::path::PathBuf>,
) -> std::path::PathBuf {
    // A path in a file starts at the file, one in a variable or flag where the user is.
    let base = match section.place(key) {
        Place::File { .. } => document.file().parent().unwrap_or(Path::new("")),
        Place::Environment { .. } | Place::Flag { .. } => Path::new(""),
    };
    let given = section.optional(key, |value| folders::expand(value.text()?, base));
    if given.is_none() && default.is_none() && !section.has(key) {
        section.missing(key, "set it, or HOME: no home folder is known");
    }
    given.or(default).unwrap_or_default()
}
