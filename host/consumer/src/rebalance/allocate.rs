//! Who of a group gets which queues of a topic. All members must use one strategy on
//! equal lists in equal order: nothing is negotiated.
//!
//! RocketMQ: `AllocateMessageQueueStrategy` and its implementations.

mod averagely;

pub(crate) use averagely::averagely;

use std::cmp::Ordering;

use protocol::MessageQueue;

/// How Java orders texts: by UTF-16 units. Differs from Rust's order beyond U+FFFF.
pub(crate) fn java_order(a: &str, b: &str) -> Ordering {
    a.encode_utf16().cmp(b.encode_utf16())
}

/// How Java orders queues before it allocates them. RocketMQ: `MessageQueue#compareTo`.
pub(crate) fn java_queue_order(a: &MessageQueue, b: &MessageQueue) -> Ordering {
    java_order(&a.topic, &b.topic)
        .then_with(|| java_order(&a.broker_name, &b.broker_name))
        .then_with(|| a.queue_id.cmp(&b.queue_id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_ordered_by_their_utf16_units() {
        // U+1F600 is a pair of surrogates, below U+FF5E in UTF-16 and above it in UTF-8.
        assert_eq!(java_order("\u{1F600}", "\u{FF5E}"), Ordering::Less);
        assert_eq!("\u{1F600}".cmp("\u{FF5E}"), Ordering::Greater);
    }
}
