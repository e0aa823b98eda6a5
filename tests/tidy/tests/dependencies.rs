//! Which crate may use which: the picture in `host/ARCHITECTURE.md`, as a table.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};
use tidy::{assert_none, root};

/// Each crate of the host and the crates of ours that it may use. Arrows point down.
const MAY_USE: [(&str, &[&str]); 10] = [
    ("protocol", &[]),
    ("consumer", &["protocol"]),
    ("remoting", &["protocol"]),
    ("embedded-broker", &["protocol", "remoting"]),
    ("driver", &["consumer", "remoting", "protocol"]),
    ("wasm", &["consumer", "protocol"]),
    ("plugin-lifecycle", &["wasm", "consumer", "protocol"]),
    ("plugin-build", &[]),
    (
        "daemon",
        &[
            "driver",
            "plugin-lifecycle",
            "plugin-build",
            "embedded-broker",
            "wasm",
            "remoting",
            "consumer",
            "protocol",
        ],
    ),
    ("xtask", &["plugin-build"]),
];

/// Crates of rules: nothing below them may reach a socket, a clock or a task.
const PURE: [&str; 2] = ["protocol", "consumer"];
const IMPURE: [&str; 8] = [
    "tokio",
    "tokio-util",
    "mio",
    "socket2",
    "rustix",
    "notify",
    "tracing-subscriber",
    "rand",
];

#[test]
fn crates_use_only_what_stands_below_them() {
    let metadata = metadata();
    let may_use = BTreeMap::from(MAY_USE);
    let mut violations = Vec::new();
    for package in host_crates(&metadata) {
        let Some(allowed) = may_use.get(package.name.as_str()) else {
            violations.push(format!("{} is new", package.name));
            continue;
        };
        for used in normal_dependencies(package) {
            if may_use.contains_key(used) && !allowed.contains(&used) {
                violations.push(format!("{} uses {used}", package.name));
            }
        }
    }
    assert_none(
        &violations,
        "Move the code to where the arrow allows it (host/ARCHITECTURE.md), or change that page \
         and the table in tests/tidy/tests/dependencies.rs together.",
    );
}

#[test]
fn driver_and_wasm_do_not_know_each_other_even_indirectly() {
    let metadata = metadata();
    let mut violations = Vec::new();
    for (one, other) in [
        ("driver", "wasm"),
        ("wasm", "driver"),
        ("plugin-lifecycle", "driver"),
    ] {
        if reachable(&metadata, one).contains(other) {
            violations.push(format!("{one} reaches {other}"));
        }
    }
    assert_none(
        &violations,
        "They meet in the ports of `consumer` (listener.rs, publish.rs).",
    );
}

#[test]
fn only_the_wasm_crate_knows_wasmtime() {
    let metadata = metadata();
    let violations: Vec<_> = host_crates(&metadata)
        .filter(|package| package.name.as_str() != "wasm")
        .flat_map(|package| {
            let used = normal_dependencies(package).into_iter();
            used.filter(|used| used.starts_with("wasmtime") || used.starts_with("cranelift"))
                .map(|used| format!("{} uses {used}", package.name))
                .collect::<Vec<_>>()
        })
        .collect();
    assert_none(
        &violations,
        "Offer what is needed from host/wasm, in types of its own.",
    );
}

#[test]
fn rules_reach_no_socket_clock_or_task() {
    let metadata = metadata();
    let mut violations = Vec::new();
    for pure in PURE {
        let reachable = reachable(&metadata, pure);
        let impure = IMPURE.iter().filter(|impure| reachable.contains(**impure));
        violations.extend(impure.map(|impure| format!("{pure} reaches {impure}")));
    }
    assert_none(
        &violations,
        "Keep the decision in the rules and move the action into the shell.",
    );
}

#[test]
fn features_of_what_is_expensive_to_build_are_chosen_once() {
    let metadata = metadata();
    let mut violations = Vec::new();
    for package in metadata.workspace_packages() {
        let manifest = std::fs::read_to_string(&package.manifest_path).expect("a readable file");
        let lines = manifest.lines().filter(|line| {
            let chosen_here = line.contains("features") || line.contains("version");
            chosen_here && (line.starts_with("wasmtime") || line.starts_with("tokio"))
        });
        violations.extend(lines.map(|line| format!("{}: {line}", package.name)));
    }
    assert_none(
        &violations,
        "Write `.workspace = true`: another feature compiles it, and all above it, once more.",
    );
}

fn metadata() -> Metadata {
    let mut command = MetadataCommand::new();
    command.manifest_path(root().join("Cargo.toml"));
    command.other_options(["--locked".to_owned()]);
    command.exec().expect("cargo metadata reads this workspace")
}

fn host_crates(metadata: &Metadata) -> impl Iterator<Item = &Package> {
    let host = root().join("host");
    let packages = metadata.workspace_packages().into_iter();
    packages.filter(move |package| package.manifest_path.as_std_path().starts_with(&host))
}

fn normal_dependencies(package: &Package) -> BTreeSet<&str> {
    let dependencies = package.dependencies.iter();
    dependencies
        .filter(|dependency| dependency.kind == DependencyKind::Normal)
        .map(|dependency| dependency.name.as_str())
        .collect()
}

/// Names of everything that a package of ours is built from, tests left out.
fn reachable(metadata: &Metadata, name: &str) -> BTreeSet<String> {
    let resolve = metadata
        .resolve
        .as_ref()
        .expect("metadata with dependencies");
    let packages: BTreeMap<_, _> = metadata
        .packages
        .iter()
        .map(|package| (&package.id, package.name.as_str()))
        .collect();
    let nodes: BTreeMap<_, _> = resolve.nodes.iter().map(|node| (&node.id, node)).collect();
    let start = metadata
        .workspace_packages()
        .into_iter()
        .find(|package| package.name.as_str() == name);
    let mut waiting = vec![&start.expect("a crate of this workspace").id];
    let mut seen = BTreeSet::new();
    while let Some(id) = waiting.pop() {
        for dependency in &nodes[id].deps {
            let normal = dependency
                .dep_kinds
                .iter()
                .any(|kind| kind.kind == DependencyKind::Normal);
            if normal && seen.insert(&dependency.pkg) {
                waiting.push(&dependency.pkg);
            }
        }
    }
    seen.into_iter().map(|id| packages[id].to_owned()).collect()
}
