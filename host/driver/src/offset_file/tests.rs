//! Files that are cut, flipped, foreign or cannot be written, and the copy before them.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use protocol::{MessageQueue, QueueOffset};

use super::copy::{Entry, MAGIC};
use super::*;

fn owner() -> Owner {
    Owner {
        consumer_group: "prices".into(),
        namesrv_addr: vec!["10.0.0.1:9876".to_owned(), "10.0.0.2:9876".to_owned()],
    }
}

fn table(offset: u64) -> LocalOffsetTable {
    (0..3)
        .map(|id| {
            let queue = MessageQueue::new("T1", "broker \"a\" ü", id);
            (queue, QueueOffset(offset + u64::from(id)))
        })
        .collect()
}

struct Folder {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl Folder {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("offsets");
        Self {
            _folder: folder,
            path,
        }
    }

    fn file(&self) -> OffsetFile {
        OffsetFile::new(&self.path, owner())
    }

    /// With both copies: the latest from 200 on, the one before from 100.
    fn with_two_copies() -> Self {
        let folder = Self::new();
        let mut file = folder.file();
        file.store(&table(100)).expect("stored");
        file.store(&table(200)).expect("stored");
        folder
    }
}

fn load(file: &mut OffsetFile) -> LoadedOffsets {
    let load = file.load().expect("the system can read");
    load.offsets
}

fn lost(loaded: &LoadedOffsets) -> &str {
    match &loaded.source {
        LocalOffsetsSource::Lost { problem } => problem,
        other => panic!("not lost: {other:?}"),
    }
}

#[test]
fn what_was_stored_is_read_again() {
    let folder = Folder::new();
    let mut file = folder.file();
    let nothing = load(&mut file);
    assert_eq!(nothing.source, LocalOffsetsSource::Nothing);
    assert_eq!(nothing.offsets, BTreeMap::new());
    for offsets in [table(1), table(2), LocalOffsetTable::new(), table(3)] {
        file.store(&offsets).expect("stored");
        let loaded = load(&mut file);
        assert_eq!(
            (loaded.offsets, loaded.source),
            (offsets, LocalOffsetsSource::Latest)
        );
    }
}

#[test]
fn a_file_that_is_cut_anywhere_is_the_copy_before_it() {
    let folder = Folder::with_two_copies();
    let whole = fs::read(folder.file().latest).expect("there");
    for length in 0..whole.len() {
        let file = folder.file();
        fs::write(&file.latest, &whole[..length]).expect("ours");
        let loaded = load(&mut folder.file());
        assert_eq!(loaded.offsets, table(100), "cut to {length} bytes");
        assert!(matches!(loaded.source, LocalOffsetsSource::Previous { .. }));
    }
}

#[test]
fn a_file_with_any_bit_flipped_is_the_copy_before_it() {
    let folder = Folder::with_two_copies();
    let whole = fs::read(folder.file().latest).expect("there");
    for bit in 0..whole.len() * 8 {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let decoded = decode(&flipped).and_then(Document::table);
        // A letter of the checksum in upper case says the same.
        assert!(
            decoded.is_err() || decoded == Ok(table(200)),
            "bit {bit} makes {decoded:?}"
        );
    }
    let mut flipped = whole;
    flipped[100] ^= 1;
    fs::write(folder.file().latest, flipped).expect("ours");
    assert_eq!(load(&mut folder.file()).offsets, table(100));
}

#[test]
fn a_damaged_file_does_not_take_the_place_of_its_copy() {
    let folder = Folder::with_two_copies();
    let mut file = folder.file();
    fs::write(&file.latest, "garbage").expect("ours");
    file.store(&table(300)).expect("stored");
    fs::remove_file(&file.latest).expect("ours");
    assert_eq!(load(&mut file).offsets, table(100));
}

#[test]
fn a_crash_between_any_two_steps_leaves_a_whole_copy() {
    let folder = Folder::with_two_copies();
    let file = folder.file();
    let new = encode(&owner(), &table(300));
    // While it is written, ...
    for length in [0, 1, new.len() / 2, new.len()] {
        fs::write(&file.new, &new[..length]).expect("ours");
        assert_eq!(load(&mut folder.file()).offsets, table(200));
    }
    // ... when the latest was renamed, ...
    fs::rename(&file.latest, &file.previous).expect("ours");
    assert_eq!(load(&mut folder.file()).offsets, table(200));
    // ... and when the new one is in its place.
    fs::rename(&file.new, &file.latest).expect("ours");
    assert_eq!(load(&mut folder.file()).offsets, table(300));
}

#[test]
fn files_of_others_and_nonsense_are_not_used_and_say_why() {
    let folder = Folder::new();
    let mut file = folder.file();
    fs::create_dir_all(&folder.path).expect("ours");
    let other_group = Owner {
        consumer_group: "others".into(),
        ..owner()
    };
    let zeros = vec![0; 300];
    for (bytes, why) in [
        (encode(&other_group, &table(1)), "it is of group \"others\""),
        (zeros, "it is no file of offsets"),
        (Vec::new(), "it is empty"),
        (b"{\"offsetTable\":{}}".to_vec(), "it is no file of offsets"),
        (
            b"mqlet-offsets 2 00000000 0\n".to_vec(),
            "it is no file of offsets",
        ),
        (
            b"mqlet-offsets 1 00000000 0\n".to_vec(),
            "it cannot be read",
        ),
    ] {
        fs::write(&file.latest, &bytes).expect("ours");
        let loaded = load(&mut file);
        assert_eq!(loaded.offsets, BTreeMap::new());
        let problem = lost(&loaded);
        assert!(problem.contains(why), "{problem}");
        assert!(problem.contains("prices-"), "it names the file: {problem}");
        fs::write(&file.previous, &bytes).expect("ours");
        assert!(lost(&load(&mut file)).contains("nor its copy"));
        fs::remove_file(&file.previous).expect("ours");
    }
}

#[test]
fn a_name_server_in_common_is_the_same_cluster_however_it_is_spelled() {
    for (before, now) in [
        (
            &["10.0.0.2:9876", "10.0.0.3:9876"][..],
            &["10.0.0.1:9876", "10.0.0.2:9876"][..],
        ),
        (&["MQ.example.test:9876"], &["mq.example.test:9876"]),
        (&["127.0.0.1:9876"], &["localhost:9876"]),
        (&["[0:0:0:0:0:0:0:1]:9876"], &["[::1]:9876"]),
    ] {
        let folder = Folder::new();
        let mut file = OffsetFile::new(&folder.path, owner_with(before));
        file.store(&table(7)).expect("stored");
        drop(file);
        let mut file = OffsetFile::new(&folder.path, owner_with(now));
        assert_eq!(
            load(&mut file).offsets,
            table(7),
            "{before:?}, then {now:?}"
        );
        // What was there is the copy of what is stored next.
        file.store(&table(8)).expect("stored");
        fs::remove_file(&file.latest).expect("ours");
        assert_eq!(load_previous(&file), table(7));
    }
}

fn owner_with(namesrv_addr: &[&str]) -> Owner {
    Owner {
        namesrv_addr: namesrv_addr.iter().map(|&name| name.to_owned()).collect(),
        ..owner()
    }
}

#[test]
fn one_run_with_both_name_servers_is_enough_though_nothing_is_stored() {
    let both = owner_with(&["10.0.0.1:9876", "10.9.9.9:9876"]);
    let new = owner_with(&["10.9.9.9:9876"]);
    for latest_is_damaged in [false, true] {
        let folder = Folder::with_two_copies();
        let offsets = if latest_is_damaged {
            fs::write(folder.file().latest, "garbage").expect("ours");
            table(100)
        } else {
            table(200)
        };
        let mut file = OffsetFile::new(&folder.path, new.clone());
        file.load().expect_err("nobody knows");
        drop(file);
        let mut file = OffsetFile::new(&folder.path, both.clone());
        assert_eq!(load(&mut file).offsets, offsets);
        drop(file);
        let loaded = load(&mut OffsetFile::new(&folder.path, new.clone()));
        assert_eq!(
            (loaded.offsets, loaded.source),
            (offsets, LocalOffsetsSource::Latest)
        );
    }
}

#[test]
fn a_file_of_the_same_name_servers_is_not_rewritten() {
    let folder = Folder::with_two_copies();
    load(&mut folder.file());
    assert_eq!(load_previous(&folder.file()), table(100));
}

#[test]
fn name_servers_that_cannot_be_rewritten_are_told_of_and_stop_nobody() {
    let folder = Folder::with_two_copies();
    let mut file = OffsetFile::new(
        &folder.path,
        owner_with(&["10.0.0.1:9876", "10.9.9.9:9876"]),
    );
    std::os::unix::fs::symlink("/dev/full", &file.new).expect("ours");
    let Load {
        offsets,
        not_rewritten,
    } = file.load().expect("it can be read");
    assert_eq!(offsets.offsets, table(200));
    let error = not_rewritten.expect("there is no room").reason;
    assert!(error.contains("make room"), "{error}");
    fs::remove_file(&file.new).expect("ours");
    let load = file.load().expect("it can be read");
    assert!(load.not_rewritten.is_none(), "{load:?}");
}

#[test]
fn what_may_be_of_another_cluster_starts_nothing_and_is_not_overwritten() {
    let folder = Folder::with_two_copies();
    let other = Owner {
        namesrv_addr: vec!["10.9.9.9:9876".to_owned()],
        ..owner()
    };
    let mut file = OffsetFile::new(&folder.path, other.clone());
    let error = file.load().expect_err("nobody knows").reason;
    for part in ["10.0.0.1:9876, 10.0.0.2:9876", "10.9.9.9:9876", "prices-"] {
        assert!(error.contains(part), "{error}");
    }
    let both = format!(
        "remove {} and {}",
        file.latest.display(),
        file.previous.display()
    );
    assert!(error.contains(&both), "{error}");
    // Nor is a copy taken for ours.
    fs::write(&file.latest, "garbage").expect("ours");
    file.load().expect_err("nobody knows");
    // The operator knows.
    for path in [&file.latest, &file.previous] {
        fs::remove_file(path).expect("ours");
    }
    assert_eq!(load(&mut file).source, LocalOffsetsSource::Nothing);
}

/// What the copy before the latest has.
fn load_previous(file: &OffsetFile) -> LocalOffsetTable {
    let bytes = fs::read(&file.previous).expect("there");
    decode(&bytes).and_then(Document::table).expect("whole")
}

#[test]
fn an_offset_that_no_broker_can_hold_makes_the_file_unusable() {
    let document = Document {
        consumer_group: "prices".to_owned(),
        namesrv_addr: owner().namesrv_addr,
        offsets: vec![Entry {
            topic: "T1".to_owned(),
            broker_name: "broker-a".to_owned(),
            queue_id: 0,
            offset: u64::MAX,
        }],
    };
    let content = serde_json::to_vec(&document).expect("JSON");
    let mut bytes = format!(
        "{MAGIC} {:08x} {}\n",
        crc32fast::hash(&content),
        content.len()
    );
    bytes.push_str(std::str::from_utf8(&content).expect("text"));
    assert!(matches!(
        decode(bytes.as_bytes()).and_then(Document::table),
        Err(CopyProblem::Content(_))
    ));
}

#[test]
fn a_full_disk_is_an_error_and_leaves_what_was_there() {
    let folder = Folder::with_two_copies();
    let mut file = folder.file();
    std::os::unix::fs::symlink("/dev/full", &file.new).expect("ours");
    let error = file.store(&table(300)).expect_err("no room");
    assert!(error.reason.contains("prices-"), "{error}");
    assert!(error.reason.contains("state_dir"), "{error}");
    assert_eq!(load(&mut file).offsets, table(200));
    fs::remove_file(&file.new).expect("ours");
    file.store(&table(400)).expect("there is room again");
    assert_eq!(load(&mut file).offsets, table(400));
}

#[test]
fn a_folder_that_cannot_be_made_is_empty_and_tells_when_something_is_stored() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let in_the_way = folder.path().join("state");
    fs::write(&in_the_way, "a file").expect("ours");
    let mut file = OffsetFile::new(&in_the_way.join("offsets"), owner());
    assert_eq!(load(&mut file).source, LocalOffsetsSource::Nothing);
    assert!(file.store(&table(1)).is_err());
}

#[test]
fn what_cannot_be_read_is_not_taken_for_nothing() {
    let folder = Folder::new();
    let mut file = folder.file();
    fs::create_dir_all(&file.latest).expect("a folder in its place");
    let error = file.load().expect_err("a folder is no file");
    assert!(error.reason.contains("consume_from_where"), "{error}");
}

#[test]
fn a_file_has_one_user_at_a_time() {
    let folder = Folder::with_two_copies();
    let mut first = folder.file();
    load(&mut first);
    let error = folder.file().load().expect_err("it is taken");
    assert!(error.reason.contains("a state_dir of its own"), "{error}");
    let error = folder.file().store(&table(1)).expect_err("it is taken");
    assert!(error.reason.contains("a state_dir of its own"), "{error}");
    drop(first);
    assert_eq!(load(&mut folder.file()).offsets, table(200));
}

#[test]
fn nothing_is_written_without_the_lock() {
    let folder = Folder::with_two_copies();
    let mut file = folder.file();
    fs::remove_file(&file.lock).expect("ours");
    fs::create_dir(&file.lock).expect("a folder in its place");
    // What is there can be read, ...
    assert_eq!(load(&mut file).offsets, table(200));
    // ... and the first thing to be stored is told of.
    let error = file.store(&table(300)).expect_err("no lock").reason;
    assert!(error.contains(".lock cannot be opened"), "{error}");
    assert_eq!(load(&mut file).offsets, table(200));
    fs::remove_dir(&file.lock).expect("ours");
    file.store(&table(300)).expect("there is a lock again");
    folder.file().load().expect_err("it is taken");
}

#[test]
fn file_names_stay_in_their_folder_and_differ() {
    let long = "%".repeat(120);
    let names = [
        "G1",
        "g1",
        "a%b",
        "a|b",
        "..",
        "../../etc",
        long.as_str(),
        "ü",
    ];
    let files: std::collections::BTreeSet<String> = names
        .iter()
        .map(|name| file_name(name).to_ascii_lowercase())
        .collect();
    assert_eq!(files.len(), names.len());
    for file in files {
        assert!(file.len() <= READABLE_MAX + 9, "{file}");
        assert!(!file.contains(['/', '\\', ':', '.', '%']), "{file}");
    }
}
