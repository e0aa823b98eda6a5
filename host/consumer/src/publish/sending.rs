//! How a message finds its queue: route, choice, answer, another broker.
//!
//! A topic that does not exist is sent to the brokers of `TBW102`, which create it if
//! they may. Up to two more tries go to other brokers while there is time. Serves guests,
//! users and the fallback of a failed send-back. RocketMQ: `DefaultMQProducerImpl
//! #sendDefaultImpl`, `TopicPublishInfo#selectOneMessageQueue`.

use std::sync::Arc;
use std::time::Duration;

use protocol::code::response_code;
use protocol::{Instant, MessageQueue, QueueOffset, topic};

use crate::client::{Client, Purpose, SendId};
use crate::epoch::{Epoch, EpochTable};
use crate::publish::shape::Shape;
use crate::publish::{OutgoingMessage, SendError, SendMode, SendResult};
use crate::request::{
    Destination, Request, RequestError, RequestId, Response, SendMessage, SentMessage,
};
use crate::route::{RouteState, Topic};
use crate::timers::{MISSING_TOPIC_REFRESH, ROUTE_REFRESH, Timer};

/// Tries after the first one. RocketMQ: `retryTimesWhenSendFailed`.
const RETRIES_MAX: u32 = 2;
/// RocketMQ: `GO_AWAY`.
const GO_AWAY: i32 = 1500;
/// Who waits for a send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SendOwner {
    /// A guest or a user.
    User(SendId),
    /// A message on its way back to the broker.
    SendBack(Epoch),
}

/// A send under way.
#[derive(Debug)]
pub(crate) struct Send {
    owner: SendOwner,
    shape: Shape,
    topic: Epoch,
    topic_name: Arc<str>,
    started: Instant,
    timeout: Duration,
    request: Option<RequestId>,
    /// The queue asked last.
    queue: Option<MessageQueue>,
    tries: u32,
    last_error: Option<SendError>,
}

impl Client {
    pub(crate) fn start_send(
        &mut self,
        messages: &[OutgoingMessage],
        mode: SendMode,
        timeout: Duration,
        now: Instant,
    ) -> SendId {
        let shape = if self.stopping {
            Err(SendError::Stopped)
        } else if self.sends.len() >= self.config.sends_max {
            Err(SendError::Overloaded {
                sends_max: self.config.sends_max,
            })
        } else {
            self.shape(messages, mode, now)
        };
        self.next_send += 1;
        let id = SendId(self.next_send);
        match shape {
            Ok(shape) => self.send_shape(shape, SendOwner::User(id), timeout, now),
            Err(error) => self.send_results.push_back((id, Err(error))),
        }
        id
    }

    /// Starts a send; its end is told to the owner.
    pub(crate) fn send_shape(
        &mut self,
        shape: Shape,
        owner: SendOwner,
        timeout: Duration,
        now: Instant,
    ) {
        let topic = self.routes.topic(&shape.header.topic);
        let topic_name = shape.header.topic.as_str().into();
        let epoch = self.sends.insert(Send {
            owner,
            shape,
            topic,
            topic_name,
            started: now,
            timeout,
            request: None,
            queue: None,
            tries: 0,
            last_error: None,
        });
        self.timers.set(Timer::Send(epoch), now + timeout);
        self.try_send(epoch, now);
    }

    /// Chooses a queue and asks its broker, or waits for a route.
    fn try_send(&mut self, epoch: Epoch, now: Instant) {
        let Some(send) = self.sends.get_mut(epoch) else {
            return;
        };
        if !self.routes.topics.contains(send.topic) {
            // Forgotten meanwhile.
            send.topic = self.routes.topic(&send.topic_name);
        }
        let topic = send.topic;
        let Some(route) = self.routes.topics.get(topic) else {
            return;
        };
        let age = route.answered_at.map(|at| now - at);
        match route.state {
            RouteState::Known if !route.write_queues.is_empty() => {
                if age > Some(ROUTE_REFRESH) && route.subscribers.is_empty() {
                    self.ask_route(topic);
                }
                self.send_to(epoch, topic, u32::MAX, now);
            }
            RouteState::Missing if age < Some(MISSING_TOPIC_REFRESH) => {
                self.send_to_default_topic(epoch, now);
            }
            RouteState::Known if age < Some(MISSING_TOPIC_REFRESH) => {
                let error = SendError::Unreachable {
                    topic: send.topic_name.to_string(),
                    reason: "no queue of it can be written".to_owned(),
                };
                self.end_send(epoch, Err(error), now);
            }
            _ => self.wait_for_route(epoch, topic),
        }
    }

    /// The topic does not exist: brokers that hold the template may create it.
    fn send_to_default_topic(&mut self, epoch: Epoch, now: Instant) {
        let default = self.routes.topic(topic::AUTO_CREATE_TOPIC_KEY_TOPIC);
        let Some(route) = self.routes.topics.get(default) else {
            return;
        };
        let age = route.answered_at.map(|at| now - at);
        match route.state {
            RouteState::Known if !route.write_queues.is_empty() => {
                let queues = self.config.default_topic_queue_nums;
                self.send_to(epoch, default, queues, now);
            }
            RouteState::Known | RouteState::Missing if age < Some(MISSING_TOPIC_REFRESH) => {
                if let Some(send) = self.sends.get(epoch) {
                    let error = SendError::NoRoute {
                        topic: send.topic_name.to_string(),
                    };
                    self.end_send(epoch, Err(error), now);
                }
            }
            _ => self.wait_for_route(epoch, default),
        }
    }

    fn wait_for_route(&mut self, epoch: Epoch, topic: Epoch) {
        if let Some(route) = self.routes.topics.get_mut(topic) {
            route.waiting_sends.push(epoch);
        }
        self.ask_route(topic);
    }

    pub(crate) fn resume_waiting_sends(&mut self, topic: Epoch, now: Instant) {
        let Some(route) = self.routes.topics.get_mut(topic) else {
            return;
        };
        for epoch in std::mem::take(&mut route.waiting_sends) {
            self.try_send(epoch, now);
        }
    }

    /// Sends to a queue of `route`, one of the first `queues_max` of its broker.
    fn send_to(&mut self, epoch: Epoch, route: Epoch, queues_max: u32, now: Instant) {
        let (Some(send), Some(route)) =
            (self.sends.get_mut(epoch), self.routes.topics.get_mut(route))
        else {
            return;
        };
        let queues: Vec<&MessageQueue> = route
            .write_queues
            .iter()
            .filter(|queue| queue.queue_id < queues_max)
            .collect();
        let avoided = send
            .queue
            .as_ref()
            .map(|queue| Arc::clone(&queue.broker_name));
        let start = match send.shape.sharding {
            Some(hash) => hash as usize,
            None => {
                route.next_write = route.next_write.wrapping_add(1);
                route.next_write
            }
        };
        // A sharding key has one queue, whatever happens.
        let in_turn = (0..queues.len()).map(|i| queues[start.wrapping_add(i) % queues.len()]);
        let chosen = match send.shape.sharding {
            Some(_) => in_turn.take(1).next(),
            None => in_turn
                .clone()
                .find(|queue| avoided.as_ref() != Some(&queue.broker_name))
                .or_else(|| in_turn.clone().next()),
        };
        let Some(queue) = chosen.cloned() else {
            return;
        };
        let left = send.timeout.saturating_sub(now - send.started);
        let mut header = send.shape.header.clone();
        header.default_topic = topic::AUTO_CREATE_TOPIC_KEY_TOPIC.to_owned();
        header.default_topic_queue_nums =
            i32::try_from(self.config.default_topic_queue_nums).unwrap_or(i32::MAX);
        header.queue_id = i32::try_from(queue.queue_id).unwrap_or(i32::MAX);
        header.broker_name = Some(queue.broker_name.to_string());
        let request = Request::SendMessage(Box::new(SendMessage {
            header,
            body: send.shape.body.clone(),
        }));
        let oneway = send.shape.oneway;
        send.queue = Some(queue.clone());
        let broker = self.routes.broker_id(&queue.broker_name);
        let Some(replica) = broker.and_then(|broker| self.routes.master(broker)) else {
            let error = RequestError::Unreachable {
                reason: format!("broker {} has no master", queue.broker_name),
            };
            self.send_failed(epoch, &error, now);
            return;
        };
        let destination = Destination::Broker(replica.address);
        if oneway {
            self.request_oneway(destination, request, left);
            self.end_send(epoch, Ok(Vec::new()), now);
            return;
        }
        let purpose = Purpose::Send(epoch);
        let id = self.request(purpose, destination, Some(replica.peer), request, left);
        if let Some(send) = self.sends.get_mut(epoch) {
            send.request = Some(id);
        }
    }

    pub(crate) fn handle_send(
        &mut self,
        epoch: Epoch,
        result: Result<Response, RequestError>,
        now: Instant,
    ) {
        let Some(send) = self.sends.get_mut(epoch) else {
            return;
        };
        send.request = None;
        match result {
            Ok(Response::Sent(sent)) => {
                let results = send.results(&sent, &self.config.namespace);
                let (topic, created) = (send.topic, send.is_new_topic(&self.routes.topics));
                if created {
                    // It exists now.
                    self.ask_route(topic);
                }
                self.end_send(epoch, Ok(results), now);
            }
            Ok(_) => {
                let error = RequestError::Malformed {
                    reason: "not an answer to a send".to_owned(),
                };
                self.send_failed(epoch, &error, now);
            }
            Err(error) => self.send_failed(epoch, &error, now),
        }
    }

    /// Tries another broker, if that may help and there is time.
    fn send_failed(&mut self, epoch: Epoch, error: &RequestError, now: Instant) {
        let Some(send) = self.sends.get_mut(epoch) else {
            return;
        };
        let elapsed = now - send.started;
        let may_help = match error {
            RequestError::Refused { code, .. } => matches!(
                *code,
                response_code::TOPIC_NOT_EXIST
                    | response_code::SERVICE_NOT_AVAILABLE
                    | response_code::SYSTEM_ERROR
                    | response_code::SYSTEM_BUSY
                    | response_code::NO_PERMISSION
                    | response_code::NO_BUYER_ID
                    | response_code::NOT_IN_CURRENT_UNIT
                    | GO_AWAY
            ),
            RequestError::Unreachable { .. }
            | RequestError::Disconnected { .. }
            | RequestError::Timeout
            | RequestError::Malformed { .. } => true,
        };
        let topic = send.topic_name.to_string();
        let told = match error {
            RequestError::Timeout => SendError::Timeout {
                timeout: send.timeout,
            },
            RequestError::Refused { code, remark } => SendError::Broker {
                code: *code,
                remark: remark.clone(),
            },
            other => SendError::Unreachable {
                topic,
                reason: other.to_string(),
            },
        };
        send.tries += 1;
        if may_help && send.tries <= RETRIES_MAX && elapsed < send.timeout {
            send.last_error = Some(told);
            self.try_send(epoch, now);
        } else {
            self.end_send(epoch, Err(told), now);
        }
    }

    /// A send has had its time.
    pub(crate) fn send_due(&mut self, epoch: Epoch, now: Instant) {
        let Some(send) = self.sends.get(epoch) else {
            return;
        };
        let error = if send.request.is_some() {
            SendError::Timeout {
                timeout: send.timeout,
            }
        } else {
            let route = self.routes.topics.get(send.topic);
            let reason = route.and_then(|route| route.last_error.clone());
            send.last_error
                .clone()
                .unwrap_or_else(|| SendError::Unreachable {
                    topic: send.topic_name.to_string(),
                    reason: reason
                        .unwrap_or_else(|| "no name server has answered in time".to_owned()),
                })
        };
        self.end_send(epoch, Err(error), now);
    }

    fn end_send(&mut self, epoch: Epoch, result: Result<Vec<SendResult>, SendError>, now: Instant) {
        let Some(send) = self.sends.remove(epoch) else {
            return;
        };
        self.timers.cancel(Timer::Send(epoch));
        match send.owner {
            SendOwner::User(id) => self.send_results.push_back((id, result)),
            SendOwner::SendBack(back) => {
                let result = result.map(|_| ()).map_err(|error| error.to_string());
                self.handle_published_back(back, result, now);
            }
        }
    }
}

impl Send {
    fn is_new_topic(&self, topics: &EpochTable<Topic>) -> bool {
        let route = topics.get(self.topic);
        route.is_some_and(|route| route.state != RouteState::Known)
    }

    /// One result a message: those of a batch stand behind each other in the queue.
    fn results(&self, sent: &SentMessage, namespace: &str) -> Vec<SendResult> {
        let broker_name = self
            .queue
            .as_ref()
            .map(|queue| Arc::clone(&queue.broker_name));
        let message_queue = MessageQueue {
            topic: topic::without_namespace(namespace, &self.topic_name).into(),
            broker_name: broker_name.unwrap_or_else(|| "".into()),
            queue_id: sent.queue_id,
        };
        let mut offset_ids = sent.msg_id.split(',');
        let ids = self.shape.message_ids.iter().enumerate();
        ids.map(|(index, id)| SendResult {
            message_id: id.clone(),
            offset_message_id: offset_ids.next().unwrap_or_default().to_owned(),
            message_queue: message_queue.clone(),
            queue_offset: QueueOffset(sent.queue_offset.0 + index as u64),
        })
        .collect()
    }
}
