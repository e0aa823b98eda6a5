//! What is kept of a plugin's revisions in `state_dir`, so that what served before serves
//! again after a restart: which there were (`book`, `shared_book`), their components (`components`), and
//! what happened (`ledger`).

pub(crate) mod book;
pub(crate) mod changes;
pub(crate) mod components;
pub(crate) mod ledger;
pub(crate) mod shared_book;
pub(crate) mod uploads;

use std::io::Write as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;

/// Replaces a file so that a crash leaves the old or the new one. Blocks.
fn replace(file: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    let written = || -> std::io::Result<()> {
        std::fs::create_dir_all(folder)?;
        // A name of its own: several plugins may keep the same component at once.
        let mut new = tempfile::NamedTempFile::new_in(folder)?;
        new.write_all(bytes)?;
        new.as_file().sync_all()?;
        new.persist(file)?;
        std::fs::File::open(folder)?.sync_all()
    };
    written().with_context(|| format!("cannot write {}", file.display()))
}

/// Now, for people.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}
