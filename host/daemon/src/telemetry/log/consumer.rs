//! Lines of the consumer rules: membership, queues, offsets, messages that went wrong.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use ::consumer::event::{BadRecordAction, LockLoss, StartPolicy};
use ::consumer::local_offsets::LocalOffsetsSource;
use ::consumer::{Event, PauseKind};
use tracing::{debug, error, info, trace, warn};

use crate::telemetry::repeats::Repeats;

pub(in crate::telemetry) fn event(repeats: &Repeats, tenant: &Arc<str>, event: &Event) {
    let admit = |what: &str, subject: &dyn std::fmt::Display| {
        repeats.admit(&format!("{what} {tenant} {subject}"))
    };
    match event {
        Event::NameServerFailed { address, error } => {
            if let Some(untold) = admit("name server", address) {
                warn!(target: "consumer", %tenant, %address, untold, "name server {address}: {error}; asking again until one answers");
            }
        }
        Event::NameServerRecovered { address } => {
            info!(target: "consumer", %tenant, %address, "name server {address} answers again");
        }
        Event::TopicMissing { topic } => {
            if let Some(untold) = admit("topic", topic) {
                warn!(target: "consumer", %tenant, %topic, untold, "topic \"{topic}\" does not exist yet; consuming starts when it appears");
            }
        }
        Event::RouteChanged { topic, read_queues } => {
            info!(target: "consumer", %tenant, %topic, read_queues, "topic \"{topic}\" has {read_queues} queues");
        }
        Event::HeartbeatAccepted { address } => {
            debug!(target: "consumer", %tenant, %address, "broker {address} knows our groups");
        }
        Event::HeartbeatFailed { address, error } => {
            if let Some(untold) = admit("heartbeat", address) {
                warn!(target: "consumer", %tenant, %address, untold, "heartbeat to {address}: {error}");
            }
        }
        Event::AccessRefused { address, error } => {
            error!(target: "consumer", %tenant, %address, "broker {address} refuses us: {error}; check access_key and secret_key of the tenant, and what the cluster allows them; asked again, at most every 30s");
        }
        Event::SubscriptionRefused {
            consumer_group,
            topic,
            expression,
            is_change,
            error,
        } => {
            let consequence = match is_change {
                false => "the group consumes nothing",
                true => "the filter stays as it was",
            };
            error!(target: "consumer", %tenant, %consumer_group, %topic, "{consequence}: a broker does not accept the expression \"{expression}\" for topic \"{topic}\": {error}; correct it, or let the broker evaluate SQL92 (enablePropertyFilter = true); asked again every 30s");
        }
        Event::SubscriptionChanged {
            consumer_group,
            topic,
            expression,
        } => {
            info!(target: "consumer", %tenant, %consumer_group, %topic, "topic \"{topic}\" is read with the filter \"{expression}\" from here on");
        }
        Event::GroupRefused {
            address,
            consumer_group,
            error,
        } => {
            error!(target: "consumer", %tenant, %address, %consumer_group, "broker {address} refuses the group, and takes the tenant's others: {error}; give the tenant's access_key the right to read the group and its topics, or remove the plugin; asked again, at most every 30s");
        }
        Event::GroupAccepted {
            address,
            consumer_group,
        } => {
            info!(target: "consumer", %tenant, %address, %consumer_group, "broker {address} takes the group now");
        }
        Event::AccessGranted { address } => {
            info!(target: "consumer", %tenant, %address, "broker {address} takes our requests again");
        }
        Event::MembersUnknown {
            consumer_group,
            reason,
        } => {
            if let Some(untold) = admit("members", consumer_group) {
                warn!(target: "consumer", %tenant, %consumer_group, untold, "the members of the group are not known, its queues stay as they are: {reason}");
            }
        }
        Event::SubscriptionsDiffer {
            consumer_group,
            member,
            what,
        } => {
            if let Some(untold) = admit("subscriptions", consumer_group) {
                warn!(target: "consumer", %tenant, %consumer_group, %member, untold, "member {member} of the group has other subscriptions, and what one of them does not want may be consumed by nobody: {what}; give all members the same ones");
            }
        }
        Event::SubscriptionsAgree { consumer_group } => {
            info!(target: "consumer", %tenant, %consumer_group, "the members of the group have the same subscriptions again");
        }
        Event::RetriesMissed {
            consumer_group,
            messages,
            lasted,
        } => {
            let seconds = lasted.as_secs();
            warn!(target: "consumer", %tenant, %consumer_group, messages, seconds, "{messages} messages that were sent back have not come again, the first should have {seconds} s ago; look whether the broker's schedule of delayed messages stands still");
        }
        Event::QueuesNotAllocated {
            consumer_group,
            topic,
            error,
        } => {
            if let Some(untold) = admit("not allocated", consumer_group) {
                warn!(target: "consumer", %tenant, %consumer_group, %topic, untold, "the queues of \"{topic}\" cannot be divided and stay as they are: {error}");
            }
        }
        Event::Rebalanced {
            consumer_group,
            topic,
            members,
            taken,
            released,
        } => {
            let (took, gave) = (taken.len(), released.len());
            info!(
                target: "consumer", %tenant, %consumer_group, %topic, members,
                taken = queues(taken), released = queues(released),
                "queues of \"{topic}\": {took} taken, {gave} released, {members} members"
            );
        }
        Event::QueueStarted {
            consumer_group,
            queue,
            offset,
            policy,
        } => {
            if let StartPolicy::Timestamp(unix_ms) = policy {
                // Somebody asked for a point in time: say where the broker's clock put it.
                let time = UNIX_EPOCH + Duration::from_millis(*unix_ms);
                let time = humantime::format_rfc3339_millis(time);
                info!(target: "consumer", %tenant, %consumer_group, %queue, %offset, "queue starts at {offset}, its first message stored at {time} or later by the broker's clock");
            } else {
                debug!(target: "consumer", %tenant, %consumer_group, %queue, %offset, ?policy, "queue starts at {offset}");
            }
        }
        Event::QueueStartFailed {
            consumer_group,
            queue,
            error,
        } => {
            if let Some(untold) = admit("start", queue) {
                warn!(target: "consumer", %tenant, %consumer_group, %queue, untold, "cannot find out where the queue begins, trying again: {error}");
            }
        }
        Event::OffsetCorrected {
            consumer_group,
            queue,
            from,
            to,
            reason,
        } => {
            warn!(target: "consumer", %tenant, %consumer_group, %queue, %from, %to, "the broker has no offset {from}, going on at {to}: {reason}");
        }
        Event::PullFailed {
            consumer_group,
            queue,
            error,
        } => {
            warn!(target: "consumer", %tenant, %consumer_group, %queue, "cannot pull, trying again: {error}");
        }
        Event::PullRecovered {
            consumer_group,
            queue,
            failures,
        } => {
            info!(target: "consumer", %tenant, %consumer_group, %queue, failures, "pulls again after {failures} failures");
        }
        Event::Step {
            consumer_group,
            queue,
            step,
        } => {
            trace!(target: "consumer", %tenant, %consumer_group, %queue, "{step:?}");
        }
        Event::Consumed {
            consumer_group,
            queue,
            first_offset,
            done,
            failed,
            elapsed,
            ..
        } => {
            debug!(target: "consumer", %tenant, %consumer_group, %queue, %first_offset, done, failed, ?elapsed, "consumed");
        }
        Event::PullTaskRan {
            consumer_group,
            queue,
            messages,
            elapsed,
            failure: None,
        } => {
            debug!(target: "consumer", %tenant, %consumer_group, %queue, messages, ?elapsed, "pull task ran");
        }
        Event::PullTaskRan {
            consumer_group,
            queue,
            failure: Some(failure),
            ..
        } => {
            if let Some(untold) = admit("pull task", queue) {
                warn!(target: "consumer", %tenant, %consumer_group, %queue, untold, "a run of the queue's pull task failed, the next one comes in a moment: {failure}");
            }
        }
        Event::OffsetSetBack {
            consumer_group,
            queue,
            from,
            to,
        } => {
            info!(target: "consumer", %tenant, %consumer_group, %queue, %from, %to, "the plugin set the queue's offset back from {from} to {to}");
        }
        Event::ConsumedDirectly {
            consumer_group,
            result,
            elapsed,
        } => {
            info!(target: "consumer", %tenant, %consumer_group, result, ?elapsed, "an operator had a message consumed directly: {result}");
        }
        Event::Sought {
            consumer_group,
            queue,
            from,
            to,
        } => {
            let from = from.map(|from| from.0);
            info!(target: "consumer", %tenant, %consumer_group, %queue, from, %to, "the queue goes on at {to}, as asked");
        }
        Event::SeekFailed {
            consumer_group,
            queue,
            error,
        } => {
            warn!(target: "consumer", %tenant, %consumer_group, %queue, "the queue does not go on where it was told to: {error}");
        }
        Event::OutcomesMismatched {
            consumer_group,
            expected,
            actual,
        } => {
            if let Some(untold) = admit("outcomes", consumer_group) {
                warn!(target: "consumer", %tenant, %consumer_group, untold, "{actual} outcomes for {expected} messages; those without one come again");
            }
        }
        Event::StaleConsumeResult { consumer_group } => {
            let consumer_group = consumer_group.as_deref();
            debug!(target: "consumer", %tenant, consumer_group, "a call ended after its queue was given back");
        }
        Event::SentBack {
            consumer_group,
            queue,
            offset,
            delay_level,
            route,
        } => {
            debug!(target: "consumer", %tenant, %consumer_group, %queue, %offset, delay_level, ?route, "sent back");
        }
        Event::DeadLettered {
            consumer_group,
            queue,
            offset,
            message_id,
            reason,
        } => {
            if let Some(untold) = admit("dead letter", consumer_group) {
                warn!(target: "consumer", %tenant, %consumer_group, %queue, %offset, %message_id, untold, "dead letter: {reason}");
            }
        }
        Event::SendBackFailed {
            consumer_group,
            queue,
            offset,
            reason,
        } => {
            if let Some(untold) = admit("send back", consumer_group) {
                warn!(target: "consumer", %tenant, %consumer_group, %queue, %offset, untold, "the message cannot be given back to the broker, it is tried again here: {reason}");
            }
        }
        Event::BadRecord {
            consumer_group,
            queue,
            offset,
            reason,
            action,
        } => {
            let action = match action {
                BadRecordAction::AskedAgain => "asked for again",
                BadRecordAction::DeadLetter => "made a dead letter",
                BadRecordAction::Skipped => "skipped for good",
            };
            if let Some(untold) = admit(action, queue) {
                error!(target: "consumer", %tenant, %consumer_group, %queue, %offset, untold, "a record cannot be consumed, {action}: {reason}");
            }
        }
        Event::CommitFailed {
            consumer_group,
            queue,
            offset,
            last,
            error,
        } => {
            if let Some(untold) = admit("commit", queue) {
                let next = if *last {
                    "messages from there on may come again"
                } else {
                    "trying again"
                };
                warn!(target: "consumer", %tenant, %consumer_group, %queue, %offset, untold, "offset {offset} was not stored, {next}: {error}");
            }
        }
        Event::CommittedOffsetWentBack {
            consumer_group,
            queue,
            from,
            to,
        } => {
            error!(target: "consumer", %tenant, %consumer_group, %queue, %from, %to, "the broker's stored offset went back from {from} to {to}");
        }
        Event::QueueLocked {
            consumer_group,
            queue,
        } => {
            debug!(target: "consumer", %tenant, %consumer_group, %queue, "queue {queue} is locked for us");
        }
        Event::QueueLockRefused {
            consumer_group,
            queue,
        } => {
            info!(target: "consumer", %tenant, %consumer_group, %queue, "queue {queue} is still locked by another client; asking for its lock until it is free");
        }
        Event::QueueLockFailed {
            consumer_group,
            queue,
            error,
        } => {
            if let Some(untold) = admit("lock", queue) {
                warn!(target: "consumer", %tenant, %consumer_group, %queue, untold, "cannot ask for the lock of {queue}, trying again: {error}");
            }
        }
        Event::QueueLockLost {
            consumer_group,
            queue,
            loss,
        } => {
            if let Some(untold) = admit("lock lost", queue) {
                let how = match loss {
                    LockLoss::Refused => "another client has it, or the broker has forgotten it",
                    LockLoss::Expired => "it could not be renewed in time",
                };
                warn!(target: "consumer", %tenant, %consumer_group, %queue, untold, "lost the lock of {queue} ({how}); what was fetched is dropped, and consuming goes on from what is committed when it is locked again");
            }
        }
        Event::QueueUnlocked {
            consumer_group,
            queue,
        } => {
            debug!(target: "consumer", %tenant, %consumer_group, %queue, "queue {queue} is unlocked");
        }
        Event::UnlockFailed {
            consumer_group,
            queue,
            error,
        } => {
            warn!(target: "consumer", %tenant, %consumer_group, %queue, "cannot tell the broker that {queue} is unlocked, its next owner may have to wait for a minute: {error}");
        }
        Event::QueueBlocked {
            consumer_group,
            queue,
            offset,
            attempts,
            lasted,
        } => {
            let seconds = lasted.as_secs();
            error!(target: "consumer", %tenant, %consumer_group, %queue, %offset, attempts, seconds, "queue {queue} is blocked: message {offset} has failed {attempts} times in {seconds} s, and nothing behind it is consumed; repair its listener, or set max_reconsume_times");
        }
        Event::QueueUnblocked {
            consumer_group,
            queue,
            offset,
            attempts,
            lasted,
        } => {
            let seconds = lasted.as_secs();
            info!(target: "consumer", %tenant, %consumer_group, %queue, %offset, attempts, seconds, "queue {queue} goes on: message {offset} is behind us after {attempts} failures in {seconds} s");
        }
        Event::StatusWithoutMeaning {
            consumer_group,
            queue,
            status,
        } => {
            if let Some(untold) = admit("status", consumer_group) {
                warn!(target: "consumer", %tenant, %consumer_group, %queue, untold, "the listener answered {status:?} though auto_commit is on; taken for a success");
            }
        }
        Event::OffsetReset {
            consumer_group,
            queue,
            from,
            to,
        } => {
            let finished = from.map_or_else(|| "nothing yet".to_owned(), |from| from.to_string());
            warn!(target: "consumer", %tenant, %consumer_group, %queue, %to, "an operator reset the offset to {to} (finished: {finished}); what was under way does not count");
        }
        Event::ResetIgnored {
            consumer_group,
            topic,
            reason,
        } => {
            if let Some(untold) = admit("reset", consumer_group) {
                warn!(target: "consumer", %tenant, %consumer_group, %topic, untold, "a reset of offsets changed nothing: {reason}");
            }
        }
        Event::LocalOffsetsLoaded {
            consumer_group,
            queues,
            source,
        } => match source {
            LocalOffsetsSource::Nothing | LocalOffsetsSource::Latest => {
                info!(target: "consumer", %tenant, %consumer_group, queues, "local offsets of {queues} queues read: {source}");
            }
            LocalOffsetsSource::Previous { problem } => {
                warn!(target: "consumer", %tenant, %consumer_group, queues, "local offsets of {queues} queues read from the copy before the latest, some messages may come again: {problem}");
            }
            LocalOffsetsSource::Lost { problem } => {
                error!(target: "consumer", %tenant, %consumer_group, "local offsets are lost, queues begin as consume_from_where says: {problem}");
            }
        },
        Event::LocalOffsetsFailed {
            consumer_group,
            is_loaded,
            last,
            reason,
        } => {
            let then = match (is_loaded, last) {
                (false, _) => "no queue starts before they are read, trying again",
                (true, false) => "consuming goes on, trying again",
                (true, true) => "messages may come again after the next start",
            };
            error!(target: "consumer", %tenant, %consumer_group, "local offsets: {reason}; {then}");
        }
        Event::LocalOffsetsRecovered { consumer_group } => {
            info!(target: "consumer", %tenant, %consumer_group, "local offsets are stored again");
        }
        Event::RetriedHere {
            consumer_group,
            queue,
            offset,
            after,
        } => {
            debug!(target: "consumer", %tenant, %consumer_group, %queue, %offset, ?after, "failed, tried again here");
        }
        Event::MessageDropped {
            consumer_group,
            queue,
            offset,
            reason,
        } => {
            if let Some(untold) = admit("dropped", consumer_group) {
                warn!(target: "consumer", %tenant, %consumer_group, %queue, %offset, untold, "message dropped, broadcasting groups have no dead letters: {reason}");
            }
        }
        Event::Paused {
            consumer_group,
            scope,
            kind,
            by,
        } => {
            let verb = match kind {
                PauseKind::Pause => "is paused",
                PauseKind::Drain => "is being drained",
            };
            info!(target: "consumer", %tenant, %consumer_group, %by, "{scope} {verb}, asked for by {by}: nothing more is pulled");
        }
        Event::Drained {
            consumer_group,
            scope,
        } => {
            info!(target: "consumer", %tenant, %consumer_group, "{scope} is drained: everything fetched is finished and the offsets are stored");
        }
        Event::Resumed {
            consumer_group,
            scope,
        } => {
            info!(target: "consumer", %tenant, %consumer_group, "{scope} is no longer paused");
        }
        Event::GroupLeft { consumer_group } => {
            info!(target: "consumer", %tenant, %consumer_group, "left group \"{consumer_group}\"");
        }
        Event::ServerRequestRefused { from, code } => {
            debug!(target: "consumer", %tenant, address = %from, code, "a request of {from} is not served");
        }
        Event::Stopped => debug!(target: "consumer", %tenant, "the client has stopped"),
    }
}

fn queues(queues: &[protocol::MessageQueue]) -> String {
    let names: Vec<String> = queues.iter().map(ToString::to_string).collect();
    names.join(" ")
}
