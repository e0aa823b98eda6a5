//! What happened to the revisions of a host, for whoever asks later: one line for each
//! switch, rollback, failed deployment and canary, in a file that only grows.
//!
//! A line is `PREVIOUS SUM JSON`: the sum is over the previous line's sum and the JSON, so
//! that a line that was changed, and one that is missing, are found. A last line that a
//! crash has cut is taken away when the file is opened. A full file is renamed, and the
//! chain goes on in the next one.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use plugin_lifecycle::Digest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A file that is larger is renamed.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Files that are kept beside the one that grows.
const FILES_MAX: u32 = 4;
/// Digits of a sum.
const SUM_DIGITS: usize = 16;
/// What the first line of the first file follows.
const NOTHING: &str = "0000000000000000";

/// One line.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Entry {
    /// When, in milliseconds since 1970.
    pub(crate) at_ms: u64,
    pub(crate) tenant: String,
    pub(crate) plugin: String,
    /// `switched`, `failed`, `rolled-back`, `canary-started`, `canary-aborted`, `removed`.
    pub(crate) what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) by: Option<String>,
    /// Number of the revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) number: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) revision: Option<String>,
    /// Digest of its component.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) component: Option<String>,
    /// What served before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) before: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) steps: Vec<StepTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) switch: Option<SwitchEntry>,
}

/// What a step took.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct StepTime {
    pub(crate) step: String,
    pub(crate) ms: f64,
}

/// What the messages saw of a switch.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SwitchEntry {
    /// Requests of the old revision under way at the switch.
    pub(crate) in_flight: u64,
    /// Until the last of them had ended.
    pub(crate) drained_after_ms: f64,
    /// Until the new one had its first request.
    pub(crate) first_call_after_ms: Option<f64>,
    /// Messages given to the new revision that the old one had finished.
    pub(crate) repeats: u64,
    pub(crate) queues: Vec<QueueEntry>,
}

/// One queue at a switch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct QueueEntry {
    pub(crate) queue: String,
    /// The last offset that the old revision finished.
    pub(crate) old_finished: Option<u64>,
    /// The first that the new one was given.
    pub(crate) new_given: Option<u64>,
}

/// The file that grows.
#[derive(Debug)]
pub(crate) struct Ledger {
    path: PathBuf,
    file: File,
    bytes: u64,
    last_sum: String,
}

/// What was found when it was opened.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Opened {
    /// Bytes of a last line that a crash had cut; they are gone.
    pub(crate) mended: u64,
    /// What is wrong with the lines before, each in words.
    pub(crate) damage: Vec<String>,
}

/// Where a host's ledger is.
pub(crate) fn path(state_dir: &Path) -> PathBuf {
    state_dir.join("ledger.log")
}

impl Ledger {
    /// Opens it, or begins one. Blocks.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub(crate) fn open(state_dir: &Path) -> anyhow::Result<(Self, Opened)> {
        let path = path(state_dir);
        let opened = || -> std::io::Result<(Self, Opened)> {
            fs::create_dir_all(state_dir)?;
            let mut file = OpenOptions::new()
                .read(true)
                .append(true)
                .create(true)
                .open(&path)?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            let before = match fs::read(numbered(&path, 1)) {
                Ok(older) => read(&older, None).last_sum,
                Err(_) => None,
            };
            let read = read(&bytes, before);
            if read.good_bytes < bytes.len() {
                file.set_len(read.good_bytes as u64)?;
                file.seek(SeekFrom::End(0))?;
                file.sync_all()?;
            }
            let opened = Opened {
                mended: (bytes.len() - read.good_bytes) as u64,
                damage: read.damage,
            };
            let ledger = Self {
                path: path.clone(),
                file,
                bytes: read.good_bytes as u64,
                last_sum: read.last_sum.unwrap_or_else(|| NOTHING.to_owned()),
            };
            Ok((ledger, opened))
        };
        opened().with_context(|| format!("cannot open the ledger {}", path.display()))
    }

    /// Writes a line and waits until the disk has it. Blocks.
    ///
    /// # Errors
    /// The disk does not take it; nothing of it stays.
    pub(crate) fn append(&mut self, entry: &Entry) -> anyhow::Result<()> {
        let json = serde_json::to_string(entry)?;
        let sum = sum(&self.last_sum, &json);
        let line = format!("{} {sum} {json}\n", self.last_sum);
        if self.bytes + line.len() as u64 > FILE_BYTES_MAX && self.bytes > 0 {
            self.turn_over()
                .context("cannot begin another ledger file")?;
        }
        let written = self
            .file
            .write_all(line.as_bytes())
            .and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            // A part of a line would be taken away at the next start; better now.
            let _ = self.file.set_len(self.bytes);
            return Err(error).with_context(|| format!("cannot write to {}", self.path.display()));
        }
        self.bytes += line.len() as u64;
        self.last_sum = sum;
        Ok(())
    }

    /// Also after one that failed half-way: what was renamed is not renamed again.
    fn turn_over(&mut self) -> std::io::Result<()> {
        if fs::exists(&self.path)? {
            self.shift()?;
        }
        self.file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(&self.path)?;
        self.bytes = 0;
        Ok(())
    }

    fn shift(&self) -> std::io::Result<()> {
        for number in (1..FILES_MAX).rev() {
            match fs::rename(
                numbered(&self.path, number),
                numbered(&self.path, number + 1),
            ) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        fs::rename(&self.path, numbered(&self.path, 1))
    }
}

/// Everything that is still there, oldest first, and what is wrong with it. Blocks.
///
/// # Errors
/// A file cannot be read; there is no ledger.
pub(crate) fn read_all(state_dir: &Path) -> anyhow::Result<(Vec<Entry>, Vec<String>)> {
    let path = path(state_dir);
    let mut entries = Vec::new();
    let mut damage = Vec::new();
    let mut before = None;
    let files = (1..=FILES_MAX).rev().map(|number| numbered(&path, number));
    for file in files.chain([path.clone()]) {
        let bytes = match fs::read(&file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && file != path => continue,
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("cannot read the ledger {}", file.display()));
            }
        };
        let read = read(&bytes, before);
        let name = file
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        damage.extend(read.damage.iter().map(|one| format!("{name}: {one}")));
        if read.good_bytes < bytes.len() {
            let cut = bytes.len() - read.good_bytes;
            damage.push(format!(
                "{name}: its last line is cut ({cut} bytes); the next start of the host takes it away"
            ));
        }
        entries.extend(read.entries);
        before = read.last_sum;
    }
    Ok((entries, damage))
}

#[derive(Default)]
struct Read {
    entries: Vec<Entry>,
    damage: Vec<String>,
    last_sum: Option<String>,
    /// Up to the end of the last whole line.
    good_bytes: usize,
}

/// `before`: the sum that the first line follows, if it is known.
fn read(bytes: &[u8], before: Option<String>) -> Read {
    let mut read = Read {
        last_sum: before,
        ..Read::default()
    };
    let mut rest = bytes;
    let mut number = 0;
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let (line, after) = (&rest[..end], &rest[end + 1..]);
        number += 1;
        rest = after;
        read.good_bytes = bytes.len() - rest.len();
        match parse(line) {
            Some((previous, sum_of_line, json, entry)) => {
                if sum(previous, json) != sum_of_line {
                    read.damage.push(format!("line {number} was changed"));
                } else if read
                    .last_sum
                    .as_deref()
                    .is_some_and(|last| last != previous)
                {
                    read.damage
                        .push(format!("lines are missing before line {number}"));
                }
                read.last_sum = Some(sum_of_line.to_owned());
                read.entries.push(entry);
            }
            None => {
                read.damage.push(format!("line {number} is not readable"));
                // What follows it is judged by itself.
                read.last_sum = None;
            }
        }
    }
    read
}

fn parse(line: &[u8]) -> Option<(&str, &str, &str, Entry)> {
    let text = std::str::from_utf8(line).ok()?;
    let (previous, rest) = text.split_once(' ')?;
    let (sum, json) = rest.split_once(' ')?;
    let entry = serde_json::from_str(json).ok()?;
    (previous.len() == SUM_DIGITS && sum.len() == SUM_DIGITS)
        .then_some((previous, sum, json, entry))
}

fn sum(previous: &str, json: &str) -> String {
    let mut sum = Digest::of(format!("{previous} {json}").as_bytes()).to_string();
    sum.truncate(SUM_DIGITS);
    sum
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    path.with_extension(format!("{number}.log"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(what: &str) -> Entry {
        Entry {
            at_ms: 1,
            what: what.to_owned(),
            ..Entry::default()
        }
    }

    fn three(folder: &Path) {
        let (mut ledger, _) = Ledger::open(folder).expect("a ledger");
        for what in ["one", "two", "three"] {
            ledger.append(&entry(what)).expect("written");
        }
    }

    fn whats(folder: &Path) -> (Vec<String>, Vec<String>) {
        let (entries, damage) = read_all(folder).expect("readable");
        (entries.into_iter().map(|one| one.what).collect(), damage)
    }

    #[test]
    fn cut_tail_is_taken_away_and_said() {
        let folder = tempfile::tempdir().expect("a folder");
        three(folder.path());
        let path = path(folder.path());
        let bytes = fs::read(&path).expect("readable");
        fs::write(&path, &bytes[..bytes.len() - 7]).expect("cut");
        let (whats_now, damage) = whats(folder.path());
        assert_eq!(whats_now, ["one", "two"]);
        assert!(damage[0].contains("last line is cut"), "{damage:?}");

        let (mut ledger, opened) = Ledger::open(folder.path()).expect("opened");

        assert!(opened.mended > 0 && opened.damage.is_empty(), "{opened:?}");
        ledger.append(&entry("four")).expect("written");
        assert_eq!(
            whats(folder.path()),
            (vec!["one".into(), "two".into(), "four".into()], vec![])
        );
    }

    #[test]
    fn changed_and_missing_lines_are_named() {
        let folder = tempfile::tempdir().expect("a folder");
        three(folder.path());
        let path = path(folder.path());
        let good = fs::read_to_string(&path).expect("readable");
        for (bad, part) in [
            (good.replace("two", "TWO"), "line 2 was changed"),
            (
                good.replace("\"what\":\"two\"", "\"what\""),
                "line 2 is not readable",
            ),
            (
                good.lines()
                    .filter(|line| !line.contains("two"))
                    .map(|line| format!("{line}\n"))
                    .collect(),
                "lines are missing before line 2",
            ),
        ] {
            fs::write(&path, bad).expect("written");
            let (_, damage) = whats(folder.path());
            assert_eq!(damage, [format!("ledger.log: {part}")]);
            let (_, opened) = Ledger::open(folder.path()).expect("opened all the same");
            assert_eq!((opened.mended, opened.damage), (0, vec![part.to_owned()]));
        }
    }

    #[test]
    fn chain_goes_on_in_the_next_file() {
        let folder = tempfile::tempdir().expect("a folder");
        three(folder.path());
        let (mut ledger, _) = Ledger::open(folder.path()).expect("opened");
        ledger.turn_over().expect("renamed");
        ledger.append(&entry("four")).expect("written");
        drop(ledger);
        let (mut ledger, opened) = Ledger::open(folder.path()).expect("opened");
        assert_eq!(opened, Opened::default());
        ledger.append(&entry("five")).expect("written");
        let (all, damage) = whats(folder.path());
        assert_eq!((all.len(), damage), (5, vec![]));
    }

    #[test]
    fn turn_over_that_failed_half_way_is_finished_by_the_next_line() {
        let folder = tempfile::tempdir().expect("a folder");
        three(folder.path());
        let (mut ledger, _) = Ledger::open(folder.path()).expect("opened");
        let path = path(folder.path());
        // It was renamed, and the disk had no room for another file.
        fs::rename(&path, numbered(&path, 1)).expect("renamed");
        for _ in 0..3 {
            ledger.bytes = FILE_BYTES_MAX;
            ledger.append(&entry("four")).expect("written");
            fs::remove_file(&path).expect("there");
        }
        ledger.bytes = FILE_BYTES_MAX;
        ledger.append(&entry("five")).expect("written");
        let (all, _) = whats(folder.path());
        assert_eq!(all.len(), 4, "{all:?}");
        assert!(!numbered(&path, 2).exists());
    }
}
