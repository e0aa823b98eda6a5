//! Sending without a broker: what the plugin sends is taken down, and answered as a
//! broker would.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use consumer::ClientConfig;
use consumer::publish::{
    MessageProducer, OutgoingMessage, Preparer, SendError, SendFuture, SendResult,
};
use protocol::{MessageQueue, QueueOffset};

/// Takes down what is sent; clones share the list.
#[derive(Clone)]
pub(super) struct NotedProducer {
    sent: Arc<Mutex<Vec<OutgoingMessage>>>,
    preparer: Arc<Mutex<Preparer>>,
}

impl Default for NotedProducer {
    fn default() -> Self {
        // The same ids in every run.
        let client = ClientConfig::new(String::new(), Vec::new());
        let preparer = Preparer::new(client.ip, 0, 0, client.max_message_size);
        Self {
            sent: Arc::default(),
            preparer: Arc::new(Mutex::new(preparer)),
        }
    }
}

impl NotedProducer {
    /// Everything so far, in order.
    pub(super) fn sent(&self) -> Vec<OutgoingMessage> {
        self.sent
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn note(&self, message: OutgoingMessage) -> SendResult {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        let number = sent.len() as u64;
        let result = SendResult {
            message_id: message
                .message_id
                .clone()
                .unwrap_or_else(|| format!("INVOKE{number:026}")),
            offset_message_id: format!("INVOKE{number:026}"),
            message_queue: MessageQueue::new(&message.topic, "invoke", 0),
            queue_offset: QueueOffset(number),
        };
        sent.push(message);
        result
    }
}

impl MessageProducer for NotedProducer {
    /// Legal is what the default configuration allows.
    fn prepare(&self, messages: &mut [OutgoingMessage]) -> Result<(), SendError> {
        let mut preparer = self.preparer.lock().unwrap_or_else(PoisonError::into_inner);
        preparer.prepare(messages, 0)
    }

    fn send(&self, messages: Vec<OutgoingMessage>, _timeout: Duration) -> SendFuture {
        let results = messages
            .into_iter()
            .map(|message| self.note(message))
            .collect();
        Box::pin(std::future::ready(Ok(results)))
    }

    fn send_oneway(&self, message: OutgoingMessage) -> SendFuture {
        self.note(message);
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
}
