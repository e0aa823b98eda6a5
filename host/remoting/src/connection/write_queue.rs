//! What waits to be written to a socket: encoded frames in one buffer.
//!
//! Frames are encoded straight into the buffer and the writer takes all of it, so
//! that frames which come together leave with one system call, and a queued frame
//! costs no allocation. Bounded in bytes; the bound includes what is being written.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use protocol::RemotingCommand;
use protocol::frame::EncodeError;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::error::ConnectionError;

/// A buffer that grew beyond this is given back to the allocator after it was written.
const BUFFER_BYTES_KEPT_MAX: usize = 256 * 1024;

/// A peer that takes no byte for this long will take no more.
const WRITE_PROGRESS_TIME: Duration = Duration::from_secs(5);

/// With so much waiting to be written, questions of the peer are not answered any more.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Frames on their way out. The mutex protects only appending and taking.
#[derive(Debug)]
pub(crate) struct WriteQueue {
    state: Mutex<State>,
    bytes_max: usize,
    filled: Notify,
    drained: Notify,
}

#[derive(Debug, Default)]
struct State {
    buffer: BytesMut,
    bytes_being_written: usize,
    closed: bool,
}

impl State {
    fn queued_bytes(&self) -> usize {
        self.buffer.len() + self.bytes_being_written
    }
}

/// Why a frame was not queued.
#[derive(Debug)]
pub(crate) enum PushError {
    Full,
    Closed,
    Encode(EncodeError),
}

impl WriteQueue {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            state: Mutex::default(),
            bytes_max,
            filled: Notify::new(),
            drained: Notify::new(),
        }
    }

    /// Encodes and queues a frame. One frame larger than the bound is taken when
    /// nothing else waits.
    pub(crate) fn push(&self, command: &RemotingCommand) -> Result<(), PushError> {
        self.append(command.body.len(), |buffer| {
            command.encode(buffer).map_err(PushError::Encode)
        })
    }

    /// The same for an answer to what the peer asked unbidden: it may not fill the queue
    /// with them. An answer that does not fit is left out.
    pub(crate) fn push_answer(&self, command: &RemotingCommand) -> Result<(), PushError> {
        if self.lock().queued_bytes() > ANSWER_BYTES_MAX {
            return Err(PushError::Full);
        }
        self.push(command)
    }

    /// Queues bytes as they are.
    pub(crate) fn push_bytes(&self, bytes: &[u8]) -> Result<(), PushError> {
        self.append(bytes.len(), |buffer| {
            buffer.extend_from_slice(bytes);
            Ok(())
        })
    }

    fn append(
        &self,
        bytes_min: usize,
        encode: impl FnOnce(&mut BytesMut) -> Result<(), PushError>,
    ) -> Result<(), PushError> {
        let mut state = self.lock();
        if state.closed {
            return Err(PushError::Closed);
        }
        let before = state.buffer.len();
        let queued = state.queued_bytes();
        if queued > 0 && queued + bytes_min > self.bytes_max {
            return Err(PushError::Full);
        }
        if let Err(error) = encode(&mut state.buffer) {
            state.buffer.truncate(before);
            return Err(error);
        }
        if queued > 0 && state.queued_bytes() > self.bytes_max {
            state.buffer.truncate(before);
            return Err(PushError::Full);
        }
        drop(state);
        if before == 0 {
            self.filled.notify_one();
        }
        Ok(())
    }

    /// Nothing more is taken; what is queued is still written.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_one();
        self.drained.notify_waiters();
    }

    /// Writes until the queue is closed and empty, then ends the stream.
    pub(crate) async fn write_to<W: AsyncWrite + Unpin>(
        &self,
        mut write: W,
    ) -> Result<(), ConnectionError> {
        let mut buffer = BytesMut::new();
        while self.take(&mut buffer).await {
            let mut rest = buffer.as_ref();
            while !rest.is_empty() {
                let written = timeout(WRITE_PROGRESS_TIME, write.write(rest)).await;
                let bytes =
                    written.map_err(|_| ConnectionError::NotReading(WRITE_PROGRESS_TIME))??;
                if bytes == 0 {
                    return Err(io::Error::from(io::ErrorKind::WriteZero).into());
                }
                rest = &rest[bytes..];
            }
            // TLS keeps what the socket did not take at once.
            timeout(WRITE_PROGRESS_TIME, write.flush())
                .await
                .map_err(|_| ConnectionError::NotReading(WRITE_PROGRESS_TIME))??;
            buffer.clear();
            if buffer.capacity() > BUFFER_BYTES_KEPT_MAX {
                buffer = BytesMut::new();
            }
            self.lock().bytes_being_written = 0;
            self.drained.notify_waiters();
        }
        write.shutdown().await?;
        Ok(())
    }

    /// Waits until at most this much is queued, or the queue is closed.
    pub(crate) async fn wait_below(&self, bytes: usize) {
        loop {
            let drained = self.drained.notified();
            {
                let state = self.lock();
                if state.closed || state.queued_bytes() <= bytes {
                    return;
                }
            }
            drained.await;
        }
    }

    /// Swaps everything queued into the empty `buffer`; false when there will be no more.
    async fn take(&self, buffer: &mut BytesMut) -> bool {
        loop {
            {
                let mut state = self.lock();
                if !state.buffer.is_empty() {
                    std::mem::swap(&mut state.buffer, buffer);
                    state.bytes_being_written = buffer.len();
                    return true;
                }
                if state.closed {
                    return false;
                }
            }
            self.filled.notified().await;
        }
    }

    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use protocol::ExtFields;
    use tokio::io::AsyncReadExt;

    use super::*;

    fn command(body_bytes: usize) -> RemotingCommand {
        RemotingCommand::request(1, ExtFields::default()).with_body(vec![7; body_bytes])
    }

    #[tokio::test]
    async fn what_was_queued_before_closing_is_written() {
        let queue = WriteQueue::new(1_000_000);
        queue.push(&command(10)).unwrap();
        queue.push(&command(20)).unwrap();
        queue.close();
        assert!(matches!(queue.push(&command(1)), Err(PushError::Closed)));

        let (mut read, write) = tokio::io::duplex(1_000_000);
        queue.write_to(write).await.unwrap();
        let mut written = Vec::new();
        read.read_to_end(&mut written).await.unwrap();

        let mut expected = BytesMut::new();
        command(10).encode(&mut expected).unwrap();
        command(20).encode(&mut expected).unwrap();
        assert!(written == expected);
    }

    #[tokio::test]
    async fn a_peer_that_does_not_read_fills_the_bound_and_no_more() {
        let queue = WriteQueue::new(10_000);
        let (read, write) = tokio::io::duplex(16);
        let writing = queue.write_to(write);
        tokio::pin!(writing);
        queue.push(&command(4_000)).unwrap();
        // The writer takes the first frame and is stuck with it.
        assert!(futures_poll_once(writing.as_mut()).await.is_none());

        queue.push(&command(4_000)).unwrap();
        assert!(matches!(queue.push(&command(4_000)), Err(PushError::Full)));
        assert!(queue.lock().queued_bytes() <= 10_000);
        drop(read);
    }

    #[tokio::test]
    async fn one_frame_over_the_bound_passes_alone() {
        let queue = WriteQueue::new(100);
        queue.push(&command(1_000)).unwrap();
        assert!(matches!(queue.push(&command(0)), Err(PushError::Full)));
    }

    async fn futures_poll_once<F: Future + Unpin>(mut future: F) -> Option<F::Output> {
        std::future::poll_fn(|context| {
            std::task::Poll::Ready(match std::pin::Pin::new(&mut future).poll(context) {
                std::task::Poll::Ready(output) => Some(output),
                std::task::Poll::Pending => None,
            })
        })
        .await
    }
}
