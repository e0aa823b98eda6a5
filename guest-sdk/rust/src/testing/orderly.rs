//! Orderly listeners under test.

use super::{SentMessage, TestMessage, batch, host};
use crate::log::Level;
use crate::orderly::{OrderlyBatchListener, OrderlyStatus};

/// What came of a call of an orderly listener.
#[derive(Debug)]
pub struct OrderlyRun {
    /// The listener's answer; an error as its text.
    pub status: Result<OrderlyStatus, String>,
    /// What it logged: level, context, text.
    pub log: Vec<(Level, String, String)>,
    /// What it sent.
    pub sent: Vec<SentMessage>,
}

impl OrderlyRun {
    /// The texts of the log lines.
    pub fn log_texts(&self) -> Vec<&str> {
        self.log.iter().map(|(_, _, text)| text.as_str()).collect()
    }
}

/// Calls an orderly listener with a batch, as the host would.
///
/// # Panics
/// When there is no message, or they are of several topics: the host never does that.
pub fn consume_orderly(
    listener: &mut impl OrderlyBatchListener,
    messages: impl IntoIterator<Item = TestMessage>,
) -> OrderlyRun {
    let batch = batch(messages);
    host::begin(batch.len());
    let status = listener
        .consume_batch(&batch)
        .map_err(|error| error.to_string());
    let (log, sent) = host::end();
    OrderlyRun { status, log, sent }
}
