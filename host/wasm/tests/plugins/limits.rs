//! Every limit, by the guest that breaks it.

use std::time::{Duration, Instant};

use bytes::Bytes;
use consumer::listener::MessageOutcome;
use wasm::{CheckedComponent, FailureKind, LoadError, Phase, PluginConfig};

use crate::support::{Plugin, Request, SOON, all_done, each, engine, failed_alone};

#[tokio::test]
async fn guest_that_never_returns_is_killed_by_its_computing_time() {
    let plugin = Plugin::load_with("never_return", |config| {
        config.limits.compute_time = Duration::from_millis(200);
    })
    .await;
    let started = Instant::now();

    assert_eq!(plugin.consume(&["a"]).await, failed_alone(&plugin));

    let [record] = plugin.events.failures().try_into().unwrap();
    assert_eq!(
        record.kind,
        FailureKind::ComputeTime(Duration::from_millis(200))
    );
    assert!(record.computed >= Duration::from_millis(200));
    assert!(started.elapsed() < SOON);
    assert_eq!(plugin.listener.idle_instances(), 0);
}

#[tokio::test]
async fn guest_that_never_returns_is_killed_by_the_wall_clock_too() {
    let plugin = Plugin::load("never_return").await;
    let mut request = Request::of(&["a"]);
    request.consume_timeout = Duration::from_millis(200);

    assert_eq!(
        plugin.consume_request(request.build()).await,
        failed_alone(&plugin)
    );

    let [record] = plugin.events.failures().try_into().unwrap();
    assert_eq!(
        record.kind,
        FailureKind::Timeout(Duration::from_millis(200))
    );
}

#[tokio::test]
async fn guest_that_waits_for_ever_is_killed_by_the_wall_clock() {
    let plugin = Plugin::load("wait_forever").await;
    let mut request = Request::of(&["a"]);
    request.consume_timeout = Duration::from_millis(200);

    assert_eq!(
        plugin.consume_request(request.build()).await,
        failed_alone(&plugin)
    );

    let [record] = plugin.events.failures().try_into().unwrap();
    assert_eq!(
        record.kind,
        FailureKind::Timeout(Duration::from_millis(200))
    );
    assert!(
        record.computed < Duration::from_millis(100),
        "waiting is not computing"
    );
}

#[tokio::test]
async fn guest_cannot_have_more_memory_than_its_limit() {
    let plugin = Plugin::load_with("grow_memory", |config| {
        config.limits.memory = 8 << 20;
    })
    .await;
    for _ in 0..3 {
        assert_eq!(plugin.consume(&["a"]).await, failed_alone(&plugin));
    }
    for record in plugin.events.failures() {
        assert_eq!(record.kind, FailureKind::Memory(8 << 20));
        assert!(record.memory_bytes <= 8 << 20);
    }
}

#[tokio::test]
async fn message_larger_than_the_guests_memory_fails_it_alone() {
    let plugin = Plugin::load_with("succeed", |config| {
        config.limits.memory = 4 << 20;
    })
    .await;
    let request = Request::of_bytes([Bytes::from(vec![b'x'; 5 << 20])]);
    assert_eq!(
        plugin.consume_request(request.build()).await,
        failed_alone(&plugin)
    );
    assert_eq!(
        plugin.events.failures()[0].kind,
        FailureKind::Memory(4 << 20)
    );
    assert_eq!(plugin.consume(&["small"]).await, all_done());
}

#[tokio::test]
async fn recursion_is_a_trap_and_not_the_end_of_the_process() {
    // This guest's own stack, in its memory, ends before the host's.
    let plugin = Plugin::load("recurse").await;
    assert_eq!(plugin.consume(&["a"]).await, failed_alone(&plugin));
    let [record] = plugin.events.failures().try_into().unwrap();
    assert!(
        matches!(record.kind, FailureKind::Trap(_)),
        "{}",
        record.kind
    );
    assert!(!record.backtrace.is_empty() && record.backtrace.len() <= 32);
}

#[tokio::test]
async fn recursion_without_frames_in_memory_ends_at_the_hosts_stack() {
    let component = started_by("(func $f (call $f)) (start $f)");
    let record = refused_by_its_start(load(&component, |_| {}).await);
    assert_eq!(
        (record.phase, record.kind),
        (Phase::Instantiate, FailureKind::StackOverflow(512))
    );
}

#[tokio::test]
async fn start_function_is_under_the_guards_too() {
    let limit = Duration::from_millis(100);
    let component = started_by("(func $f (loop $l (br $l))) (start $f)");
    let record =
        refused_by_its_start(load(&component, |config| config.limits.init_time = limit).await);
    assert_eq!(
        (record.phase, record.kind),
        (Phase::Instantiate, FailureKind::Timeout(limit))
    );
}

#[tokio::test]
async fn exit_is_a_failure_of_the_call() {
    let plugin = Plugin::load("exit").await;
    assert_eq!(plugin.consume(&["a"]).await, failed_alone(&plugin));
    let [record] = plugin.events.failures().try_into().unwrap();
    // WASI 0.2 has success and failure only.
    assert_eq!(record.kind, FailureKind::Exit(1));
}

#[tokio::test]
async fn transfer_to_the_host_is_bounded() {
    let plugin = Plugin::load_with("flood_log", |config| {
        config.limits.host_memory = 64 * 1024;
    })
    .await;
    assert_eq!(plugin.consume(&["a"]).await, failed_alone(&plugin));
    let [record] = plugin.events.failures().try_into().unwrap();
    assert_eq!(
        record.kind.to_string(),
        "host limit: one transfer to the host has more than limits.host_memory = 65536 bytes"
    );
}

#[tokio::test]
async fn handles_of_one_instance_are_bounded() {
    // Subscribes to the clock for ever and drops nothing.
    let component = imports_at_start(
        r#"(import "wasi:io/poll@0.2.6" (instance $poll (export "pollable" (type (sub resource)))))
           (alias export $poll "pollable" (type $pollable))
           (import "wasi:clocks/monotonic-clock@0.2.6" (instance $host
               (alias outer 1 $pollable (type $p))
               (export "pollable" (type $q (eq $p)))
               (export "subscribe-duration" (func (param "when" u64) (result (own $q))))))
           (core func $lowered (canon lower (func $host "subscribe-duration")))"#,
        r#"(import "host" "f" (func $f (param i64) (result i32)))
           (func $start (loop $l (drop (call $f (i64.const 1000000000))) (br $l)))"#,
    );
    let record = refused_by_its_start(load(&component, |_| {}).await);
    assert_eq!(
        record.kind.to_string(),
        "host limit: resource table has no free keys"
    );
}

#[tokio::test]
async fn random_numbers_of_one_call_are_bounded() {
    let component = imports_at_start(
        r#"(import "wasi:random/random@0.2.6" (instance $host
               (export "get-random-bytes" (func (param "len" u64) (result (list u8))))))
           (core module $memory
               (memory (export "memory") 1)
               (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 16)))
           (core instance $memory (instantiate $memory))
           (core func $lowered (canon lower (func $host "get-random-bytes")
               (memory $memory "memory") (realloc (func $memory "realloc"))))"#,
        r#"(import "host" "f" (func $f (param i64 i32)))
           (func $start (call $f (i64.const 65537) (i32.const 0)))"#,
    );
    let record = refused_by_its_start(load(&component, |_| {}).await);
    assert_eq!(
        record.kind.to_string(),
        "host limit: requested len 65537 exceeds limit 65536"
    );
}

#[tokio::test]
async fn expensive_start_has_a_budget_of_its_own() {
    let plugin = Plugin::load_with("big_start", |config| {
        config.limits.compute_time = Duration::from_millis(50);
    })
    .await;
    assert_eq!(plugin.consume(&["a"]).await, all_done());

    let cheap_calls = Plugin::try_load("big_start", |config| {
        config.limits.init_time = Duration::from_millis(20);
        config.settings = vec![("rounds".into(), "100000".into())];
    })
    .await;
    let record = refused_by_its_start(cheap_calls);
    assert_eq!(record.phase, Phase::Init);
    assert_spent(&record.kind, Duration::from_millis(20));
}

/// One limit for computing and for waiting: which of the two guards sees first that a
/// computing guest is over it depends on how busy the machine is.
fn assert_spent(kind: &FailureKind, limit: Duration) {
    assert!(
        [FailureKind::Timeout(limit), FailureKind::ComputeTime(limit)].contains(kind),
        "{kind:?} is not the end of {limit:?}"
    );
}

#[tokio::test]
async fn init_that_fails_refuses_the_plugin_in_its_own_words() {
    let record = refused_by_its_start(Plugin::try_load("init_fails", |_| {}).await);
    assert_eq!(
        record.to_string(),
        "plugin \"init_fails\" (r1) failed in init: init returned an error: the setting mode is missing"
    );
    let plugin = Plugin::load_with("init_fails", |config| {
        config.settings = vec![("mode".into(), "x".into())];
    })
    .await;
    assert_eq!(plugin.consume(&["a"]).await, all_done());
}

#[tokio::test]
async fn init_is_under_both_guards() {
    let limit = Duration::from_millis(100);
    let mut records = Vec::new();
    for guest in ["init_traps", "init_never_returns", "init_waits_forever"] {
        let loaded = Plugin::try_load(guest, |config| config.limits.init_time = limit).await;
        records.push(refused_by_its_start(loaded));
    }
    assert!(records.iter().all(|record| record.phase == Phase::Init));
    assert_eq!(records[0].kind.name(), "trap");
    assert_spent(&records[1].kind, limit);
    assert_eq!(records[2].kind, FailureKind::Timeout(limit));
}

#[tokio::test]
async fn memory_that_the_component_begins_with_counts() {
    let loaded = Plugin::try_load("succeed", |config| config.limits.memory = 64 * 1024).await;
    let record = refused_by_its_start(loaded);
    assert_eq!(record.phase, Phase::Instantiate);
    assert_eq!(record.kind, FailureKind::Memory(64 * 1024));
}

#[tokio::test]
async fn tables_are_bounded() {
    let loaded = Plugin::try_load("succeed", |config| config.limits.table_elements = 1).await;
    let record = refused_by_its_start(loaded);
    assert_eq!(record.kind, FailureKind::Tables(1));
}

#[tokio::test]
async fn guest_that_survives_a_refused_growth_is_not_blamed_later() {
    let plugin = Plugin::load_with("as_told", |config| config.limits.memory = 8 << 20).await;
    assert_eq!(
        plugin.consume(&["grow 3"]).await,
        each(vec![MessageOutcome::Done])
    );
    assert_eq!(plugin.consume(&["trap"]).await, failed_alone(&plugin));
    assert!(matches!(
        plugin.events.failures()[0].kind,
        FailureKind::Trap(_)
    ));
}

/// A component whose core module has this inside.
fn started_by(module: &str) -> Vec<u8> {
    wat::parse_str(format!(
        r#"(component
            (core module $m {module} (func (export "consume")))
            (core instance $m (instantiate $m))
            (func $f (canon lift (core func $m "consume")))
            (instance $i (export "consume-message" (func $f)))
            (export "mqlet:listener/concurrent@0.1.0" (instance $i)))"#
    ))
    .unwrap()
}

/// A component that lowers an import of the host to `$lowered` and calls it, as `host.f`,
/// in the function `$start`.
fn imports_at_start(imports: &str, module: &str) -> Vec<u8> {
    wat::parse_str(format!(
        r#"(component
            {imports}
            (core module $m {module} (func (export "consume")) (start $start))
            (core instance $imports (export "f" (func $lowered)))
            (core instance $m (instantiate $m (with "host" (instance $imports))))
            (func $f (canon lift (core func $m "consume")))
            (instance $i (export "consume-message" (func $f)))
            (export "mqlet:listener/concurrent@0.1.0" (instance $i)))"#
    ))
    .unwrap()
}

async fn load(
    component: &[u8],
    edit: impl FnOnce(&mut PluginConfig),
) -> Result<Plugin, (LoadError, crate::support::Events)> {
    let component = CheckedComponent::check(component.to_vec()).unwrap();
    let artefact = engine().compile(&component).await.unwrap();
    Plugin::load_in(engine(), &artefact, "made", edit).await
}

fn refused_by_its_start(
    loaded: Result<Plugin, (LoadError, crate::support::Events)>,
) -> wasm::FailureRecord {
    let Err((LoadError::FirstInstance(record), events)) = loaded else {
        panic!("the first instance should fail");
    };
    assert_eq!(events.failures(), [(*record).clone()], "exactly one record");
    *record
}
