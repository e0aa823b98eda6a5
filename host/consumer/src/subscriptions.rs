//! Subscriptions that a broker must be asked about, and those that change while a group
//! runs.
//!
//! **SQL92.** Only a broker can say whether an expression is one and whether it evaluates
//! any. Before a group with such a subscription is announced to anybody, one broker of
//! each topic is asked; a refusal keeps the whole group out, with the broker's words, and
//! is asked about again with every refresh of the route. RocketMQ:
//! `MQClientInstance#checkClientInBroker`, which ends the start with the first refusal.
//!
//! **Changes.** Between the old filter and the new one there is one offset in each queue:
//! what lies before it was chosen by the old filter, what lies behind it by the new one.
//! A pull that a broker holds would be answered by the filter it came with, so its answer
//! is not waited for; and no broker is pulled from before it has taken the heartbeat with
//! the new one. Pulls carry the expression themselves (tags always, SQL after a change):
//! brokers go by the highest version of any member, which is that member's clock.

use std::sync::Arc;

use protocol::Instant;
use protocol::code::response_code;
use protocol::subscription::{ExpressionType, SubscriptionData};

use crate::client::{Client, GroupId, Purpose};
use crate::epoch::Epoch;
use crate::event::Event;
use crate::group::{ConsumerGroup, GroupTopic, Phase};
use crate::pull::Pull;
use crate::request::{Destination, Request, RequestError, RequestId};
use crate::timers::{REBALANCE_MIN, Timer, timeout};

/// What brokers think of a topic's subscription.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Check {
    /// Tags need no asking, or it was found good.
    Passed,
    /// To be asked about as soon as somebody can be.
    Due,
    Asked(RequestId),
    /// In the broker's words. Due again with the next route.
    Refused(String),
}

/// Why a subscription was not changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ChangeSubscriptionError {
    /// A group's topics are its own for life: another set is another group.
    #[error("the group does not subscribe to topic \"{topic}\"")]
    UnknownTopic {
        /// The topic.
        topic: String,
    },
    /// It has left, or is about to.
    #[error("the group leaves")]
    Leaving,
}

impl Check {
    pub(crate) fn of(subscription: &SubscriptionData) -> Self {
        match subscription.expression_type {
            ExpressionType::Tag => Self::Passed,
            ExpressionType::Sql92 | ExpressionType::Other(_) => Self::Due,
        }
    }
}

impl GroupTopic {
    /// The subscription that a broker is to be asked about.
    fn asked_about(&mut self) -> (&SubscriptionData, &mut Check) {
        match &mut self.pending {
            Some((subscription, check)) => (subscription, check),
            None => (&self.subscription, &mut self.check),
        }
    }

    fn check_state(&self) -> &Check {
        let pending = self.pending.as_ref();
        pending.map_or(&self.check, |(_, check)| check)
    }
}

impl ConsumerGroup {
    /// No broker has anything left to say about what it wants.
    pub(crate) fn is_checked(&self) -> bool {
        self.topics.iter().all(|topic| topic.check == Check::Passed)
    }
}

impl Client {
    /// A route of one of the group's topics is known: asks what is to be asked about it.
    pub(crate) fn check_subscriptions(&mut self, epoch: Epoch, topic: Option<Epoch>) {
        let Some(group) = self.groups.get(epoch) else {
            return;
        };
        if !group.life.stays() {
            return;
        }
        let due = |check: &Check| match check {
            Check::Due => true,
            // A fresh route is the occasion to ask again.
            Check::Refused(_) => topic.is_some(),
            Check::Passed | Check::Asked(_) => false,
        };
        let due: Vec<usize> = (0..group.topics.len())
            .filter(|&index| due(group.topics[index].check_state()))
            .filter(|&index| topic.is_none_or(|topic| group.topics[index].topic == topic))
            .collect();
        for index in due {
            self.check_subscription(epoch, index);
        }
    }

    fn check_subscription(&mut self, epoch: Epoch, index: usize) {
        let Some(group) = self.groups.get(epoch) else {
            return;
        };
        let mut replicas = self.routes.replicas_of_topic(group.topics[index].topic);
        replicas.retain(|replica| self.refused_until(replica.peer).is_none());
        let healthy = replicas
            .iter()
            .find(|replica| self.routes.is_healthy(replica));
        let Some(replica) = healthy.or(replicas.first()).cloned() else {
            return;
        };
        let Some(group) = self.groups.get_mut(epoch) else {
            return;
        };
        let request = Request::CheckClientConfig {
            client_id: Arc::clone(&self.client_id),
            consumer_group: Arc::clone(&group.name),
            subscription: Box::new(group.topics[index].asked_about().0.clone()),
        };
        let id = self.request(
            Purpose::Check(epoch, index),
            Destination::Broker(replica.address),
            Some(replica.peer),
            request,
            timeout::CHECK,
        );
        if let Some(group) = self.groups.get_mut(epoch) {
            *group.topics[index].asked_about().1 = Check::Asked(id);
        }
    }

    pub(crate) fn handle_check(
        &mut self,
        epoch: Epoch,
        index: usize,
        id: RequestId,
        result: Result<(), RequestError>,
        now: Instant,
    ) {
        let Some(group) = self.groups.get_mut(epoch) else {
            return;
        };
        let topic = &mut group.topics[index];
        let (subscription, check) = topic.asked_about();
        if *check != Check::Asked(id) {
            // The subscription has changed since.
            return;
        }
        let expression: Arc<str> = subscription.sub_string.as_str().into();
        match result {
            Ok(()) => *check = Check::Passed,
            // From before there was such a question.
            Err(RequestError::Refused { code, .. })
                if code == response_code::REQUEST_CODE_NOT_SUPPORTED =>
            {
                *check = Check::Passed;
            }
            Err(error @ RequestError::Refused { .. }) => {
                let words = error.to_string();
                *check = Check::Refused(words.clone());
                if topic.refusal_told.as_ref() != Some(&words) {
                    topic.refusal_told = Some(words);
                    self.events.push_back(Event::SubscriptionRefused {
                        consumer_group: Arc::clone(&group.name),
                        topic: Arc::clone(&topic.name),
                        expression,
                        is_change: topic.pending.is_some(),
                        error,
                    });
                }
                return;
            }
            Err(_) => {
                *check = Check::Due;
                self.timers
                    .set_earliest(Timer::Rebalance(epoch), now + REBALANCE_MIN);
                return;
            }
        }
        topic.refusal_told = None;
        if let Some((subscription, _)) = topic.pending.take() {
            self.apply_subscription(epoch, index, subscription, now);
        } else if group.is_checked() {
            // From this announcement on it is known.
            group.since_version = self.announcement.version + 1;
            self.announce_change();
            self.rebalance_soon(epoch, now);
        }
    }

    /// Another filter for a topic that the group reads. It is announced at once; from then
    /// on each queue goes on where it stands, with the new one. A broker is asked about a
    /// subscription in SQL first; until it says yes, the old one stays.
    ///
    /// # Errors
    /// No such topic, or the group leaves.
    pub fn change_subscription(
        &mut self,
        group: GroupId,
        mut subscription: SubscriptionData,
        now: Instant,
    ) -> Result<(), ChangeSubscriptionError> {
        let namespace = self.config.namespace.as_str();
        let wrapped = protocol::topic::wrap_namespace(namespace, &subscription.topic).into_owned();
        let given = std::mem::replace(&mut subscription.topic, wrapped);
        let changed = self.groups.get_mut(group.0);
        let Some(changed) = changed.filter(|group| group.life.stays()) else {
            return Err(ChangeSubscriptionError::Leaving);
        };
        let mut topics = changed.topics.iter();
        let index = topics.position(|topic| *topic.name == subscription.topic && !topic.is_retry);
        let Some(index) = index else {
            return Err(ChangeSubscriptionError::UnknownTopic { topic: given });
        };
        let topic = &mut changed.topics[index];
        topic.refusal_told = None;
        topic.pending = None;
        match Check::of(&subscription) {
            Check::Passed => self.apply_subscription(group.0, index, subscription, now),
            check => {
                topic.pending = Some((subscription, check));
                let route = topic.topic;
                self.check_subscriptions(group.0, Some(route));
            }
        }
        self.settle(now);
        Ok(())
    }

    fn apply_subscription(
        &mut self,
        epoch: Epoch,
        index: usize,
        mut subscription: SubscriptionData,
        now: Instant,
    ) {
        let unix_ms = i64::try_from(self.clock.unix_ms(now)).unwrap_or(i64::MAX);
        let Some(group) = self.groups.get_mut(epoch) else {
            return;
        };
        let topic = &mut group.topics[index];
        // Brokers keep the highest.
        subscription.sub_version = unix_ms.max(topic.subscription.sub_version + 1);
        topic.pull_version = subscription.sub_version;
        topic.carried_filter = Some(subscription.sub_string.as_str().into());
        topic.check = Check::Passed;
        topic.known_from = self.announcement.version + 1;
        topic.subscription = subscription;
        let held = topic.held.clone();
        let topic_name = Arc::clone(&topic.name);
        let expression = topic.subscription.sub_string.as_str().into();
        // A refusal may have kept the group out: from this announcement on it is known.
        let is_let_in = group.since_version == u64::MAX && group.is_checked();
        if is_let_in {
            group.since_version = self.announcement.version + 1;
        }
        self.events.push_back(Event::SubscriptionChanged {
            consumer_group: Arc::clone(&group.name),
            topic: topic_name,
            expression,
        });
        self.announce_change();
        if is_let_in {
            self.rebalance_soon(epoch, now);
        }
        for queue in held.into_values() {
            self.forget_pull_under_way(queue);
            self.pull(queue, now);
        }
    }

    /// The answer of the pull under way would be one of another filter.
    fn forget_pull_under_way(&mut self, epoch: Epoch) {
        let Some(queue) = self.queues.get_mut(epoch) else {
            return;
        };
        if let Phase::Pulling(pull @ Pull::InFlight { .. }) = &mut queue.phase {
            if let Pull::InFlight { request, .. } = *pull {
                self.in_flight.remove(request.0);
            }
            *pull = Pull::Due;
        }
    }
}
