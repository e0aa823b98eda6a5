//! The end of a revision, for its requests under way: a drain ends them with the call that
//! runs, a kill at once, and what was done before stands.

use std::sync::Arc;

use consumer::listener::{ConsumeResult, MessageOutcome, OrderlyCall, OrderlyStatus};
use wasm::{ComponentListener, Event, ListenerKind};

use crate::support::{Plugin, Request, each};

async fn load_orderly() -> Plugin {
    let orderly = |config: &mut wasm::PluginConfig| config.listener = ListenerKind::Orderly;
    Plugin::load_with("orderly_as_told", orderly).await
}

fn one_by_one(mut request: Request) -> consumer::listener::ConsumeRequest {
    request.messages_per_call = 1;
    request.build()
}

fn succeeded(messages: u32) -> ConsumeResult {
    ConsumeResult::OrderlyCalls(vec![OrderlyCall {
        messages,
        status: OrderlyStatus::Success,
        reason: None,
    }])
}

/// Ends the plugin as soon as its guest logs this.
fn on_line(plugin: &Plugin, text: &str, end: fn(&ComponentListener)) {
    let listener = Arc::clone(&plugin.listener);
    plugin.events.on_line(text, move || end(&listener));
}

fn killed(plugin: &Plugin) -> Vec<u32> {
    plugin.events.pick(|event| match event {
        Event::CallKilled { messages, .. } => Some(messages),
        _ => None,
    })
}

#[tokio::test]
async fn drained_request_in_order_ends_with_the_call_that_runs() {
    let plugin = load_orderly().await;
    on_line(&plugin, "ledger[0:3:b]", ComponentListener::drain);

    let request = one_by_one(Request::in_order(&["a", "b", "never"]));

    assert_eq!(plugin.consume_request(request).await, succeeded(2));
    assert_eq!(killed(&plugin), [0; 0]);
}

#[tokio::test]
async fn killed_request_in_order_keeps_what_its_calls_did_before() {
    let plugin = load_orderly().await;
    on_line(&plugin, "ledger[0:3:wait]", ComponentListener::kill);

    let request = one_by_one(Request::in_order(&["a", "b", "wait", "never"]));

    assert_eq!(plugin.consume_request(request).await, succeeded(2));
    assert_eq!(killed(&plugin), [1]);
    assert_eq!(plugin.events.failures(), [], "counted against nobody");
    assert_eq!(plugin.listener.idle_instances(), 0, "its instance is gone");
}

#[tokio::test]
async fn concurrent_request_keeps_what_its_calls_did_before() {
    let drained = Plugin::load("as_told").await;
    on_line(&drained, "second", ComponentListener::drain);
    let request = one_by_one(Request::of(&["done", "log second", "done"]));
    let (done, not_finished) = (MessageOutcome::Done, MessageOutcome::NotFinished);
    assert_eq!(
        drained.consume_request(request).await,
        each(vec![done.clone(), done.clone(), not_finished.clone()])
    );

    let killed = Plugin::load("as_told").await;
    on_line(&killed, "second", ComponentListener::kill);
    let mut request = Request::of(&["done", "done", "log second", "wait"]);
    request.messages_per_call = 2;
    assert_eq!(
        killed.consume_request(request.build()).await,
        each(vec![done.clone(), done, not_finished.clone(), not_finished])
    );
}

#[tokio::test]
async fn nothing_is_begun_by_a_revision_that_ends() {
    for end in [ComponentListener::drain, ComponentListener::kill] {
        let plugin = Plugin::load("succeed").await;
        end(&plugin.listener);
        assert_eq!(plugin.consume(&["a"]).await, ConsumeResult::NotFinished);
        assert_eq!(plugin.events.reports(), []);
    }
}
