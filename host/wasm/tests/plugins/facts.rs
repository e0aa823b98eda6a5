//! What a guest sees of its messages, its call and the host.

use std::sync::Arc;
use std::time::Duration;

use consumer::listener::{CancelSignal, MessageListener, MessageRun};
use consumer::publish::SendError;
use wasm::{ProducerGrant, ProducerMode};

use crate::support::{Plugin, Request, SOON, all_done, message_id};

#[tokio::test]
async fn guest_sees_every_fact_of_its_messages() {
    let plugin = Plugin::load("describe").await;
    let mut request = Request::of(&["first", "second"]).property("colour", "blue");
    request.reconsume_times = 2;
    request.local_reconsume_times = 1;

    let described = plugin.reasons(request).await;

    let facts: Vec<&str> = described[1].lines().collect();
    for fact in [
        "consumer-group=orders-group",
        "topic=orders",
        "broker-name=broker-a",
        "queue-id=3",
        "broadcasting=false",
        "body=second",
        "queue-offset=101",
        "commit-log-offset=1000001",
        "born-timestamp-ms=1700000000001",
        "store-timestamp-ms=1700000000002",
        "reconsume-times=3",
        "flag=-7",
        "sys-flag=0",
        "born-host=10.0.0.1:4711",
        "store-host=10.0.0.2:10911",
        "offset-message-id=0A00000200002A9F00000000000F4241",
        "prepared-transaction-offset=0",
        "property.TAGS=TagA",
        "property.KEYS=k1 k2",
        "property.colour=blue",
        format!("message-id={}", message_id(1)).as_str(),
        format!("body-crc={}", crc("second")).as_str(),
    ] {
        assert!(facts.contains(&fact), "{fact} is missing in {facts:?}");
    }
}

#[tokio::test]
async fn details_are_those_of_the_call_not_of_the_request() {
    let plugin = Plugin::load("describe").await;
    let mut request = Request::of(&["a", "b", "c"]);
    request.messages_per_call = 1;
    let described = plugin.reasons(request).await;
    for (facts, body) in described.iter().zip(["a", "b", "c"]) {
        assert!(facts.contains(&format!("body={body}\n")));
        assert!(
            facts.contains(&format!("body-crc={}\n", crc(body))),
            "{facts}"
        );
    }
}

#[tokio::test]
async fn messages_from_several_answers_look_like_those_of_one() {
    let plugin = Plugin::load("describe").await;
    let bodies = ["a", "", "c", "d", "e"];
    let of_one_answer = plugin.consume(&bodies).await;

    let mut apart = Request::of(&bodies).build();
    let run = apart.runs.remove(0);
    for range in [0..2, 2..3, 3..5] {
        let batch = Arc::clone(&run.batch);
        apart.runs.push(MessageRun {
            batch,
            range,
            ..run
        });
    }
    assert_eq!(plugin.consume_request(apart).await, of_one_answer);

    // The second call begins in the middle of an answer.
    let mut in_two_calls = Request::of(&bodies);
    in_two_calls.messages_per_call = 3;
    assert_eq!(
        plugin.consume_request(in_two_calls.build()).await,
        of_one_answer
    );
}

#[tokio::test]
async fn message_without_unique_key_has_the_brokers_id() {
    let plugin = Plugin::load("describe").await;
    let mut request = Request::of(&["a"]);
    request.unique_key = false;
    let described = plugin.reasons(request).await;
    assert!(described[0].contains("message-id=0A00000200002A9F00000000000F4240\n"));
}

#[tokio::test]
async fn guest_can_ask_about_its_call() {
    let plugin = Plugin::load("call_facts").await;
    let mut request = Request::of(&["a"]);
    request.consume_timeout = Duration::from_secs(60);

    let facts = plugin.reasons(request).await.remove(0);

    for fact in [
        "revision=r1",
        "cancelled=false",
        "traceparent=",
        "details-beyond-end=false",
        "random=4096 true",
    ] {
        assert!(
            facts.lines().any(|line| line == fact),
            "{fact} is missing in {facts}"
        );
    }
    let remaining = facts
        .lines()
        .find_map(|line| line.strip_prefix("remaining-ms="));
    let remaining: u64 = remaining.unwrap().parse().unwrap();
    assert!((1..=60_000).contains(&remaining), "{remaining}");
}

#[tokio::test]
async fn trace_context_of_a_message_reaches_the_guest_whatever_is_in_it() {
    let plugin = Plugin::load("describe").await;
    for context in [
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-0000000000000000-00",
        "not a trace context",
        "",
    ] {
        let request = Request::of(&["a"]).property("traceparent", context);
        let facts = plugin.reasons(request).await.remove(0);
        let property = format!("property.traceparent={context}");
        assert!(facts.lines().any(|line| line == property), "{facts}");
    }
    assert_eq!(plugin.events.failures(), []);
}

#[tokio::test]
async fn clocks_of_the_sealed_host_work() {
    let plugin = Plugin::load("read_clock").await;
    assert_eq!(plugin.consume(&["a"]).await, all_done());
}

#[tokio::test]
async fn there_is_nothing_to_find_outside_the_box() {
    let plugin = Plugin::load("pry").await;
    assert_eq!(plugin.consume(&["a"]).await, all_done());
}

#[tokio::test]
async fn settings_reach_init_in_their_order() {
    let plugin = Plugin::load_with("remember_settings", |config| {
        config.settings = vec![("b".into(), "2".into()), ("a".into(), "1".into())];
    })
    .await;
    assert_eq!(plugin.reasons(Request::of(&["x"])).await, ["b=2\na=1"]);
}

#[tokio::test]
async fn sending_without_a_grant_is_not_granted() {
    let plugin = Plugin::load("send").await;
    plugin.consume(&["a"]).await;
    let [report] = plugin.events.reports().try_into().unwrap();
    let error = report.error.unwrap();
    assert!(
        error.contains("NotGranted") && error.contains("no [grants] producer"),
        "{error}"
    );
}

#[tokio::test]
async fn grant_is_for_its_topics_only() {
    let plugin = load_with_grant(None).await;
    let request = Request::of(&["a"]).property("to", "payments");
    plugin.consume_request(request.build()).await;
    let error = plugin.events.reports()[0].error.clone().unwrap();
    assert!(
        error.contains("topic \\\"payments\\\" is not among"),
        "{error}"
    );
    assert!(plugin.sent.messages.lock().unwrap().is_empty());
}

#[tokio::test]
async fn granted_message_goes_out_as_given_within_the_time_left() {
    let plugin = load_with_grant(None).await;
    for how in ["", "batch", "oneway"] {
        let request = Request::of(&["a", "b"])
            .property("how", how)
            .property("sharding-key", "s");
        assert_eq!(
            plugin.consume_request(request.build()).await,
            all_done(),
            "{how}"
        );
        let sent = std::mem::take(&mut *plugin.sent.messages.lock().unwrap());
        assert_eq!(sent.len(), 2, "{how}");
        let second = &sent[1];
        assert_eq!(
            (second.topic.as_str(), &*second.body),
            ("orders-out", &b"b"[..])
        );
        assert_eq!(second.tags.as_deref(), Some("TagA"));
        assert_eq!(second.keys, ["k1", "k2"]);
        assert_eq!(second.properties, [("from".to_string(), message_id(1))]);
        assert_eq!(
            (second.sharding_key.as_deref(), second.flag),
            (Some("s"), -7)
        );
    }
    let timeouts = plugin.sent.timeouts.lock().unwrap();
    assert!(
        timeouts
            .iter()
            .all(|timeout| (Duration::from_secs(1)..=SOON).contains(timeout))
    );
    let lines = plugin.events.lines();
    assert!(
        lines
            .iter()
            .any(|line| line.text == "sent sent-1 to broker-b 5"),
        "{lines:?}"
    );
}

#[tokio::test]
async fn sends_over_the_rate_are_refused() {
    let plugin = load_with_grant(Some(3)).await;
    let request = || Request::of(&["a", "b"]).property("how", "batch").build();
    assert_eq!(plugin.consume_request(request()).await, all_done());
    plugin.consume_request(request()).await;
    let error = plugin.events.reports()[1].error.clone();
    assert_eq!(error.as_deref(), Some("SendError::RateLimited"));
}

#[tokio::test]
async fn refusal_of_the_broker_reaches_the_guest() {
    let refusals = [
        (SendError::NoRoute { topic: "t".into() }, "NoRoute"),
        (
            SendError::TooLarge {
                bytes: 9,
                bytes_max: 5,
            },
            "TooLarge(5)",
        ),
        (
            SendError::Broker {
                code: 13,
                remark: "the message is illegal".into(),
            },
            "the message is illegal",
        ),
        (SendError::Stopped, "the client is stopping"),
    ];
    let plugin = load_with_grant(None).await;
    for (refusal, text) in refusals {
        *plugin.sent.refusal.lock().unwrap() = Some(refusal);
        plugin.consume(&["a"]).await;
        let error = plugin.events.reports().pop().unwrap().error.unwrap();
        assert!(error.contains(text), "{error}");
    }
}

#[tokio::test]
async fn send_that_hangs_is_cut_at_the_deadline() {
    let plugin = load_with_grant(None).await;
    plugin
        .sent
        .hangs
        .store(true, std::sync::atomic::Ordering::Relaxed);
    let mut request = Request::of(&["a"]);
    request.consume_timeout = Duration::from_millis(100);
    let call = plugin
        .listener
        .consume_message(Arc::new(request.build()), CancelSignal::default());
    let result = tokio::time::timeout(SOON, call).await.unwrap();
    assert_eq!(result, crate::support::failed_alone(&plugin));
    assert_eq!(plugin.events.failures()[0].kind.name(), "timeout");
}

async fn load_with_grant(messages_per_second: Option<u32>) -> Plugin {
    Plugin::load_with("send", |config| {
        config.grants.producer = Some(ProducerGrant {
            mode: ProducerMode::Immediate,
            messages_per_second,
            ..ProducerGrant::new(vec!["orders-out".into()])
        });
    })
    .await
}

fn crc(body: &str) -> i32 {
    protocol::message::codec::body_crc(body.as_bytes())
}
