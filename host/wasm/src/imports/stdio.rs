//! The guest's stdout and stderr: whatever is written becomes log lines. Writing never
//! waits, so a slow reader of the log holds no guest.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::AsyncWrite;
use wasmtime_wasi::async_trait;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamError, StreamResult};

use crate::event::LogSource;
use crate::log_lines::LogLines;
use crate::plugin::Plugin;

/// What one `write` may carry; also what `write-zeroes` makes the host allocate.
const WRITE_BYTES_MAX: usize = 64 * 1024;

/// One of the two streams; every handle the guest opens is a clone of it.
#[derive(Clone)]
pub(crate) struct GuestOutput {
    plugin: Arc<Plugin>,
    lines: Arc<LogLines>,
    source: LogSource,
}

impl GuestOutput {
    pub(crate) fn new(plugin: &Arc<Plugin>, lines: &Arc<LogLines>, source: LogSource) -> Self {
        Self {
            plugin: Arc::clone(plugin),
            lines: Arc::clone(lines),
            source,
        }
    }

    fn write(&self, bytes: &[u8]) {
        self.lines.write(&self.plugin, self.source, bytes);
    }
}

impl IsTerminal for GuestOutput {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for GuestOutput {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[async_trait]
impl Pollable for GuestOutput {
    async fn ready(&mut self) {}
}

#[async_trait]
impl OutputStream for GuestOutput {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        if bytes.len() > WRITE_BYTES_MAX {
            return Err(StreamError::trap("wrote more than check-write allows"));
        }
        Self::write(self, &bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(WRITE_BYTES_MAX)
    }
}

impl AsyncWrite for GuestOutput {
    fn poll_write(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Self::write(&self, bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
