//! `Document`: a TOML file whose keys know their line, with the environment variables
//! and flags that are stronger than the file.
//!
//! Whoever reads it asks for each key once, by name and kind. A key nobody asked for is
//! a problem, with the nearest name as its remedy. Reading never stops at the first
//! problem. Used by manifests and by the host's own configuration.

mod section;

pub use section::Section;

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::problem::{Fault, Place, Problem};

/// Longest piece of a file that a problem repeats.
const SHOWN_VALUE_CHARACTERS_MAX: usize = 60;

/// A problem does not repeat the value of a key with such a word in its name: problems
/// end up in logs of builds.
const SECRET_WORDS: [&str; 5] = ["secret", "password", "token", "credential", "access_key"];

/// A value from outside the file, stronger than the file.
#[derive(Clone, Debug)]
pub struct Override {
    /// Dotted path; `-` and `_` are the same, since variables cannot have a `-`.
    pub key: String,
    /// As given.
    pub text: String,
    /// The variable or flag.
    pub place: Place,
}

/// A parsed file and the problems found so far.
#[derive(Debug)]
pub struct Document<'t> {
    file: Arc<Path>,
    text: &'t str,
    table: Spanned<DeTable<'t>>,
    overrides: Vec<(Override, Cell<bool>)>,
    problems: RefCell<Vec<Problem>>,
}

impl<'t> Document<'t> {
    /// Parses a file. Later overrides win over earlier ones.
    ///
    /// # Errors
    /// Everything that is no TOML. A key that stands twice is a problem and keeps its
    /// first value; reading goes on.
    pub fn parse(
        file: &Path,
        text: &'t str,
        overrides: Vec<Override>,
    ) -> Result<Self, Vec<Problem>> {
        let (table, errors) = DeTable::parse_recoverable(text);
        let document = Self {
            file: file.into(),
            text,
            table,
            overrides: overrides
                .into_iter()
                .map(|one| (one, Cell::new(false)))
                .collect(),
            problems: RefCell::default(),
        };
        let mut readable = true;
        for error in errors {
            let span = error.span();
            if error.message().starts_with("duplicate key") {
                let key = span.as_ref().map(|span| document.shown(span));
                document.add(
                    span.as_ref(),
                    key,
                    None,
                    Fault::new("stands twice", "remove one of the two"),
                );
            } else {
                readable = false;
                document.add(
                    span.as_ref(),
                    None,
                    None,
                    Fault::new(
                        format!("is not TOML: {}", error.message()),
                        "correct this line",
                    ),
                );
            }
        }
        if readable {
            Ok(document)
        } else {
            let mut problems = document.problems.into_inner();
            problems.sort_by_key(Problem::line);
            Err(problems)
        }
    }

    /// The top of the file.
    pub fn root(&self) -> Section<'_, 't> {
        Section::new(self, String::new(), Some(self.table.get_ref()), None)
    }

    /// Adds a problem of the key, wherever its value was given. A key that stands
    /// nowhere gets the file as its place.
    pub fn fault(&self, key: &str, fault: Fault) {
        if let Some(stronger) = self.stronger(key) {
            self.problems.borrow_mut().push(Problem {
                place: stronger.place.clone(),
                key: Some(key.to_owned()),
                value: not_secret(key, Some(stronger.text.clone())),
                what: fault.what,
                remedy: fault.remedy,
            });
            return;
        }
        let found = self.locate(key);
        let value = found.as_ref().map(|(_, value)| self.shown(value));
        self.add(
            found.as_ref().map(|(key, _)| key),
            Some(key.to_owned()),
            value,
            fault,
        );
    }

    /// All problems by line; overrides that no reader asked for are among them, last.
    pub fn into_problems(self) -> Vec<Problem> {
        let mut problems = self.problems.into_inner();
        problems.sort_by_key(Problem::line);
        for (unused, _) in self
            .overrides
            .into_iter()
            .filter(|(_, asked_for)| !asked_for.get())
        {
            problems.push(Problem {
                place: unused.place,
                value: not_secret(&unused.key, Some(unused.text)),
                key: Some(unused.key),
                what: "is no setting".to_owned(),
                remedy: "remove it, or correct its name".to_owned(),
            });
        }
        problems
    }

    /// The file's name as a person gave it.
    pub fn file(&self) -> &Path {
        &self.file
    }

    fn add(
        &self,
        span: Option<&Range<usize>>,
        key: Option<String>,
        value: Option<String>,
        fault: Fault,
    ) {
        let value = not_secret(key.as_deref().unwrap_or_default(), value);
        self.problems.borrow_mut().push(Problem {
            place: Place::File {
                file: Arc::clone(&self.file),
                line: span.map(|span| self.line(span.start)),
            },
            key,
            value,
            what: fault.what,
            remedy: fault.remedy,
        });
    }

    /// The last override of a key; with it all of them were asked for.
    fn stronger(&self, key: &str) -> Option<&Override> {
        let plain = |c: char| if c == '-' { '_' } else { c };
        let mut last = None;
        for (one, asked_for) in &self.overrides {
            if one.key.chars().map(plain).eq(key.chars().map(plain)) {
                asked_for.set(true);
                last = Some(one);
            }
        }
        last
    }

    /// Spans of a key and its value by dotted path (not through lists).
    fn locate(&self, path: &str) -> Option<(Range<usize>, Range<usize>)> {
        let mut table = self.table.get_ref();
        let mut parts = path.split('.').peekable();
        while let Some(part) = parts.next() {
            let (key, value) = table
                .iter()
                .find(|(key, _)| key.get_ref().as_ref() == part)?;
            if parts.peek().is_none() {
                return Some((key.span(), value.span()));
            }
            let DeValue::Table(inner) = value.get_ref() else {
                return None;
            };
            table = inner;
        }
        None
    }

    fn line(&self, offset: usize) -> u32 {
        let before = &self.text.as_bytes()[..offset.min(self.text.len())];
        let lines = before.iter().filter(|byte| **byte == b'\n').count();
        u32::try_from(lines + 1).unwrap_or(u32::MAX)
    }

    /// A value as it was written; a table says nothing at this length.
    fn shown_value(&self, value: &Spanned<DeValue<'_>>) -> Option<String> {
        let is_table = match value.get_ref() {
            DeValue::Table(_) => true,
            DeValue::Array(items) => items.iter().any(|item| item.get_ref().is_table()),
            _ => false,
        };
        (!is_table).then(|| self.shown(&value.span()))
    }

    /// The text of a span on one line, cut where it is long.
    fn shown(&self, span: &Range<usize>) -> String {
        let text = self.text.get(span.clone()).unwrap_or_default();
        let words: Vec<&str> = text.split_whitespace().collect();
        let line = words.join(" ");
        match line.char_indices().nth(SHOWN_VALUE_CHARACTERS_MAX) {
            Some((end, _)) => format!("{}…", &line[..end]),
            None => line,
        }
    }
}

/// The value, unless the key's name, or a user in a URL, says that nobody may read it.
fn not_secret(key: &str, value: Option<String>) -> Option<String> {
    value.filter(|value| !is_secret(key) && !names_a_user(value))
}

/// A URL with a user, and perhaps a password, before its host.
fn names_a_user(value: &str) -> bool {
    let rest = value.split_once("://").map(|(_, rest)| rest);
    let authority = rest.and_then(|rest| rest.split(['/', '?', '#']).next());
    authority.is_some_and(|authority| authority.contains('@'))
}

/// Whether a key's name says that nobody may read its value.
pub(crate) fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase().replace('-', "_");
    SECRET_WORDS.iter().any(|word| key.contains(word))
}
