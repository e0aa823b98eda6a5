//! Java's push consumer and mqlet side by side on a real broker, where things go wrong:
//! `cargo xtask bench soundness`.
//!
//! Both consume the same topic in groups of their own at the same time, each member behind
//! a link of its own; all links do the same at the same moments. What counts: messages
//! lost, messages delivered again, commits that went back, how long a queue was silent
//! after a fault had ended.

#![expect(
    clippy::print_stdout,
    reason = "a program for people, who read its output"
)]

mod member;
mod trials;

use std::time::Duration;

/// How long the seeded faults go on, unless `--seconds` says otherwise.
const FAULTS: Duration = Duration::from_secs(180);

fn main() {
    let mut names: Vec<String> = Vec::new();
    let mut seconds = FAULTS;
    let mut seed = 1;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || -> u64 {
            let value = arguments.next().and_then(|value| value.parse().ok());
            value.unwrap_or_else(|| panic!("{argument} wants a number"))
        };
        match argument.as_str() {
            "--seconds" => seconds = Duration::from_secs(number()),
            "--seed" => seed = number(),
            name => names.push(name.to_owned()),
        }
    }
    let known = ["start", "join", "faults", "down", "restart", "huge"];
    for name in &names {
        assert!(
            known.contains(&name.as_str()),
            "\"{name}\" is no trial; there are {known:?}, --seconds N and --seed N"
        );
    }
    for name in known {
        if !names.is_empty() && !names.iter().any(|asked| asked == name) {
            continue;
        }
        println!("\n== {name}");
        match name {
            "start" => trials::start(),
            "join" => trials::join(),
            "faults" => trials::faults(seconds, seed),
            "down" => trials::down(),
            "restart" => trials::restart(),
            _ => trials::huge(),
        }
    }
}
