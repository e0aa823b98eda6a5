//! Reads recorded vectors: one JSON value a line, or one message in hex with its JSON.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

/// The lines of a table; their number is part of the test.
pub(crate) fn table(name: &str, rows: usize) -> Vec<Value> {
    let path = testdata().join("tables").join(format!("{name}.jsonl"));
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let table: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{name}: {e}: {line}")))
        .collect();
    assert_eq!(table.len(), rows, "rows of {name}");
    table
}

pub(crate) fn testdata() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata")
}

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let text: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    text.chunks(2)
        .map(|pair| {
            let digits = std::str::from_utf8(pair).expect("ASCII");
            u8::from_str_radix(digits, 16).expect("hex")
        })
        .collect()
}
