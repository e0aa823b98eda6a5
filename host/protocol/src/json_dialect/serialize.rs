//! serde to JSON whose maps may have objects as keys.
//!
//! `serde_json` knows text keys only. [`object_keys`] therefore hands it the key's own
//! JSON behind a mark, and the formatter writes marked keys as they are.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::{Serialize, Serializer};
use serde_json::ser::{CharEscape, Formatter};

/// Begins a key that is JSON itself. It is a control character, which `serde_json`
/// hands to the formatter as the first thing of a string.
const MARK: char = '\u{1}';

pub(super) fn to_vec(value: &impl Serialize) -> Vec<u8> {
    let mut text = Vec::with_capacity(256);
    let mut serializer = serde_json::Serializer::with_formatter(&mut text, Dialect::default());
    value
        .serialize(&mut serializer)
        .expect("our types have text, number and marked keys, and a Vec takes every byte");
    text
}

/// For `serialize_with`: a map whose keys are objects.
pub(crate) fn object_keys<K: Serialize, V: Serialize, S: Serializer>(
    map: &BTreeMap<K, V>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(map.iter().map(|(key, value)| (ObjectKey(key), value)))
}

struct ObjectKey<'a, K>(&'a K);

impl<K: Serialize> Serialize for ObjectKey<'_, K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let json = serde_json::to_string(self.0).map_err(serde::ser::Error::custom)?;
        serializer.serialize_str(&format!("{MARK}{json}"))
    }
}

#[derive(Default)]
struct Dialect {
    key: Key,
}

/// Where in a key we are.
#[derive(Default, PartialEq)]
enum Key {
    /// In none.
    #[default]
    Outside,
    /// Before its string.
    Expected,
    /// Its string has begun and nothing of it is written.
    Begun,
    /// An ordinary key.
    Text,
    /// A marked key: what it holds is written without quotes and escapes.
    Object,
}

impl Dialect {
    fn open_text_key<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        if self.key == Key::Begun {
            self.key = Key::Text;
            writer.write_all(b"\"")?;
        }
        Ok(())
    }
}

impl Formatter for Dialect {
    fn begin_object_key<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.key = Key::Expected;
        if first {
            Ok(())
        } else {
            writer.write_all(b",")
        }
    }

    fn end_object_key<W: ?Sized + Write>(&mut self, _writer: &mut W) -> io::Result<()> {
        self.key = Key::Outside;
        Ok(())
    }

    fn begin_string<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        if self.key == Key::Expected {
            self.key = Key::Begun;
            Ok(())
        } else {
            writer.write_all(b"\"")
        }
    }

    fn end_string<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open_text_key(writer)?;
        if self.key == Key::Object {
            Ok(())
        } else {
            writer.write_all(b"\"")
        }
    }

    /// Number keys go in quotes, which Java and standard readers both take.
    fn write_u64<W: ?Sized + Write>(&mut self, writer: &mut W, value: u64) -> io::Result<()> {
        self.open_text_key(writer)?;
        write!(writer, "{value}")
    }

    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        self.open_text_key(writer)?;
        writer.write_all(fragment.as_bytes())
    }

    fn write_char_escape<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        escape: CharEscape,
    ) -> io::Result<()> {
        match (&self.key, escape) {
            (Key::Begun, CharEscape::AsciiControl(1)) => {
                self.key = Key::Object;
                Ok(())
            }
            (Key::Object, CharEscape::Quote) => writer.write_all(b"\""),
            (Key::Object, CharEscape::ReverseSolidus) => writer.write_all(b"\\"),
            (_, escape) => {
                self.open_text_key(writer)?;
                write_escape(writer, &escape)
            }
        }
    }
}

fn write_escape<W: ?Sized + Write>(writer: &mut W, escape: &CharEscape) -> io::Result<()> {
    match escape {
        CharEscape::Quote => writer.write_all(b"\\\""),
        CharEscape::ReverseSolidus => writer.write_all(b"\\\\"),
        CharEscape::Solidus => writer.write_all(b"\\/"),
        CharEscape::Backspace => writer.write_all(b"\\b"),
        CharEscape::FormFeed => writer.write_all(b"\\f"),
        CharEscape::LineFeed => writer.write_all(b"\\n"),
        CharEscape::CarriageReturn => writer.write_all(b"\\r"),
        CharEscape::Tab => writer.write_all(b"\\t"),
        CharEscape::AsciiControl(byte) => write!(writer, "\\u{byte:04x}"),
    }
}
