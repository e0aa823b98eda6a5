//! What holds pulls back: thresholds of a queue and its topic. Flow control ends when
//! messages are finished, not after a while. Bytes of groups and client: `memory`.
//!
//! RocketMQ: the first half of `DefaultMQPushConsumerImpl#pullMessage`.

use protocol::Instant;

use crate::client::Client;
use crate::epoch::Epoch;
use crate::group::{AssignedQueue, ConsumerGroup, Phase};
use crate::listener::ConsumeMode;
use crate::planted_bugs::PlantedBug;
use crate::pull::Pull;
use crate::status::FlowControl;

/// RocketMQ: "at least 1", and its unit is MiB.
const TOPIC_SHARE_MIN: u32 = 1;
const TOPIC_SHARE_BYTES_MIN: u64 = 1 << 20;

/// What a queue may hold before its pulls stop.
struct Thresholds {
    messages: (u32, FlowControl),
    bytes: (u64, FlowControl),
}

impl Thresholds {
    /// Differs from RocketMQ: a topic's threshold is divided among the queues of this
    /// topic, not among those of all topics of the group, which would leave each topic
    /// less than was asked for (`RebalancePushImpl#messageQueueChanged`).
    fn of(group: &ConsumerGroup, topic_index: usize) -> Self {
        let config = &group.config;
        let queues = u32::try_from(group.topics[topic_index].held.len()).unwrap_or(u32::MAX);
        let queues = queues.max(1);
        Self {
            messages: match config.pull_threshold_for_topic() {
                Some(topic) => (
                    (topic / queues).max(TOPIC_SHARE_MIN),
                    FlowControl::TopicCount,
                ),
                None => (config.pull_threshold_for_queue(), FlowControl::Count),
            },
            bytes: match config.pull_threshold_size_for_topic() {
                Some(topic) => {
                    let share = topic / u64::from(queues);
                    (share.max(TOPIC_SHARE_BYTES_MIN), FlowControl::TopicSize)
                }
                None => (config.pull_threshold_size_for_queue(), FlowControl::Size),
            },
        }
    }
}

impl AssignedQueue {
    /// The threshold that it is over. RocketMQ compares with "greater than" as well.
    pub(crate) fn over_threshold(&self, group: &ConsumerGroup) -> Option<FlowControl> {
        let queue = &self.process_queue;
        let thresholds = Thresholds::of(group, self.topic_index);
        let span_max = u64::from(group.config.consume_concurrently_max_span());
        if queue.messages() > thresholds.messages.0 {
            Some(thresholds.messages.1)
        } else if queue.body_bytes() > thresholds.bytes.0 {
            Some(thresholds.bytes.1)
        } else if group.config.mode() == ConsumeMode::Concurrently && queue.span() > span_max {
            Some(FlowControl::Span)
        } else {
            None
        }
    }
}

impl Client {
    /// Pulls again what was over a threshold and no longer is.
    pub(crate) fn end_flow_control(&mut self, epoch: Epoch, now: Instant) {
        if self.has_bug(PlantedBug::FlowControlNeverEnds) {
            return;
        }
        if let Some(queue) = self.queues.get(epoch)
            && let Phase::Pulling(Pull::FlowControl(threshold)) = queue.phase
            && !threshold.is_of_memory()
        {
            self.pull(epoch, now);
        }
    }

    /// A topic has fewer queues than before, which share its thresholds.
    pub(crate) fn topic_shares_changed(&mut self, group: Epoch, topic_index: usize, now: Instant) {
        let Some(group) = self.groups.get(group) else {
            return;
        };
        let config = &group.config;
        if config.pull_threshold_for_topic().is_none()
            && config.pull_threshold_size_for_topic().is_none()
        {
            return;
        }
        let queues: Vec<Epoch> = group.topics[topic_index].held.values().copied().collect();
        for queue in queues {
            self.end_flow_control(queue, now);
        }
    }
}
