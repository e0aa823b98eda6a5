//! `mqlet:listener/producer`: sends through the port `MessageProducer`, to granted
//! topics only, within the time the call has left.

use bytes::Bytes;
use consumer::publish::{OutgoingMessage, SendError, SendResult};

use crate::bindings::mqlet::listener::producer as wit;
use crate::store::State;

impl wit::Host for State {
    async fn send(
        &mut self,
        message: wit::OutgoingMessage,
    ) -> Result<wit::SendResult, wit::SendError> {
        let mut results = self.send_granted(vec![message]).await?;
        results
            .pop()
            .ok_or_else(|| wit::SendError::Other("the producer gave no result".into()))
    }

    async fn send_batch(
        &mut self,
        messages: Vec<wit::OutgoingMessage>,
    ) -> Result<Vec<wit::SendResult>, wit::SendError> {
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        self.send_granted(messages).await
    }

    async fn send_oneway(&mut self, message: wit::OutgoingMessage) -> Result<(), wit::SendError> {
        self.check_grant(std::slice::from_ref(&message))?;
        let sending = self.plugin.producer.send_oneway(outgoing(message));
        sending.await.map(|_| ()).map_err(refusal)
    }
}

impl State {
    async fn send_granted(
        &mut self,
        messages: Vec<wit::OutgoingMessage>,
    ) -> Result<Vec<wit::SendResult>, wit::SendError> {
        self.check_grant(&messages)?;
        let messages = messages.into_iter().map(outgoing).collect();
        let sending = self.plugin.producer.send(messages, self.clock.remaining());
        match sending.await {
            Ok(results) => Ok(results.into_iter().map(result).collect()),
            Err(error) => Err(refusal(error)),
        }
    }

    fn check_grant(&self, messages: &[wit::OutgoingMessage]) -> Result<(), wit::SendError> {
        let Some(grant) = &self.plugin.config.grants.producer else {
            return Err(wit::SendError::NotGranted(
                "the manifest has no [grants] producer".into(),
            ));
        };
        for message in messages {
            if !grant.topics.contains(&message.topic) {
                return Err(wit::SendError::NotGranted(format!(
                    "topic \"{}\" is not among [grants] producer.topics",
                    crate::log_lines::cut(&message.topic, 127).0
                )));
            }
        }
        let count = u32::try_from(messages.len()).unwrap_or(u32::MAX);
        if let Some(rate) = &self.plugin.send_rate
            && !rate.take(count)
        {
            return Err(wit::SendError::RateLimited);
        }
        let bytes = messages.iter().map(size).sum();
        self.plugin.add_bytes_out(bytes);
        Ok(())
    }
}

/// Body and properties.
fn size(message: &wit::OutgoingMessage) -> usize {
    let properties = message.properties.iter();
    let properties: usize = properties
        .map(|(name, value)| name.len() + value.len())
        .sum();
    let keys: usize = message.keys.iter().map(String::len).sum();
    message.body.len() + properties + keys
}

fn outgoing(message: wit::OutgoingMessage) -> OutgoingMessage {
    OutgoingMessage {
        topic: message.topic,
        body: Bytes::from(message.body),
        tags: message.tags,
        keys: message.keys,
        properties: message.properties,
        delay_level: message.delay_level,
        sharding_key: message.sharding_key,
        flag: message.flag,
    }
}

fn result(sent: SendResult) -> wit::SendResult {
    wit::SendResult {
        message_id: sent.message_id,
        offset_message_id: sent.offset_message_id,
        broker_name: sent.message_queue.broker_name.to_string(),
        queue_id: sent.message_queue.queue_id,
        queue_offset: sent.queue_offset.0,
    }
}

fn refusal(error: SendError) -> wit::SendError {
    match error {
        SendError::NoRoute { .. } => wit::SendError::NoRoute,
        SendError::Illegal { reason } => wit::SendError::Illegal(reason),
        SendError::TooLarge { bytes_max, .. } => wit::SendError::TooLarge(bytes_max),
        SendError::Timeout { .. } => wit::SendError::Timeout,
        SendError::Unreachable { reason, .. } => wit::SendError::Unreachable(reason),
        SendError::Broker { code, remark } => {
            wit::SendError::Broker(wit::BrokerError { code, remark })
        }
        SendError::Overloaded { .. } => wit::SendError::RateLimited,
        error @ SendError::Stopped => wit::SendError::Other(error.to_string()),
    }
}
