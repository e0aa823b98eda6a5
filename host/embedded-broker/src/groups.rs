//! Consumer groups: their settings, who is in them, and what they subscribe to.
//!
//! A member is a connection, not a client id: the same id on two connections counts
//! twice, and a lost connection is a lost member. RocketMQ: `ConsumerManager`,
//! `ConsumerGroupInfo`, `SubscriptionGroupManager`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use protocol::subscription::SubscriptionData;
use protocol::topic::check_group_name;
use protocol::{Instant, RemotingCommand};

use crate::ConnectionId;

/// Settings of a group, kept while nobody is in it. RocketMQ: `SubscriptionGroupConfig`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SubscriptionGroupConfig {
    pub(crate) consume_enable: bool,
    pub(crate) consume_broadcast_enable: bool,
    pub(crate) retry_queue_nums: u32,
    pub(crate) retry_max_times: i32,
    pub(crate) notify_consumer_ids_changed_enable: bool,
}

/// What a heartbeat says about one group.
#[derive(Clone, Debug)]
pub(crate) struct Registration<'a> {
    pub(crate) group: &'a str,
    pub(crate) client_id: &'a str,
    pub(crate) is_broadcasting: bool,
    /// `None` leaves the subscription as it is (heartbeats of version 2).
    pub(crate) subscriptions: Option<&'a [SubscriptionData]>,
    pub(crate) fingerprint: i32,
}

/// What a heartbeat changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Registered {
    /// A member or a topic came or went: the others must hear of it.
    pub(crate) is_changed: bool,
    /// The fingerprint is another than the last one.
    pub(crate) is_fingerprint_changed: bool,
}

/// All groups.
#[derive(Debug)]
pub(crate) struct Groups {
    configs: BTreeMap<Arc<str>, SubscriptionGroupConfig>,
    /// Groups with at least one member.
    online: BTreeMap<Arc<str>, ConsumerGroup>,
    groups_of: BTreeMap<ConnectionId, BTreeSet<Arc<str>>>,
    new_config: SubscriptionGroupConfig,
    is_auto_create: bool,
    groups_max: usize,
}

#[derive(Default, Debug)]
struct ConsumerGroup {
    is_broadcasting: bool,
    members: BTreeMap<ConnectionId, Member>,
    subscriptions: BTreeMap<Arc<str>, Arc<SubscriptionData>>,
    fingerprint: i32,
}

#[derive(Debug)]
struct Member {
    client_id: Arc<str>,
    updated_at: Instant,
}

impl Groups {
    pub(crate) fn new(is_auto_create: bool, retry_max_times: u32, groups_max: usize) -> Self {
        Self {
            configs: BTreeMap::new(),
            online: BTreeMap::new(),
            groups_of: BTreeMap::new(),
            new_config: SubscriptionGroupConfig {
                consume_enable: true,
                consume_broadcast_enable: true,
                retry_queue_nums: 1,
                retry_max_times: i32::try_from(retry_max_times).unwrap_or(i32::MAX),
                notify_consumer_ids_changed_enable: true,
            },
            is_auto_create,
            groups_max,
        }
    }

    /// Whether a group is known, without creating it.
    pub(crate) fn contains(&self, group: &str) -> bool {
        self.configs.contains_key(group)
    }

    /// The settings of a group, made with the defaults when it is new and may be made.
    /// RocketMQ: `SubscriptionGroupManager#findSubscriptionGroupConfig`.
    pub(crate) fn find_config(&mut self, group: &str) -> Option<&SubscriptionGroupConfig> {
        if !self.configs.contains_key(group) {
            let may_create = self.is_auto_create
                && self.configs.len() < self.groups_max
                && check_group_name(group).is_ok();
            if !may_create {
                return None;
            }
            self.configs.insert(group.into(), self.new_config.clone());
        }
        self.configs.get(group)
    }

    /// A heartbeat from a member of a group whose settings exist.
    /// RocketMQ: `ConsumerManager#registerConsumer`.
    pub(crate) fn register(
        &mut self,
        connection: ConnectionId,
        registration: &Registration<'_>,
        now: Instant,
    ) -> Registered {
        let name: Arc<str> = registration.group.into();
        let group = self.online.entry(Arc::clone(&name)).or_default();
        group.is_broadcasting = registration.is_broadcasting;
        let member = Member {
            client_id: registration.client_id.into(),
            updated_at: now,
        };
        let is_new_member = group.members.insert(connection, member).is_none();
        let is_topics_changed = registration
            .subscriptions
            .is_some_and(|subscriptions| group.update_subscriptions(subscriptions));
        let is_fingerprint_changed =
            group.fingerprint != 0 && group.fingerprint != registration.fingerprint;
        group.fingerprint = registration.fingerprint;
        self.groups_of.entry(connection).or_default().insert(name);
        Registered {
            is_changed: is_new_member || is_topics_changed,
            is_fingerprint_changed,
        }
    }

    /// Whether members of the group want to hear of changes.
    pub(crate) fn is_notified(&self, group: &str) -> bool {
        let enabled = self
            .configs
            .get(group)
            .is_some_and(|config| config.notify_consumer_ids_changed_enable);
        enabled && !self.is_broadcasting(group)
    }

    pub(crate) fn is_broadcasting(&self, group: &str) -> bool {
        self.online
            .get(group)
            .is_some_and(|group| group.is_broadcasting)
    }

    /// Takes a connection out of a group; false when it was not in it.
    pub(crate) fn unregister(&mut self, connection: ConnectionId, group: &str) -> bool {
        let Some(online) = self.online.get_mut(group) else {
            return false;
        };
        let is_removed = online.members.remove(&connection).is_some();
        if online.members.is_empty() {
            self.online.remove(group);
        }
        if let Some(groups) = self.groups_of.get_mut(&connection) {
            groups.remove(group);
            if groups.is_empty() {
                self.groups_of.remove(&connection);
            }
        }
        is_removed
    }

    /// The groups that a connection is in, by name.
    pub(crate) fn groups_of(&self, connection: ConnectionId) -> Vec<Arc<str>> {
        self.groups_of
            .get(&connection)
            .map(|groups| groups.iter().cloned().collect())
            .unwrap_or_default()
    }

    /// Client ids of a group, one a connection; empty when nobody is in it.
    pub(crate) fn client_ids(&self, group: &str) -> Vec<String> {
        self.online.get(group).map_or_else(Vec::new, |group| {
            group
                .members
                .values()
                .map(|member| member.client_id.to_string())
                .collect()
        })
    }

    /// Connections of a group.
    pub(crate) fn connections(&self, group: &str) -> Vec<ConnectionId> {
        self.online
            .get(group)
            .map_or_else(Vec::new, |group| group.members.keys().copied().collect())
    }

    pub(crate) fn is_online(&self, group: &str) -> bool {
        self.online.contains_key(group)
    }

    /// What an online group wants of a topic.
    pub(crate) fn subscription(&self, group: &str, topic: &str) -> Option<&Arc<SubscriptionData>> {
        self.online.get(group)?.subscriptions.get(topic)
    }

    /// Connections with a member that was silent for this long.
    pub(crate) fn expired(&self, timeout: Duration, now: Instant) -> Vec<ConnectionId> {
        let expired: BTreeSet<ConnectionId> = self
            .members()
            .filter(|(_, member)| now.saturating_since(member.updated_at) >= timeout)
            .map(|(connection, _)| *connection)
            .collect();
        expired.into_iter().collect()
    }

    /// Whether there is anybody to listen for.
    pub(crate) fn is_anybody_online(&self) -> bool {
        !self.online.is_empty()
    }

    fn members(&self) -> impl Iterator<Item = (&ConnectionId, &Member)> {
        self.online.values().flat_map(|group| &group.members)
    }
}

impl ConsumerGroup {
    /// Takes over new topics, higher versions and the absence of topics; true when a
    /// topic came or went. RocketMQ: `ConsumerGroupInfo#updateSubscription`.
    fn update_subscriptions(&mut self, subscriptions: &[SubscriptionData]) -> bool {
        let mut is_changed = false;
        for new in subscriptions {
            match self.subscriptions.get_mut(new.topic.as_str()) {
                None => {
                    self.subscriptions
                        .insert(new.topic.as_str().into(), Arc::new(new.clone()));
                    is_changed = true;
                }
                Some(old) if new.sub_version > old.sub_version => *old = Arc::new(new.clone()),
                Some(_) => {}
            }
        }
        let before = self.subscriptions.len();
        self.subscriptions
            .retain(|topic, _| subscriptions.iter().any(|new| *new.topic == **topic));
        is_changed || self.subscriptions.len() != before
    }
}

/// The version of RocketMQ from which on clients may say how often to retry.
pub(crate) const VERSION_3_4_9: i32 = 121;

/// How often a message may fail: the client's word counts if it is new enough.
/// RocketMQ: `AbstractSendMessageProcessor#consumerSendMsgBack`.
pub(crate) fn max_reconsume_times(
    config: &SubscriptionGroupConfig,
    request: &RemotingCommand,
    asked: Option<i32>,
) -> i32 {
    match asked {
        Some(asked) if request.version >= VERSION_3_4_9 => asked,
        _ => config.retry_max_times,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ConnectionId = ConnectionId(1);
    const B: ConnectionId = ConnectionId(2);
    const TIMEOUT: Duration = Duration::from_secs(120);

    fn at(seconds: u64) -> Instant {
        Instant::after_origin(Duration::from_secs(seconds))
    }

    fn subscription(topic: &str, sub_version: i64) -> SubscriptionData {
        SubscriptionData {
            sub_version,
            ..SubscriptionData::all(topic)
        }
    }

    fn registration<'a>(
        client_id: &'a str,
        subscriptions: &'a [SubscriptionData],
    ) -> Registration<'a> {
        Registration {
            group: "G",
            client_id,
            is_broadcasting: false,
            subscriptions: Some(subscriptions),
            fingerprint: 0,
        }
    }

    fn groups() -> Groups {
        let mut groups = Groups::new(true, 16, 2);
        groups.find_config("G");
        groups
    }

    #[test]
    fn new_connection_changes_the_group_and_a_repeated_heartbeat_does_not() {
        let mut groups = groups();
        let topics = [subscription("T", 1)];
        assert!(
            groups
                .register(A, &registration("a", &topics), at(0))
                .is_changed
        );
        assert!(
            !groups
                .register(A, &registration("a", &topics), at(1))
                .is_changed
        );
        assert!(
            groups
                .register(B, &registration("a", &topics), at(2))
                .is_changed
        );
        assert_eq!(groups.client_ids("G"), ["a", "a"]);
    }

    #[test]
    fn subscription_is_replaced_only_by_a_higher_version() {
        let mut groups = groups();
        let version = |groups: &Groups| groups.subscription("G", "T").map(|s| s.sub_version);
        groups.register(A, &registration("a", &[subscription("T", 5)]), at(0));
        groups.register(A, &registration("a", &[subscription("T", 4)]), at(0));
        assert_eq!(version(&groups), Some(5));
        let higher = groups.register(A, &registration("a", &[subscription("T", 6)]), at(0));
        assert_eq!((version(&groups), higher.is_changed), (Some(6), false));
    }

    #[test]
    fn topic_that_a_heartbeat_lacks_is_gone_for_all() {
        let mut groups = groups();
        groups.register(A, &registration("a", &[subscription("T", 1)]), at(0));
        assert!(
            groups
                .register(B, &registration("b", &[subscription("U", 1)]), at(0))
                .is_changed
        );
        assert!(groups.subscription("G", "T").is_none());
        assert!(groups.subscription("G", "U").is_some());
    }

    #[test]
    fn last_one_out_ends_the_group_but_not_its_settings() {
        let mut groups = groups();
        groups.register(A, &registration("a", &[subscription("T", 1)]), at(0));
        assert!(!groups.unregister(B, "G"));
        assert!(groups.unregister(A, "G"));
        assert!(!groups.is_online("G"));
        assert!(groups.contains("G"));
        assert_eq!(groups.groups_of(A), Vec::<Arc<str>>::new());
    }

    #[test]
    fn silent_member_expires_and_a_heard_one_does_not() {
        let mut groups = groups();
        groups.register(A, &registration("a", &[]), at(0));
        groups.register(B, &registration("b", &[]), at(10));
        groups.register(A, &registration("a", &[]), at(60));
        assert_eq!(groups.expired(TIMEOUT, at(129)), []);
        assert_eq!(groups.expired(TIMEOUT, at(130)), [B]);
    }

    #[test]
    fn group_is_made_only_with_room_and_a_valid_name() {
        let mut groups = groups();
        assert!(groups.find_config("bad name").is_none());
        assert!(groups.find_config(&"x".repeat(121)).is_none());
        assert!(groups.find_config("H").is_some());
        assert!(groups.find_config("I").is_none());
        assert!(Groups::new(false, 16, 9).find_config("G").is_none());
    }
}
