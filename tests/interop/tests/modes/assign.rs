//! Queues that are given by hand and places that are chosen, against a real RocketMQ 5.5.0:
//! what RocketMQ's lite pull consumer calls assign and seek. The listener is native: what
//! is looked at is which messages the broker gives, and what it has committed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use consumer::assignment::QueueSelector;
use consumer::listener::{
    CancelSignal, ConcurrentlyStatus, ConsumeFuture, ConsumeRequest, ConsumeResult,
    MessageListener, MessageOutcome,
};
use consumer::{
    ClientConfig, ConsumeFromWhere, GroupConfig, PauseKind, PauseScope, SeekForward, SeekTo,
};
use driver::{Driver, DriverConfig};
use end_to_end::eventually::eventually;
use interop::broker::Connection;
use interop::cluster::Cluster;
use protocol::subscription::SubscriptionData;
use protocol::{MessageQueue, QueueOffset};
use tokio::runtime::Runtime;

/// Generous: the machine may be compiling beside us.
const BOUND: Duration = Duration::from_secs(180);
const TOPIC: &str = "Assigned";
const GROUP: &str = "by-hand";
const QUEUES: u32 = 4;

/// Everything that came: queue, offset, attempt.
#[derive(Default)]
struct Recorder(Mutex<Vec<(u32, u64, u32)>>);

impl MessageListener for Recorder {
    fn consume_message(&self, request: Arc<ConsumeRequest>, _: CancelSignal) -> ConsumeFuture {
        let queue = request.message_queue.queue_id;
        let mut outcomes = Vec::new();
        let mut came = self.0.lock().expect("no panic");
        for one in request.iter() {
            came.push((queue, one.message.queue_offset().0, one.reconsume_times));
            let fails = one.message.body() == b"fail-once" && one.reconsume_times == 0;
            outcomes.push(match fails {
                true => MessageOutcome::ReconsumeLater { delay_level: None },
                false => MessageOutcome::Done,
            });
        }
        Box::pin(async { ConsumeResult::Concurrently(ConcurrentlyStatus::Each(outcomes)) })
    }
}

impl Recorder {
    /// How often each offset of each queue came since the last look.
    fn take(&self) -> BTreeMap<(u32, u64), u32> {
        let mut places = BTreeMap::new();
        for (queue, offset, _) in self.0.lock().expect("no panic").drain(..) {
            *places.entry((queue, offset)).or_default() += 1;
        }
        places
    }

    /// Waits for exactly these, once each.
    fn wait_for(&self, what: &str, expected: &[(u32, std::ops::Range<u64>)]) {
        let expected = expected.iter().cloned();
        let expected: BTreeMap<(u32, u64), u32> = expected
            .flat_map(|(queue, offsets)| offsets.map(move |offset| ((queue, offset), 1)))
            .collect();
        eventually(what, BOUND, || {
            (self.0.lock().expect("no panic").len() >= expected.len()).then_some(())
        });
        assert_eq!(self.take(), expected, "{what}");
    }
}

struct ByHand {
    runtime: Runtime,
    driver: Driver,
    recorder: Arc<Recorder>,
    broker: Connection,
}

impl ByHand {
    fn start(cluster: &Cluster, queues: &[u32]) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let entered = runtime.enter();
        let address = cluster.namesrv_addr().parse().expect("an address");
        let client = ClientConfig::new("127.0.0.1@by-hand#interop", vec![address]);
        let driver = Driver::start(DriverConfig::new(client), Arc::new(|_| {}));
        drop(entered);
        let group = GroupConfig::builder(GROUP)
            .consume_from_where(ConsumeFromWhere::FirstOffset)
            .subscription(SubscriptionData::all(TOPIC))
            .assign(selectors(queues))
            .build()
            .expect("valid");
        let recorder = Arc::new(Recorder::default());
        let listener = Arc::clone(&recorder) as Arc<dyn MessageListener>;
        runtime
            .block_on(driver.subscribe(group, listener))
            .expect("subscribed");
        Self {
            runtime,
            driver,
            recorder,
            broker: Connection::open(&cluster.broker_addr()),
        }
    }

    fn assign(&self, queues: &[u32]) {
        let assigned = self.driver.assign(GROUP, selectors(queues));
        self.runtime.block_on(assigned).expect("assigned");
    }

    fn seek(&self, queue: u32, to: SeekTo) {
        let queue = MessageQueue::new(TOPIC, "broker-a", queue);
        let sought = self.driver.seek(GROUP, queue, to, SeekForward::Skips);
        self.runtime.block_on(sought).expect("sought");
    }

    /// As many messages to each of these queues.
    fn send(&mut self, queues: &[u32], count: u32) {
        for &queue in queues {
            for number in 0..count {
                self.broker
                    .send(TOPIC, queue, format!("m-{number}").as_bytes());
            }
        }
    }

    fn wait_for_commits(&mut self, expected: [Option<u64>; QUEUES as usize]) {
        let broker = &mut self.broker;
        eventually(&format!("commits {expected:?}"), BOUND, || {
            let committed = |queue| broker.committed(GROUP, TOPIC, queue);
            let committed: Vec<_> = (0..QUEUES).map(committed).collect();
            (committed == expected).then_some(())
        });
    }
}

fn selectors(queues: &[u32]) -> Vec<QueueSelector> {
    let selector = |&queue_id: &u32| QueueSelector {
        queue_id: Some(queue_id),
        ..QueueSelector::topic(TOPIC)
    };
    queues.iter().map(selector).collect()
}

#[test]
fn queues_given_by_hand_are_read_and_no_others_and_each_goes_on_where_it_was() {
    let cluster = Cluster::shared();
    cluster.create_topic(TOPIC, QUEUES);
    let mut by_hand = ByHand::start(&cluster, &[0, 1]);
    by_hand.send(&[0, 1, 2, 3], 10);
    by_hand
        .recorder
        .wait_for("the first two", &[(0, 0..10), (1, 0..10)]);
    by_hand.wait_for_commits([Some(10), Some(10), None, None]);

    by_hand.assign(&[1, 2]);
    by_hand.recorder.wait_for("the third", &[(2, 0..10)]);
    by_hand.send(&[0, 1], 5);
    by_hand
        .recorder
        .wait_for("of the second alone", &[(1, 10..15)]);
    by_hand.wait_for_commits([Some(10), Some(15), Some(10), None]);
    by_hand.assign(&[0, 1, 2, 3]);
    by_hand
        .recorder
        .wait_for("what was left", &[(0, 10..15), (3, 0..10)]);

    // Places: an offset, both ends, and a time.
    by_hand.seek(2, SeekTo::Offset(QueueOffset(7)));
    by_hand
        .recorder
        .wait_for("from an offset on", &[(2, 7..10)]);
    by_hand.seek(3, SeekTo::MinOffset);
    by_hand.recorder.wait_for("everything again", &[(3, 0..10)]);
    by_hand.wait_for_commits([Some(15), Some(15), Some(10), Some(10)]);
    // Later than what is there, to the millisecond.
    std::thread::sleep(Duration::from_millis(50));
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970");
    std::thread::sleep(Duration::from_millis(50));
    by_hand.send(&[1], 3);
    by_hand.recorder.wait_for("new ones", &[(1, 15..18)]);
    by_hand.seek(
        1,
        SeekTo::Timestamp(u64::try_from(now.as_millis()).expect("now")),
    );
    by_hand.recorder.wait_for("from a time on", &[(1, 15..18)]);
    // The end: what has piled up is passed over, and the offset says so.
    let queue = || PauseScope::Queue(MessageQueue::new(TOPIC, "broker-a", 0));
    let held = by_hand
        .driver
        .pause(GROUP, queue(), PauseKind::Pause, "test".into());
    by_hand.runtime.block_on(held).expect("paused");
    by_hand.send(&[0], 4);
    by_hand.seek(0, SeekTo::MaxOffset);
    by_hand.wait_for_commits([Some(19), Some(18), Some(10), Some(10)]);
    let resumed = by_hand.driver.resume(GROUP, queue());
    by_hand.runtime.block_on(resumed).expect("resumed");
    by_hand.send(&[0], 1);
    by_hand.recorder.wait_for("what came after", &[(0, 19..20)]);

    // What fails comes again here: nobody reads the retry topic of such a group.
    by_hand.broker.send(TOPIC, 3, b"fail-once");
    eventually("the second attempt", BOUND, || {
        let came = by_hand.recorder.0.lock().expect("no panic");
        came.ends_with(&[(3, 10, 0), (3, 10, 1)]).then_some(())
    });
    by_hand.wait_for_commits([Some(20), Some(18), Some(10), Some(11)]);
    by_hand.runtime.block_on(by_hand.driver.stop(BOUND));
}
