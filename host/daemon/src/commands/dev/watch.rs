//! Notices that a plugin's files changed. Editors write a file in several steps, and
//! people save several files at once: a change is told when things have been quiet for a
//! moment.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// How long nothing may happen before a change counts.
const QUIET: Duration = Duration::from_millis(150);
/// A change counts after this long, however restless the files are.
const RESTLESS_MAX: Duration = Duration::from_secs(2);

/// Watches files and folders while it lives.
pub(super) struct Watch {
    watcher: RecommendedWatcher,
    paths: Arc<Mutex<Vec<PathBuf>>>,
    settled: mpsc::Receiver<()>,
    settling: JoinHandle<()>,
}

impl Watch {
    /// Watches nothing yet. Needs a tokio runtime.
    ///
    /// # Errors
    /// When the system has no way or no room for it.
    pub(super) fn new() -> anyhow::Result<Self> {
        let paths: Arc<Mutex<Vec<PathBuf>>> = Arc::default();
        let (happened, restless) = mpsc::channel(1);
        let (settled, receiver) = mpsc::channel(1);
        let wanted = Arc::clone(&paths);
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            let paths = wanted.lock().unwrap_or_else(PoisonError::into_inner);
            if event.is_ok_and(|event| is_change(&event, &paths)) {
                // One that waits stands for all.
                let _ = happened.try_send(());
            }
        })
        .context("cannot watch files for changes; start with --no-reload")?;
        Ok(Self {
            watcher,
            paths,
            settled: receiver,
            settling: tokio::spawn(settle(restless, settled)),
        })
    }

    /// Watches these, too. What does not exist is watched by its folder.
    pub(super) fn add(&mut self, paths: impl IntoIterator<Item = PathBuf>) -> anyhow::Result<()> {
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
                    format!("cannot watch {}; start with --no-reload", target.display())
                })?;
            }
        }
        Ok(())
    }

    /// Waits for the next change. Can be dropped and asked again without losing one.
    pub(super) async fn changed(&mut self) {
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

fn is_change(event: &Event, paths: &[PathBuf]) -> bool {
    !matches!(event.kind, EventKind::Access(_))
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
