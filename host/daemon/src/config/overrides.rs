//! What is stronger than the file: environment variables, and flags over both.
//!
//! `MQLET_HOST__CALLS_MAX=64` is `calls_max` of `[host]`. Only variables with a `__`
//! are settings; the name before it is a table.

use std::sync::Arc;

use clap::ValueEnum as _;
use plugin_lifecycle::document::Override;
use plugin_lifecycle::problem::Place;

use crate::cli::{GlobalArguments, HostArguments};

/// The variables of this process, then the flags; later ones win.
pub(crate) fn collect(global: &GlobalArguments, host: &HostArguments) -> Vec<Override> {
    let variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let mut overrides = environment(variables);
    overrides.extend(flags(global, host));
    overrides
}

fn environment(variables: impl Iterator<Item = (String, String)>) -> Vec<Override> {
    let mut overrides: Vec<Override> = variables
        .filter_map(|(name, text)| {
            let path = name.strip_prefix("MQLET_")?;
            path.contains("__").then(|| Override {
                key: path.replace("__", ".").to_lowercase(),
                text,
                place: Place::Environment {
                    variable: name.as_str().into(),
                },
            })
        })
        .collect();
    // The order of an environment is nobody's choice.
    overrides.sort_by(|one, other| one.key.cmp(&other.key));
    overrides
}

fn flags(global: &GlobalArguments, host: &HostArguments) -> Vec<Override> {
    let format = global
        .log_format
        .and_then(|format| Some(format.to_possible_value()?.get_name().to_owned()));
    let flags = [
        ("host", "worker-threads", &host.worker_threads),
        ("host", "calls-max", &host.calls_max),
        ("host", "buffer-bytes", &host.buffer_bytes),
        ("host", "instances-max", &host.instances_max),
        ("host", "cache-dir", &host.cache_dir),
        ("host", "state-dir", &host.state_dir),
        ("host", "drain-timeout", &host.drain_timeout),
        ("log", "log-level", &global.log_level),
        ("log", "log-format", &format),
    ];
    flags
        .into_iter()
        .filter_map(|(table, flag, text)| {
            let key = flag.strip_prefix("log-").unwrap_or(flag).replace('-', "_");
            Some(Override {
                key: format!("{table}.{key}"),
                text: text.clone()?,
                place: Place::Flag {
                    flag: Arc::from(format!("--{flag}")),
                },
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Vec<Override> {
        environment(
            pairs
                .iter()
                .map(|(name, text)| ((*name).to_owned(), (*text).to_owned())),
        )
    }

    #[test]
    fn variable_with_two_underscores_is_a_key_of_a_table() {
        let overrides = variables(&[
            ("MQLET_TENANTS__SHOP__CALLS_MAX", "3"),
            ("MQLET_HOST__CALLS_MAX", "64"),
            ("MQLET_SOMETHING", "else"),
            ("PATH", "/bin"),
        ]);
        let keys: Vec<_> = overrides
            .iter()
            .map(|one| (one.key.as_str(), one.text.as_str()))
            .collect();
        assert_eq!(
            keys,
            [("host.calls_max", "64"), ("tenants.shop.calls_max", "3")]
        );
    }

    #[test]
    fn flags_override_the_environment() {
        let mut overrides = variables(&[("MQLET_HOST__CALLS_MAX", "64")]);
        overrides.extend(flags(
            &GlobalArguments::default(),
            &HostArguments {
                calls_max: Some("8".to_owned()),
                ..HostArguments::default()
            },
        ));

        let (host, _) = crate::config::without_file(overrides).expect("valid");

        assert_eq!(host.calls_max, 8);
    }

    #[test]
    fn unknown_variable_and_bad_value_are_problems_that_name_the_variable() {
        let overrides = variables(&[
            ("MQLET_HOST__CALLS_MAXX", "64"),
            ("MQLET_HOST__DRAIN_TIMEOUT", "5"),
        ]);

        let problems = crate::config::without_file(overrides).expect_err("two");

        expect_test::expect![[r#"
            environment variable MQLET_HOST__DRAIN_TIMEOUT: host.drain_timeout = 5: has no unit; write it with its unit, in quotes, for example "500ms", "30s" or "15m"
            environment variable MQLET_HOST__CALLS_MAXX: host.calls_maxx = 64: is no setting; remove it, or correct its name"#]]
        .assert_eq(&problems.to_string());
    }
}
