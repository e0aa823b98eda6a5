//! The names a component may import and export, and what to say about the others.

use semver::Version;
use wasmparser::{Parser, Payload};

use super::{ComponentProblem, ListenerKind};
use crate::CONTRACT_VERSION;
use crate::grants::Grants;

const CONTRACT: &str = "mqlet:listener/";

/// Interfaces of WASI 0.2 that are linked, sealed, for every plugin.
const SEALED_WASI: &[&str] = &[
    "wasi:cli/environment",
    "wasi:cli/exit",
    "wasi:cli/stderr",
    "wasi:cli/stdin",
    "wasi:cli/stdout",
    "wasi:cli/terminal-input",
    "wasi:cli/terminal-output",
    "wasi:cli/terminal-stderr",
    "wasi:cli/terminal-stdin",
    "wasi:cli/terminal-stdout",
    "wasi:clocks/monotonic-clock",
    "wasi:clocks/wall-clock",
    "wasi:filesystem/preopens",
    "wasi:filesystem/types",
    "wasi:io/error",
    "wasi:io/poll",
    "wasi:io/streams",
    "wasi:random/insecure",
    "wasi:random/insecure-seed",
    "wasi:random/random",
    "wasi:sockets/instance-network",
    "wasi:sockets/ip-name-lookup",
    "wasi:sockets/network",
    "wasi:sockets/tcp",
    "wasi:sockets/tcp-create-socket",
    "wasi:sockets/udp",
    "wasi:sockets/udp-create-socket",
];

/// One import, by its name.
pub(super) struct Import<'a> {
    full: &'a str,
    name: &'a str,
    version: Option<Version>,
}

impl<'a> Import<'a> {
    pub(super) fn of(full: &'a str) -> Self {
        let (name, version) = split(full);
        Self {
            full,
            name,
            version,
        }
    }

    /// Why it cannot be linked, if it cannot.
    pub(super) fn problem(&self, grants: &Grants) -> Option<ComponentProblem> {
        if let Some(interface) = self.name.strip_prefix(CONTRACT) {
            return self.contract_problem(interface);
        }
        if self.name == "wasi:logging/logging" {
            return None;
        }
        if SEALED_WASI.contains(&self.name) {
            return match &self.version {
                Some(version) if (version.major, version.minor) == (0, 2) => None,
                Some(version) if (version.major, version.minor) > (0, 2) => Some(self.unknown(
                    "build the plugin for WASI 0.2: later versions need component-model async",
                )),
                _ => Some(self.unknown("build the plugin with a toolchain for WASI 0.2")),
            };
        }
        if let Some(reach) = Reach::of(self.name) {
            return self.reach_problem(reach, grants);
        }
        Some(self.unknown(match self.name {
            "env" | "imported_func" => {
                "a function was declared and not defined; link its library, or remove the declaration"
            }
            name if name.starts_with("wasi_snapshot_preview1") => {
                "make the component with the WASI preview 1 adapter: wasm-tools component new --adapt"
            }
            name if name.contains("wbindgen") || name == "wbg" => {
                "wasm-bindgen is for browsers: build without it, or without the dependency's feature that asks for it (often getrandom's \"js\")"
            }
            name if name.starts_with("wasi:") => {
                "build the plugin without it, or for WASI 0.2"
            }
            _ => "build the plugin without it; a plugin may import mqlet:listener/call, mqlet:listener/producer, wasi:logging and the core of WASI 0.2",
        }))
    }

    fn reach_problem(&self, reach: Reach, grants: &Grants) -> Option<ComponentProblem> {
        let not_granted = |remedy| ComponentProblem::NotGranted {
            import: self.full.into(),
            remedy,
        };
        match reach {
            Reach::Http if !matches!(&self.version, Some(v) if (v.major, v.minor) == (0, 2)) => {
                Some(self.unknown("build the plugin for wasi:http 0.2"))
            }
            Reach::Http => grants.http.is_none().then(|| {
                not_granted("add http = { hosts = [\"api.example.org\"] } to its [grants], or build the plugin without it")
            }),
            Reach::Config if !self.full.ends_with("@0.2.0-rc.1") => Some(
                self.unknown("build the plugin for wasi:config/store@0.2.0-rc.1"),
            ),
            Reach::Config => (!grants.config).then(|| {
                not_granted("add config = true to its [grants], or build the plugin without it")
            }),
            Reach::KeyValue if !self.full.ends_with("@0.2.0-draft") => Some(
                self.unknown("build the plugin for wasi:keyvalue@0.2.0-draft, store or atomics"),
            ),
            Reach::KeyValue => grants.buckets.is_empty().then(|| {
                not_granted("add keyvalue = { buckets = [\"orders\"] } to its [grants], or build the plugin without it")
            }),
        }
    }

    fn contract_problem(&self, interface: &str) -> Option<ComponentProblem> {
        if let Some(problem) = version_problem(self.name, self.version.as_ref(), false) {
            return Some(problem);
        }
        match interface {
            // `types` has no functions; it is imported for its records.
            "types" | "call" | "producer" | "pull-consumer" => None,
            _ => Some(self.unknown("there is no such interface in the contract; build the plugin with an SDK of this version")),
        }
    }

    fn unknown(&self, hint: &'static str) -> ComponentProblem {
        ComponentProblem::UnknownImport {
            import: self.full.into(),
            hint,
        }
    }
}

/// Whether an import, by its full name, is for plugins with its grant alone.
pub(super) fn needs_grant(full: &str) -> bool {
    Reach::of(split(full).0).is_some()
}

/// What needs a grant to be imported.
#[derive(Clone, Copy)]
enum Reach {
    Http,
    Config,
    KeyValue,
}

impl Reach {
    fn of(name: &str) -> Option<Self> {
        match name {
            "wasi:http/types" | "wasi:http/outgoing-handler" => Some(Self::Http),
            "wasi:config/store" => Some(Self::Config),
            "wasi:keyvalue/store" | "wasi:keyvalue/atomics" => Some(Self::KeyValue),
            _ => None,
        }
    }
}

/// What an export means to us.
pub(super) enum Contract {
    Listener(ListenerKind),
    Lifecycle,
    OtherVersion(ComponentProblem),
}

impl Contract {
    /// `None`: something of the plugin's own.
    pub(super) fn of_export(full: &str) -> Option<Self> {
        let (name, version) = split(full);
        let known = match name.strip_prefix(CONTRACT)? {
            "concurrent" => Self::Listener(ListenerKind::Concurrent),
            "orderly" => Self::Listener(ListenerKind::Orderly),
            "pull-task" => Self::Listener(ListenerKind::ScheduledPull),
            "lifecycle" => Self::Lifecycle,
            _ => return version_problem(name, version.as_ref(), true).map(Self::OtherVersion),
        };
        Some(match version_problem(name, version.as_ref(), true) {
            Some(problem) => Self::OtherVersion(problem),
            None => known,
        })
    }
}

/// A component runs when it was built against this or an older version of the same
/// major; while that is 0, of the same minor (`wit/README.md`).
fn version_problem(
    name: &str,
    version: Option<&Version>,
    exported: bool,
) -> Option<ComponentProblem> {
    let ours = contract_version();
    let runs = version.is_some_and(|theirs| {
        let same_line = if ours.major == 0 {
            (theirs.major, theirs.minor) == (0, ours.minor)
        } else {
            theirs.major == ours.major
        };
        same_line && *theirs <= ours
    });
    (!runs).then(|| ComponentProblem::Version {
        name: name.into(),
        version: version.map_or_else(|| "(none)".into(), Version::to_string),
        exported,
        newer: version.is_some_and(|theirs| *theirs > ours),
    })
}

fn contract_version() -> Version {
    Version::parse(CONTRACT_VERSION).unwrap_or_else(|_| Version::new(0, 0, 0))
}

fn split(full: &str) -> (&str, Option<Version>) {
    match full.rsplit_once('@') {
        Some((name, version)) => (name, Version::parse(version).ok()),
        None => (full, None),
    }
}

/// How to make a component of a core module, by what it imports.
pub(super) fn core_module_hint(bytes: &[u8]) -> &'static str {
    let mut hint = "make a component of it: wasm-tools component new; for Rust, build with --target wasm32-wasip2";
    for payload in Parser::new(0).parse_all(bytes) {
        let Ok(payload) = payload else { break };
        let Payload::ImportSection(section) = payload else {
            continue;
        };
        for import in section.into_imports() {
            let Ok(import) = import else { break };
            match import.module {
                "gojs" | "go" => {
                    return "this is Go for browsers (GOOS=js): build with GOOS=wasip1 and -buildmode=c-shared, then make a component of it: wasm-tools component new --adapt";
                }
                "wbg" | "__wbindgen_placeholder__" | "__wbindgen_externref_xform__" => {
                    return "this is made for browsers by wasm-bindgen: build it with --target wasm32-wasip2 and without wasm-bindgen";
                }
                "wasi_snapshot_preview1" => {
                    hint = "this is a WASI preview 1 module: for Rust, build with --target wasm32-wasip2; else make a component of it: wasm-tools component new --adapt";
                }
                "env"
                    if import.name.starts_with("emscripten")
                        || import.name.starts_with("invoke_") =>
                {
                    return "this is made by Emscripten, whose JavaScript mqlet does not have: build with wasi-sdk or zig cc -target wasm32-wasi instead";
                }
                _ => {}
            }
        }
        break;
    }
    hint
}
