//! `mqlet:listener/producer`: sends through the port `MessageProducer`, to granted
//! topics only. In a call messages are put in its outbox (`outbox.rs`), unless the grant
//! says that they leave at once; outside one (`init`, `shutdown`) nothing is consumed and
//! nothing to wait for, and they leave at once too, within the time that is left.
//!
//! In a worker process nothing is decided: its host does all of it, by the same
//! [`Sender`].

use std::time::{Duration, Instant};

use bytes::Bytes;
use consumer::publish::{Delay, OutgoingMessage, SendError, SendResult};

use crate::bindings::mqlet::listener::producer as wit;
use crate::grants::ProducerMode;
use crate::outbox::{self, Full, Outbox, Parcel};
use crate::plugin::Plugin;
use crate::store::{RunningCall, State};
use crate::worker::frames::Outgoing;

impl wit::Host for State {
    async fn send(
        &mut self,
        message: wit::OutgoingMessage,
    ) -> Result<wit::SendResult, wit::SendError> {
        let mut results = self.send_granted(vec![message], false).await?;
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
        self.send_granted(messages, false).await
    }

    async fn send_oneway(&mut self, message: wit::OutgoingMessage) -> Result<(), wit::SendError> {
        self.send_granted(vec![message], true).await.map(|_| ())
    }
}

impl State {
    async fn send_granted(
        &mut self,
        messages: Vec<wit::OutgoingMessage>,
        oneway: bool,
    ) -> Result<Vec<wit::SendResult>, wit::SendError> {
        let messages: Vec<_> = messages.into_iter().map(outgoing).collect();
        if self.plugin.host.is_some() {
            return self.ask_the_host(messages, oneway).await;
        }
        let mut sender = Sender {
            plugin: &self.plugin,
            outbox: &mut self.outbox,
            is_in_call: self.call.is_some(),
        };
        match sender.accept(messages, oneway)? {
            Accepted::Waiting(results) => Ok(results),
            Accepted::Leaving(leaving) => leaving.leave(&self.plugin, self.clock.remaining()).await,
        }
    }

    async fn ask_the_host(
        &mut self,
        messages: Vec<OutgoingMessage>,
        oneway: bool,
    ) -> Result<Vec<wit::SendResult>, wit::SendError> {
        let Some(host) = &self.plugin.host else {
            return Err(wit::SendError::Other("there is no host".to_owned()));
        };
        let instance = match &self.call {
            Some(RunningCall::InWorker(call)) => Some(call.instance),
            _ => None,
        };
        let with_heads = messages.into_iter().map(|message| {
            let head = Outgoing::of(&message);
            (head, message.body)
        });
        let remaining = self.clock.remaining();
        let sending = host.send(instance, with_heads.collect(), oneway, remaining);
        let sent = sending.await.map_err(wit::SendError::from)?;
        Ok(sent.into_iter().map(Into::into).collect())
    }
}

/// Whoever sends on behalf of a guest: one call of it, or what it does outside of calls.
pub(crate) struct Sender<'a> {
    pub(crate) plugin: &'a Plugin,
    pub(crate) outbox: &'a mut Outbox,
    pub(crate) is_in_call: bool,
}

/// What becomes of messages that are granted.
pub(crate) enum Accepted {
    /// They are in the outbox.
    Waiting(Vec<wit::SendResult>),
    /// They leave at once.
    Leaving(Leaving),
}

/// Messages that leave at once.
pub(crate) struct Leaving {
    messages: Vec<OutgoingMessage>,
    oneway: bool,
}

impl Sender<'_> {
    /// Lets pass what is granted, counts it, and puts it where it belongs.
    pub(crate) fn accept(
        &mut self,
        messages: Vec<OutgoingMessage>,
        oneway: bool,
    ) -> Result<Accepted, wit::SendError> {
        let messages = self.admit(messages)?;
        if !self.has_outbox() {
            return Ok(Accepted::Leaving(Leaving { messages, oneway }));
        }
        if oneway {
            let parcels = messages.into_iter().map(Parcel::Oneway);
            parcels.for_each(|parcel| self.outbox.put(parcel));
            return Ok(Accepted::Waiting(Vec::new()));
        }
        let results = messages.iter().map(waiting).collect();
        self.outbox.put(Parcel::Acknowledged(messages));
        Ok(Accepted::Waiting(results))
    }

    fn has_outbox(&self) -> bool {
        let grant = self.plugin.config.grants.producer.as_ref();
        self.is_in_call && grant.is_some_and(|grant| grant.mode == ProducerMode::Outbox)
    }

    /// Lets pass what is granted and can be sent, and counts that alone.
    fn admit(
        &mut self,
        mut messages: Vec<OutgoingMessage>,
    ) -> Result<Vec<OutgoingMessage>, wit::SendError> {
        let Some(grant) = &self.plugin.config.grants.producer else {
            return Err(wit::SendError::NotGranted(
                "the manifest has no [grants] producer".into(),
            ));
        };
        for message in &messages {
            if !grant.topics.contains(&message.topic) {
                return Err(wit::SendError::NotGranted(format!(
                    "topic \"{}\" is not among [grants] producer.topics",
                    crate::log_lines::cut(&message.topic, 127).0
                )));
            }
        }
        let counted = self.outbox.counted(&messages, grant).map_err(|full| {
            wit::SendError::NotGranted(match full {
                Full::Messages(most) => format!(
                    "this call has sent what [grants] producer.messages_per_call = {most} allows"
                ),
                Full::Bytes(most) => format!(
                    "this call would send more than [grants] producer.bytes_per_call = {most} allows"
                ),
            })
        })?;
        let prepared = self.plugin.producer.prepare(&mut messages);
        prepared.map_err(refusal)?;
        let count = u32::try_from(messages.len()).unwrap_or(u32::MAX);
        if let Some(rate) = &self.plugin.send_rate
            && !rate.take(count, Instant::now())
        {
            return Err(wit::SendError::RateLimited);
        }
        self.outbox.count(counted);
        Ok(messages)
    }
}

impl Leaving {
    /// Sends them, within this time.
    pub(crate) async fn leave(
        self,
        plugin: &Plugin,
        time: Duration,
    ) -> Result<Vec<wit::SendResult>, wit::SendError> {
        let Self { messages, oneway } = self;
        plugin.add_bytes_out(messages.iter().map(outbox::size).sum());
        if oneway {
            for message in messages {
                let sending = plugin.producer.send_oneway(message);
                sending.await.map_err(refusal)?;
            }
            return Ok(Vec::new());
        }
        match plugin.producer.send(messages, time).await {
            Ok(results) => Ok(results.into_iter().map(result).collect()),
            Err(error) => Err(refusal(error)),
        }
    }
}

fn outgoing(message: wit::OutgoingMessage) -> OutgoingMessage {
    OutgoingMessage {
        topic: message.topic,
        body: Bytes::from(message.body),
        tags: message.tags,
        keys: message.keys,
        properties: message.properties,
        delay: message.delay.map(|delay| match delay {
            wit::Delay::Level(level) => Delay::Level(level),
            wit::Delay::Milliseconds(delay) => Delay::For(Duration::from_millis(delay)),
            wit::Delay::UntilMs(unix_ms) => Delay::UntilUnixMs(unix_ms),
        }),
        sharding_key: message.sharding_key,
        flag: message.flag,
        message_id: None,
    }
}

/// Of a message in the outbox.
fn waiting(message: &OutgoingMessage) -> wit::SendResult {
    wit::SendResult {
        message_id: message.message_id.clone().unwrap_or_default(),
        stored: None,
    }
}

fn result(sent: SendResult) -> wit::SendResult {
    wit::SendResult {
        message_id: sent.message_id,
        stored: Some(wit::StoredAt {
            offset_message_id: sent.offset_message_id,
            broker_name: sent.message_queue.broker_name.to_string(),
            queue_id: sent.message_queue.queue_id,
            queue_offset: sent.queue_offset.0,
        }),
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
