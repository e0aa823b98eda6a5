//! `[breaker]`: when a plugin that keeps failing is held back. No part of the revision.

use std::time::Duration;

use toml::de::DeValue;

use crate::breaker::BreakerConfig;
use crate::document::Section;
use crate::problem::Fault;
use crate::value::Value;

const PAUSES: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(3600);

/// Reads `[breaker]`; what is missing or wrong has its default.
pub(super) fn read(section: Section<'_, '_>) -> BreakerConfig {
    let default = BreakerConfig::default();
    let breaker = BreakerConfig {
        failures: section.or("failures", default.failures, failures),
        pause: section.or("pause", default.pause, |value| value.duration(PAUSES)),
        pause_max: section.or("pause_max", default.pause_max, |value| {
            value.duration(PAUSES)
        }),
    };
    if breaker.pause > breaker.pause_max {
        section.fault(
            "pause_max",
            Fault::new(
                "is shorter than pause",
                "make it as long as pause, or longer: it is the bound of a pause that grows",
            ),
        );
    }
    section.refuse_unknown();
    breaker
}

fn failures(value: Value<'_>) -> Result<Option<u32>, Fault> {
    match value {
        Value::Toml(DeValue::String(text)) if text == "off" => Ok(None),
        _ => {
            let count = value.count(1..=1_000_000)?;
            Ok(Some(u32::try_from(count).unwrap_or(u32::MAX)))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::Manifest;

    const PLUGIN: &str = "name = \"a\"\ncomponent = \"a.wasm\"\nconsumer_group = \"g\"\n\
        [[subscription]]\ntopic = \"t\"\n[breaker]\n";

    fn parsed(text: &str) -> Result<BreakerConfig, String> {
        let manifest = Manifest::parse(Path::new("plugin.toml"), &format!("{PLUGIN}{text}"));
        manifest
            .map(|manifest| manifest.breaker().clone())
            .map_err(|problems| problems.to_string())
    }

    #[test]
    fn breaker_is_on_and_can_be_set_or_switched_off() {
        assert_eq!(parsed(""), Ok(BreakerConfig::default()));
        assert!(BreakerConfig::default().failures.is_some());
        let off = parsed("failures = \"off\"").expect("valid");
        assert_eq!(off.failures, None);
        let set = parsed("failures = 3\npause = \"5s\"\npause_max = \"5s\"").expect("valid");
        let pause = Duration::from_secs(5);
        let expected = BreakerConfig {
            failures: Some(3),
            pause,
            pause_max: pause,
        };
        assert_eq!(set, expected);
    }

    #[test]
    fn breaker_without_sense_is_refused() {
        for (text, what) in [
            ("failures = 0", "failures"),
            ("pause = \"2m\"", "is shorter than pause"),
            ("pause = 3", "pause"),
            ("window = 3", "window"),
        ] {
            let problems = parsed(text).expect_err(text);
            assert!(problems.contains(what), "{text}: {problems}");
        }
    }
}
