//! A problem of a file that a person wrote: where it is, what is wrong, what to do.
//!
//! Readers of files collect problems and go on, so that all of them can be shown at
//! once. A problem is for people; programs get the same facts as fields.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a value was given.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    /// In a file, or the file itself.
    File {
        /// As the person named it.
        file: Arc<Path>,
        /// From 1, where it is known.
        line: Option<u32>,
    },
    /// An environment variable.
    Environment {
        /// Its name.
        variable: Arc<str>,
    },
    /// A flag of the command line.
    Flag {
        /// With its dashes.
        flag: Arc<str>,
    },
}

impl Place {
    /// A whole file.
    pub fn file(file: &Path) -> Self {
        Self::File {
            file: file.into(),
            line: None,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File {
                file,
                line: Some(line),
            } => write!(f, "{}:{line}", file.display()),
            Self::File { file, line: None } => write!(f, "{}", file.display()),
            Self::Environment { variable } => write!(f, "environment variable {variable}"),
            Self::Flag { flag } => write!(f, "flag {flag}"),
        }
    }
}

/// One thing that is wrong. `Display` is one line:
/// `plugin.toml:3: limits.memory = 128: has no unit; write it with one, for example "128MiB"`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// Where.
    pub place: Place,
    /// Dotted path of the key; `None` when it is not about one.
    pub key: Option<String>,
    /// The value as it was written; `None` when there is none.
    pub value: Option<String>,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub remedy: String,
}

impl Problem {
    /// A problem of a file as a whole.
    pub fn of_file(file: &Path, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            place: Place::file(file),
            key: None,
            value: None,
            what: what.into(),
            remedy: remedy.into(),
        }
    }

    /// The file, when it is in one.
    pub fn file(&self) -> Option<&Path> {
        match &self.place {
            Place::File { file, .. } => Some(file),
            Place::Environment { .. } | Place::Flag { .. } => None,
        }
    }

    /// The line, when it is known.
    pub fn line(&self) -> Option<u32> {
        match self.place {
            Place::File { line, .. } => line,
            Place::Environment { .. } | Place::Flag { .. } => None,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        match (&self.key, &self.value) {
            (Some(key), Some(value)) => write!(f, "{key} = {value}: ")?,
            (Some(key), None) => write!(f, "{key}: ")?,
            (None, _) => {}
        }
        write!(f, "{}; {}", self.what, self.remedy)
    }
}

/// Why something was not used: every problem, one a line. Never empty.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}", lines(.0))]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    /// The value, or the problems if there are any.
    ///
    /// # Errors
    /// When there are problems.
    pub fn none_or<T>(problems: Vec<Problem>, value: T) -> Result<T, Self> {
        if problems.is_empty() {
            Ok(value)
        } else {
            Err(Self(problems))
        }
    }
}

fn lines(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(Problem::to_string).collect();
    lines.join("\n")
}

/// What is wrong with one value; the reader adds place, key and value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub remedy: String,
}

impl Fault {
    /// Both halves.
    pub fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            remedy: remedy.into(),
        }
    }

    /// Something that a later version has.
    pub fn not_available(remedy: impl Into<String>) -> Self {
        Self::new("is not available in this version", remedy)
    }
}

/// A path that a person can open, relative to a file that names it.
pub fn beside(file: &Path, path: &Path) -> PathBuf {
    // `join` keeps an absolute path as it is.
    file.parent().unwrap_or(Path::new("")).join(path)
}
