//! A message queue as an object, and as the key of a map.

use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::message::MessageQueue;

impl Serialize for MessageQueue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut queue = serializer.serialize_struct("MessageQueue", 3)?;
        queue.serialize_field("brokerName", &*self.broker_name)?;
        queue.serialize_field("queueId", &self.queue_id)?;
        queue.serialize_field("topic", &*self.topic)?;
        queue.end()
    }
}

impl<'de> Deserialize<'de> for MessageQueue {
    /// Negative queue ids stand for "any queue" in requests we do not serve; here
    /// they are errors.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Wire {
            broker_name: String,
            queue_id: u32,
            topic: String,
        }
        let wire = Wire::deserialize(deserializer)?;
        Ok(Self::new(&wire.topic, &wire.broker_name, wire.queue_id))
    }
}
