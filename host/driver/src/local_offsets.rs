//! Offsets of broadcasting groups, in and out of their files.
//!
//! Files block, so the work is done on the runtime's threads for that, one piece a group
//! at a time, and comes back through the mailbox. Without a folder nothing is kept: every
//! start is a first one.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use consumer::local_offsets::{
    LoadedOffsets, LocalOffsetTable, LocalOffsetsError, LocalOffsetsSource, LocalOffsetsWork,
    PendingLocalOffsets,
};
use tokio_util::task::TaskTracker;

use crate::mailbox::{Input, Mailbox};
use crate::offset_file::{OffsetFile, Owner};

/// Does what the rules ask for.
#[derive(Debug)]
pub(crate) struct LocalOffsets {
    folder: Option<PathBuf>,
    namesrv_addr: Vec<String>,
    mailbox: Arc<Mailbox>,
    /// By the group's name at the broker; the mutex is for the one job that uses it.
    files: BTreeMap<Arc<str>, Arc<Mutex<OffsetFile>>>,
    jobs: TaskTracker,
}

impl LocalOffsets {
    pub(crate) fn new(
        folder: Option<PathBuf>,
        namesrv_addr: Vec<String>,
        mailbox: Arc<Mailbox>,
    ) -> Self {
        Self {
            folder,
            namesrv_addr,
            mailbox,
            files: BTreeMap::new(),
            jobs: TaskTracker::new(),
        }
    }

    /// Never waits; the result comes to the mailbox.
    pub(crate) fn start(&mut self, pending: PendingLocalOffsets) {
        let PendingLocalOffsets {
            id,
            consumer_group,
            work,
            ..
        } = pending;
        let Some(folder) = &self.folder else {
            self.mailbox.push(match work {
                LocalOffsetsWork::Load => Input::LocalOffsetsLoaded(id, Ok(nothing())),
                LocalOffsetsWork::Store(_) => Input::LocalOffsetsStored(id, Ok(())),
            });
            return;
        };
        let file = self.files.entry(Arc::clone(&consumer_group));
        let file = Arc::clone(file.or_insert_with(|| {
            let owner = Owner {
                consumer_group: Arc::clone(&consumer_group),
                namesrv_addr: self.namesrv_addr.clone(),
            };
            Arc::new(Mutex::new(OffsetFile::new(folder, owner)))
        }));
        let mailbox = Arc::clone(&self.mailbox);
        self.jobs.spawn(async move {
            mailbox.push(match work {
                LocalOffsetsWork::Load => {
                    let result = blocking(file, OffsetFile::load).await.map(|load| {
                        if let Some(error) = load.not_rewritten {
                            mailbox.push(Input::LocalOffsetsNotRewritten(consumer_group, error));
                        }
                        load.offsets
                    });
                    Input::LocalOffsetsLoaded(id, result)
                }
                LocalOffsetsWork::Store(offsets) => {
                    let result = blocking(file, move |file| file.store(&offsets)).await;
                    Input::LocalOffsetsStored(id, result)
                }
            });
        });
    }

    /// The group of this name at the broker has left: others may have its file.
    pub(crate) fn forget(&mut self, consumer_group: &str) {
        self.files.remove(consumer_group);
    }
}

async fn blocking<T: Send + 'static>(
    file: Arc<Mutex<OffsetFile>>,
    work: impl FnOnce(&mut OffsetFile) -> Result<T, LocalOffsetsError> + Send + 'static,
) -> Result<T, LocalOffsetsError> {
    let job = tokio::task::spawn_blocking(move || {
        // A job that panicked leaves paths and a lock: nothing that could be wrong.
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        work(&mut file)
    });
    job.await.unwrap_or_else(|error| {
        Err(LocalOffsetsError {
            reason: format!("this is a bug of mqlet: {error}"),
        })
    })
}

fn nothing() -> LoadedOffsets {
    LoadedOffsets {
        offsets: LocalOffsetTable::new(),
        source: LocalOffsetsSource::Nothing,
    }
}
