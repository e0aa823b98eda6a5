//! `ExtFields`: the flattened header fields of one command.
//!
//! Every pull carries a dozen of them, so all names and values of a command share
//! one text and the fields are ranges of it: two allocations, however many fields.
//! Looking one up walks the list, which for a dozen short names beats a map.

use std::fmt::{self, Display, Write as _};
use std::ops::Range;

/// Header fields in the order of the wire, so that every frame can be encoded
/// again to the same bytes. Names are unique: setting one again replaces its value.
#[derive(Clone, Default)]
pub struct ExtFields {
    text: String,
    fields: Vec<Field>,
}

#[derive(Clone)]
struct Field {
    name: Range<usize>,
    value: Option<Range<usize>>,
}

impl ExtFields {
    /// Room for this many fields of together this many bytes.
    pub(crate) fn with_capacity(fields: usize, text_bytes: usize) -> Self {
        Self {
            text: String::with_capacity(text_bytes),
            fields: Vec::with_capacity(fields),
        }
    }

    /// Sets a field, in its old place if it has one. A value that is `None` is
    /// JSON's `null`; the binary encoding leaves it out.
    pub fn set(&mut self, name: impl AsRef<str>, value: Option<impl AsRef<str>>) {
        let value = value.map(|value| self.append(value.as_ref()));
        self.set_range(name.as_ref(), value);
    }

    /// Sets a field to the text of a value, without an allocation of its own.
    pub fn set_display(&mut self, name: &str, value: impl Display) {
        let start = self.text.len();
        // Writing to a `String` fails only if `value` does; then the field stays cut.
        let _ = write!(self.text, "{value}");
        self.set_range(name, Some(start..self.text.len()));
    }

    /// The value of a field; `None` when it is absent or null.
    pub fn get(&self, name: &str) -> Option<&str> {
        let field = self.fields.iter().find(|field| self.name(field) == name)?;
        self.value(field)
    }

    /// In the order of the wire.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.fields
            .iter()
            .map(|field| (self.name(field), self.value(field)))
    }

    /// Number of fields.
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// No fields at all.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// About as many bytes as they take in JSON.
    pub(crate) fn json_bytes_estimate(&self) -> usize {
        // Quotes, colon and comma; a few escapes.
        self.text.len() + 6 * self.fields.len() + self.text.len() / 16
    }

    fn append(&mut self, text: &str) -> Range<usize> {
        let start = self.text.len();
        self.text.push_str(text);
        start..self.text.len()
    }

    fn set_range(&mut self, name: &str, value: Option<Range<usize>>) {
        let text = &self.text;
        match self
            .fields
            .iter_mut()
            .find(|field| text[field.name.clone()] == *name)
        {
            Some(field) => field.value = value,
            None => {
                let name = self.append(name);
                self.fields.push(Field { name, value });
            }
        }
    }

    fn name(&self, field: &Field) -> &str {
        &self.text[field.name.clone()]
    }

    fn value(&self, field: &Field) -> Option<&str> {
        field.value.clone().map(|range| &self.text[range])
    }
}

impl PartialEq for ExtFields {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl Eq for ExtFields {}

impl fmt::Debug for ExtFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<N: AsRef<str>, V: AsRef<str>> FromIterator<(N, V)> for ExtFields {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(fields: I) -> Self {
        let mut ext_fields = Self::default();
        for (name, value) in fields {
            ext_fields.set(name, Some(value));
        }
        ext_fields
    }
}
