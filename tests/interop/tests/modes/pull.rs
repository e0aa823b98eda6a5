//! Groups that pull for themselves against a real RocketMQ 5.5.0. The guests are native:
//! what is looked at is what the broker sees.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use consumer::listener::CancelSignal;
use consumer::pull_task::{
    PullTaskCallback, PullTaskFuture, PullTaskRequest, PullTaskResult, QueuePull, QueuePuller,
    QueuePullerError,
};
use consumer::request::PullStatus;
use consumer::{ClientConfig, GroupConfig};
use driver::{Driver, DriverConfig, Event};
use end_to_end::eventually::eventually;
use interop::broker::Connection;
use interop::cluster::Cluster;
use protocol::QueueOffset;
use protocol::subscription::SubscriptionData;
use tokio::runtime::Runtime;

/// Generous: the machine may be compiling beside us.
const BOUND: Duration = Duration::from_secs(180);
const TOPIC: &str = "Pulled";
const QUEUES: u32 = 4;
const GROUP: &str = "pull-group";

/// Queue and offset, and how often it came.
type Places = Arc<Mutex<BTreeMap<(u32, u64), usize>>>;

/// Pulls everything of its queues and moves the offset behind it.
#[derive(Default)]
struct Puller {
    places: Places,
    statuses: Mutex<BTreeSet<String>>,
    runs: AtomicUsize,
}

struct Callback(Arc<Puller>);

impl PullTaskCallback for Callback {
    fn do_pull_task(
        &self,
        request: Arc<PullTaskRequest>,
        puller: Arc<dyn QueuePuller>,
        _: CancelSignal,
    ) -> PullTaskFuture {
        let this = Arc::clone(&self.0);
        Box::pin(async move {
            this.runs.fetch_add(1, Ordering::SeqCst);
            match this.run(&request, &*puller).await {
                Ok(after) => PullTaskResult::NextRun { after },
                Err(error) => PullTaskResult::Failed {
                    reason: error.to_string(),
                },
            }
        })
    }
}

impl Puller {
    async fn run(
        &self,
        request: &PullTaskRequest,
        puller: &dyn QueuePuller,
    ) -> Result<Option<Duration>, QueuePullerError> {
        let (min, max) = (puller.min_offset().await?, puller.max_offset().await?);
        assert_eq!(puller.search_offset(0).await?, min);
        let offset = puller.fetch_consume_offset().await?.unwrap_or(min);
        let pull = |sub_expression: &str, offset| QueuePull {
            sub_expression: sub_expression.to_owned(),
            offset,
            max_messages: 32,
        };
        let beyond = puller.pull(pull("*", QueueOffset(max.0 + 1_000))).await?;
        let none = puller.pull(pull("NoSuchTag", min)).await?;
        let result = puller.pull(pull("", offset)).await?;
        {
            let mut statuses = self.statuses.lock().expect("no panic");
            statuses.insert(format!("beyond the end: {:?}", beyond.status));
            if max > min {
                statuses.insert(format!("another tag: {:?}", none.status));
            }
            statuses.insert(format!("all: {:?}", result.status));
        }
        for run in &result.runs {
            let mut places = self.places.lock().expect("no panic");
            for index in run.range.clone() {
                let place = run.batch.message(index).queue_offset().0;
                let key = (request.message_queue.queue_id, place);
                *places.entry(key).or_default() += 1;
            }
        }
        puller
            .update_consume_offset(result.next_begin_offset)
            .await?;
        Ok((result.status == PullStatus::Found).then_some(Duration::ZERO))
    }
}

fn start(cluster: &Cluster, name: &str) -> Driver {
    let address = cluster.namesrv_addr().parse().expect("an address");
    let client_id = format!("127.0.0.1@{name}#interop");
    let config = DriverConfig::new(ClientConfig::new(client_id, vec![address]));
    let name = name.to_owned();
    Driver::start(config, Arc::new(move |event: &Event| tell(&name, event)))
}

/// What happened, for whoever reads why the test failed; runs that went well are many.
fn tell(name: &str, event: &Event) {
    if let Event::Client(consumer::Event::PullTaskRan { failure: None, .. }) = event {
        return;
    }
    say(&format!("{name}: {event:?}"));
}

#[expect(
    clippy::print_stderr,
    reason = "shown when the test fails, or with --nocapture"
)]
fn say(text: &str) {
    eprintln!("{text}");
}

fn group() -> consumer::config::GroupConfigBuilder {
    GroupConfig::builder(GROUP).subscription(SubscriptionData::all(TOPIC))
}

fn send(broker: &mut Connection, count: usize) {
    for number in 0..count {
        let queue = u32::try_from(number).expect("few") % QUEUES;
        broker.send(TOPIC, queue, format!("m-{number}").as_bytes());
    }
}

/// What the group has committed of each queue.
fn committed(broker: &mut Connection) -> Vec<Option<u64>> {
    (0..QUEUES)
        .map(|queue| broker.committed(GROUP, TOPIC, queue))
        .collect()
}

#[test]
fn pull_tasks_follow_the_rebalance_and_the_broker_sees_a_pull_consumer() {
    const COUNT: usize = 2_000;
    let cluster = Cluster::shared();
    cluster.create_topic(TOPIC, QUEUES);
    let mut broker = Connection::to_broker_of(cluster.namesrv_addr());
    send(&mut broker, COUNT);
    let runtime = Runtime::new().expect("a runtime");
    let _guard = runtime.enter();
    let task_group = || {
        let interval = GroupConfig::PULL_TASK_INTERVAL;
        group().pull_task_interval(interval).build().expect("valid")
    };

    let places = Places::default();
    let puller = |places: &Places| {
        Arc::new(Puller {
            places: Arc::clone(places),
            ..Puller::default()
        })
    };
    let (one, two) = (puller(&places), puller(&places));
    let first = start(&cluster, "one");
    let callback = Arc::new(Callback(Arc::clone(&one)));
    runtime
        .block_on(first.subscribe_pull_tasks(task_group(), callback))
        .expect("subscribed");
    let pulled = |count: usize| {
        eventually("the messages are pulled", BOUND, || {
            (places.lock().expect("no panic").len() >= count).then_some(())
        });
    };
    pulled(COUNT);
    // What is not stored yet is repeated by the next owner.
    let half = COUNT as u64 / u64::from(QUEUES);
    let mut before = Vec::new();
    eventually("the offsets are stored", BOUND, || {
        let stored = committed(&mut broker);
        if stored != before {
            say(&format!("stored: {stored:?}"));
            before.clone_from(&stored);
        }
        (stored == vec![Some(half); QUEUES as usize]).then_some(())
    });
    let second = start(&cluster, "two");
    let callback = Arc::new(Callback(Arc::clone(&two)));
    runtime
        .block_on(second.subscribe_pull_tasks(task_group(), callback))
        .expect("subscribed");
    eventually("the second member has runs", BOUND, || {
        (two.runs.load(Ordering::SeqCst) > 0).then_some(())
    });
    // A run whose queue is taken away meanwhile is repeated by the next owner.
    let held = |driver: &Driver| {
        let status = runtime.block_on(driver.status()).expect("it runs");
        let topics = status.client.groups.iter().flat_map(|group| &group.topics);
        topics.map(|topic| topic.queues.len()).sum::<usize>()
    };
    eventually("the queues are divided", BOUND, || {
        let half = QUEUES as usize / 2;
        (held(&first) == half && held(&second) == half).then_some(())
    });
    send(&mut broker, COUNT);
    pulled(2 * COUNT);
    let shown = cluster.mqadmin(&["consumerConnection", "-g", GROUP]);
    runtime.block_on(first.stop(BOUND));
    runtime.block_on(second.stop(BOUND));

    let each = 2 * COUNT as u64 / u64::from(QUEUES);
    assert_eq!(committed(&mut broker), vec![Some(each); QUEUES as usize]);
    let places = places.lock().expect("no panic");
    assert!(
        places.values().all(|&times| times == 1),
        "a queue that changes hands goes on where it was"
    );
    assert!(shown.contains("CONSUME_ACTIVELY"), "{shown}");
    let statuses = one.statuses.lock().expect("no panic").clone();
    let expected = [
        "all: Found",
        "all: NoNewMessage",
        "another tag: NoMatchedMessage",
        "beyond the end: OffsetIllegal",
    ];
    assert_eq!(statuses.iter().collect::<Vec<_>>(), expected);
}
