//! Pull tasks: what they get of their queue, what is done with what they say, and what
//! bounds them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use consumer::listener::{CancelSignal, MessageModel, MessageRun};
use consumer::publish::SendError;
use consumer::pull_task::{
    PullTaskCallback, PullTaskId, PullTaskRequest, PullTaskResult, QueuePull, QueuePullResult,
    QueuePuller, QueuePullerError, QueuePullerFuture,
};
use consumer::request::PullStatus;
use protocol::{MessageQueue, QueueOffset};
use wasm::{
    Event, FailureKind, Isolation, ListenerKind, PULL_MESSAGES_MAX, Phase, ProducerGrant,
    QUESTIONS_MAX,
};

use crate::support::{Plugin, Request, SOON, eventually, message_id};

/// The first offset of the messages that `Request` makes.
const FIRST: u64 = 100;

/// A queue in memory, as the driver offers it.
#[derive(Clone)]
struct Queue {
    messages: Arc<MessageRun>,
    offset: Arc<Mutex<Option<u64>>>,
    is_released: Arc<AtomicBool>,
    hangs: bool,
}

impl Queue {
    fn of(bodies: &[&str]) -> Self {
        Self::of_request(Request::of(bodies))
    }

    fn of_request(request: Request) -> Self {
        Self {
            messages: Arc::new(request.build().runs.remove(0)),
            offset: Arc::default(),
            is_released: Arc::default(),
            hangs: false,
        }
    }

    fn offset(&self) -> Option<u64> {
        *self.offset.lock().unwrap()
    }

    fn end(&self) -> u64 {
        FIRST + self.messages.range.len() as u64
    }

    fn answer<T: Send + 'static>(&self, answer: T) -> QueuePullerFuture<T> {
        let (hangs, is_released) = (self.hangs, self.is_released.load(Ordering::Relaxed));
        Box::pin(async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            if is_released {
                return Err(QueuePullerError::Released);
            }
            Ok(answer)
        })
    }
}

impl QueuePuller for Queue {
    fn pull(&self, pull: QueuePull) -> QueuePullerFuture<QueuePullResult> {
        assert_eq!(pull.sub_expression, "*");
        let offset = pull.offset.0.max(FIRST);
        let end = self.end();
        let is_found = offset < end;
        // A broker that gives more than was asked for.
        let run = MessageRun {
            range: u32::try_from(offset - FIRST).unwrap()..self.messages.range.end,
            ..(*self.messages).clone()
        };
        self.answer(QueuePullResult {
            status: if is_found {
                PullStatus::Found
            } else {
                PullStatus::NoNewMessage
            },
            next_begin_offset: QueueOffset(end),
            min_offset: QueueOffset(FIRST),
            max_offset: QueueOffset(end),
            runs: if is_found { vec![run] } else { Vec::new() },
        })
    }

    fn fetch_consume_offset(&self) -> QueuePullerFuture<Option<QueueOffset>> {
        self.answer(self.offset().map(QueueOffset))
    }

    fn update_consume_offset(&self, offset: QueueOffset) -> QueuePullerFuture<()> {
        *self.offset.lock().unwrap() = Some(offset.0);
        self.answer(())
    }

    fn min_offset(&self) -> QueuePullerFuture<QueueOffset> {
        self.answer(QueueOffset(FIRST))
    }

    fn max_offset(&self) -> QueuePullerFuture<QueueOffset> {
        self.answer(QueueOffset(self.end()))
    }

    fn search_offset(&self, timestamp_ms: u64) -> QueuePullerFuture<QueueOffset> {
        self.answer(QueueOffset(timestamp_ms % 1000))
    }
}

#[tokio::test]
async fn offset_moves_only_when_what_was_sent_before_it_has_left() {
    let plugin = Plugin::load_with("pull_as_told", |config| {
        config.listener = ListenerKind::ScheduledPull;
        config.grants.producer = Some(ProducerGrant::new(vec!["orders-out".into()]));
    })
    .await;
    let sent = || plugin.sent.messages.lock().unwrap().len();

    let queue = Queue::of(&["send orders-out", "fail"]);
    let failed = run(&plugin, &queue).await;
    assert!(
        matches!(failed, PullTaskResult::Failed { .. }),
        "{failed:?}"
    );
    assert_eq!((sent(), queue.offset()), (1, Some(FIRST + 1)));

    *plugin.sent.refusal.lock().unwrap() = Some(SendError::Stopped);
    let queue = Queue::of(&["x", "send orders-out"]);
    let failed = run(&plugin, &queue).await;
    let PullTaskResult::Failed { reason } = failed else {
        panic!("{failed:?}");
    };
    assert!(reason.contains("its outbox could not leave"), "{reason}");
    assert_eq!(queue.offset(), Some(FIRST + 1));
}

async fn load() -> Plugin {
    Plugin::load_with("pull_as_told", |config| {
        config.listener = ListenerKind::ScheduledPull;
    })
    .await
}

fn request() -> PullTaskRequest {
    PullTaskRequest {
        id: PullTaskId(1),
        consumer_group: "orders-group".into(),
        message_queue: MessageQueue::new("orders", "broker-a", 3),
        message_model: MessageModel::Clustering,
        consume_timeout: SOON,
    }
}

async fn run(plugin: &Plugin, queue: &Queue) -> PullTaskResult {
    run_request(plugin, queue, request()).await
}

async fn run_request(plugin: &Plugin, queue: &Queue, request: PullTaskRequest) -> PullTaskResult {
    let puller = Arc::new(queue.clone());
    let call = plugin
        .listener
        .do_pull_task(Arc::new(request), puller, CancelSignal::default());
    tokio::time::timeout(SOON * 2, call).await.unwrap()
}

fn failed(reason: &str) -> PullTaskResult {
    PullTaskResult::Failed {
        reason: reason.into(),
    }
}

#[tokio::test]
async fn messages_are_pulled_and_the_offset_stands_where_the_guest_says() {
    let plugin = load().await;
    let queue = Queue::of(&["a", "b", "c"]);

    let as_configured = PullTaskResult::NextRun { after: None };
    assert_eq!(run(&plugin, &queue).await, as_configured);

    assert_eq!(queue.offset(), Some(FIRST + 3));
    let [report] = plugin.events.reports().try_into().unwrap();
    assert_eq!((report.messages, report.error), (3, None));
    assert_eq!(report.message_queue.to_string(), "orders@broker-a:3");
    let lines: Vec<_> = plugin.events.lines().into_iter().map(|l| l.text).collect();
    assert_eq!(lines, ["ledger[0:3:a]", "ledger[0:3:b]", "ledger[0:3:c]"]);

    assert_eq!(run(&plugin, &queue).await, as_configured);
    assert_eq!(plugin.events.reports()[1].messages, 0, "nothing is new");
}

#[tokio::test]
async fn guest_says_when_it_runs_again() {
    let plugin = load().await;
    for (body, after) in [("next 1500", 1500), ("next 0", 0)] {
        let after = Some(Duration::from_millis(after));
        let result = run(&plugin, &Queue::of(&["a", body, "b"])).await;
        assert_eq!(result, PullTaskResult::NextRun { after });
    }
}

#[tokio::test]
async fn guest_sees_every_fact_of_its_queue() {
    let plugin = load().await;
    let result = run(&plugin, &Queue::of(&["a", "facts"])).await;
    let expected = format!(
        "orders-group orders@broker-a:3 broadcasting false status PullStatus::Found id {} \
         times 0 queue 100..102 searched 2 stored by Some(\"10.0.0.2:10911\") beyond false \
         cancelled false",
        message_id(1)
    );
    assert_eq!(result, failed(&expected));
}

#[tokio::test]
async fn error_is_a_failed_run_and_what_was_done_before_it_stays_done() {
    let plugin = load().await;
    let queue = Queue::of(&["a", "fail the bank is closed", "b"]);

    assert_eq!(run(&plugin, &queue).await, failed("the bank is closed"));

    assert_eq!(queue.offset(), Some(FIRST + 1));
    let [report] = plugin.events.reports().try_into().unwrap();
    assert_eq!(report.error.as_deref(), Some("the bank is closed"));
    assert_eq!(plugin.events.failures(), [], "an error is an answer");
    assert_eq!(plugin.listener.idle_instances(), 1, "its instance stays");
}

#[tokio::test]
async fn trap_and_deadline_are_failed_runs_with_one_record() {
    let plugin = load().await;
    for (poison, kind) in [("trap", "trap"), ("loop", "timeout"), ("wait", "timeout")] {
        let told = plugin.events.failures().len();
        let queue = Queue::of(&["a", poison]);
        let mut request = request();
        request.consume_timeout = Duration::from_millis(300);

        let result = run_request(&plugin, &queue, request).await;

        let [record] = plugin.events.failures()[told..]
            .to_vec()
            .try_into()
            .unwrap();
        assert_eq!(result, failed(&record.kind.to_string()), "{poison}");
        assert_eq!((record.kind.name(), record.phase), (kind, Phase::PullTask));
        assert_eq!((record.messages, record.attempt), (2, 0));
        assert_eq!(record.message_ids(), [message_id(0), message_id(1)]);
        assert_eq!(
            record.message_queue.unwrap().to_string(),
            "orders@broker-a:3"
        );
        assert_eq!(queue.offset(), Some(FIRST + 1), "{poison}");
        assert_eq!(plugin.listener.idle_instances(), 0, "its instance is gone");
    }
}

#[tokio::test]
async fn broker_that_does_not_answer_is_cut_at_the_deadline() {
    let plugin = load().await;
    let mut queue = Queue::of(&["a"]);
    queue.hangs = true;
    let mut request = request();
    request.consume_timeout = Duration::from_millis(100);
    let result = run_request(&plugin, &queue, request).await;
    let timeout = FailureKind::Timeout(Duration::from_millis(100));
    assert_eq!(result, failed(&timeout.to_string()));
}

#[tokio::test]
async fn released_queue_is_an_error_to_the_guest() {
    let plugin = load().await;
    let queue = Queue::of(&["a"]);
    queue.is_released.store(true, Ordering::Relaxed);
    assert_eq!(
        run(&plugin, &queue).await,
        failed(&QueuePullerError::Released.to_string())
    );
}

#[tokio::test]
async fn one_run_asks_only_so_often() {
    let plugin = load().await;
    let ask = |times: u32| format!("ask {times}");
    // The offset and a pull came before, the offset twice after it.
    let enough = ask(QUESTIONS_MAX - 5);
    let result = run(&plugin, &Queue::of(&[&enough])).await;
    assert_eq!(result, PullTaskResult::NextRun { after: None });

    let too_often = ask(QUESTIONS_MAX);
    let queue = Queue::of(&["a", &too_often]);
    let expected =
        format!("this run has asked {QUESTIONS_MAX} times; return, and say when to run again");
    assert_eq!(run(&plugin, &queue).await, failed(&expected));
    assert_eq!(queue.offset(), Some(FIRST + 1));
    assert_eq!(
        run(&plugin, &queue).await,
        failed(&expected),
        "each run anew"
    );
}

#[tokio::test]
async fn numbers_out_of_range_are_errors_that_name_the_range() {
    let plugin = load().await;
    for number in [0, PULL_MESSAGES_MAX + 1] {
        let expected = format!("max-messages is {number}; it must be 1 to 1024");
        let body = format!("pull {number}");
        assert_eq!(run(&plugin, &Queue::of(&[&body])).await, failed(&expected));
    }
    for number in [1, PULL_MESSAGES_MAX] {
        let body = format!("pull {number}");
        let queue = Queue::of(&[&body]);
        assert_eq!(run(&plugin, &queue).await, failed("1, next 101"));
    }
    let queue = Queue::of(&["at 9223372036854775808"]);
    queue
        .update_consume_offset(QueueOffset(FIRST))
        .await
        .unwrap();
    let expected = "offset is 9223372036854775808; it must be 0 to 9223372036854775807";
    assert_eq!(run(&plugin, &queue).await, failed(expected));
    assert_eq!(queue.offset(), Some(FIRST), "it stays where it was");
    let queue = Queue::of(&["at 9223372036854775807"]);
    let after = Some(Duration::ZERO);
    assert_eq!(
        run(&plugin, &queue).await,
        PullTaskResult::NextRun { after }
    );
    assert_eq!(queue.offset(), Some(i64::MAX as u64));
}

#[tokio::test]
async fn pull_gives_no_more_than_was_asked_for_and_goes_on_there() {
    let plugin = load().await;
    let result = run(&plugin, &Queue::of(&["pull 2", "b", "c"])).await;
    assert_eq!(result, failed("2, next 102"));
}

#[tokio::test]
async fn pull_gives_no_more_bytes_than_a_transfer_may_have_but_one_message_always() {
    const BYTES: usize = 1 << 20;
    let plugin = Plugin::load_with("pull_as_told", |config| {
        config.listener = ListenerKind::ScheduledPull;
        config.limits.host_memory = BYTES;
    })
    .await;
    let body = |word: &str, bytes: usize| {
        let mut body = word.as_bytes().to_vec();
        body.resize(bytes, b' ');
        Bytes::from(body)
    };
    let bodies = [body("pull 32", BYTES / 2), body("b", BYTES / 3)];
    let queue = Queue::of_request(Request::of_bytes(
        bodies.into_iter().chain([body("c", BYTES / 3)]),
    ));
    assert_eq!(run(&plugin, &queue).await, failed("2, next 102"));

    let queue = Queue::of_request(Request::of_bytes([
        body("pull 32", 2 * BYTES),
        body("b", 1),
    ]));
    assert_eq!(run(&plugin, &queue).await, failed("1, next 101"));
}

#[tokio::test]
async fn run_that_is_cancelled_before_it_began_is_not_finished() {
    let plugin = load().await;
    let cancel = CancelSignal::default();
    cancel.cancel();
    let puller = Arc::new(Queue::of(&["a"]));
    let call = plugin
        .listener
        .do_pull_task(Arc::new(request()), puller, cancel);
    assert_eq!(call.await, PullTaskResult::NotFinished);
    assert_eq!(plugin.events.reports(), []);
}

#[tokio::test]
async fn killed_run_is_told_once_and_nothing_of_it_is_left() {
    let plugin = load().await;
    let queue = Queue::of(&["wait"]);
    let puller: Arc<dyn QueuePuller> = Arc::new(queue.clone());
    let call = plugin.listener.do_pull_task(
        Arc::new(request()),
        Arc::clone(&puller),
        CancelSignal::default(),
    );
    let call = tokio::spawn(call);
    eventually("the run begins", || plugin.listener.idle_instances() == 0).await;

    call.abort();

    assert!(call.await.unwrap_err().is_cancelled());
    assert_eq!(plugin.events.failures(), []);
    let killed = plugin
        .events
        .pick(|event| matches!(event, Event::CallKilled { .. }).then_some(()));
    assert_eq!(killed.len(), 1);
    assert_eq!(Arc::strong_count(&puller), 1);
}

#[tokio::test]
async fn sdk_guest_pulls_fails_and_ends_as_its_trait_says() {
    let plugin = Plugin::load_with("sdk_pull", |config| {
        config.listener = ListenerKind::ScheduledPull;
        config.settings = vec![("next_ms".into(), "40".into())];
    })
    .await;
    let queue = Queue::of(&["a", "b"]);

    let after = Some(Duration::from_millis(40));
    let next = PullTaskResult::NextRun { after };
    assert_eq!(run(&plugin, &queue).await, next);
    assert_eq!(queue.offset(), Some(FIRST + 2));
    let refused = Queue::of(&["a", "fail"]);
    assert_eq!(run(&plugin, &refused).await, failed("told to fail"));
    assert_eq!(refused.offset(), None);
    plugin.listener.close().await;

    let lines: Vec<_> = plugin.events.lines().into_iter().map(|l| l.text).collect();
    assert_eq!(
        lines,
        ["a of orders", "b of orders", "a of orders", "goodbye"]
    );
}

#[tokio::test]
async fn listener_of_another_kind_runs_no_pull_task() {
    let plugin = Plugin::load("succeed").await;
    assert_eq!(
        run(&plugin, &Queue::of(&["a"])).await,
        failed("the plugin is a concurrent listener, no pull task")
    );
    assert_eq!(plugin.events.reports(), []);
}

#[tokio::test]
async fn what_could_not_leave_leaves_when_the_guest_tries_again() {
    let plugin = Plugin::load_with("pull_as_told", |config| {
        config.listener = ListenerKind::ScheduledPull;
        config.grants.producer = Some(ProducerGrant::new(vec!["orders-out".into()]));
    })
    .await;
    *plugin.sent.refusal.lock().unwrap() = Some(SendError::Stopped);
    let refusal = Arc::clone(&plugin.sent.refusal);
    plugin
        .events
        .on_line("again: ", move || *refusal.lock().unwrap() = None);
    let queue = Queue::of(&["send-stubbornly orders-out", "x"]);

    let as_configured = PullTaskResult::NextRun { after: None };
    assert_eq!(run(&plugin, &queue).await, as_configured);

    assert_eq!(queue.offset(), Some(FIRST + 2));
    let sent = plugin.sent.messages.lock().unwrap();
    let ids: Vec<_> = sent.iter().map(|message| &message.message_id).collect();
    assert_eq!(ids.len(), 2, "refused, and sent once");
    assert_eq!(ids[0], ids[1], "the same message");
}

#[tokio::test]
async fn batch_isolation_gives_every_run_a_fresh_instance() {
    let plugin = Plugin::load_with("pull_as_told", |config| {
        config.listener = ListenerKind::ScheduledPull;
        config.limits.isolation = Isolation::Batch;
    })
    .await;
    let queue = Queue::of(&["a"]);
    for _ in 0..3 {
        let as_configured = PullTaskResult::NextRun { after: None };
        assert_eq!(run(&plugin, &queue).await, as_configured);
        assert_eq!(plugin.listener.idle_instances(), 0);
    }
    // That of loading, and one a run.
    assert_eq!(plugin.events.instances_created(), 4);
}
