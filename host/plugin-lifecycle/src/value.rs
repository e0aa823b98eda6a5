//! `Value`: one value of a file, environment variable or flag, read as what it should
//! be. What cannot be read is a [`Fault`] that says how it is written.
//!
//! Environment variables and flags are texts; a count or a list is found in them too.

use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime};

use bytesize::ByteSize;
use toml::de::DeValue;

use crate::problem::Fault;

/// A value somebody wrote.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// In TOML.
    Toml(&'a DeValue<'a>),
    /// In an environment variable or a flag.
    Text(&'a str),
}

/// Where a secret is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SecretSource<'a> {
    /// Here: only variables and flags hold one themselves.
    Given(&'a str),
    /// In the environment variable of this name.
    Variable(&'a str),
    /// In this file, alone.
    File(&'a str),
}

impl<'a> Value<'a> {
    /// A secret by its place: `{ env = "NAME" }` or `{ file = "PATH" }`.
    ///
    /// # Errors
    /// When it is something else, the secret itself among them.
    pub fn secret(self) -> Result<SecretSource<'a>, Fault> {
        const REMEDY: &str =
            "write { env = \"NAME\" } with a variable's name, or { file = \"PATH\" }";
        let table = match self {
            Self::Text(text) => return Ok(SecretSource::Given(text)),
            Self::Toml(DeValue::Table(table)) => table,
            Self::Toml(_) => {
                return Err(Fault::new("is a secret in a file of settings", REMEDY));
            }
        };
        let mut entries = table.iter();
        if let (Some((kind, name)), None) = (entries.next(), entries.next())
            && let DeValue::String(name) = name.get_ref()
        {
            match kind.get_ref().as_ref() {
                "env" => return Ok(SecretSource::Variable(name)),
                "file" => return Ok(SecretSource::File(name)),
                _ => {}
            }
        }
        Err(Fault::new("names no single place of a secret", REMEDY))
    }

    /// A text.
    ///
    /// # Errors
    /// When it is something else.
    pub fn text(self) -> Result<&'a str, Fault> {
        match self {
            Self::Toml(DeValue::String(text)) => Ok(text),
            Self::Text(text) => Ok(text),
            Self::Toml(other) => Err(self.wrong_kind(
                "a text",
                match other {
                    DeValue::Array(_) | DeValue::Table(_) => "write one text in quotes",
                    _ => "put it in quotes",
                },
            )),
        }
    }

    /// A whole number in a range.
    ///
    /// # Errors
    /// When it is something else or outside.
    pub fn count(self, range: RangeInclusive<u64>) -> Result<u64, Fault> {
        let remedy = format!(
            "write a whole number from {} to {}",
            range.start(),
            range.end()
        );
        let number: Result<u64, Fault> = match self {
            Self::Toml(DeValue::Integer(integer)) => {
                u64::from_str_radix(integer.as_str(), integer.radix())
                    .map_err(|_| Fault::new("is out of range", remedy.clone()))
            }
            Self::Text(text) => text
                .trim()
                .parse()
                .map_err(|_| Fault::new("is not a whole number", remedy.clone())),
            Self::Toml(_) => Err(self.wrong_kind("a whole number", &remedy)),
        };
        match number? {
            number if range.contains(&number) => Ok(number),
            _ => Err(Fault::new("is out of range", remedy)),
        }
    }

    /// A whole number that fits the type; its owner checks the range.
    ///
    /// # Errors
    /// When it is something else or does not fit.
    pub fn count_u32(self) -> Result<u32, Fault> {
        self.count(0..=u64::from(u32::MAX))
            .map(|number| u32::try_from(number).unwrap_or(u32::MAX))
    }

    /// true or false.
    ///
    /// # Errors
    /// When it is something else.
    pub fn boolean(self) -> Result<bool, Fault> {
        match self {
            Self::Toml(DeValue::Boolean(value)) => Ok(*value),
            Self::Text("true") => Ok(true),
            Self::Text("false") => Ok(false),
            _ => Err(self.wrong_kind("true or false", "write true or false, without quotes")),
        }
    }

    /// A time with its unit, in a range.
    ///
    /// # Errors
    /// When it is something else, has no unit or is outside.
    pub fn duration(self, range: RangeInclusive<Duration>) -> Result<Duration, Fault> {
        const EXAMPLE: &str =
            "write it with its unit, in quotes, for example \"500ms\", \"30s\" or \"15m\"";
        let text = self.with_unit("a time", EXAMPLE)?;
        let duration =
            humantime::parse_duration(text).map_err(|_| Fault::new("is not a time", EXAMPLE))?;
        if range.contains(&duration) {
            Ok(duration)
        } else {
            Err(Fault::new(
                "is out of range",
                format!(
                    "write a time from \"{}\" to \"{}\"",
                    compact(*range.start()),
                    compact(*range.end())
                ),
            ))
        }
    }

    /// A number of bytes with its unit, in a range.
    ///
    /// # Errors
    /// When it is something else, has no unit or is outside.
    pub fn byte_size(self, range: RangeInclusive<u64>) -> Result<u64, Fault> {
        const EXAMPLE: &str =
            "write it with its unit, in quotes, for example \"64KiB\", \"128MiB\" or \"1GiB\"";
        let text = self.with_unit("a size", EXAMPLE)?.trim();
        let ByteSize(bytes) = text
            .parse::<ByteSize>()
            .map_err(|_| Fault::new("is not a size", EXAMPLE))?;
        if range.contains(&bytes) {
            Ok(bytes)
        } else {
            Err(Fault::new(
                "is out of range",
                format!(
                    "write a size from \"{}\" to \"{}\"",
                    bytes_text(*range.start()),
                    bytes_text(*range.end())
                ),
            ))
        }
    }

    /// One of the words; or a fault of the caller's for a word that it knows and does
    /// not take.
    ///
    /// # Errors
    /// When it is another word or no text.
    pub fn choice<T: Copy>(
        self,
        words: &[(&str, T)],
        refused: &[(&str, &str)],
    ) -> Result<T, Fault> {
        let text = self.text()?;
        if let Some((_, choice)) = words.iter().find(|(word, _)| *word == text) {
            return Ok(*choice);
        }
        let known: Vec<String> = words
            .iter()
            .map(|(word, _)| format!("\"{word}\""))
            .collect();
        let remedy = format!("write {}", known.join(" or "));
        if let Some((_, instead)) = refused.iter().find(|(word, _)| *word == text) {
            return Err(Fault::not_available(*instead));
        }
        Err(Fault::new(
            "is none of the words that can stand here",
            remedy,
        ))
    }

    /// A list of texts; one text alone is a list too. Variables and flags separate by
    /// ";" or ",".
    ///
    /// # Errors
    /// When it is something else.
    pub fn texts(self) -> Result<Vec<&'a str>, Fault> {
        const REMEDY: &str = "write a list of texts, for example [\"one\", \"two\"]";
        match self {
            Self::Toml(DeValue::Array(array)) => array
                .iter()
                .map(|item| match item.get_ref() {
                    DeValue::String(text) => Ok(&**text),
                    other => Err(Fault::new(
                        format!("has {} in its list, where a text belongs", kind(other)),
                        REMEDY,
                    )),
                })
                .collect(),
            Self::Toml(DeValue::String(text)) => Ok(vec![text]),
            Self::Toml(_) => Err(self.wrong_kind("a list of texts", REMEDY)),
            Self::Text(text) => Ok(text
                .split([';', ','])
                .map(str::trim)
                .filter(|part| !part.is_empty())
                .collect()),
        }
    }

    /// A point in time in UTC, RFC 3339, with or without quotes.
    ///
    /// # Errors
    /// When it is something else.
    pub fn timestamp(self) -> Result<SystemTime, Fault> {
        const REMEDY: &str = "write a point in time in UTC, for example \"2026-11-30T08:00:00Z\"";
        let parse = |text: &str| {
            humantime::parse_rfc3339(text).map_err(|_| Fault::new("is not a point in time", REMEDY))
        };
        match self {
            Self::Toml(DeValue::Datetime(datetime)) => parse(&datetime.to_string()),
            _ => parse(
                self.text()
                    .map_err(|fault| Fault::new(fault.what, REMEDY))?,
            ),
        }
    }

    /// A text that a unit belongs to; a bare number has none.
    fn with_unit(self, wanted: &str, example: &str) -> Result<&'a str, Fault> {
        match self {
            Self::Toml(DeValue::String(text)) if !is_number(text) => Ok(text),
            Self::Text(text) if !is_number(text) => Ok(text),
            Self::Toml(DeValue::String(_) | DeValue::Integer(_) | DeValue::Float(_))
            | Self::Text(_) => Err(Fault::new("has no unit", example)),
            Self::Toml(_) => Err(self.wrong_kind(wanted, example)),
        }
    }

    fn wrong_kind(self, wanted: &str, remedy: &str) -> Fault {
        match self {
            Self::Toml(value) => Fault::new(format!("is {}, not {wanted}", kind(value)), remedy),
            Self::Text(_) => Fault::new(format!("is not {wanted}"), remedy),
        }
    }
}

fn is_number(text: &str) -> bool {
    text.trim().parse::<f64>().is_ok()
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// A time as it is written in a file: `90s` is `1m 30s`.
pub fn compact(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

/// A size as it is written in a file.
pub fn bytes_text(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    UNITS
        .iter()
        .find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit))
        .map_or_else(
            || format!("{bytes}B"),
            |(unit, name)| format!("{}{name}", bytes / unit),
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T>(toml: &str, read: impl FnOnce(Value<'_>) -> Result<T, Fault>) -> Result<T, Fault> {
        let value = DeValue::parse(toml).expect("TOML of the test");
        read(Value::Toml(value.get_ref()))
    }

    #[test]
    fn sizes_and_times_need_their_unit() {
        let size = |toml| read(toml, |value| value.byte_size(0..=u64::MAX));
        let time = |toml| read(toml, |value| value.duration(Duration::ZERO..=Duration::MAX));

        assert_eq!(size("\"128MiB\""), Ok(128 << 20));
        assert_eq!(size("\"1.5 GiB\""), Ok(3 << 29));
        assert_eq!(time("\"1h 30m\""), Ok(Duration::from_secs(5400)));
        for without in ["128", "\"128\"", "1.5", "\" 0 \""] {
            assert_eq!(size(without).expect_err(without).what, "has no unit");
            assert_eq!(time(without).expect_err(without).what, "has no unit");
        }
        assert_eq!(
            size("\"128 apples\"").expect_err("apples").what,
            "is not a size"
        );
        assert_eq!(
            time("true").expect_err("boolean").what,
            "is true or false, not a time"
        );
    }

    #[test]
    fn count_is_read_in_every_notation_and_kept_in_its_range() {
        let count = |toml| read(toml, |value| value.count(1..=1024));

        assert_eq!(count("0x10"), Ok(16));
        assert_eq!(count("1_000"), Ok(1000));
        for outside in ["0", "1025", "-3", "99999999999999999999"] {
            assert_eq!(count(outside).expect_err(outside).what, "is out of range");
        }
        assert_eq!(
            count("\"5\"").expect_err("text").what,
            "is a text, not a whole number"
        );
        assert_eq!(Value::Text("64").count(1..=1024), Ok(64));
        assert!(Value::Text("many").count(1..=1024).is_err());
    }

    #[test]
    fn timestamp_stands_with_or_without_quotes() {
        let quoted = read("\"2026-11-30T08:00:00Z\"", |value| value.timestamp());
        assert_eq!(
            quoted,
            read("2026-11-30T08:00:00Z", |value| value.timestamp())
        );
        assert!(quoted.is_ok());
        assert!(read("\"yesterday\"", |value| value.timestamp()).is_err());
    }

    #[test]
    fn sizes_are_shown_as_they_are_written() {
        assert_eq!(bytes_text(1 << 30), "1GiB");
        assert_eq!(bytes_text(1536), "1536B");
        assert_eq!(bytes_text(0), "0B");
    }
}
