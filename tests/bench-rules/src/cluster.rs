//! A client of the rules, and a cluster that answers it at once.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use consumer::config::GroupConfigBuilder;
use consumer::listener::{ConsumeRequest, ConsumeRequestId, ConsumeResult};
use consumer::request::{PullAnswer, PullMessage, PullStatus};
use consumer::{Client, ClientConfig, GroupConfig, PendingRequest, Request, RequestId, Response};
use protocol::body::{BrokerData, QueueData, TopicRouteData};
use protocol::subscription::SubscriptionData;
use protocol::{Address, Instant, QueueOffset, topic};

use crate::messages;

/// Our name.
pub(crate) const CLIENT_ID: &str = "127.0.0.1@1#bench";
/// The rules never look at a body. In the product other cores decode; here the same one
/// does, and large bodies would push all that the rules know out of its caches.
const BODY_BYTES: usize = 64;
/// Queues of one broker.
const QUEUES_PER_BROKER: usize = 64;
/// What a message may cost, for the clock.
const PER_MESSAGE: Duration = Duration::from_nanos(500);

/// How many of what.
#[derive(Clone, Copy)]
pub(crate) struct ClusterSize {
    /// Groups, each with a topic of its own.
    pub(crate) groups: usize,
    /// Queues of each topic.
    pub(crate) queues: usize,
}

impl ClusterSize {
    pub(crate) fn all_queues(self) -> usize {
        self.groups * self.queues
    }
}

impl fmt::Display for ClusterSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.groups == 1 { "" } else { "s" };
        write!(
            f,
            "{} group{plural}, {} queues each",
            self.groups, self.queues
        )
    }
}

/// A client and all that it talks to.
pub(crate) struct SimulatedClient {
    client: Client,
    now: Instant,
    /// Members of every group.
    pub(crate) members: Vec<String>,
    /// Who asks for them is not answered but noted.
    holds_members: bool,
    members_query: Option<RequestId>,
    topics: BTreeMap<String, usize>,
    pulls: VecDeque<(RequestId, QueueOffset)>,
    per_pull: u32,
    body: Bytes,
}

impl SimulatedClient {
    /// A client whose groups pull all their queues.
    ///
    /// # Errors
    /// When they do not: a bug of this program.
    pub(crate) fn new(size: ClusterSize, per_pull: u32) -> Result<Self> {
        let mut this = Self::without_groups(per_pull);
        for number in 0..size.groups {
            let topic = format!("Topic{number:04}");
            this.add_topic(&topic, size.queues);
            let group = format!("Group{number:04}");
            this.subscribe(GroupConfig::builder(group), &topic)?;
        }
        this.settle()?;
        ensure!(
            this.pulls.len() == size.all_queues(),
            "{} of {} queues are pulled",
            this.pulls.len(),
            size.all_queues()
        );
        Ok(this)
    }

    pub(crate) fn without_groups(per_pull: u32) -> Self {
        let config = ClientConfig::new(CLIENT_ID, vec![Address::new("127.0.0.1", 9876)]);
        let unix_now = Duration::from_secs(1_700_000_000);
        Self {
            client: Client::new(config, 1, Instant::ORIGIN, unix_now),
            now: Instant::ORIGIN,
            members: vec![CLIENT_ID.to_owned()],
            holds_members: false,
            members_query: None,
            topics: BTreeMap::new(),
            pulls: VecDeque::new(),
            per_pull,
            body: messages::body().slice(..BODY_BYTES),
        }
    }

    pub(crate) fn add_topic(&mut self, name: &str, queues: usize) {
        self.topics.insert(name.to_owned(), queues);
    }

    pub(crate) fn subscribe(&mut self, group: GroupConfigBuilder, topic: &str) -> Result<()> {
        let config = group
            .subscription(SubscriptionData::all(topic))
            .pull_batch_size(self.per_pull)
            .consume_message_batch_max_size(self.per_pull)
            // Calls end in any order: flow control would change that of the pulls.
            .pull_threshold_for_queue(65_535)
            .consume_concurrently_max_span(65_535)
            .build()?;
        self.client.subscribe(config, self.now)?;
        Ok(())
    }

    /// Lets all that is due happen, until only pulls are open.
    pub(crate) fn settle(&mut self) -> Result<()> {
        // A heartbeat is due a moment after a change, a rebalance within a second.
        let until = self.now + Duration::from_secs(6);
        loop {
            self.answer_all()?;
            match self.client.poll_timeout() {
                Some(at) if at <= until => {
                    self.now = self.now.max(at);
                    self.client.handle_timeout(self.now);
                }
                _ => return Ok(()),
            }
        }
    }

    /// Waits until the members of a group are asked for.
    pub(crate) fn next_members_query(&mut self) -> Result<RequestId> {
        let until = self.now + Duration::from_secs(60);
        self.holds_members = true;
        while self.members_query.is_none() {
            let at = self.client.poll_timeout().context("nothing is due")?;
            ensure!(at <= until, "nobody asks for the members");
            self.now = self.now.max(at);
            self.client.handle_timeout(self.now);
            self.answer_all()?;
        }
        self.holds_members = false;
        self.members_query.take().context("found above")
    }

    /// The answer to the question for the members, and what it makes due.
    pub(crate) fn answer_members(&mut self, query: RequestId) -> Vec<PendingRequest> {
        let members = Response::ConsumerList(self.members.clone());
        self.client.handle_response(query, Ok(members), self.now);
        let mut requests = Vec::new();
        while let Some(pending) = self.client.poll_request() {
            requests.push(pending);
        }
        requests
    }

    fn answer_all(&mut self) -> Result<()> {
        while let Some(pending) = self.client.poll_request() {
            self.answer(&pending)?;
        }
        while self.client.poll_event().is_some() {}
        Ok(())
    }

    pub(crate) fn answer(&mut self, pending: &PendingRequest) -> Result<()> {
        let response = match &pending.request {
            Request::PullMessage(pull) => {
                self.note_pull(pending.id, pull);
                return Ok(());
            }
            Request::GetConsumerListByGroup { .. } if self.holds_members => {
                self.members_query = Some(pending.id);
                return Ok(());
            }
            Request::GetRouteInfo { topic } => Response::Route(Box::new(self.route(topic))),
            Request::HeartBeat { .. } | Request::UpdateConsumerOffset { .. } => Response::Done,
            Request::GetConsumerListByGroup { .. } => Response::ConsumerList(self.members.clone()),
            Request::QueryConsumerOffset { .. } => Response::ConsumerOffset(Some(QueueOffset(0))),
            other => bail!("nobody here knows the answer to {other:?}"),
        };
        if !pending.oneway {
            self.client
                .handle_response(pending.id, Ok(response), self.now);
        }
        Ok(())
    }

    /// Retry topics never have a message: their pulls are held.
    fn note_pull(&mut self, id: RequestId, pull: &PullMessage) {
        if !topic::is_retry_topic(&pull.queue.topic) {
            self.pulls.push_back((id, pull.queue_offset));
        }
    }

    fn route(&self, topic: &str) -> TopicRouteData {
        // A retry topic has one queue.
        let queues = self.topics.get(topic).copied().unwrap_or(1);
        let brokers = queues.div_ceil(QUEUES_PER_BROKER);
        let name = |broker: usize| format!("broker-{broker:02}");
        TopicRouteData {
            queue_datas: (0..brokers)
                .map(|broker| {
                    let before = broker * QUEUES_PER_BROKER;
                    let count = (queues - before).min(QUEUES_PER_BROKER) as u32;
                    QueueData {
                        broker_name: name(broker),
                        perm: 6,
                        read_queue_nums: count,
                        write_queue_nums: count,
                        topic_sys_flag: 0,
                    }
                })
                .collect(),
            broker_datas: (0..brokers)
                .map(|broker| BrokerData {
                    broker_name: name(broker),
                    broker_addrs: [(0, Address::new(&format!("10.0.0.{broker}"), 10911))].into(),
                    ..BrokerData::default()
                })
                .collect(),
            ..TopicRouteData::default()
        }
    }

    /// What the brokers will say to the next so many pulls. Queues take turns, so it is
    /// known which come next.
    pub(crate) fn decode_answers(&mut self, count: usize) -> Result<Vec<PullAnswer>> {
        let open = self.pulls.len();
        ensure!(open > 0, "no queue is pulled");
        (0..count)
            .map(|number| {
                let (_, offset) = self.pulls[number % open];
                let turns = (number / open) as u64;
                self.decode_answer(offset.0 + turns * u64::from(self.per_pull))
            })
            .collect()
    }

    fn decode_answer(&self, from: u64) -> Result<PullAnswer> {
        let batch = messages::batch(from, self.per_pull, &self.body)?;
        let next = QueueOffset(from + u64::from(self.per_pull));
        Ok(PullAnswer {
            status: PullStatus::Found,
            next_begin_offset: next,
            min_offset: QueueOffset(0),
            max_offset: QueueOffset(u64::from(u32::MAX)),
            suggest_which_broker_id: 0,
            remark: String::new(),
            frame_bytes: batch.bytes() as u64,
            batch: Some(Arc::new(batch)),
        })
    }

    /// The oldest open pull is answered.
    pub(crate) fn answer_pull(&mut self, answer: PullAnswer) -> Result<()> {
        self.now = self.now + PER_MESSAGE * self.per_pull;
        let (request, offset) = self.pulls.pop_front().context("no queue is pulled")?;
        let answered = answer.next_begin_offset.0 - u64::from(self.per_pull);
        ensure!(offset.0 == answered, "a queue was pulled out of turn");
        self.client
            .handle_response(request, Ok(Response::Pull(answer)), self.now);
        self.go_on()
    }

    /// A call that can be made now.
    pub(crate) fn poll_consume_request(&mut self) -> Option<Arc<ConsumeRequest>> {
        self.client.poll_consume_request()
    }

    /// A call has ended.
    pub(crate) fn end_call(&mut self, id: ConsumeRequestId, result: ConsumeResult) -> Result<()> {
        self.client.handle_consume_result(id, result, self.now);
        self.go_on()
    }

    /// What the driver does after every input, but for the calls.
    fn go_on(&mut self) -> Result<()> {
        if self.client.poll_timeout().is_some_and(|at| at <= self.now) {
            self.client.handle_timeout(self.now);
        }
        self.answer_all()
    }
}
