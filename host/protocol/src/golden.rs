//! Tests only: the recorded frames and tables of `testdata/`, from RocketMQ 5.5.0.
//!
//! `frames/*.jsonl` are frames between Java clients, name server and broker, each
//! beside what Java's own classes decoded; `tables/*.jsonl` are inputs and results
//! of single functions. Frames come in the order of the wire within a file.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Frames in `testdata/frames`; a missing file must not go unnoticed.
pub(crate) const FRAMES: usize = 2581;

/// One recorded frame.
pub(crate) struct RecordedFrame {
    /// File and line, for messages.
    pub(crate) place: String,
    /// The whole frame, length field included.
    pub(crate) bytes: Vec<u8>,
    /// What Java decoded.
    pub(crate) recorded: Value,
}

/// Every recorded frame.
pub(crate) fn frames() -> Vec<RecordedFrame> {
    let mut files: Vec<PathBuf> = fs::read_dir(testdata("frames"))
        .expect("testdata/frames is part of the repository")
        .map(|entry| entry.expect("a readable directory").path())
        .collect();
    files.sort();
    let frames: Vec<_> = files.iter().flat_map(|file| frames_of(file)).collect();
    assert_eq!(frames.len(), FRAMES, "frames in testdata/frames");
    frames
}

fn frames_of(file: &Path) -> Vec<RecordedFrame> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    lines(file)
        .into_iter()
        .enumerate()
        .filter(|(_, recorded)| recorded["hex"].is_string())
        .map(|(line, recorded)| RecordedFrame {
            place: format!("{name}:{}", line + 1),
            bytes: hex(text(&recorded["hex"])),
            recorded,
        })
        .collect()
}

/// The lines of a table.
pub(crate) fn table(name: &str) -> Vec<Value> {
    let lines = lines(&testdata("tables").join(format!("{name}.jsonl")));
    assert!(!lines.is_empty(), "the table {name} has lines");
    lines
}

fn lines(file: &Path) -> Vec<Value> {
    fs::read_to_string(file)
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()))
        .lines()
        .map(|line| serde_json::from_str(line).expect("testdata is JSON"))
        .collect()
}

fn testdata(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata")
        .join(folder)
}

/// A recorded text.
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().expect("a text in testdata")
}

/// A recorded 32-bit number.
pub(crate) fn number(value: &Value) -> i32 {
    let number = value.as_i64().expect("a number in testdata");
    i32::try_from(number).expect("a 32-bit number in testdata")
}

/// Recorded bytes.
pub(crate) fn hex(digits: &str) -> Vec<u8> {
    assert!(digits.len().is_multiple_of(2), "whole bytes in testdata");
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal in testdata"))
        .collect()
}
