//! The outbox: what a guest sends in a call leaves when the call has succeeded, before what
//! it consumed counts as done, and never when it has failed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use consumer::listener::{
    CancelSignal, ConcurrentlyStatus, ConsumeMode, ConsumeResult, MessageListener,
};
use consumer::publish::{Delay, SendError};
use wasm::{Budgets, ListenerKind, ProducerGrant, ProducerMode, Tenant, TenantConfig};

use crate::support::{Plugin, Request, SOON, all_done, eventually};

async fn load(edit: impl FnOnce(&mut ProducerGrant)) -> Plugin {
    let mut grant = ProducerGrant::new(vec!["orders-out".into()]);
    edit(&mut grant);
    Plugin::load_with("send", |config| {
        config.grants.producer = Some(grant);
    })
    .await
}

fn request(bodies: &[&str], then: &str) -> Request {
    Request::of(bodies).property("then", then)
}

impl Plugin {
    fn sent_bodies(&self) -> Vec<String> {
        let sent = self.sent.messages.lock().unwrap();
        sent.iter()
            .map(|message| String::from_utf8_lossy(&message.body).into_owned())
            .collect()
    }
}

fn all_later() -> ConsumeResult {
    ConsumeResult::Concurrently(ConcurrentlyStatus::ReconsumeLater { delay_level: None })
}

#[tokio::test]
async fn messages_leave_in_order_with_the_ids_that_the_guest_was_told() {
    let plugin = load(|_| {}).await;
    let request = Request::of(&["a", "b"]).property("delay", "1500");
    assert_eq!(plugin.consume_request(request.build()).await, all_done());
    assert_eq!(plugin.sent_bodies(), ["a", "b"]);
    let sent = plugin.sent.messages.lock().unwrap().clone();
    let told: Vec<_> = sent
        .iter()
        .map(|message| format!("will send {}", message.message_id.clone().unwrap()))
        .collect();
    let lines: Vec<_> = plugin
        .events
        .lines()
        .into_iter()
        .map(|line| line.text)
        .collect();
    assert_eq!(lines, told);
    assert_eq!(sent[0].delay, Some(Delay::For(Duration::from_millis(1500))));
    assert!(
        (plugin.sent.timeouts.lock().unwrap().iter())
            .all(|timeout| (Duration::from_secs(1)..=SOON).contains(timeout))
    );
}

#[tokio::test]
async fn nothing_leaves_of_a_call_that_fails() {
    let plugin = load(|_| {}).await;
    for how in ["", "batch", "oneway"] {
        for then in ["trap", "fail", "later"] {
            let request = request(&["a"], then).property("how", how);
            let result = plugin.consume_request(request.build()).await;
            assert_ne!(result, all_done(), "{how} {then}");
            assert_eq!(plugin.sent_bodies(), [""; 0], "{how} {then}");
        }
        // Nor with the next call of the same instance.
        let request = Request::of(&["b"]).property("how", how);
        assert_eq!(plugin.consume_request(request.build()).await, all_done());
        assert_eq!(plugin.sent_bodies(), ["b"], "{how}");
        plugin.sent.messages.lock().unwrap().clear();
    }
}

#[tokio::test]
async fn everything_leaves_when_a_part_of_the_batch_is_done() {
    let plugin = load(|_| {}).await;
    let result = plugin
        .consume_request(request(&["a", "b"], "first").build())
        .await;
    assert_ne!(result, all_done());
    assert_eq!(plugin.sent_bodies(), ["a", "b"]);
}

#[tokio::test]
async fn batch_that_traps_and_traps_again_alone_sends_nothing() {
    let plugin = load(|_| {}).await;
    plugin
        .consume_request(request(&["a", "b"], "trap").build())
        .await;
    assert_eq!(
        plugin.events.failures().len(),
        3,
        "the batch, and each alone"
    );
    assert_eq!(plugin.sent_bodies(), [""; 0]);
}

#[tokio::test]
async fn what_the_broker_refuses_comes_again_and_somebody_hears_why() {
    let plugin = load(|_| {}).await;
    let refusal = SendError::Broker {
        code: 16,
        remark: "no permission to write".into(),
    };
    *plugin.sent.refusal.lock().unwrap() = Some(refusal);
    for then in ["", "first"] {
        let request = request(&["a", "b"], then).build();
        assert_eq!(plugin.consume_request(request).await, all_later());
        let error = plugin.events.reports().pop().unwrap().error.unwrap();
        assert!(
            error.contains("0 of 2 messages were sent, then topic \"orders-out\"")
                && error.contains("no permission to write"),
            "{error}"
        );
    }
    *plugin.sent.refusal.lock().unwrap() = None;
    assert_eq!(plugin.consume(&["a"]).await, all_done());
}

#[tokio::test]
async fn illegal_message_is_refused_at_once() {
    let plugin = load(|_| {}).await;
    plugin.consume(&[""]).await;
    let error = plugin.events.reports().pop().unwrap().error.unwrap();
    assert!(error.contains("the body is empty"), "{error}");
}

#[tokio::test]
async fn call_sends_no_more_than_its_grant() {
    let few = load(|grant| grant.messages_per_call = 2).await;
    let small = load(|grant| grant.bytes_per_call = 1_200).await;
    let body = "x".repeat(300);
    for (plugin, key) in [
        (few, "messages_per_call = 2"),
        (small, "bytes_per_call = 1200"),
    ] {
        let two = Request::of(&[&body, "b"]);
        assert_eq!(
            plugin.consume_request(two.build()).await,
            all_done(),
            "{key}"
        );
        plugin.consume(&[&body, &body, &body]).await;
        let error = plugin.events.reports().pop().unwrap().error.unwrap();
        assert!(
            error.contains("NotGranted") && error.contains(key),
            "{error}"
        );
        assert_eq!(plugin.sent_bodies().len(), 2, "{key}");
    }
}

#[tokio::test]
async fn call_that_is_killed_while_its_outbox_leaves_is_not_finished() {
    let plugin = load(|_| {}).await;
    plugin.sent.hangs.store(true, Ordering::Relaxed);
    let listener = Arc::clone(&plugin.listener);
    let request = Arc::new(Request::of(&["a"]).build());
    let call = tokio::spawn(async move {
        listener
            .consume_message(request, CancelSignal::default())
            .await
    });
    eventually("the outbox leaves", || !plugin.sent_bodies().is_empty()).await;
    plugin.listener.kill();
    assert_eq!(call.await.unwrap(), ConsumeResult::NotFinished);
}

#[tokio::test]
async fn orderly_listener_is_not_done_before_its_messages_have_left() {
    let grant = ProducerGrant::new(vec!["orders-out".into()]);
    let plugin = Plugin::load_with("orderly_as_told", |config| {
        config.listener = ListenerKind::Orderly;
        config.grants.producer = Some(grant);
    })
    .await;
    let request = |bodies: &[&str]| {
        let mut request = Request::of(bodies);
        request.mode = ConsumeMode::Orderly { auto_commit: true };
        request.build()
    };
    plugin
        .consume_request(request(&["send orders-out", "suspend"]))
        .await;
    assert_eq!(plugin.sent_bodies(), [""; 0]);
    plugin
        .consume_request(request(&["send orders-out", "x"]))
        .await;
    assert_eq!(plugin.sent_bodies(), ["send orders-out"]);

    *plugin.sent.refusal.lock().unwrap() = Some(SendError::Stopped);
    let result = plugin.consume_request(request(&["send orders-out"])).await;
    let suspended = consumer::listener::OrderlyStatus::SuspendCurrentQueueAMoment { suspend: None };
    assert_eq!(result, ConsumeResult::Orderly(suspended));
}

#[tokio::test]
async fn whatever_leaves_is_on_the_tenants_budget() {
    for mode in [ProducerMode::Outbox, ProducerMode::Immediate] {
        for how in ["", "batch", "oneway"] {
            let tenant = Tenant::new(TenantConfig {
                budgets: Budgets {
                    bytes_out_per_second: Some(10),
                    ..Budgets::default()
                },
                ..TenantConfig::new("t")
            });
            let plugin = Plugin::load_with("send", |config| {
                config.tenant = Arc::clone(&tenant);
                let mut grant = ProducerGrant::new(vec!["orders-out".into()]);
                grant.mode = mode;
                config.grants.producer = Some(grant);
            })
            .await;
            assert_eq!(tenant.over_budget(), None);
            let body = "x".repeat(10_000);
            let request = Request::of(&[&body]).property("how", how);
            assert_eq!(plugin.consume_request(request.build()).await, all_done());
            assert!(tenant.over_budget().is_some(), "{mode:?} {how}");
        }
    }
}

#[tokio::test]
async fn message_that_was_refused_is_not_counted_as_sent() {
    let plugin = load(|grant| {
        grant.messages_per_call = 1;
        grant.messages_per_second = Some(1);
    })
    .await;
    // It has no body; the call fails by it, and neither bound has seen it.
    for _ in 0..5 {
        plugin.consume(&[""]).await;
        let error = plugin.events.reports().pop().unwrap().error.unwrap();
        assert!(error.contains("the body is empty"), "{error}");
    }
    assert_eq!(plugin.consume(&["a"]).await, all_done());
}
