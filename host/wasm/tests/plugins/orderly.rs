//! Orderly listeners: every row of the outcome table, one message at a time and in
//! batches, and what a request with several calls is told as.

use std::sync::Arc;
use std::time::Duration;

use consumer::listener::{
    CancelSignal, ConsumeMode, ConsumeResult, MessageListener, OrderlyCall, OrderlyStatus,
};
use wasm::{AnswerProblem, Event, FailureKind, Isolation, ListenerKind};

use crate::support::{Plugin, Request, eventually, failed_alone, message_id};

const SUSPENDED: OrderlyStatus = OrderlyStatus::SuspendCurrentQueueAMoment { suspend: None };

async fn load(guest: &str) -> Plugin {
    Plugin::load_with(guest, |config| config.listener = ListenerKind::Orderly).await
}

fn all(status: OrderlyStatus) -> ConsumeResult {
    ConsumeResult::Orderly(status)
}

fn calls(calls: impl IntoIterator<Item = (u32, OrderlyStatus)>) -> ConsumeResult {
    let calls = calls.into_iter();
    ConsumeResult::OrderlyCalls(
        calls
            .map(|(messages, status)| OrderlyCall {
                messages,
                status,
                reason: None,
            })
            .collect(),
    )
}

/// What the guest came to, in order, over all its calls.
fn came_to(plugin: &Plugin) -> Vec<String> {
    let lines = plugin.events.lines().into_iter();
    lines
        .filter_map(|line| {
            let entry = line.text.strip_prefix("ledger[")?.strip_suffix(']')?;
            Some(entry.rsplit(':').next()?.to_owned())
        })
        .collect()
}

#[tokio::test]
async fn status_comes_as_returned() {
    let plugin = load("orderly_as_told").await;
    let millis = |ms| OrderlyStatus::SuspendCurrentQueueAMoment {
        suspend: Some(Duration::from_millis(ms)),
    };
    for (body, status) in [
        ("fine", OrderlyStatus::Success),
        ("suspend", SUSPENDED),
        ("suspend 250", millis(250)),
        ("suspend 0", millis(0)),
        ("commit", OrderlyStatus::Commit),
        ("rollback", OrderlyStatus::Rollback),
    ] {
        let mut request = Request::in_order(&[body]);
        request.mode = ConsumeMode::Orderly { auto_commit: false };
        assert_eq!(
            plugin.consume_request(request.build()).await,
            all(status),
            "{body}"
        );
    }
    assert_eq!(plugin.events.failures(), []);
    assert_eq!(plugin.listener.idle_instances(), 1, "its instance stays");
}

#[tokio::test]
async fn error_is_a_suspension_with_its_text() {
    let plugin = load("orderly_as_told").await;

    let result = plugin
        .consume_request(Request::in_order(&["fail the bank is closed"]).build())
        .await;

    assert_eq!(result, all(SUSPENDED));
    let [report] = plugin.events.reports().try_into().unwrap();
    assert_eq!(report.error.as_deref(), Some("the bank is closed"));
    assert_eq!(plugin.events.failures(), [], "an error is an answer");
}

#[tokio::test]
async fn commit_and_rollback_are_success_while_auto_commit_is_on() {
    let plugin = load("orderly_as_told").await;
    for word in ["commit", "rollback"] {
        let told = plugin.events.all().len();
        let result = plugin
            .consume_request(Request::in_order(&[word]).build())
            .await;
        assert_eq!(result, all(OrderlyStatus::Success), "{word}");
        let problems: Vec<_> = plugin.events.all()[told..]
            .iter()
            .filter_map(|event| match event {
                Event::AnswerCorrected { problem, .. } => Some(problem.clone()),
                _ => None,
            })
            .collect();
        assert_eq!(problems, [AnswerProblem::AutoCommitIsOn { status: word }]);
    }
}

#[tokio::test]
async fn calls_that_all_succeed_are_one_answer_and_keep_the_order() {
    let plugin = load("orderly_as_told").await;
    let mut request = Request::in_order(&["a", "b", "c", "d", "e"]);
    request.messages_per_call = 2;

    let result = plugin.consume_request(request.build()).await;

    assert_eq!(result, all(OrderlyStatus::Success));
    let messages: Vec<_> = plugin.events.reports().iter().map(|r| r.messages).collect();
    assert_eq!(messages, [2, 2, 1]);
    assert_eq!(came_to(&plugin), ["a", "b", "c", "d", "e"]);
}

#[tokio::test]
async fn first_call_that_keeps_its_messages_ends_the_request() {
    let plugin = load("orderly_as_told").await;
    for (stop, status) in [
        ("suspend", SUSPENDED),
        ("rollback", OrderlyStatus::Rollback),
        ("fail no", SUSPENDED),
    ] {
        let mut request = Request::in_order(&["a", "commit", "b", stop, "never"]);
        request.mode = ConsumeMode::Orderly { auto_commit: false };
        request.messages_per_call = 1;

        let result = plugin.consume_request(request.build()).await;

        assert_eq!(
            result,
            calls([
                (1, OrderlyStatus::Success),
                (1, OrderlyStatus::Commit),
                (1, OrderlyStatus::Success),
                (1, status),
            ]),
            "{stop}"
        );
    }
    assert!(!came_to(&plugin).contains(&"never".to_owned()));
}

#[tokio::test]
async fn message_that_fails_alone_suspends_its_queue_with_one_record() {
    let plugin = load("orderly_as_told").await;
    for (poison, kind) in [("trap", "trap"), ("loop", "timeout"), ("wait", "timeout")] {
        let told = plugin.events.failures().len();
        let mut request = Request::in_order(&[poison]);
        request.consume_timeout = Duration::from_millis(300);
        request.reconsume_times = 0;
        request.local_reconsume_times = 4;

        let result = plugin.consume_request(request.build()).await;

        assert_eq!(result, failed_alone(&plugin), "{poison}");
        let [record] = plugin.events.failures()[told..]
            .to_vec()
            .try_into()
            .unwrap();
        assert_eq!((record.kind.name(), record.attempt), (kind, 5), "{poison}");
        assert!(!record.isolated);
        assert_eq!(plugin.listener.idle_instances(), 0, "its instance is gone");
    }
}

#[tokio::test]
async fn poison_in_a_batch_stops_its_queue_and_repeats_nothing_before_it() {
    let plugin = load("orderly_as_told").await;

    let result = plugin
        .consume_request(Request::in_order(&["a", "b", "trap", "c"]).build())
        .await;

    assert_eq!(
        result,
        calls([(2, OrderlyStatus::Success), (1, SUSPENDED)]),
        "\"c\" was not reached"
    );
    assert_eq!(came_to(&plugin), ["a", "b", "trap", "a", "b", "trap"]);
    let [batch, alone] = plugin.events.failures().try_into().unwrap();
    assert!(
        !batch.isolated && alone.isolated,
        "one record a failed call"
    );
    assert_eq!((batch.messages, alone.messages), (4, 1));
    assert_eq!(alone.message_ids(), [message_id(2)]);
    assert!(matches!(alone.kind, FailureKind::Trap(_)), "{}", alone.kind);
}

#[tokio::test]
async fn batch_whose_messages_all_succeed_alone_is_done() {
    let plugin = load("orderly_as_told").await;
    let mut request = Request::in_order(&["a", "trap-in-batch", "b", "c"]);
    request.messages_per_call = 2;

    let result = plugin.consume_request(request.build()).await;

    assert_eq!(result, all(OrderlyStatus::Success));
    assert_eq!(plugin.events.failures().len(), 1, "the batch");
    assert_eq!(
        came_to(&plugin),
        ["a", "trap-in-batch", "a", "trap-in-batch", "b", "c"]
    );
}

#[tokio::test]
async fn trial_one_by_one_obeys_commit_and_rollback() {
    let plugin = load("orderly_as_told").await;
    let cases = [
        (
            ["a", "trap-in-batch", "commit", "trap", "never"],
            vec![
                (2, OrderlyStatus::Success),
                (1, OrderlyStatus::Commit),
                (1, SUSPENDED),
            ],
        ),
        (
            ["trap-in-batch", "b", "rollback", "trap", "never"],
            vec![(2, OrderlyStatus::Success), (1, OrderlyStatus::Rollback)],
        ),
    ];
    for (bodies, expected) in cases {
        let mut request = Request::in_order(&bodies);
        request.mode = ConsumeMode::Orderly { auto_commit: false };
        assert_eq!(
            plugin.consume_request(request.build()).await,
            calls(expected),
            "{bodies:?}"
        );
    }
}

#[tokio::test]
async fn cancelled_request_keeps_what_was_done_and_reaches_nothing_more() {
    let plugin = load("orderly_as_told").await;
    let mut request = Request::in_order(&["a", "b", "never"]);
    request.messages_per_call = 1;
    let cancel = CancelSignal::default();
    let raised = cancel.clone();
    plugin
        .events
        .on_line("ledger[0:3:b]", move || raised.cancel());

    let call = plugin
        .listener
        .consume_message(Arc::new(request.build()), cancel);

    assert_eq!(call.await, calls([(2, OrderlyStatus::Success)]));
}

#[tokio::test]
async fn request_that_was_cancelled_before_it_began_is_not_finished() {
    let plugin = load("orderly_as_told").await;
    let cancel = CancelSignal::default();
    cancel.cancel();
    let request = Arc::new(Request::in_order(&["a"]).build());
    let result = plugin.listener.consume_message(request, cancel).await;
    assert_eq!(result, ConsumeResult::NotFinished);
    assert_eq!(came_to(&plugin), [""; 0]);
}

#[tokio::test]
async fn killed_request_is_told_once_and_counts_against_nobody() {
    let plugin = load("orderly_as_told").await;
    let request = Arc::new(Request::in_order(&["wait"]).build());
    let call = plugin
        .listener
        .consume_message(request, CancelSignal::default());
    let call = tokio::spawn(call);
    eventually("the call begins", || plugin.listener.idle_instances() == 0).await;

    call.abort();

    assert!(call.await.unwrap_err().is_cancelled());
    assert_eq!(plugin.events.failures(), []);
    let killed = plugin.events.pick(|event| match event {
        Event::CallKilled { messages, .. } => Some(messages),
        _ => None,
    });
    assert_eq!(killed, [1]);
}

#[tokio::test]
async fn rust_guest_obeys_the_contract() {
    obeys_the_contract("orderly_rust").await;
}

#[tokio::test]
async fn sdk_guest_obeys_the_contract() {
    obeys_the_contract("sdk_orderly").await;
}

#[tokio::test]
async fn c_guest_obeys_the_contract() {
    obeys_the_contract("orderly_c").await;
}

#[tokio::test]
async fn javascript_guest_obeys_the_contract() {
    obeys_the_contract("orderly_javascript").await;
}

async fn obeys_the_contract(guest: &str) {
    let plugin = load(guest).await;
    let suspend = Some(Duration::from_millis(250));
    for (body, status) in [
        ("fine", OrderlyStatus::Success),
        ("", OrderlyStatus::Success),
        ("!", OrderlyStatus::SuspendCurrentQueueAMoment { suspend }),
        ("?", SUSPENDED),
        ("+", OrderlyStatus::Commit),
        ("-", OrderlyStatus::Rollback),
    ] {
        let mut request = Request::in_order(&[body, "second"]);
        request.mode = ConsumeMode::Orderly { auto_commit: false };
        let result = plugin.consume_request(request.build()).await;
        assert_eq!(result, all(status), "{body}");
    }
    let mut refused = Request::in_order(&["a"]);
    refused.topic = "refuse".into();

    let result = plugin.consume_request(refused.build()).await;

    assert_eq!(result, all(SUSPENDED));
    let errors = plugin.events.reports().into_iter();
    let errors: Vec<_> = errors.filter_map(|report| report.error).collect();
    assert_eq!(errors, ["refuse refused"]);
}

#[tokio::test]
async fn request_of_another_mode_comes_again() {
    let orderly = load("orderly_succeed").await;
    let concurrent = Plugin::load("succeed").await;
    let in_order = Request::in_order(&["a"]).build();

    let (one, other) = tokio::join!(
        orderly.consume(&["a"]),
        concurrent.consume_request(in_order)
    );

    assert_eq!(one, ConsumeResult::NotFinished, "no attempt is lost");
    assert_eq!(other, ConsumeResult::NotFinished);
    for (plugin, kind) in [
        (orderly, ListenerKind::Orderly),
        (concurrent, ListenerKind::Concurrent),
    ] {
        assert_eq!(plugin.events.reports(), []);
        let told = plugin.events.pick(|event| match event {
            Event::RequestOfAnotherKind {
                listener,
                message_queue,
                ..
            } => Some((listener, message_queue.to_string())),
            _ => None,
        });
        assert_eq!(told, [(kind, "orders@broker-a:3".to_owned())]);
    }
}

#[tokio::test]
async fn message_of_a_batch_that_broke_alone_says_why() {
    let plugin = load("orderly_as_told").await;
    let request = Request::in_order(&["a", "trap", "b"]).build();
    let ConsumeResult::OrderlyCalls(calls) = plugin.consume_whole(request).await else {
        panic!("some of it was done");
    };
    let [done, broke] = &*calls else {
        panic!("{calls:?}");
    };
    assert_eq!((done.messages, &done.reason), (1, &None));
    let reason = broke.reason.as_ref().expect("it broke");
    let record = plugin.events.failures().pop().expect("told");
    assert_eq!(**reason.text(), record.kind.to_string());
    let names: Vec<_> = reason
        .properties()
        .iter()
        .map(|(name, _)| &**name)
        .collect();
    // Nobody said of which component it is.
    assert_eq!(names[..2], ["MQLET_REVISION", "MQLET_FAILURE"]);
}

#[tokio::test]
async fn batch_isolation_gives_every_orderly_call_a_fresh_instance() {
    let plugin = Plugin::load_with("orderly_as_told", |config| {
        config.listener = ListenerKind::Orderly;
        config.limits.isolation = Isolation::Batch;
    })
    .await;
    for _ in 0..3 {
        let request = Request::in_order(&["fine", "fine"]);
        let result = plugin.consume_request(request.build()).await;
        assert_eq!(result, all(OrderlyStatus::Success));
        assert_eq!(plugin.listener.idle_instances(), 0);
    }
    // That of loading, and one a call.
    assert_eq!(plugin.events.instances_created(), 4);
}
