//! Bytes to frames: the read half of a socket.
//!
//! A frame gets one allocation of its own, so that a pull answer held for its last
//! message holds nothing else. The announced length is checked before anything is
//! allocated, and a large frame's memory grows as its bytes come: announcing 16 MiB
//! costs the peer as much as it costs us. A peer that begins a frame must go on with it:
//! everything behind it on the connection waits for its end.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use protocol::frame;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::{Instant, timeout_at};

use crate::error::ConnectionError;

/// Bytes asked of the socket at once between frames: several small answers come
/// with one system call, and a usual pull answer with two.
const READ_BUFFER_BYTES: usize = 32 * 1024;

/// Reserved at once for a frame that announces more; it doubles from here. A usual
/// pull answer (256 KiB of messages) fits without growing.
const FRAME_RESERVE_BYTES_MAX: usize = 512 * 1024;

/// While a frame is incomplete, so many bytes of it must come in each
/// [`FRAME_PROGRESS_TIME`]: a fifth of what the slowest modem of a phone does.
const FRAME_PROGRESS_BYTES: usize = 4 * 1024;
/// See [`FRAME_PROGRESS_BYTES`].
const FRAME_PROGRESS_TIME: Duration = Duration::from_secs(5);

/// Bytes of the length field.
const LENGTH_BYTES: usize = 4;

/// Cuts what a socket gives into frames.
#[derive(Debug)]
pub(crate) struct FrameReader<R> {
    read: R,
    buffer: BytesMut,
    frame_bytes_max: usize,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(crate) fn new(read: R, frame_bytes_max: usize) -> Self {
        Self {
            read,
            buffer: BytesMut::with_capacity(READ_BUFFER_BYTES),
            frame_bytes_max,
        }
    }

    /// The next frame without its length field; `None` when the peer closed between
    /// two frames. Not cancel-safe: it is the only thing its task waits for.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, ConnectionError> {
        while self.buffer.len() < LENGTH_BYTES {
            // Everything before was copied out, so this moves at most three bytes.
            self.buffer.reserve(READ_BUFFER_BYTES - self.buffer.len());
            if self.read.read_buf(&mut self.buffer).await? == 0 {
                return match self.buffer.is_empty() {
                    true => Ok(None),
                    false => Err(ConnectionError::CutFrame),
                };
            }
        }
        let mut length = [0; LENGTH_BYTES];
        self.buffer.copy_to_slice(&mut length);
        let length = frame::announced_length(length, self.frame_bytes_max)
            .map_err(ConnectionError::Frame)?;

        let mut frame = BytesMut::with_capacity(length.min(FRAME_RESERVE_BYTES_MAX));
        let buffered = length.min(self.buffer.len());
        frame.put_slice(&self.buffer[..buffered]);
        self.buffer.advance(buffered);
        if frame.len() < length {
            self.complete(&mut frame, length).await?;
        }
        Ok(Some(frame.freeze()))
    }

    /// Reads the rest of a frame.
    async fn complete(
        &mut self,
        frame: &mut BytesMut,
        length: usize,
    ) -> Result<(), ConnectionError> {
        let mut progress_until = Instant::now() + FRAME_PROGRESS_TIME;
        let mut progress_bytes = 0;
        while frame.len() < length {
            if frame.len() == frame.capacity() {
                // `reserve` would round up; what is held for long should be exact.
                let mut larger = BytesMut::with_capacity((frame.capacity() * 2).min(length));
                larger.extend_from_slice(frame);
                *frame = larger;
            }
            let missing = length - frame.len();
            let mut rest = (&mut *frame).limit(missing);
            let read = timeout_at(progress_until, self.read.read_buf(&mut rest)).await;
            let bytes = read.map_err(|_| ConnectionError::StalledFrame(FRAME_PROGRESS_TIME))??;
            if bytes == 0 {
                return Err(ConnectionError::CutFrame);
            }
            progress_bytes += bytes;
            if progress_bytes >= FRAME_PROGRESS_BYTES {
                progress_until = Instant::now() + FRAME_PROGRESS_TIME;
                progress_bytes = 0;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    const FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;

    fn framed(content: &[u8]) -> Vec<u8> {
        let mut bytes = u32::try_from(content.len()).unwrap().to_be_bytes().to_vec();
        bytes.extend_from_slice(content);
        bytes
    }

    #[tokio::test]
    async fn frames_come_out_whole_whatever_the_pieces() {
        let contents = [vec![1; 5], vec![2; 100_000], vec![3; 4], vec![4; 2_000_000]];
        let bytes: Vec<u8> = contents
            .iter()
            .flat_map(|content| framed(content))
            .collect();
        for piece in [1_usize, 3, 7, 40_000] {
            // One byte at a time is enough for the first two frames.
            let bytes = bytes.clone();
            let (read, mut write) = tokio::io::duplex(64 * 1024);
            let writer = tokio::spawn(async move {
                let (start, rest) = bytes.split_at(100_020);
                for chunk in start.chunks(piece).chain(rest.chunks(40_000)) {
                    write.write_all(chunk).await.unwrap();
                }
            });
            let mut reader = FrameReader::new(read, FRAME_BYTES_MAX);
            for content in &contents {
                let frame = reader.next().await.unwrap().unwrap();
                assert_eq!(frame.len(), content.len());
                assert!(frame == content.as_slice());
            }
            assert!(reader.next().await.unwrap().is_none());
            writer.await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_cut_frame_is_an_error_and_a_clean_end_is_not() {
        for cut in 1..=9 {
            let bytes = &framed(&[9; 5])[..cut];
            let result = FrameReader::new(bytes, FRAME_BYTES_MAX).next().await;
            match cut {
                9 => assert!(result.unwrap().is_some()),
                _ => assert!(matches!(result, Err(ConnectionError::CutFrame)), "{cut}"),
            }
        }
        let mut reader = FrameReader::new(&[][..], FRAME_BYTES_MAX);
        assert!(reader.next().await.unwrap().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_frame_that_does_not_go_on_is_an_error_however_it_drips() {
        for drip in [None, Some(Duration::from_millis(100))] {
            let (read, mut write) = tokio::io::duplex(64);
            let writer = tokio::spawn(async move {
                write.write_all(&[0, 0, 0xff, 0xff, 1, 2, 3]).await.unwrap();
                match drip {
                    None => std::future::pending().await,
                    Some(interval) => {
                        while write.write_all(&[0]).await.is_ok() {
                            tokio::time::sleep(interval).await;
                        }
                    }
                }
            });
            let result = FrameReader::new(read, FRAME_BYTES_MAX).next().await;
            assert!(
                matches!(result, Err(ConnectionError::StalledFrame(_))),
                "{drip:?}: {result:?}"
            );
            writer.abort();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_frame_that_goes_on_is_read() {
        let content = vec![7; 1_000_000];
        let bytes = framed(&content);
        let (read, mut write) = tokio::io::duplex(64 * 1024);
        let writer = tokio::spawn(async move {
            for chunk in bytes.chunks(5_000) {
                write.write_all(chunk).await.unwrap();
                tokio::time::sleep(Duration::from_secs(3)).await;
            }
        });
        let frame = FrameReader::new(read, FRAME_BYTES_MAX).next().await;
        assert!(frame.unwrap().unwrap() == content.as_slice());
        writer.await.unwrap();
    }

    #[tokio::test]
    async fn impossible_lengths_are_refused_before_the_frame_is_read() {
        for length in [
            [0xff; 4],
            [0x7f, 0xff, 0xff, 0xff],
            [1, 0, 0, 1],
            [0x16, 3, 1, 2],
        ] {
            let result = FrameReader::new(&length[..], FRAME_BYTES_MAX).next().await;
            assert!(
                matches!(result, Err(ConnectionError::Frame(_))),
                "{length:?}"
            );
        }
    }
}
