//! `Section`: one table of a document, asked for its keys by name and kind.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::document::Document;
use crate::problem::{Fault, Place};
use crate::value::Value;

/// A key and its value, as the parser gives them.
type Entry<'d, 't> = (&'d Spanned<Cow<'t, str>>, &'d Spanned<DeValue<'t>>);

/// One table of a document; empty when the file has none of that name.
#[derive(Debug)]
pub struct Section<'d, 't> {
    document: &'d Document<'t>,
    prefix: String,
    table: Option<&'d DeTable<'t>>,
    span: Option<Range<usize>>,
    asked: RefCell<Vec<&'static str>>,
}

impl<'d, 't> Section<'d, 't> {
    pub(super) fn new(
        document: &'d Document<'t>,
        prefix: String,
        table: Option<&'d DeTable<'t>>,
        span: Option<Range<usize>>,
    ) -> Self {
        Self {
            document,
            prefix,
            table,
            span,
            asked: RefCell::default(),
        }
    }

    /// A value that need not be there. `None` also when it could not be read; then
    /// there is a problem.
    pub fn optional<T>(
        &self,
        key: &'static str,
        read: impl FnOnce(Value<'_>) -> Result<T, Fault>,
    ) -> Option<T> {
        self.asked.borrow_mut().push(key);
        let path = self.path(key);
        if let Some(stronger) = self.document.stronger(&path) {
            return read(Value::Text(&stronger.text))
                .map_err(|fault| self.document.fault(&path, fault))
                .ok();
        }
        let (key, value) = self.entry(key)?;
        read(Value::Toml(value.get_ref()))
            .map_err(|fault| {
                let shown = self.document.shown_value(value);
                self.document
                    .add(Some(&key.span()), Some(path), shown, fault);
            })
            .ok()
    }

    /// A value with a default.
    pub fn or<T>(
        &self,
        key: &'static str,
        default: T,
        read: impl FnOnce(Value<'_>) -> Result<T, Fault>,
    ) -> T {
        self.optional(key, read).unwrap_or(default)
    }

    /// A value that must be there. `None` only beside a problem.
    pub fn required<T>(
        &self,
        key: &'static str,
        example: &str,
        read: impl FnOnce(Value<'_>) -> Result<T, Fault>,
    ) -> Option<T> {
        if !self.has(key) {
            self.asked.borrow_mut().push(key);
            self.missing(key, &format!("add {key} = {example}"));
            return None;
        }
        self.optional(key, read)
    }

    /// The table of this name; an empty one when there is none.
    pub fn section(&self, key: &'static str) -> Section<'d, 't> {
        self.asked.borrow_mut().push(key);
        let empty = || Section::new(self.document, self.path(key), None, None);
        let Some((name, value)) = self.entry(key) else {
            return empty();
        };
        let DeValue::Table(table) = value.get_ref() else {
            self.not_a_table(
                key,
                &name.span(),
                &value.span(),
                &format!("write it as a table: [{}]", self.path(key)),
            );
            return empty();
        };
        Section::new(
            self.document,
            self.path(key),
            Some(table),
            Some(name.span()),
        )
    }

    /// The tables of a list of tables (`[[key]]`), in order. A list without any is a
    /// problem: nobody writes one to say nothing.
    pub fn list(&self, key: &'static str) -> Vec<Section<'d, 't>> {
        self.asked.borrow_mut().push(key);
        let Some((name, value)) = self.entry(key) else {
            return Vec::new();
        };
        let remedy = format!(
            "write each one as a table of its own: [[{}]]",
            self.path(key)
        );
        let DeValue::Array(array) = value.get_ref() else {
            self.not_a_table(key, &name.span(), &value.span(), &remedy);
            return Vec::new();
        };
        if array.is_empty() {
            let shown = Some(self.document.shown(&value.span()));
            let fault = Fault::new("is an empty list", format!("{remedy}, or remove the key"));
            self.document
                .add(Some(&name.span()), Some(self.path(key)), shown, fault);
        }
        let mut sections = Vec::new();
        for item in array.iter() {
            match item.get_ref() {
                DeValue::Table(table) => sections.push(Section::new(
                    self.document,
                    self.path(key),
                    Some(table),
                    Some(item.span()),
                )),
                _ => self.not_a_table(key, &item.span(), &item.span(), &remedy),
            }
        }
        sections
    }

    /// Every table in this one, by name, as they stand in the file.
    pub fn sections(&self) -> Vec<(String, Section<'d, 't>)> {
        let mut sections = Vec::new();
        for (name, value) in self.in_order() {
            match value.get_ref() {
                DeValue::Table(table) => sections.push((
                    name.get_ref().to_string(),
                    Section::new(
                        self.document,
                        self.path(name.get_ref()),
                        Some(table),
                        Some(name.span()),
                    ),
                )),
                _ => self.not_a_table(
                    name.get_ref(),
                    &name.span(),
                    &value.span(),
                    &format!("write it as a table: [{}]", self.path(name.get_ref())),
                ),
            }
        }
        sections
    }

    /// Every entry of a table whose names are the user's, as they stand in the file.
    pub fn entries<T>(&self, read: impl Fn(Value<'_>) -> Result<T, Fault>) -> Vec<(String, T)> {
        let mut entries = Vec::new();
        for (name, value) in self.in_order() {
            match read(Value::Toml(value.get_ref())) {
                Ok(read) => entries.push((name.get_ref().to_string(), read)),
                Err(fault) => self.document.add(
                    Some(&name.span()),
                    Some(self.path(name.get_ref())),
                    Some(self.document.shown(&value.span())),
                    fault,
                ),
            }
        }
        entries
    }

    /// A key that a later version takes.
    pub fn not_yet(&self, key: &'static str, remedy: &str) {
        self.refused(key, Fault::not_available(remedy));
    }

    /// A key that is never taken, with the reason; it is not listed as unknown then.
    pub fn refused(&self, key: &'static str, fault: Fault) {
        self.asked.borrow_mut().push(key);
        if let Some((name, value)) = self.entry(key) {
            let shown = self.document.shown_value(value);
            self.document
                .add(Some(&name.span()), Some(self.path(key)), shown, fault);
        }
    }

    /// Adds a problem of one of this table's keys.
    pub fn fault(&self, key: &str, fault: Fault) {
        let path = self.path(key);
        if self.document.stronger(&path).is_some() {
            self.document.fault(&path, fault);
            return;
        }
        let entry = self.entry(key);
        let span = entry
            .map(|(name, _)| name.span())
            .or_else(|| self.span.clone());
        let value = entry.and_then(|(_, value)| self.document.shown_value(value));
        self.document.add(span.as_ref(), Some(path), value, fault);
    }

    /// Reports a key that must be there and is not.
    pub fn missing(&self, key: &str, remedy: &str) {
        self.document.add(
            self.span.as_ref(),
            Some(self.path(key)),
            None,
            Fault::new("is missing", remedy),
        );
    }

    /// Where a key was given; the table when it was not.
    pub fn place(&self, key: &str) -> Place {
        if let Some(stronger) = self.document.stronger(&self.path(key)) {
            return stronger.place.clone();
        }
        let span = self.entry(key).map(|(name, _)| name.span());
        Place::File {
            file: Arc::clone(&self.document.file),
            line: span
                .or_else(|| self.span.clone())
                .map(|span| self.document.line(span.start)),
        }
    }

    /// Whether anything was found wrong so far, in the whole document.
    pub fn has_problems(&self) -> bool {
        !self.document.problems.borrow().is_empty()
    }

    /// Whether somebody gave a value.
    pub fn has(&self, key: &str) -> bool {
        self.entry(key).is_some() || self.document.stronger(&self.path(key)).is_some()
    }

    /// Whether the file has this table at all.
    pub fn is_present(&self) -> bool {
        self.table.is_some()
    }

    /// Reports every key that was not asked for. Last, when all were.
    pub fn refuse_unknown(self) {
        let asked = self.asked.borrow();
        for (name, value) in self.in_order() {
            let key = name.get_ref().as_ref();
            if asked.contains(&key) {
                continue;
            }
            let shown = self.document.shown_value(value);
            let remedy = match nearest(key, &asked) {
                Some(known) => format!("did you mean \"{known}\"?"),
                None => {
                    let mut known: Vec<&str> = asked.clone();
                    known.sort_unstable();
                    known.dedup();
                    format!("remove it; known here: {}", known.join(", "))
                }
            };
            self.document.add(
                Some(&name.span()),
                Some(self.path(key)),
                shown,
                Fault::new("is an unknown key", remedy),
            );
        }
    }

    fn path(&self, key: &str) -> String {
        if self.prefix.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.prefix)
        }
    }

    fn entry(&self, key: &str) -> Option<Entry<'d, 't>> {
        self.table?
            .iter()
            .find(|(name, _)| name.get_ref().as_ref() == key)
    }

    fn in_order(&self) -> Vec<Entry<'d, 't>> {
        let mut entries: Vec<_> = self.table.into_iter().flat_map(DeTable::iter).collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        entries
    }

    fn not_a_table(&self, key: &str, name: &Range<usize>, value: &Range<usize>, remedy: &str) {
        self.document.add(
            Some(name),
            Some(self.path(key)),
            Some(self.document.shown(value)),
            Fault::new("is a value, not a table", remedy),
        );
    }
}

/// The known key that was probably meant.
fn nearest<'k>(key: &str, known: &[&'k str]) -> Option<&'k str> {
    known
        .iter()
        .map(|candidate| (strsim::damerau_levenshtein(key, candidate), *candidate))
        .filter(|(distance, candidate)| *distance <= if candidate.len() > 5 { 2 } else { 1 })
        .min()
        .map(|(_, candidate)| candidate)
}
