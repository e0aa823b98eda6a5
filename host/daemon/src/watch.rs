//! Notices that a plugin's files changed. Editors write a file in several steps, and
//! people save several files at once: a change is told when things have been quiet for a
//! moment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// How long nothing may happen before a change counts.
const QUIET: Duration = Duration::from_millis(150);
/// A change counts after this long, however restless the files are.
const RESTLESS_MAX: Duration = Duration::from_secs(2);

/// A file that somebody began to write counts as complete after this long, whether or not
/// it was closed.
const WRITING_MAX: Duration = Duration::from_secs(30);

/// Watches files and folders while it lives.
pub(crate) struct Watch {
    watcher: RecommendedWatcher,
    paths: Arc<Mutex<Vec<PathBuf>>>,
    /// Files that were written to and not closed since, and when that was.
    writing: Arc<Mutex<BTreeMap<PathBuf, Instant>>>,
    settled: mpsc::Receiver<()>,
    settling: JoinHandle<()>,
}

impl Watch {
    /// Watches nothing yet. Needs a tokio runtime.
    ///
    /// # Errors
    /// When the system has no way or no room for it.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let paths: Arc<Mutex<Vec<PathBuf>>> = Arc::default();
        let (happened, restless) = mpsc::channel(1);
        let (settled, receiver) = mpsc::channel(1);
        let wanted = Arc::clone(&paths);
        let writing: Arc<Mutex<BTreeMap<PathBuf, Instant>>> = Arc::default();
        let being_written = Arc::clone(&writing);
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if let Ok(event) = &event {
                note_writing(event, &being_written);
            }
            let paths = wanted.lock().unwrap_or_else(PoisonError::into_inner);
            if event.is_ok_and(|event| is_change(&event, &paths)) {
                // One that waits stands for all.
                let _ = happened.try_send(());
            }
        })
        .context("cannot watch files for changes; raise fs.inotify.max_user_watches (mqlet dev: or start with --no-reload)")?;
        Ok(Self {
            watcher,
            paths,
            writing,
            settled: receiver,
            settling: tokio::spawn(settle(restless, settled)),
        })
    }

    /// Watches these, too. What does not exist is watched by its folder.
    pub(crate) fn add(&mut self, paths: impl IntoIterator<Item = PathBuf>) -> anyhow::Result<()> {
        for path in paths {
            let path = std::path::absolute(&path).unwrap_or(path);
            {
                let mut known = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
                if known.contains(&path) {
                    continue;
                }
                known.push(path.clone());
            }
            // A file is replaced by editors: its folder is what stays.
            let (target, mode) = match path.is_dir() {
                true => (path.as_path(), RecursiveMode::Recursive),
                false => (
                    path.parent().unwrap_or(Path::new("/")),
                    RecursiveMode::NonRecursive,
                ),
            };
            if target.is_dir() {
                self.watcher.watch(target, mode).with_context(|| {
                    format!("cannot watch {}; raise fs.inotify.max_user_watches (mqlet dev: or start with --no-reload)", target.display())
                })?;
            }
        }
        Ok(())
    }

    /// Somebody writes this file and has not closed it: it may be half of what it is to be.
    /// Known on Linux alone.
    pub(crate) fn is_being_written(&self, path: &Path) -> bool {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let since = writing.get(&path);
        since.is_some_and(|since| since.elapsed() < WRITING_MAX)
    }

    /// Waits for the next change. Can be dropped and asked again without losing one.
    pub(crate) async fn changed(&mut self) {
        if self.settled.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.settling.abort();
    }
}

async fn settle(mut restless: mpsc::Receiver<()>, settled: mpsc::Sender<()>) {
    while restless.recv().await.is_some() {
        let deadline = Instant::now() + RESTLESS_MAX;
        while Instant::now() < deadline
            && matches!(timeout(QUIET, restless.recv()).await, Ok(Some(())))
        {}
        // One that waits stands for all.
        let _ = settled.try_send(());
    }
}

/// Elsewhere the system does not tell when a file is closed.
fn note_writing(event: &Event, writing: &Mutex<BTreeMap<PathBuf, Instant>>) {
    if !cfg!(target_os = "linux") {
        return;
    }
    let mut writing = writing.lock().unwrap_or_else(PoisonError::into_inner);
    for path in &event.paths {
        match event.kind {
            EventKind::Modify(ModifyKind::Data(_)) => {
                writing.retain(|_, since| since.elapsed() < WRITING_MAX);
                writing.insert(path.clone(), Instant::now());
            }
            EventKind::Access(AccessKind::Close(AccessMode::Write))
            | EventKind::Modify(ModifyKind::Name(_))
            | EventKind::Remove(_) => {
                writing.remove(path);
            }
            _ => {}
        }
    }
}

fn is_change(event: &Event, paths: &[PathBuf]) -> bool {
    let is_closed = matches!(
        event.kind,
        EventKind::Access(AccessKind::Close(AccessMode::Write))
    );
    (is_closed || !matches!(event.kind, EventKind::Access(_)))
        && event
            .paths
            .iter()
            .any(|changed| paths.iter().any(|path| changed.starts_with(path)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const BOUND: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn change_of_a_watched_file_is_told_and_of_its_neighbour_is_not() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let manifest = folder.path().join("plugin.toml");
        let source = folder.path().join("src");
        fs::create_dir(&source).expect("writable");
        fs::write(&manifest, "1").expect("writable");
        let mut watch = Watch::new().expect("a watcher");
        watch
            .add([manifest.clone(), source.clone()])
            .expect("watched");

        fs::write(folder.path().join("Cargo.lock"), "new").expect("writable");
        let neighbour = timeout(3 * QUIET, watch.changed()).await;
        assert!(neighbour.is_err(), "a neighbour's change was told");

        fs::write(source.join("lib.rs"), "fn new() {}").expect("writable");
        timeout(BOUND, watch.changed()).await.expect("a new source");

        // As editors do it.
        fs::write(folder.path().join("plugin.toml.new"), "2").expect("writable");
        fs::rename(folder.path().join("plugin.toml.new"), &manifest).expect("writable");
        timeout(BOUND, watch.changed())
            .await
            .expect("a replaced manifest");
    }
}
