//! Where instances come from, and that nothing of them stays.

use std::sync::Arc;
use std::time::Duration;

use wasm::{
    ComponentListener, Engine, EngineConfig, Event, Isolation, POOL_MEMORY_BYTES_MAX, RecycleReason,
};

use crate::support::{Events, Plugin, Request, all_done, compile, engine};

#[tokio::test]
async fn two_thousand_fresh_instances_leave_nothing_behind() {
    let plugin = Plugin::load_with("succeed", |config| {
        config.limits.isolation = Isolation::Batch;
    })
    .await;
    consume_often(&plugin, 500).await;
    let (mappings, resident) = (mappings(), resident_kib());

    consume_often(&plugin, 2000).await;

    assert_eq!(plugin.events.instances_created(), 2501);
    let grown = resident_kib().saturating_sub(resident);
    assert!(grown < 16 * 1024, "{grown} KiB more");
    let more = self::mappings().saturating_sub(mappings);
    assert!(more < 50, "{more} mappings more");
}

async fn consume_often(plugin: &Plugin, times: usize) {
    for _ in 0..times {
        assert_eq!(plugin.consume(&["a"]).await, all_done());
    }
}

#[tokio::test]
async fn traps_leave_nothing_behind() {
    let plugin = Plugin::load("trap_on").await;
    let trap = || async {
        for _ in 0..100 {
            plugin.consume(&["trap"]).await;
        }
    };
    trap().await;
    let resident = resident_kib();
    for _ in 0..5 {
        trap().await;
    }
    let grown = resident_kib().saturating_sub(resident);
    assert!(grown < 16 * 1024, "{grown} KiB more");
}

/// On a paused clock, which moves on when nothing else does.
#[tokio::test(start_paused = true)]
async fn instances_with_nothing_to_do_go_after_a_minute() {
    let plugin = Plugin::load("remember_settings").await;
    plugin.consume(&["a"]).await;

    tokio::time::sleep(Duration::from_secs(59)).await;
    assert_eq!(plugin.listener.idle_instances(), 1);
    tokio::time::sleep(Duration::from_secs(2)).await;

    assert_eq!(plugin.listener.idle_instances(), 0);
    let recycled = plugin.events.pick(|event| match event {
        Event::InstanceRecycled { reason, .. } => Some(reason),
        _ => None,
    });
    assert_eq!(recycled, [RecycleReason::Idle]);
    let lines = plugin.events.lines();
    assert_eq!(lines[0].text, "goodbye", "it was shut down");

    plugin.consume(&["a"]).await;
    assert_eq!(plugin.listener.idle_instances(), 1, "made again on demand");
}

#[tokio::test]
async fn full_pool_is_helped_out_by_the_on_demand_engine() {
    let engine = small_engine(1);
    let artefact = compile(&engine, "succeed").await;
    let mut plugins = Vec::new();
    for _ in 0..3 {
        let loaded = Plugin::load_in(&engine, &artefact, "succeed", |_| {}).await;
        plugins.push(loaded.map_err(|(error, _)| error).unwrap());
    }
    let on_demand: Vec<_> = plugins
        .iter()
        .flat_map(|plugin| on_demand(&plugin.events))
        .collect();
    assert_eq!(on_demand, [false, true, true]);
    for plugin in &plugins {
        assert_eq!(plugin.consume(&["a"]).await, all_done());
    }
}

#[tokio::test]
async fn plugin_with_more_memory_than_a_slot_is_made_on_demand() {
    let plugin = Plugin::load_with("succeed", |config| {
        config.limits.memory = POOL_MEMORY_BYTES_MAX + 1;
    })
    .await;
    assert_eq!(on_demand(&plugin.events), [true]);
    assert_eq!(plugin.consume(&["a"]).await, all_done());
}

#[tokio::test]
async fn engine_without_a_pool_serves() {
    let engine = small_engine(0);
    assert!(!engine.has_pool() && self::engine().has_pool());
    let artefact = compile(&engine, "respond").await;
    let plugin = Plugin::load_in(&engine, &artefact, "respond", |_| {}).await;
    let plugin = plugin.map_err(|(error, _)| error).unwrap();
    plugin.consume_request(Request::of(&["a"]).build()).await;
    assert_eq!(plugin.events.failures(), []);
}

#[tokio::test]
async fn compiled_code_serves_another_engine_with_the_same_key() {
    let (one, other) = (small_engine(4), small_engine(0));
    assert_eq!(one.compatibility_key(), other.compatibility_key());
    let artefact = compile(&one, "succeed").await;
    let plugin = Plugin::load_in(&other, &artefact, "succeed", |_| {}).await;
    assert!(plugin.is_ok());
}

#[test]
fn listener_is_a_plain_value() {
    fn is_send_and_sync<T: Send + Sync + std::fmt::Debug + 'static>() {}
    is_send_and_sync::<ComponentListener>();
    is_send_and_sync::<Engine>();
}

fn small_engine(instances_max: u32) -> Engine {
    let config = EngineConfig {
        instances_max,
        ..EngineConfig::default()
    };
    Engine::new(&config, &(Arc::new(|_: &Event| {}) as wasm::Observer)).unwrap()
}

fn on_demand(events: &Events) -> Vec<bool> {
    events.pick(|event| match event {
        Event::InstanceCreated { on_demand, .. } => Some(on_demand),
        _ => None,
    })
}

fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").map_or(0, |maps| maps.lines().count())
}

fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next())
        .and_then(|kib| kib.parse().ok())
        .unwrap_or(0)
}
