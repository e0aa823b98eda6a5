//! The tokio runtime of a command: as many threads as it is told, and an end that waits
//! for nobody.

use std::future::Future;
use std::time::Duration;

use anyhow::Context as _;

/// What blocking work may take after the command has ended; a line that is read from a
/// terminal would hold the process for ever.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(100);

/// Runs a command to its end on a runtime of its own.
///
/// # Errors
/// When the system gives no threads; then what the command says.
pub(crate) fn block_on<T>(
    worker_threads: usize,
    command: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(worker_threads.max(1))
        .enable_all()
        .build()
        .context("cannot start the threads of the runtime")?;
    let result = runtime.block_on(command);
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    result
}
