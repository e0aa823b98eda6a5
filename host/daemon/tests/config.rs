//! What `mqlet check` says about the files in `tests/config`: every case is one `.toml`
//! or a folder, with the exact output beside it as `.expected`.
//!
//! `UPDATE_EXPECT=1 cargo test` writes the outputs again; review the difference. The
//! binary runs in the folder of the cases, so that no path of this machine is in them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

#[test]
fn every_invalid_file_is_answered_with_all_its_problems() {
    // Some cases name built guests; said here when one is missing.
    for guest in [
        "core_module",
        "wrong_world",
        "wrong_import",
        "unknown_import",
        "newer_contract",
        "orderly_succeed",
        "pull_as_told",
        "reach",
        "succeed",
    ] {
        guest_artifacts::path(guest);
    }
    let cases = cases("invalid");
    assert!(cases.len() >= 25, "only {} cases", cases.len());
    for case in cases {
        let output = check(&case, &[]);
        assert_eq!(
            output.status.code(),
            Some(3),
            "{}: {output:?}",
            case.display()
        );
        expect(&case, &output);
    }
}

#[test]
fn every_valid_file_is_accepted() {
    // The cases name built guests; said here when one is missing.
    for guest in ["succeed", "orderly_succeed", "pull_as_told", "reach"] {
        guest_artifacts::path(guest);
    }
    for case in cases("valid") {
        let output = check(&case, &[]);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{}: {output:?}",
            case.display()
        );
        expect(&case, &output);
    }
}

#[test]
fn json_has_the_same_problems_with_their_parts() {
    let case = PathBuf::from("invalid/manifest_many_problems.toml");
    let text = String::from_utf8(check(&case, &[]).stdout).expect("UTF-8");

    let output = check(&case, &["--output", "json"]);

    assert_eq!(output.status.code(), Some(3));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON value");
    assert_eq!(report["ok"], false);
    let problems = report["problems"].as_array().expect("a list");
    assert_eq!(
        problems.len(),
        text.lines().count() - 1,
        "the text has one line more, the count"
    );
    for problem in problems {
        for part in ["file", "key", "what", "remedy"] {
            assert!(problem[part].is_string(), "{part} of {problem}");
        }
    }
}

#[test]
fn flags_and_environment_are_checked_with_the_file() {
    let output = command(Path::new("valid/host.toml"))
        .args(["--calls-max", "many"])
        .env("MQLET_TENANTS__SHOP__NAMESRV_ADDR", "nowhere")
        .output()
        .expect("mqlet runs");

    assert_eq!(output.status.code(), Some(3));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    expect_test::expect![[r#"
        flag --calls-max: host.calls_max = many: is not a whole number; write a whole number from 1 to 65536
        environment variable MQLET_TENANTS__SHOP__NAMESRV_ADDR: tenants.shop.namesrv_addr = nowhere: "nowhere" is not an address; write host:port, for example 10.0.0.1:9876 or [::1]:9876
        2 problems
    "#]].assert_eq(&text);
}

#[test]
fn folder_of_one_plugin_is_that_plugin() {
    guest_artifacts::path("succeed");
    let output = check(Path::new("valid/plugins/audit"), &["--output", "json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON value");
    let plugins = report["plugins"].as_array().expect("a list");
    assert_eq!(plugins.len(), 1);
    assert_eq!(plugins[0]["plugin"], "audit");
    assert_eq!(
        plugins[0]["topics"],
        serde_json::json!(["orders", "payments"])
    );
    assert_eq!(plugins[0]["sha256"].as_str().map(str::len), Some(64));
}

#[test]
fn file_that_is_not_there_is_one_problem() {
    let output = check(Path::new("nowhere/mqlet.toml"), &[]);
    assert_eq!(output.status.code(), Some(3));
    expect_test::expect![[r#"
        nowhere/mqlet.toml: does not exist; correct the path, or create it
        1 problem
    "#]]
    .assert_eq(&String::from_utf8(output.stdout).expect("UTF-8"));
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config")
}

/// Files and folders, relative to the folder of the cases.
fn cases(kind: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder().join(kind)).expect("the folder of the cases");
    let mut cases: Vec<PathBuf> = entries
        .map(|entry| entry.expect("listed").path())
        .filter(|path| {
            path.is_dir()
                || path
                    .extension()
                    .is_some_and(|extension| extension == "toml")
        })
        .map(|path| Path::new(kind).join(path.file_name().expect("it has a name")))
        .collect();
    cases.sort();
    cases
}

fn command(case: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mqlet"));
    command
        .current_dir(folder())
        .arg("check")
        .arg(case)
        .env("HOME", "/home/someone")
        .env_remove("XDG_CACHE_HOME")
        .env_remove("XDG_STATE_HOME");
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("MQLET_")) {
            command.env_remove(name);
        }
    }
    command
}

fn check(case: &Path, flags: &[&str]) -> Output {
    command(case).args(flags).output().expect("mqlet runs")
}

fn expect(case: &Path, output: &Output) {
    assert!(output.stderr.is_empty(), "{}: {output:?}", case.display());
    let text = String::from_utf8(output.stdout.clone()).expect("UTF-8");
    expect_test::expect_file![folder().join(case).with_extension("expected")]
        .assert_eq(&stable(&text));
}

/// Digests change with every build of a guest.
fn stable(text: &str) -> String {
    let is_revision = |word: &str| word.len() == 12 && word.chars().all(|c| c.is_ascii_hexdigit());
    let words = text.split(' ');
    words
        .map(|word| if is_revision(word) { "REVISION" } else { word })
        .collect::<Vec<_>>()
        .join(" ")
}
