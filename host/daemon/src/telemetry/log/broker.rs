//! Lines of the embedded broker.

use embedded_broker::Event;
use tracing::{debug, info, warn};

use crate::telemetry::repeats::Repeats;

pub(in crate::telemetry) fn event(repeats: &Repeats, event: &Event) {
    match event {
        Event::Connected { connection, peer } => {
            debug!(target: "broker", connection = connection.0, %peer, "{peer} connected");
        }
        Event::Disconnected { connection } => {
            debug!(target: "broker", connection = connection.0, "a client disconnected");
        }
        Event::TopicCreated {
            topic,
            write_queue_nums,
        } => {
            info!(target: "broker", %topic, queues = write_queue_nums, "topic \"{topic}\" created");
        }
        Event::MemberJoined {
            group,
            client_id,
            members,
        } => {
            info!(target: "broker", consumer_group = %group, %client_id, members, "{client_id} joined \"{group}\", {members} members");
        }
        Event::MemberLeft { group, members } => {
            info!(target: "broker", consumer_group = %group, members, "a member left \"{group}\", {members} members");
        }
        Event::ClientExpired { connection } => {
            warn!(target: "broker", connection = connection.0, "a client was silent for too long, its connection is closed");
        }
        Event::MessageDeadLettered {
            group,
            topic,
            reconsume_times,
        } => {
            if let Some(untold) = repeats.admit(&format!("broker dead letter {group}")) {
                info!(target: "broker", consumer_group = %group, %topic, reconsume_times, untold, "a message of \"{group}\" is a dead letter now");
            }
        }
        Event::MessagesDropped { messages } => {
            if let Some(untold) = repeats.admit("broker store") {
                warn!(target: "broker", messages, untold, "the store is full, the {messages} oldest messages are gone");
            }
        }
        Event::DelayedMessagesLost { level, messages } => {
            warn!(target: "broker", level, messages, "{messages} delayed messages of level {level} were dropped before their time came");
        }
        Event::TimerMessagesLost { messages } => {
            if let Some(untold) = repeats.admit("broker timers") {
                warn!(target: "broker", messages, untold, "{messages} timer messages were dropped before their time came");
            }
        }
        Event::RequestNotSupported { code } => {
            if let Some(untold) = repeats.admit(&format!("broker code {code}")) {
                warn!(target: "broker", code, untold, "a client asked for request code {code}, which this broker does not serve");
            }
        }
        Event::LimitReached { setting } => {
            if let Some(untold) = repeats.admit(&format!("broker {setting}")) {
                warn!(target: "broker", setting, untold, "the embedded broker is at its bound {setting}; what did not fit was refused");
            }
        }
        other => debug!(target: "broker", "{other:?}"),
    }
}
