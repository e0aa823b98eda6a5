//! How a request becomes calls, what fails alone, and what becomes of instances.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use consumer::listener::{
    CancelSignal, ConcurrentlyStatus, ConsumeResult, MessageListener, MessageOutcome,
};
use wasm::{
    CALL_BYTES_MAX, Event, FailureKind, IsHeld, Isolation, ListenerKind, Phase, RecycleReason,
};

use crate::support::{
    Plugin, Request, all_done, broke, each, eventually, failed_alone, later, message_id,
};

#[tokio::test]
async fn request_is_split_into_calls_and_reported_once() {
    let plugin = Plugin::load("fail_one").await;
    let mut request = Request::of(&["a", "b", "fail", "d", "e"]);
    request.messages_per_call = 2;

    let result = plugin.consume_request(request.build()).await;

    let done = MessageOutcome::Done;
    assert_eq!(
        result,
        each(vec![
            done.clone(),
            done.clone(),
            later(None),
            done.clone(),
            done
        ])
    );
    let calls: Vec<_> = plugin
        .events
        .reports()
        .iter()
        .map(|report| report.messages)
        .collect();
    assert_eq!(calls, [2, 2, 1]);
}

#[tokio::test]
async fn calls_that_all_succeed_are_one_success() {
    let plugin = Plugin::load("succeed").await;
    let mut request = Request::of(&["a", "b", "c"]);
    request.messages_per_call = 1;
    assert_eq!(plugin.consume_request(request.build()).await, all_done());
}

#[tokio::test]
async fn poison_message_costs_nobody_else_an_attempt() {
    let plugin = Plugin::load("trap_on").await;

    let result = plugin.consume(&["a", "b", "trap", "d"]).await;

    let done = MessageOutcome::Done;
    assert_eq!(
        result,
        each(vec![done.clone(), done.clone(), broke(&plugin, 1), done])
    );
    let [batch, alone] = plugin.events.failures().try_into().unwrap();
    assert!(
        !batch.isolated && alone.isolated,
        "the batch is counted once"
    );
    assert_eq!(batch.messages, 4);
    assert_eq!(
        batch.message_ids(),
        (0..4).map(message_id).collect::<Vec<_>>()
    );
    assert_eq!(alone.message_ids(), [message_id(2)]);
    assert_eq!(alone.attempt, 1);
    assert!(matches!(alone.kind, FailureKind::Trap(_)), "{}", alone.kind);
}

#[tokio::test]
async fn listener_that_is_held_back_is_not_tried_message_by_message() {
    for kind in [ListenerKind::Concurrent, ListenerKind::Orderly] {
        let guest = match kind {
            ListenerKind::Orderly => "orderly_as_told",
            _ => "trap_on",
        };
        let asked = Arc::new(AtomicUsize::new(0));
        let is_held = {
            let asked = Arc::clone(&asked);
            IsHeld::new(move || asked.fetch_add(1, Ordering::Relaxed) >= 2)
        };
        let plugin = Plugin::load_with(guest, |config| {
            config.listener = kind;
            config.is_held = is_held;
        })
        .await;
        let mut request = Request::of(&["trap"; 8]);
        if kind == ListenerKind::Orderly {
            // The first that breaks alone ends it anyway: it is held before that.
            asked.store(2, Ordering::Relaxed);
            request = Request::in_order(&["trap"; 8]);
        }
        let result = plugin.consume_request(request.build()).await;
        match result {
            ConsumeResult::Concurrently(ConcurrentlyStatus::Each(outcomes)) => {
                assert_eq!(outcomes[..2], [broke(&plugin, 1), broke(&plugin, 2)]);
                assert_eq!(outcomes[2..], [const { MessageOutcome::NotFinished }; 6]);
                assert_eq!(
                    plugin.events.failures().len(),
                    3,
                    "the batch, and two alone"
                );
            }
            other => {
                assert_eq!(other, ConsumeResult::NotFinished);
                assert_eq!(plugin.events.failures().len(), 1, "the batch");
            }
        }
    }
}

#[tokio::test]
async fn several_poison_messages_fail_each_for_itself() {
    let plugin = Plugin::load("as_told").await;
    let bodies = ["trap", "done", "exit", "grow 200", "recurse", "later 4"];

    let result = plugin.consume(&bodies).await;

    assert_eq!(
        result,
        each(vec![
            broke(&plugin, 1),
            MessageOutcome::Done,
            broke(&plugin, 2),
            broke(&plugin, 3),
            broke(&plugin, 4),
            later(Some(4)),
        ])
    );
    let kinds: Vec<_> = plugin
        .events
        .failures()
        .iter()
        .map(|record| record.kind.name())
        .collect();
    assert_eq!(kinds, ["trap", "trap", "exit", "memory", "trap"]);
}

#[tokio::test]
async fn call_has_no_more_bytes_than_its_bound_and_one_message_always() {
    let plugin = Plugin::load("succeed").await;
    // Their properties make three of them too many, and one of these too much.
    let third = Bytes::from(vec![b'a'; CALL_BYTES_MAX / 3]);
    let whole = Bytes::from(vec![b'a'; CALL_BYTES_MAX]);
    let bodies = [&third, &third, &third, &whole, &third, &third];

    let result = plugin
        .consume_request(Request::of_bytes(bodies.into_iter().cloned()).build())
        .await;

    assert_eq!(result, all_done());
    let messages: Vec<_> = plugin.events.reports().iter().map(|r| r.messages).collect();
    assert_eq!(messages, [2, 1, 1, 2]);
}

#[tokio::test]
async fn message_that_hangs_is_the_only_one_to_pay_for_it() {
    let plugin = Plugin::load("as_told").await;
    for hang in ["wait", "loop"] {
        let mut request = Request::of(&["done", hang, "done"]);
        request.consume_timeout = Duration::from_millis(300);

        let result = plugin.consume_request(request.build()).await;

        let done = MessageOutcome::Done;
        assert_eq!(
            result,
            each(vec![
                done.clone(),
                broke(&plugin, plugin.events.failures().len() - 1),
                done
            ]),
            "{hang}"
        );
    }
    let records = plugin.events.failures();
    assert_eq!(
        records.len(),
        4,
        "one for each batch, one for each message alone"
    );
    for record in records {
        assert_eq!(
            record.kind,
            FailureKind::Timeout(Duration::from_millis(300))
        );
    }
}

#[tokio::test]
async fn record_of_a_trap_has_everything() {
    let plugin = Plugin::load("as_told").await;
    let mut request = Request::of(&["trap"]);
    request.reconsume_times = 3;
    request.local_reconsume_times = 1;

    assert_eq!(
        plugin.consume_request(request.build()).await,
        failed_alone(&plugin)
    );

    let [record] = plugin.events.failures().try_into().unwrap();
    assert_eq!((&*record.plugin, &*record.revision), ("as_told", "r1"));
    assert_eq!(record.phase, Phase::Call);
    assert_eq!(
        record.to_string(),
        "plugin \"as_told\" (r1) failed in consume-message: trap: wasm trap: wasm `unreachable` instruction executed"
    );
    assert_eq!(record.attempt, 5);
    assert_eq!(record.message_ids(), [message_id(0)]);
    assert_eq!(
        record.message_queue.unwrap().to_string(),
        "orders@broker-a:3"
    );
    assert!(record.memory_bytes > 0 && record.wall > Duration::ZERO);
    assert!(
        record
            .backtrace
            .iter()
            .any(|frame| frame.contains("as_told")),
        "{:?}",
        record.backtrace
    );
    let said = record
        .last_log_lines
        .iter()
        .any(|line| line.text.contains("told to trap"));
    assert!(said, "{:?}", record.last_log_lines);
}

#[tokio::test]
async fn instance_that_trapped_never_serves_again() {
    let plugin = Plugin::load("as_told").await;
    assert_eq!(
        plugin.consume(&["done"]).await,
        each(vec![MessageOutcome::Done])
    );
    assert_eq!(plugin.events.instances_created(), 1, "the one of the load");

    assert_eq!(plugin.consume(&["trap"]).await, failed_alone(&plugin));
    assert_eq!(plugin.listener.idle_instances(), 0);
    assert_eq!(
        plugin.consume(&["done"]).await,
        each(vec![MessageOutcome::Done])
    );

    assert_eq!(plugin.events.instances_created(), 2);
    let recycled = plugin.events.pick(|event| match event {
        Event::InstanceRecycled { reason, calls, .. } => Some((reason, calls)),
        _ => None,
    });
    assert_eq!(recycled, [(RecycleReason::Failed, 2)]);
}

#[tokio::test]
async fn shared_instance_keeps_its_memory_between_calls() {
    let plugin = Plugin::load("count_calls").await;
    for call in 1..=3 {
        assert_eq!(
            plugin.reasons(Request::of(&["a"])).await,
            [format!("call {call}")]
        );
    }
}

#[tokio::test]
async fn batch_isolation_gives_every_call_a_fresh_instance() {
    let plugin = Plugin::load_with("count_calls", |config| {
        config.limits.isolation = Isolation::Batch;
    })
    .await;
    for _ in 0..3 {
        assert_eq!(plugin.reasons(Request::of(&["a"])).await, ["call 1"]);
    }
    assert_eq!(plugin.listener.idle_instances(), 0);
}

#[tokio::test]
async fn instance_is_replaced_after_its_calls() {
    let plugin = Plugin::load_with("count_calls", |config| {
        config.limits.recycle_after_calls = 2;
    })
    .await;
    for call in [1, 2, 1, 2, 1] {
        assert_eq!(
            plugin.reasons(Request::of(&["a"])).await,
            [format!("call {call}")]
        );
    }
}

#[tokio::test]
async fn instance_is_replaced_when_it_is_old() {
    let plugin = Plugin::load_with("count_calls", |config| {
        config.limits.recycle_after_age = Duration::ZERO;
    })
    .await;
    for _ in 0..2 {
        assert_eq!(plugin.reasons(Request::of(&["a"])).await, ["call 1"]);
    }
}

#[tokio::test]
async fn instance_over_the_memory_mark_is_replaced_and_no_message_pays() {
    let plugin = Plugin::load_with("as_told", |config| {
        config.limits.memory = 16 << 20;
    })
    .await;

    assert_eq!(
        plugin.consume(&["grow 13"]).await,
        each(vec![MessageOutcome::Done])
    );
    assert_eq!(
        plugin.consume(&["grow 13"]).await,
        each(vec![MessageOutcome::Done])
    );

    let recycled = plugin.events.pick(|event| match event {
        Event::InstanceRecycled { reason, .. } => Some(reason),
        _ => None,
    });
    assert_eq!(recycled, [RecycleReason::Memory, RecycleReason::Memory]);
    assert_eq!(plugin.events.failures(), []);
}

#[tokio::test]
async fn one_instance_serves_one_call_at_a_time() {
    let plugin = Plugin::load_with("as_told", |config| config.consume_thread_max = 3).await;
    let calls: Vec<_> = (0..9)
        .map(|_| {
            let request = Arc::new(Request::of(&["wait 20"]).build());
            let call = plugin
                .listener
                .consume_message(request, CancelSignal::default());
            tokio::spawn(call)
        })
        .collect();
    for call in calls {
        assert_eq!(call.await.unwrap(), each(vec![MessageOutcome::Done]));
    }
    assert_eq!(
        plugin.events.instances_created(),
        3,
        "waiting calls use more instances, up to consume_thread_max"
    );
}

#[tokio::test]
async fn dropped_call_is_killed_and_its_instance_gone() {
    let plugin = Plugin::load("wait_forever").await;
    let request = Arc::new(Request::of(&["a", "b"]).build());
    let call = tokio::spawn(
        plugin
            .listener
            .consume_message(Arc::clone(&request), CancelSignal::default()),
    );
    eventually("the call begins", || plugin.listener.idle_instances() == 0).await;

    call.abort();

    assert!(call.await.unwrap_err().is_cancelled());
    assert_eq!(plugin.listener.idle_instances(), 0, "it does not come back");
    assert_eq!(
        Arc::strong_count(&request),
        1,
        "nothing of the call is left"
    );
    assert_eq!(plugin.events.failures(), [], "counted against nobody");
    let killed = plugin.events.pick(|event| match event {
        Event::CallKilled { messages, .. } => Some(messages),
        _ => None,
    });
    assert_eq!(killed, [2]);
}

#[tokio::test]
async fn cancelled_request_is_not_finished_where_it_was_not_begun() {
    let plugin = Plugin::load("as_told").await;
    let cancel = CancelSignal::default();
    cancel.cancel();
    let request = Arc::new(Request::of(&["done"]).build());
    let result = plugin.listener.consume_message(request, cancel).await;
    assert_eq!(result, ConsumeResult::NotFinished);
    assert_eq!(plugin.events.reports(), []);
}

#[tokio::test]
async fn cancelling_ends_a_request_between_two_calls() {
    let plugin = Plugin::load("as_told").await;
    let mut request = Request::of(&["done", "log second", "done"]);
    request.messages_per_call = 1;
    let cancel = CancelSignal::default();
    let raised = cancel.clone();
    plugin.events.on_line("second", move || raised.cancel());

    let call = plugin
        .listener
        .consume_message(Arc::new(request.build()), cancel);

    assert_eq!(
        call.await,
        each(vec![
            MessageOutcome::Done,
            MessageOutcome::Done,
            MessageOutcome::NotFinished
        ])
    );
}

#[tokio::test]
async fn closed_plugin_says_goodbye_once_for_each_instance() {
    let plugin = Plugin::load("remember_settings").await;
    assert_eq!(plugin.reasons(Request::of(&["a"])).await, [""]);

    plugin.listener.close().await;

    let goodbyes = plugin.events.lines();
    let texts: Vec<_> = goodbyes.iter().map(|line| line.text.as_str()).collect();
    assert_eq!(texts, ["goodbye"]);
    assert_eq!(plugin.listener.idle_instances(), 0);
}
