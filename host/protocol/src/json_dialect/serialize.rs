//! serde to JSON whose maps may have objects as keys.
//!
//! `serde_json` writes text and number keys only. [`object_keys`] therefore writes
//! such a map itself and passes it on as bytes, which none of our types has, and the
//! formatter writes bytes as they are.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::{Serialize, Serializer};
use serde_json::ser::Formatter;

pub(super) fn to_vec(value: &impl Serialize) -> Vec<u8> {
    let mut text = Vec::with_capacity(256);
    write(value, &mut text);
    text
}

fn write(value: &impl Serialize, text: &mut Vec<u8>) {
    let mut serializer = serde_json::Serializer::with_formatter(text, Dialect);
    value
        .serialize(&mut serializer)
        .expect("keys are text, numbers or handled below, and a Vec takes every byte");
}

/// For `serialize_with`: a map whose keys are objects.
pub(crate) fn object_keys<K: Serialize, V: Serialize, S: Serializer>(
    map: &BTreeMap<K, V>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut text = vec![b'{'];
    for (key, value) in map {
        if text.len() > 1 {
            text.push(b',');
        }
        write(key, &mut text);
        text.push(b':');
        write(value, &mut text);
    }
    text.push(b'}');
    serializer.serialize_bytes(&text)
}

struct Dialect;

impl Formatter for Dialect {
    fn write_byte_array<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        json: &[u8],
    ) -> io::Result<()> {
        writer.write_all(json)
    }
}
