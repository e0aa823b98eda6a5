//! Members of a group that read something else than we do.
//!
//! A group's members must have the same subscriptions: a broker keeps one for all of them,
//! and queues are divided as if everybody read every topic, so that what one member does
//! not want is consumed by nobody. Brokers do not tell; so each member asks the one that
//! comes after it in the list of members (request 307, which every client answers), a
//! while after the members have changed, and from time to time. When any two differ, two
//! neighbours do.
//!
//! Differs from RocketMQ, whose clients do not look; its documentation has a page on
//! what happens then.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use protocol::subscription::{ExpressionType, SubscriptionData};
use protocol::{Instant, topic};

use crate::client::{Client, Purpose};
use crate::epoch::Epoch;
use crate::event::Event;
use crate::request::{Destination, Request, RequestError, RequestId, Response};
use crate::timers::{Timer, stretched, timeout};

/// After the members have changed: they connect and announce themselves within seconds.
const AFTER_CHANGE: Duration = Duration::from_secs(10);
/// Groups that begin at once ask their neighbours one after the other.
const BETWEEN_GROUPS: Duration = Duration::from_millis(20);
/// Another member's subscription may change without a change of the members.
const FROM_TIME_TO_TIME: Duration = Duration::from_secs(600);
/// While they differ: somebody is mending it.
const WHILE_DIFFERENT: Duration = Duration::from_secs(60);
/// So many differences are told of; more of them say the same.
const TOLD_MAX: usize = 3;

/// What is known of a neighbour's subscriptions.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    /// The broker that listed the members last.
    peer: Option<Epoch>,
    request: Option<RequestId>,
    /// Who reads something else, and what.
    pub(crate) difference: Option<Difference>,
}

/// A member that reads something else.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Difference {
    /// Its client id.
    pub(crate) member: String,
    /// In words.
    pub(crate) what: String,
}

impl Client {
    /// A broker has listed the members of a group, which may have changed.
    pub(super) fn compare_later(&mut self, epoch: Epoch, peer: Epoch, changed: bool, now: Instant) {
        let groups = u64::try_from(self.groups.len()).unwrap_or(u64::MAX);
        let Some(group) = self.groups.get_mut(epoch) else {
            return;
        };
        group.comparison.peer = Some(peer);
        let timer = Timer::Compare(epoch);
        if group.rebalance.members.len() < 2 {
            self.timers.cancel(timer);
            self.compared(epoch, None);
            return;
        }
        if changed || !self.timers.is_set(timer) {
            let spread = u64::try_from(BETWEEN_GROUPS.as_millis()).unwrap_or(0) * groups;
            let spread = Duration::from_millis(self.random.u64(0..=spread));
            self.timers.set(timer, now + AFTER_CHANGE + spread);
        }
    }

    /// It is time to ask the next member what it reads.
    pub(crate) fn compare(&mut self, epoch: Epoch, now: Instant) {
        let pause = stretched(FROM_TIME_TO_TIME, self.groups.len());
        let Some(group) = self.groups.get(epoch) else {
            return;
        };
        if !group.life.stays() || group.comparison.request.is_some() {
            return;
        }
        let members = &group.rebalance.members;
        let ours = members.iter().position(|id| **id == *self.client_id);
        let Some(next) = ours.map(|ours| &members[(ours + 1) % members.len()]) else {
            return;
        };
        if **next == *self.client_id {
            return;
        }
        self.timers.set(Timer::Compare(epoch), now + pause);
        let peer = group.comparison.peer;
        let Some(peer) = peer.and_then(|peer| self.routes.peers.get(peer)) else {
            return;
        };
        let (member, address) = (next.clone(), peer.address.clone());
        let request = Request::GetConsumerRunningInfo {
            consumer_group: Arc::clone(&group.name),
            client_id: member.as_str().into(),
        };
        // Of no peer: that a member does not answer says nothing of its broker.
        let id = self.request(
            Purpose::Compare(epoch, member),
            Destination::Broker(address),
            None,
            request,
            timeout::RUNNING_INFO,
        );
        if let Some(group) = self.groups.get_mut(epoch) {
            group.comparison.request = Some(id);
        }
    }

    /// A member has said what it reads, or not: one that does not answer is asked again.
    pub(crate) fn handle_comparison(
        &mut self,
        epoch: Epoch,
        member: String,
        result: Result<Response, RequestError>,
        now: Instant,
    ) {
        let Some(group) = self.groups.get_mut(epoch) else {
            return;
        };
        group.comparison.request = None;
        let Ok(Response::Subscriptions(theirs)) = result else {
            return;
        };
        if !group.rebalance.members.contains(&member) {
            return;
        }
        let ours = group.topics.iter().filter(|topic| !topic.is_retry);
        let ours: Vec<&SubscriptionData> = ours.map(|topic| &topic.subscription).collect();
        let differences = differences(&ours, &theirs);
        let shown = differences.iter().take(TOLD_MAX);
        let shown: Vec<String> = shown.map(|difference| difference.words(self)).collect();
        let mut what = shown.join("; ");
        if differences.len() > TOLD_MAX {
            what.push_str(&format!("; and {} more", differences.len() - TOLD_MAX));
        }
        let difference = (!differences.is_empty()).then_some(Difference { member, what });
        if difference.is_some() {
            let at = now + stretched(WHILE_DIFFERENT, self.groups.len());
            self.timers.set(Timer::Compare(epoch), at);
        }
        self.compared(epoch, difference);
    }

    fn compared(&mut self, epoch: Epoch, difference: Option<Difference>) {
        let Some(group) = self.groups.get_mut(epoch) else {
            return;
        };
        let before = std::mem::replace(&mut group.comparison.difference, difference.clone());
        if before == difference {
            return;
        }
        let consumer_group = Arc::clone(&group.name);
        self.events.push_back(match difference {
            Some(Difference { member, what }) => Event::SubscriptionsDiffer {
                consumer_group,
                member,
                what,
            },
            None => Event::SubscriptionsAgree { consumer_group },
        });
    }
}

/// One topic that two members read differently.
#[derive(Debug)]
struct TopicDifference {
    topic: String,
    /// The expressions; `None`: not read.
    ours: Option<String>,
    theirs: Option<String>,
}

impl TopicDifference {
    fn words(&self, client: &Client) -> String {
        let topic = client.without_namespace(&self.topic.as_str().into());
        let read = |expression: &Option<String>| match expression {
            Some(expression) => format!("with \"{expression}\""),
            None => "not at all".to_owned(),
        };
        let (ours, theirs) = (read(&self.ours), read(&self.theirs));
        format!("topic \"{topic}\" is read {ours} here and {theirs} there")
    }
}

fn differences(ours: &[&SubscriptionData], theirs: &[SubscriptionData]) -> Vec<TopicDifference> {
    let theirs: BTreeMap<&str, &SubscriptionData> = theirs
        .iter()
        .filter(|theirs| !theirs.topic.starts_with(topic::RETRY_GROUP_TOPIC_PREFIX))
        .map(|theirs| (theirs.topic.as_str(), theirs))
        .collect();
    let mut all = Vec::new();
    for ours in ours {
        let same = theirs.get(ours.topic.as_str());
        if !same.is_some_and(|theirs| is_same(ours, theirs)) {
            all.push(TopicDifference {
                topic: ours.topic.clone(),
                ours: Some(ours.sub_string.clone()),
                theirs: same.map(|theirs| theirs.sub_string.clone()),
            });
        }
    }
    let others = theirs.into_iter();
    let others = others.filter(|(topic, _)| !ours.iter().any(|ours| ours.topic == *topic));
    all.extend(others.map(|(topic, theirs)| TopicDifference {
        topic: topic.to_owned(),
        ours: None,
        theirs: Some(theirs.sub_string.clone()),
    }));
    all
}

/// Tags are a set, whatever order they were written in.
fn is_same(ours: &SubscriptionData, theirs: &SubscriptionData) -> bool {
    ours.expression_type == theirs.expression_type
        && match ours.expression_type {
            ExpressionType::Tag => ours.tags_set == theirs.tags_set,
            _ => ours.sub_string == theirs.sub_string,
        }
}
