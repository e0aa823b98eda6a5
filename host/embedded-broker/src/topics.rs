//! Topics: how many queues each has, what may be done with it, and how one comes to be.
//!
//! A topic appears by command, by the first send to it (from the template `TBW102`), and
//! for retries and dead letters by itself. RocketMQ: `TopicConfigManager`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use protocol::topic::{
    AUTO_CREATE_TOPIC_KEY_TOPIC, OFFSET_MOVED_EVENT, SCHEDULE_TOPIC, SELF_TEST_TOPIC,
    TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC,
};

/// RocketMQ has no limit; its largest own topic has this many.
pub(crate) const QUEUES_PER_TOPIC_MAX: u32 = 1024;

/// What may be done with a topic: RocketMQ's bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Perm(pub(crate) u32);

impl Perm {
    pub(crate) const READ_WRITE: Self = Self(6);
    const INHERIT: u32 = 1;
    const WRITE: u32 = 2;
    const READ: u32 = 4;

    pub(crate) fn is_readable(self) -> bool {
        self.0 & Self::READ != 0
    }

    pub(crate) fn is_writeable(self) -> bool {
        self.0 & Self::WRITE != 0
    }

    fn is_inherited(self) -> bool {
        self.0 & Self::INHERIT != 0
    }
}

/// As RocketMQ prints it: `RW-`.
impl fmt::Display for Perm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = |set: bool, letter| if set { letter } else { '-' };
        write!(
            f,
            "{}{}{}",
            letter(self.is_readable(), 'R'),
            letter(self.is_writeable(), 'W'),
            letter(self.is_inherited(), 'X')
        )
    }
}

/// One topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TopicConfig {
    pub(crate) topic_name: Arc<str>,
    pub(crate) read_queue_nums: u32,
    pub(crate) write_queue_nums: u32,
    pub(crate) perm: Perm,
    pub(crate) topic_sys_flag: i32,
    pub(crate) order: bool,
}

impl TopicConfig {
    pub(crate) fn new(topic_name: &str, queue_nums: u32) -> Self {
        Self {
            topic_name: topic_name.into(),
            read_queue_nums: queue_nums,
            write_queue_nums: queue_nums,
            perm: Perm::READ_WRITE,
            topic_sys_flag: 0,
            order: false,
        }
    }
}

/// As RocketMQ prints it in remarks.
impl fmt::Display for TopicConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "TopicConfig [topicName={}, readQueueNums={}, writeQueueNums={}, perm={}, \
             topicFilterType=SINGLE_TAG, topicSysFlag={}, order={}, attributes={{}}]",
            self.topic_name,
            self.read_queue_nums,
            self.write_queue_nums,
            self.perm,
            self.topic_sys_flag,
            self.order
        )
    }
}

/// The table is full: the named bound is `BrokerConfig::topics_max`.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "cannot create topic {topic}: the broker has its most topics, {topics_max}; delete one or raise topics_max"
)]
pub(crate) struct TooManyTopics {
    topic: String,
    topics_max: usize,
}

/// All topics.
#[derive(Debug)]
pub(crate) struct Topics {
    configs: BTreeMap<Arc<str>, TopicConfig>,
    topics_max: usize,
}

impl Topics {
    /// The system topics and, when sends may create topics, their template.
    pub(crate) fn new(
        topics_max: usize,
        template_queue_nums: Option<u32>,
        delay_levels: u32,
    ) -> Self {
        let mut system = vec![
            TopicConfig::new(SCHEDULE_TOPIC, delay_levels),
            TopicConfig::new(SELF_TEST_TOPIC, 1),
            TopicConfig::new(OFFSET_MOVED_EVENT, 1),
            TopicConfig::new(TRANS_HALF_TOPIC, 1),
            TopicConfig::new(TRANS_OP_HALF_TOPIC, 1),
        ];
        if let Some(queue_nums) = template_queue_nums {
            system.push(TopicConfig {
                perm: Perm(Perm::READ | Perm::WRITE | Perm::INHERIT),
                ..TopicConfig::new(AUTO_CREATE_TOPIC_KEY_TOPIC, queue_nums)
            });
        }
        Self {
            configs: system
                .into_iter()
                .map(|config| (Arc::clone(&config.topic_name), config))
                .collect(),
            topics_max,
        }
    }

    pub(crate) fn get(&self, topic: &str) -> Option<&TopicConfig> {
        self.configs.get(topic)
    }

    /// By name.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.configs.keys()
    }

    /// Creates or replaces a topic.
    pub(crate) fn put(&mut self, config: TopicConfig) -> Result<&TopicConfig, TooManyTopics> {
        let name = Arc::clone(&config.topic_name);
        if !self.configs.contains_key(&name) && self.configs.len() >= self.topics_max {
            return Err(TooManyTopics {
                topic: name.to_string(),
                topics_max: self.topics_max,
            });
        }
        self.configs.insert(Arc::clone(&name), config);
        Ok(&self.configs[&name])
    }

    /// The topic, created from the template if it is new and the template allows it.
    /// `None` is "no such topic, and it may not be created".
    ///
    /// RocketMQ: `TopicConfigManager#createTopicInSendMessageMethod`.
    pub(crate) fn get_or_create_on_send(
        &mut self,
        topic: &str,
        default_topic: &str,
        client_queue_nums: i32,
    ) -> Result<Option<&TopicConfig>, TooManyTopics> {
        // Looked up twice because the borrow of the first look would outlive this branch.
        if self.configs.contains_key(topic) {
            return Ok(self.configs.get(topic));
        }
        let Some(template) = self
            .configs
            .get(default_topic)
            .filter(|template| template.perm.is_inherited())
        else {
            return Ok(None);
        };
        let queue_nums = u32::try_from(client_queue_nums)
            .unwrap_or(0)
            .min(template.write_queue_nums);
        let config = TopicConfig {
            perm: Perm(template.perm.0 & !Perm::INHERIT),
            topic_sys_flag: template.topic_sys_flag,
            ..TopicConfig::new(topic, queue_nums)
        };
        self.put(config).map(Some)
    }

    /// The topic, created with these queues if it is new.
    ///
    /// RocketMQ: `TopicConfigManager#createTopicInSendMessageBackMethod`.
    pub(crate) fn get_or_create(
        &mut self,
        topic: &str,
        queue_nums: u32,
    ) -> Result<&TopicConfig, TooManyTopics> {
        if self.configs.contains_key(topic) {
            return Ok(&self.configs[topic]);
        }
        self.put(TopicConfig::new(topic, queue_nums))
    }

    /// Forgets a topic; its messages are the store's affair.
    pub(crate) fn remove(&mut self, topic: &str) -> bool {
        self.configs.remove(topic).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topics() -> Topics {
        Topics::new(8, Some(8), 18)
    }

    #[test]
    fn first_send_creates_the_topic_with_the_smaller_queue_number() {
        let mut topics = topics();
        let created = topics
            .get_or_create_on_send("T", "TBW102", 4)
            .unwrap()
            .unwrap();
        assert_eq!(
            (
                created.read_queue_nums,
                created.write_queue_nums,
                created.perm
            ),
            (4, 4, Perm::READ_WRITE)
        );
        let many = topics
            .get_or_create_on_send("M", "TBW102", 100)
            .unwrap()
            .unwrap();
        assert_eq!(many.write_queue_nums, 8);
    }

    #[test]
    fn topic_is_not_created_without_an_inheritable_template() {
        let mut topics = topics();
        assert_eq!(
            topics.get_or_create_on_send("T", "T_no_template", 4),
            Ok(None)
        );
        assert_eq!(
            topics.get_or_create_on_send("T", "SELF_TEST_TOPIC", 4),
            Ok(None)
        );
        let mut closed = Topics::new(8, None, 18);
        assert_eq!(closed.get_or_create_on_send("T", "TBW102", 4), Ok(None));
    }

    #[test]
    fn full_table_refuses_new_topics_and_serves_old_ones() {
        let mut topics = topics();
        topics.get_or_create("A", 1).unwrap();
        topics.get_or_create("B", 1).unwrap();
        assert!(topics.get_or_create("C", 1).is_err());
        assert!(topics.get_or_create("A", 1).is_ok());
    }

    #[test]
    fn config_prints_as_in_remarks() {
        assert_eq!(
            TopicConfig::new("T_err", 2).to_string(),
            "TopicConfig [topicName=T_err, readQueueNums=2, writeQueueNums=2, perm=RW-, \
             topicFilterType=SINGLE_TAG, topicSysFlag=0, order=false, attributes={}]"
        );
    }
}
