//! Sending without a broker: what the plugin sends is taken down, and answered as a
//! broker would.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use consumer::publish::{MessageProducer, OutgoingMessage, SendFuture, SendResult};
use protocol::{MessageQueue, QueueOffset};

/// Takes down what is sent; clones share the list.
#[derive(Clone, Default)]
pub(super) struct NotedProducer(Arc<Mutex<Vec<OutgoingMessage>>>);

impl NotedProducer {
    /// Everything so far, in order.
    pub(super) fn sent(&self) -> Vec<OutgoingMessage> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn note(&self, message: OutgoingMessage) -> SendResult {
        let mut sent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = sent.len() as u64;
        let result = SendResult {
            message_id: format!("INVOKE{number:026}"),
            offset_message_id: format!("INVOKE{number:026}"),
            message_queue: MessageQueue::new(&message.topic, "invoke", 0),
            queue_offset: QueueOffset(number),
        };
        sent.push(message);
        result
    }
}

impl MessageProducer for NotedProducer {
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
