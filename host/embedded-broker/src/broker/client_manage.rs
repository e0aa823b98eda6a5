//! HEART_BEAT, UNREGISTER_CLIENT and CHECK_CLIENT_CONFIG: who is in which group, and
//! telling the others when that changes.
//!
//! RocketMQ: `ClientManageProcessor`, `DefaultConsumerIdsChangeListener`.

use std::time::Duration;

use protocol::body::{CheckClientRequestBody, ConsumerData, HeartbeatData, MessageModel};
use protocol::code::{request_code, response_code};
use protocol::header::{
    Header, HeartbeatResponseHeader, NotifyConsumerIdsChangedRequestHeader,
    UnregisterClientRequestHeader,
};
use protocol::{ExtFields, Instant, RemotingCommand};

use super::pull_message::refuse_non_tag;
use super::{Answer, Broker, Refusal, header, success, success_with};
use crate::broker::ConnectionAction;
use crate::connection_id::ConnectionId;
use crate::event::Event;
use crate::groups::Registration;

/// RocketMQ: `ClientHousekeepingService`.
const MEMBER_SCAN_INTERVAL: Duration = Duration::from_secs(10);

impl Broker {
    pub(super) fn heart_beat(
        &mut self,
        connection: ConnectionId,
        request: &RemotingCommand,
        now: Instant,
    ) -> Answer {
        let heartbeat = HeartbeatData::decode(&request.body)
            .map_err(|error| Refusal::new(response_code::SYSTEM_ERROR, error.to_string()))?;
        // Version 1 always says that the subscription changed.
        let mut is_sub_change = heartbeat.heartbeat_fingerprint == 0;
        for consumer in &heartbeat.consumer_data_set {
            is_sub_change |= self.heart_beat_of_group(connection, &heartbeat, consumer, now);
        }
        Ok(success_with(
            request,
            &HeartbeatResponseHeader {
                is_support_heart_beat_v2: Some(true),
                is_sub_change: Some(is_sub_change),
            },
        ))
    }

    /// True when the group's last fingerprint was another one.
    fn heart_beat_of_group(
        &mut self,
        connection: ConnectionId,
        heartbeat: &HeartbeatData,
        consumer: &ConsumerData,
        now: Instant,
    ) -> bool {
        let group = &consumer.group_name;
        // A group that may not be made is passed over; its pulls will be refused.
        if self.groups.find_config(group).is_none() {
            return false;
        }
        // A full table of topics is reported when the topic is needed.
        let _ = self.ensure_retry_topic(group);
        let is_known = self.groups.connections(group).contains(&connection);
        let registered = self.groups.register(
            connection,
            &Registration {
                group,
                client_id: &heartbeat.client_id,
                is_broadcasting: consumer.message_model == Some(MessageModel::Broadcasting),
                subscriptions: (!heartbeat.without_sub || heartbeat.heartbeat_fingerprint == 0)
                    .then_some(consumer.subscription_data_set.as_slice()),
                fingerprint: heartbeat.heartbeat_fingerprint,
            },
            now,
        );
        self.next_member_scan
            .get_or_insert(now + MEMBER_SCAN_INTERVAL);
        if !is_known {
            let members = self.groups.connections(group).len();
            self.event(Event::MemberJoined {
                group: group.as_str().into(),
                client_id: heartbeat.client_id.as_str().into(),
                members,
            });
        }
        if registered.is_changed {
            self.notify_consumer_ids_changed(group);
        }
        registered.is_fingerprint_changed
    }

    pub(super) fn unregister_client(
        &mut self,
        connection: ConnectionId,
        request: &RemotingCommand,
    ) -> Answer {
        let header: UnregisterClientRequestHeader = header(request)?;
        if let Some(group) = &header.consumer_group {
            self.leave_group(connection, group);
        }
        Ok(success(request).with_ext_fields(ExtFields::default()))
    }

    pub(super) fn check_client_config(&mut self, request: &RemotingCommand) -> Answer {
        let body = CheckClientRequestBody::decode(&request.body)
            .map_err(|error| Refusal::new(response_code::SYSTEM_ERROR, error.to_string()))?;
        if let Some(subscription) = body.subscription_data {
            refuse_non_tag(&subscription.expression_type)?;
        }
        Ok(success(request))
    }

    /// The connection is gone, or nobody was heard on it for too long.
    pub(super) fn leave_all_groups(&mut self, connection: ConnectionId) {
        for group in self.groups.groups_of(connection) {
            self.leave_group(connection, &group);
        }
    }

    /// Every now and then drops members that were silent too long, and closes their
    /// connections.
    pub(super) fn expire_members(&mut self, now: Instant) {
        if self.next_member_scan.is_none_or(|scan| scan > now) {
            return;
        }
        for connection in self
            .groups
            .expired(self.config.channel_expired_timeout, now)
        {
            self.event(Event::ClientExpired { connection });
            self.leave_all_groups(connection);
            self.actions.push_back(ConnectionAction::Close(connection));
        }
        self.next_member_scan = self
            .groups
            .is_anybody_online()
            .then_some(now + MEMBER_SCAN_INTERVAL);
    }

    fn leave_group(&mut self, connection: ConnectionId, group: &str) {
        let was_notified = self.groups.is_notified(group);
        if !self.groups.unregister(connection, group) {
            return;
        }
        let members = self.groups.connections(group).len();
        self.event(Event::MemberLeft {
            group: group.into(),
            members,
        });
        if was_notified {
            self.notify_members(group);
        }
    }

    fn notify_consumer_ids_changed(&mut self, group: &str) {
        if self.groups.is_notified(group) {
            self.notify_members(group);
        }
    }

    /// To every connection of the group, the one that caused it too.
    fn notify_members(&mut self, group: &str) {
        let fields = NotifyConsumerIdsChangedRequestHeader {
            consumer_group: group.to_owned(),
        }
        .encode();
        for connection in self.groups.connections(group) {
            self.tell(
                connection,
                request_code::NOTIFY_CONSUMER_IDS_CHANGED,
                fields.clone(),
            );
        }
    }
}
