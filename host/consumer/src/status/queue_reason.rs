//! Why a queue of ours is as it is.

use std::time::Duration;

use protocol::code::response_code;

use super::cause::Cause;
use super::reason::{Reason, again, approximately, resume_command, stopping, unreachable, within};
use super::{Activity, Delivery, FlowControl, GroupStatus, PauseStatus, QueueStatus};
use crate::pause::PauseKind;
use crate::request::RequestError;

/// What ends flow control.
const AGAIN_WHEN_FINISHED: &str = "it is pulled again when messages are finished";

/// A call that has run for so long is worth a word.
const SLOW_CALL: Duration = Duration::from_secs(5);

impl QueueStatus {
    /// Why the queue is as it is.
    pub(super) fn find_reason(
        &self,
        group: &GroupStatus,
        last_error: Option<&RequestError>,
    ) -> Reason {
        let broker = &self.queue.broker_name;
        if let Some(hold) = &group.hold
            && self.waits_for_listener()
        {
            return hold.to_reason();
        }
        match &self.activity {
            Activity::Stopping => stopping(group),
            Activity::Paused(pause) => self.paused(pause, group),
            Activity::WaitsForLock { obstacle } => Reason::new(
                Cause::WaitsForLock,
                match obstacle {
                    None => format!("asking broker \"{broker}\" for the queue's lock"),
                    Some(obstacle) => format!("the queue's lock is not ours: {obstacle}"),
                },
                "it is asked for again every second; a broker ends a lock that nobody renews after a minute",
                "if it stays so, look which member has it, and whether the broker is up",
            ),
            Activity::Suspended {
                offset,
                attempts,
                lasted,
            } => Reason::new(
                Cause::Suspended,
                format!(
                    "message {offset} has failed {attempts} times in {}, and nothing behind it is consumed",
                    approximately(*lasted)
                ),
                "it is tried again in a moment",
                "repair the plugin (its failures are in the log), or set max_reconsume_times",
            ),
            Activity::TaskRuns => Reason::new(
                Cause::PullTaskRuns,
                "its pull task runs",
                "a run that takes too long is killed",
                "",
            ),
            Activity::TaskWaits { again_in } => Reason::new(
                Cause::PullTaskWaits,
                "its pull task rests between two runs, as it asked to",
                format!("it runs again {}", within(*again_in)),
                "",
            ),
            Activity::TaskFailed { error, again_in } => Reason::new(
                Cause::PullTaskFailed,
                format!("the last run of its pull task failed: {error}"),
                format!("it runs again {}", within(*again_in)),
                "repair the plugin; its failures are in the log",
            ),
            Activity::TaskDue => Reason::new(
                Cause::PullTaskDue,
                format!(
                    "its pull task is due and waits for a free call; {} of {} are under way in the group",
                    group.calls, group.calls_max
                ),
                "it runs when one of them ends, or one of the tenant's or the host's",
                "make the runs shorter, or raise consume_thread_max or calls_max",
            ),
            Activity::Starting => Reason::new(
                Cause::Starting,
                format!("asking broker \"{broker}\" where the group begins"),
                "it is pulled as soon as the broker has answered",
                "",
            ),
            Activity::StartFailed { error, again_in } => {
                let what = "where the group begins is not known, so nothing is pulled";
                match error {
                    RequestError::Refused { .. } | RequestError::Malformed { .. } => Reason::new(
                        Cause::StartFailed,
                        format!("{what}: broker \"{broker}\" {error}"),
                        again(*again_in),
                        "look at the broker's log, and whether topic and group exist there",
                    ),
                    _ => unreachable(
                        broker,
                        &format!("{what}: broker \"{broker}\""),
                        error,
                        *again_in,
                    ),
                }
            }
            Activity::Unannounced { again_in } => Reason::new(
                Cause::SubscriptionNotKnown,
                format!("broker \"{broker}\" has yet to take the changed subscription"),
                format!(
                    "it is pulled with its answer, looked at again {}",
                    within(*again_in)
                ),
                "look at the log for what became of the heartbeat",
            ),
            Activity::NoBroker { again_in } => Reason::new(
                Cause::NoBrokerAddress,
                format!("no name server knows an address of broker \"{broker}\""),
                format!("the route is asked for again {}", within(*again_in)),
                "start the broker, or look why it does not register with the name servers",
            ),
            Activity::PullFailed { error, again_in } => self.pull_failed(error, *again_in),
            Activity::BrokerFlowControl => Reason::new(
                Cause::BrokerFlowControl,
                match last_error {
                    Some(error) => format!("broker \"{broker}\" asked to slow down: {error}"),
                    None => format!("broker \"{broker}\" answers pulls at once without messages"),
                },
                "it is pulled again in a moment",
                "look at the load of the broker",
            ),
            Activity::FlowControl(threshold) => self.over_threshold(*threshold, group),
            Activity::Pulling {
                answered_in,
                is_held,
            } => self.live(*answered_in, *is_held, group),
        }
    }

    /// It has something to be called with.
    fn waits_for_listener(&self) -> bool {
        match &self.activity {
            Activity::TaskDue => true,
            Activity::Suspended { .. } | Activity::FlowControl(_) | Activity::Pulling { .. } => {
                self.cached_messages > 0
            }
            _ => false,
        }
    }

    fn pull_failed(&self, error: &RequestError, again_in: Option<Duration>) -> Reason {
        let broker = &self.queue.broker_name;
        match error.code() {
            Some(
                response_code::SUBSCRIPTION_NOT_EXIST | response_code::SUBSCRIPTION_NOT_LATEST,
            ) => Reason::new(
                Cause::SubscriptionNotKnown,
                format!("broker \"{broker}\" has not read our newest heartbeat: {error}"),
                format!("a heartbeat is on its way, and {}", again(again_in)),
                "if it stays so, give all members of the group the same subscriptions",
            ),
            Some(_) => Reason::new(
                Cause::PullRefused,
                format!("broker \"{broker}\" does not let us pull: {error}"),
                again(again_in),
                "look whether topic and group may be read there (permissions, consumeEnable)",
            ),
            None => unreachable(broker, &format!("broker \"{broker}\""), error, again_in),
        }
    }

    fn paused(&self, pause: &PauseStatus, group: &GroupStatus) -> Reason {
        let PauseStatus {
            scope,
            kind,
            drained,
            by,
            since,
        } = pause;
        let since = approximately(*since);
        let rest = match self.cached_messages {
            0 => "nothing that was fetched is left".to_owned(),
            count => format!("{count} fetched messages are still to be consumed"),
        };
        let (cause, verb) = match (kind, drained) {
            (PauseKind::Pause, _) => (Cause::Paused, "paused"),
            (PauseKind::Drain, false) => (Cause::Draining, "draining"),
            (PauseKind::Drain, true) => (Cause::Drained, "drained"),
        };
        Reason::new(
            cause,
            format!("{scope} was asked to stop pulling by {by} {since} ago ({verb}); {rest}"),
            "it stays so until somebody resumes it",
            resume_command(scope, group),
        )
    }

    fn over_threshold(&self, threshold: FlowControl, group: &GroupStatus) -> Reason {
        let messages = |count| format!("{count} messages are fetched and not finished");
        let bytes = |count| format!("{count} bytes of messages are fetched and not finished");
        let (cause, what, key) = match threshold {
            FlowControl::Count => (
                Cause::PullThresholdForQueue,
                messages(self.cached_messages),
                "pull_threshold_for_queue",
            ),
            FlowControl::Size => (
                Cause::PullThresholdSizeForQueue,
                bytes(self.cached_bytes),
                "pull_threshold_size_for_queue",
            ),
            FlowControl::TopicCount => (
                Cause::PullThresholdForTopic,
                messages(self.cached_messages),
                "this queue's share of pull_threshold_for_topic",
            ),
            FlowControl::TopicSize => (
                Cause::PullThresholdSizeForTopic,
                bytes(self.cached_bytes),
                "this queue's share of pull_threshold_size_for_topic",
            ),
            FlowControl::Span => {
                let (first, last) = self.cached_offsets.unwrap_or_default();
                (
                    Cause::ConsumeConcurrentlyMaxSpan,
                    format!("message {first} is not finished, and {last} is fetched already"),
                    "consume_concurrently_max_span",
                )
            }
            FlowControl::GroupBuffer => (
                Cause::GroupBufferBytes,
                format!(
                    "the group holds {} bytes of fetched messages",
                    group.held_bytes
                ),
                "buffer_bytes in [consume] of the manifest",
            ),
            FlowControl::Buffer => return self.out_of_memory(group),
        };
        let delivery = self.delivery_reason(group);
        Reason::new(
            cause,
            format!("{what}, more than {key} allows: {}", delivery.what),
            AGAIN_WHEN_FINISHED,
            format!("make the listener faster; raising {key} only costs memory"),
        )
    }

    fn out_of_memory(&self, group: &GroupStatus) -> Reason {
        let bytes = group.held_bytes;
        Reason::new(
            Cause::BufferBytes,
            format!(
                "the tenant holds as many bytes of fetched messages as its buffer_bytes allows, \
                 and this group with {bytes} its share of them or more"
            ),
            AGAIN_WHEN_FINISHED,
            "look for the group whose listener is slow, or raise buffer_bytes of the tenant",
        )
    }

    /// A pull is under way: what is said is what becomes of the fetched messages.
    fn live(&self, answered_in: Option<Duration>, is_held: bool, group: &GroupStatus) -> Reason {
        match self.delivery {
            Delivery::Nothing if self.is_caught_up(is_held) => Reason::new(
                Cause::CaughtUp,
                "everything is consumed; a pull waits at the broker for the next message",
                match answered_in {
                    Some(time) => format!(
                        "the broker answers at once, without a message within {}",
                        approximately(time)
                    ),
                    None => "the broker answers at once".to_owned(),
                },
                "",
            ),
            Delivery::Nothing => Reason::new(
                Cause::Consuming,
                match self.lag() {
                    Some(lag) => format!("messages are being pulled, {lag} are to be consumed"),
                    None => "the first pull is under way".to_owned(),
                },
                "",
                "",
            ),
            _ => self.delivery_reason(group),
        }
    }

    /// A first pull that the broker does not answer at once is held there: nothing is new.
    fn is_caught_up(&self, is_held: bool) -> bool {
        match self.lag() {
            Some(lag) => lag == 0,
            None => is_held,
        }
    }

    /// What becomes of fetched messages.
    fn delivery_reason(&self, group: &GroupStatus) -> Reason {
        let oldest = self.oldest_call.or(group.oldest_call).unwrap_or_default();
        let killed = |oldest: Duration| {
            let left = group.consume_timeout.saturating_sub(oldest);
            format!(
                "the call is killed in {}, at consume_timeout = {}",
                approximately(left),
                approximately(group.consume_timeout)
            )
        };
        match self.delivery {
            Delivery::Nothing => Reason::new(Cause::Consuming, "nothing is fetched", "", ""),
            Delivery::Calling if oldest >= SLOW_CALL => Reason::new(
                Cause::ListenerSlow,
                format!(
                    "the listener has not answered for {}",
                    approximately(oldest)
                ),
                killed(oldest),
                "look what the plugin waits for",
            ),
            Delivery::Calling => Reason::new(
                Cause::Consuming,
                format!("the listener has {} calls with its messages", self.calls),
                "",
                "",
            ),
            Delivery::WaitsForCalls => Reason::new(
                Cause::ConsumeThreadMax,
                format!(
                    "{} of {} calls of consume_thread_max are under way{}, the oldest for {}",
                    group.calls,
                    group.calls_max,
                    if group.calls < group.calls_max {
                        ", and the last is for fresh messages"
                    } else {
                        ""
                    },
                    approximately(group.oldest_call.unwrap_or_default())
                ),
                "its messages are handed over when one of them ends",
                "make the listener faster, or raise consume_thread_max",
            ),
            Delivery::WaitsForPermit => Reason::new(
                Cause::CallsMax,
                "as many calls are under way as the tenant or the host may have",
                "its messages are handed over when one of them ends",
                "look for the group whose listener is slow, or raise calls_max",
            ),
            Delivery::SendingBack => Reason::new(
                Cause::SendingBack,
                format!(
                    "{} failed messages are on their way back to the broker",
                    self.cached_messages
                ),
                "they come again from the retry topic",
                "",
            ),
            Delivery::WaitsForRetry => Reason::new(
                Cause::SendBackFailed,
                format!(
                    "no broker took {} failed messages back, they are kept here",
                    self.local_retries
                ),
                "they are tried again here within five seconds",
                "look at the log for what the broker said, and whether it can be written to",
            ),
        }
    }
}
