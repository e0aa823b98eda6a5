//! What a host and a plugin's worker say to each other, and how it travels: frames over a
//! socket that only the two have.
//!
//! A frame is two sizes of four bytes, lowest first, a head in postcard and bytes that are
//! handed on as they are (code, bodies, values). The worker believes its host. The host
//! believes nothing: a frame over its bound, one that cannot be read, an answer that was
//! not asked for is the worker's end (`host.rs`).

use std::io;
use std::time::Duration;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::component::ListenerKind;
use crate::event::LogLine;
use crate::failure::{FailureKind, Phase};
use crate::grants::ClockGrant;
use crate::limits::Limits;

/// Head and bytes of one frame of a worker; one instance hands over less at once.
pub(crate) const WORKER_FRAME_BYTES_MAX: usize = 64 << 20;
/// Head and bytes of one frame of a host: code is the largest.
pub(crate) const HOST_FRAME_BYTES_MAX: usize = 1 << 30;

/// Of an instance, in its worker.
pub(crate) type InstanceId = u64;
/// Of something that a guest asks its host.
pub(crate) type QuestionId = u64;

/// From the host.
#[derive(Serialize, Deserialize)]
pub(crate) enum ToWorker {
    /// The first one; with it comes the code.
    Load(Box<Load>),
    Make(InstanceId),
    /// With it come the messages' bytes.
    Call(InstanceId, Box<Call>),
    /// Nobody waits for what the call comes to.
    Cancel(InstanceId),
    ShutDown(InstanceId),
    /// It is gone, whatever it does.
    Drop(InstanceId),
    /// With it comes the value of a key.
    Answer(QuestionId, Answer),
}

/// From a worker.
#[derive(Serialize, Deserialize)]
pub(crate) enum FromWorker {
    /// To `Load`.
    Loaded(Result<(), LoadFailed>),
    /// To `Make`, `Call` and `ShutDown`: one each.
    Reply(InstanceId, Box<Reply>),
    Log(LogLine),
    /// With it come bodies, or a value.
    Ask(QuestionId, Question),
}

/// What a worker runs, and its box.
#[derive(Serialize, Deserialize)]
pub(crate) struct Load {
    pub(crate) plugin: String,
    pub(crate) revision: String,
    pub(crate) listener: ListenerKind,
    pub(crate) limits: Limits,
    pub(crate) consume_thread_max: u32,
    pub(crate) settings: Vec<(String, String)>,
    pub(crate) secrets: Vec<(String, String)>,
    pub(crate) buckets: Vec<String>,
    pub(crate) config: bool,
    pub(crate) clock: ClockGrant,
    /// Guests that compute at once.
    pub(crate) run_slots: usize,
    /// Bytes that the process may write to.
    pub(crate) memory: u64,
}

/// Why a worker runs nothing.
#[derive(Serialize, Deserialize)]
pub(crate) enum LoadFailed {
    Link(String),
    Artefact(String),
    NoSuchListener,
    Sandbox(String),
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Call {
    pub(crate) records: Vec<Record>,
    pub(crate) details: Vec<Details>,
    pub(crate) context: Context,
    pub(crate) compute: Duration,
    pub(crate) wall: Duration,
}

/// `types.message`.
#[derive(Serialize, Deserialize)]
pub(crate) struct Record {
    /// Where message id, body and properties begin, and their sizes.
    pub(crate) slices: [(u32, u32); 3],
    pub(crate) queue_offset: u64,
    pub(crate) commit_log_offset: u64,
    pub(crate) born_timestamp_ms: u64,
    pub(crate) store_timestamp_ms: u64,
    pub(crate) reconsume_times: u32,
    pub(crate) flag: i32,
    pub(crate) sys_flag: u32,
    pub(crate) store_size: u32,
}

/// `call.message-details`.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Details {
    pub(crate) born_host: String,
    pub(crate) store_host: String,
    pub(crate) offset_message_id: String,
    pub(crate) body_crc: u32,
    pub(crate) prepared_transaction_offset: u64,
}

/// `types.batch-context`.
#[derive(Serialize, Deserialize)]
pub(crate) struct Context {
    pub(crate) consumer_group: String,
    pub(crate) topic: String,
    pub(crate) broker_name: String,
    pub(crate) queue_id: u32,
    pub(crate) broadcasting: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Made {
        taken: Taken,
    },
    Answered {
        answer: GuestAnswer,
        taken: Taken,
    },
    Failed(Failure),
    /// Its exports have other types than the contract.
    Contract(String),
    ShutDown(Option<Failure>),
}

/// What a guest said, before anybody has judged it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum GuestAnswer {
    Concurrent(Result<ConcurrentStatus, String>),
    Orderly(Result<OrderlyStatus, String>),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ConcurrentStatus {
    Success(Option<i32>),
    ReconsumeLater(Option<u32>),
    Each(Vec<Outcome>),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Outcome {
    Done,
    ReconsumeLater(Option<u32>),
    DeadLetter(String),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum OrderlyStatus {
    Success,
    Suspend(Option<u32>),
    Commit,
    Rollback,
}

/// What a phase took.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Taken {
    pub(crate) wall: Duration,
    pub(crate) computed: Duration,
    pub(crate) memory_bytes: u64,
    pub(crate) log_lines: u32,
    pub(crate) log_lines_dropped: u32,
}

/// What a worker knows of a failure.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) phase: Phase,
    pub(crate) kind: FailureKind,
    pub(crate) backtrace: Vec<String>,
    pub(crate) last_log_lines: Vec<LogLine>,
    pub(crate) taken: Taken,
}

/// What a guest asks of what its grants name.
#[derive(Serialize, Deserialize)]
pub(crate) enum Question {
    /// `instance`: of a call that runs. The bodies come one after the other.
    Send {
        instance: Option<InstanceId>,
        messages: Vec<Outgoing>,
        oneway: bool,
        remaining: Duration,
    },
    Get(String, String),
    Set(String, String),
    Delete(String, String),
    Keys(String, Option<String>),
    Increment(String, String, u64),
}

/// A message to be sent, without its body.
#[derive(Serialize, Deserialize)]
pub(crate) struct Outgoing {
    pub(crate) topic: String,
    pub(crate) body_bytes: u32,
    pub(crate) tags: Option<String>,
    pub(crate) keys: Vec<String>,
    pub(crate) properties: Vec<(String, String)>,
    pub(crate) delay: Option<Delay>,
    pub(crate) sharding_key: Option<String>,
    pub(crate) flag: i32,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Delay {
    Level(u32),
    Milliseconds(u64),
    UntilMs(u64),
}

#[derive(Serialize, Deserialize)]
pub(crate) enum Answer {
    Sent(Result<Vec<Sent>, Unsent>),
    /// Whether there is a value.
    Value(Result<bool, String>),
    Done(Result<(), String>),
    Keys(Result<(Vec<String>, bool), String>),
    Number(Result<u64, String>),
}

/// `producer.send-result`.
#[derive(Serialize, Deserialize)]
pub(crate) struct Sent {
    pub(crate) message_id: String,
    pub(crate) stored: Option<Stored>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Stored {
    pub(crate) offset_message_id: String,
    pub(crate) broker_name: String,
    pub(crate) queue_id: u32,
    pub(crate) queue_offset: u64,
}

/// `producer.send-error`.
#[derive(Serialize, Deserialize)]
pub(crate) enum Unsent {
    NotGranted(String),
    Illegal(String),
    TooLarge(u64),
    RateLimited,
    NoRoute,
    Unreachable(String),
    Timeout,
    Broker { code: i32, remark: String },
    Other(String),
}

/// A frame as it is written.
pub(crate) struct Frame {
    head: Vec<u8>,
    bytes: Bytes,
}

impl Frame {
    pub(crate) fn new(head: &impl Serialize, bytes: impl Into<Bytes>) -> Self {
        // Plain data without maps of unknown size: there is nothing to fail at.
        let head = postcard::to_allocvec(head).unwrap_or_default();
        Self {
            head,
            bytes: bytes.into(),
        }
    }

    pub(crate) fn size(&self) -> usize {
        self.head.len() + self.bytes.len()
    }

    pub(crate) async fn write(&self, to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        let size = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes();
        let mut begin = Vec::with_capacity(8 + self.head.len());
        begin.extend_from_slice(&size(&self.head));
        begin.extend_from_slice(&size(&self.bytes));
        begin.extend_from_slice(&self.head);
        to.write_all(&begin).await?;
        to.write_all(&self.bytes).await
    }
}

/// Reads a frame; `None` at the end.
///
/// # Errors
/// The end in the middle of a frame, a frame over the bound, a head that is none.
pub(crate) async fn read<T: DeserializeOwned>(
    from: &mut (impl AsyncRead + Unpin),
    bytes_max: usize,
) -> io::Result<Option<(T, Bytes)>> {
    let mut sizes = [0; 8];
    if from.read(&mut sizes[..1]).await? == 0 {
        return Ok(None);
    }
    from.read_exact(&mut sizes[1..]).await?;
    let size = |at: usize| {
        let bytes = [sizes[at], sizes[at + 1], sizes[at + 2], sizes[at + 3]];
        usize::try_from(u32::from_le_bytes(bytes)).unwrap_or(usize::MAX)
    };
    let (head, bytes) = (size(0), size(4));
    if head.saturating_add(bytes) > bytes_max {
        return Err(io::Error::other("a frame is over its bound"));
    }
    let head = read_exactly(from, head).await?;
    let bytes = read_exactly(from, bytes).await?;
    let (head, rest) = postcard::take_from_bytes(&head).map_err(io::Error::other)?;
    if !rest.is_empty() {
        return Err(io::Error::other("a frame has more than its head"));
    }
    Ok(Some((head, bytes.into())))
}

/// Takes memory for what comes, not for what is announced.
async fn read_exactly(from: &mut (impl AsyncRead + Unpin), size: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(size as u64).read_to_end(&mut bytes).await?;
    match bytes.len() == size {
        true => Ok(bytes),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frame_is_read_as_it_was_written_and_everything_else_is_refused() {
        let mut written = Vec::new();
        let frame = Frame::new(&ToWorker::Make(7), &b"bytes"[..]);
        frame.write(&mut written).await.unwrap();
        let frame = read::<ToWorker>(&mut &written[..], 1024).await.unwrap();
        assert!(matches!(frame, Some((ToWorker::Make(7), bytes)) if bytes == "bytes"));

        assert!(
            read::<ToWorker>(&mut &b""[..], 1024)
                .await
                .unwrap()
                .is_none()
        );
        for cut in 1..written.len() {
            let cut = read::<ToWorker>(&mut &written[..cut], 1024).await;
            assert!(cut.is_err());
        }
        let small = read::<ToWorker>(&mut &written[..], 6).await;
        assert!(small.is_err(), "over the bound");
        written[8] = 0xee;
        let garbage = read::<ToWorker>(&mut &written[..], 1024).await;
        assert!(garbage.is_err());
    }
}
