//! Names as users know them, and as brokers do: with the client's namespace.

use std::sync::Arc;

use protocol::{MessageQueue, topic};

use super::Client;

impl Client {
    /// A name as its user knows it, without the namespace.
    pub(crate) fn without_namespace(&self, name: &Arc<str>) -> Arc<str> {
        match &*self.config.namespace {
            "" => Arc::clone(name),
            namespace => topic::without_namespace(namespace, name).into(),
        }
    }

    /// A name as brokers know it, with the namespace.
    pub(crate) fn in_namespace(&self, name: &Arc<str>) -> Arc<str> {
        match &*self.config.namespace {
            "" => Arc::clone(name),
            namespace => topic::wrap_namespace(namespace, name).into(),
        }
    }

    /// A queue as its user knows it.
    pub(crate) fn queue_without_namespace(&self, queue: &MessageQueue) -> MessageQueue {
        MessageQueue {
            topic: self.without_namespace(&queue.topic),
            ..queue.clone()
        }
    }

    /// A queue as brokers know it.
    pub(crate) fn queue_in_namespace(&self, queue: &MessageQueue) -> MessageQueue {
        MessageQueue {
            topic: self.in_namespace(&queue.topic),
            ..queue.clone()
        }
    }
}
