//! Plugins with real components: deployed, called, replaced, drained.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use consumer::listener::{
    CancelSignal, ConcurrentlyStatus, ConsumeMode, ConsumeRequest, ConsumeRequestId, ConsumeResult,
    MessageModel, MessageRun, OrderlyCall, OrderlyStatus,
};
use consumer::publish::{MessageProducer, OutgoingMessage, SendError, SendFuture};
use plugin_lifecycle::compile_cache::CompileCache;
use plugin_lifecycle::event::{EventKind, Generation, Step};
use plugin_lifecycle::runner::LOADS_MAX;
use plugin_lifecycle::{DeployError, Manifest, Plugin, RunnerConfig};
use protocol::MessageQueue;
use protocol::message::codec::{MessageVersion, StoredMessage, body_crc};
use protocol::message::{MessageBatch, batch::DecodeLimits};
use protocol::sys_flag::MessageSysFlag;
use tokio::sync::Semaphore;

#[tokio::test(flavor = "multi_thread")]
async fn deployed_component_consumes_messages() {
    let host = Host::new();
    let plugin = host.plugin();

    plugin
        .deploy(host.manifest("succeed", ""))
        .await
        .expect("it serves");

    assert!(is_success(&call(&plugin).await));
    let (generation, _) = plugin.status().active.expect("active");
    assert_eq!(generation, Generation(1));
    stop(plugin).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn compiled_code_is_found_in_the_cache_by_the_next_start() {
    let host = Host::new();
    for start in 0..2 {
        let plugin = host.plugin();
        plugin
            .deploy(host.manifest("succeed", ""))
            .await
            .expect("it serves");
        let used = host.events(|kind| *kind == EventKind::CacheUsed);
        assert_eq!(used, start, "of start {start}");
        stop(plugin).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn entry_that_the_engine_cannot_read_is_compiled_again() {
    let host = Host::new();
    let plugin = host.plugin();
    plugin
        .deploy(host.manifest("succeed", ""))
        .await
        .expect("it serves");
    // A whole entry, made by something that is no engine.
    let key = host.replace_entry(b"not machine code");
    // Code that is loaded is not read again.
    stop(plugin).await;

    let plugin = host.plugin();
    plugin
        .deploy(host.manifest("succeed", "[settings]\na = \"b\"\n"))
        .await
        .expect("it serves");

    assert_eq!(
        host.events(|kind| matches!(kind, EventKind::CacheEntryRefused { .. })),
        1
    );
    assert!(is_success(&call(&plugin).await));
    assert!(std::fs::metadata(key).expect("written again").len() > 1000);
    stop(plugin).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failure_before_the_switch_leaves_the_old_revision_serving() {
    let host = Host::new();
    let plugin = host.plugin();
    let first = plugin
        .deploy(host.manifest("succeed", ""))
        .await
        .expect("it serves");

    for (guest, step, part) in [
        ("no_such_guest", Step::Fetch, "does not exist"),
        ("wrong_world", Step::Check, "another world"),
        ("wrong_import", Step::Check, "not granted"),
        ("init_fails", Step::WarmUp, "init"),
        ("init_traps", Step::WarmUp, "trap"),
    ] {
        let error = plugin
            .deploy(host.manifest(guest, ""))
            .await
            .expect_err(guest);
        match error {
            DeployError::Failed {
                step: failed,
                reason,
            } => {
                assert_eq!(failed, step, "{guest}: {reason}");
                assert!(reason.contains(part), "{guest}: {reason}");
            }
            other => panic!("{guest}: {other}"),
        }
        assert_eq!(
            plugin.status().active.map(|(generation, _)| generation),
            Some(first)
        );
        assert!(is_success(&call(&plugin).await), "after {guest}");
    }
    stop(plugin).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn next_call_after_a_swap_gets_the_new_revision() {
    let host = Host::new();
    let plugin = host.plugin();
    plugin
        .deploy(host.manifest("succeed", ""))
        .await
        .expect("it serves");
    assert!(is_success(&call(&plugin).await));

    plugin
        .deploy(host.manifest("reconsume_later", ""))
        .await
        .expect("it serves");

    let result = call(&plugin).await;
    assert!(!is_success(&result), "{result:?}");
    host.wait_for(|kind| {
        matches!(
            kind,
            EventKind::Gone {
                generation: Generation(1)
            }
        )
    })
    .await;
    stop(plugin).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn call_that_does_not_end_is_killed_at_the_drain_deadline_and_not_finished() {
    let host = Host::new();
    let plugin = host.plugin();
    plugin
        .deploy(host.manifest("wait_forever", ""))
        .await
        .expect("it serves");
    let hanging = tokio::spawn(
        plugin
            .listener()
            .consume_message(request(), CancelSignal::default()),
    );
    host.calls_under_way(&plugin).await;

    plugin.stop(tokio::time::Instant::now()).await;

    assert_eq!(hanging.await.expect("no panic"), ConsumeResult::NotFinished);
    assert_eq!(
        host.events(|kind| matches!(kind, EventKind::DrainDeadline { .. })),
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_ended_before_the_drain_deadline_stand() {
    let host = Host::new();
    let plugin = host.plugin();
    plugin
        .deploy(host.manifest_of("orderly", "orderly_as_told", ""))
        .await
        .expect("it serves");
    let mode = ConsumeMode::Orderly { auto_commit: true };
    let request = request_of(&["a", "wait"], mode, 1);
    let listener = plugin.listener();
    let call = tokio::spawn(listener.consume_message(request, CancelSignal::default()));
    eventually("the first call ends", || host.calls_finished() > 0).await;

    plugin.stop(tokio::time::Instant::now()).await;

    let first = OrderlyCall {
        messages: 1,
        status: OrderlyStatus::Success,
        reason: None,
    };
    assert_eq!(
        call.await.expect("no panic"),
        ConsumeResult::OrderlyCalls(vec![first])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn newest_of_many_deployments_wins() {
    let host = Host::new();
    let plugin = Arc::new(host.plugin());
    let mut deployments = tokio::task::JoinSet::new();
    for number in 0..20 {
        let plugin = Arc::clone(&plugin);
        let manifest = host.manifest("succeed", &format!("[settings]\nnumber = \"{number}\"\n"));
        deployments.spawn(async move { plugin.deploy(manifest).await });
    }

    let outcomes = deployments.join_all().await;

    let newest = outcomes.iter().flatten().max().expect("one serves");
    assert_eq!(*newest, Generation(20));
    assert_eq!(
        plugin.status().active.map(|(generation, _)| generation),
        Some(*newest)
    );
    assert!(
        outcomes
            .iter()
            .all(|outcome| matches!(outcome, Ok(_) | Err(DeployError::Superseded)))
    );
    stop(Arc::into_inner(plugin).expect("the last one")).await;
}

struct Host {
    folder: tempfile::TempDir,
    config: RunnerConfig,
    events: Arc<Mutex<Vec<EventKind>>>,
    calls_finished: Arc<AtomicUsize>,
}

impl Host {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let events = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&events);
        let calls_finished = Arc::new(AtomicUsize::new(0));
        let finished = Arc::clone(&calls_finished);
        let wasm_observer: wasm::Observer = Arc::new(move |event: &wasm::Event| {
            if matches!(event, wasm::Event::CallFinished(_)) {
                finished.fetch_add(1, Ordering::Relaxed);
            }
        });
        let engine_config = wasm::EngineConfig {
            instances_max: 10,
            ..wasm::EngineConfig::default()
        };
        let config = RunnerConfig {
            engine: wasm::Engine::new(&engine_config, &wasm_observer).expect("wasmtime runs here"),
            cache: Arc::new(CompileCache::open(&folder.path().join("cache")).expect("our own")),
            tenant: wasm::Tenant::new(wasm::TenantConfig::new("test")),
            producer: Arc::new(NoProducer),
            reach: plugin_lifecycle::Reach::default(),
            fetcher: Arc::default(),
            signatures: Arc::default(),
            drain_timeout: Duration::from_secs(30),
            rollback_window: Duration::ZERO,
            observer: Arc::new(move |event: &plugin_lifecycle::Event| {
                seen.lock().expect("no panic").push(event.kind.clone());
            }),
            wasm_observer,
            loads: Arc::new(Semaphore::new(LOADS_MAX)),
        };
        Self {
            folder,
            config,
            events,
            calls_finished,
        }
    }

    fn plugin(&self) -> Plugin {
        let name = self.manifest("succeed", "").name().clone();
        Plugin::start(name, self.config.clone())
    }

    fn manifest(&self, guest: &str, more: &str) -> Arc<Manifest> {
        self.manifest_of("concurrent", guest, more)
    }

    fn manifest_of(&self, kind: &str, guest: &str, more: &str) -> Arc<Manifest> {
        let component = match guest {
            "no_such_guest" => self.folder.path().join("no_such_guest.wasm"),
            guest => guest_artifacts::path(guest),
        };
        let text = format!(
            "name = \"plugin\"\nlistener = {kind:?}\ncomponent = {:?}\nconsumer_group = \"g\"\n[[subscription]]\ntopic = \"t\"\n{more}",
            component.display().to_string()
        );
        Arc::new(Manifest::parse(Path::new("plugin.toml"), &text).expect("valid"))
    }

    fn events(&self, wanted: impl Fn(&EventKind) -> bool) -> usize {
        let events = self.events.lock().expect("no panic");
        events.iter().filter(|kind| wanted(kind)).count()
    }

    async fn wait_for(&self, wanted: impl Fn(&EventKind) -> bool) {
        eventually("the event", || self.events(&wanted) > 0).await;
    }

    fn calls_finished(&self) -> usize {
        self.calls_finished.load(Ordering::Relaxed)
    }

    async fn calls_under_way(&self, plugin: &Plugin) {
        eventually("a call under way", || plugin.calls() > 0).await;
    }

    /// Puts other bytes in the place of the only entry, header and checksum in order.
    fn replace_entry(&self, code: &[u8]) -> PathBuf {
        let entries = std::fs::read_dir(self.folder.path().join("cache")).expect("the cache");
        let entry = entries
            .map(|entry| entry.expect("listed").path())
            .next()
            .expect("an entry");
        let mut bytes = std::fs::read(&entry).expect("readable");
        bytes.truncate(40);
        bytes.extend_from_slice(&(code.len() as u64).to_le_bytes());
        bytes.extend_from_slice(plugin_lifecycle::Digest::of(code).bytes());
        bytes.extend_from_slice(code);
        std::fs::write(&entry, bytes).expect("writable");
        entry
    }
}

struct NoProducer;

impl MessageProducer for NoProducer {
    fn prepare(&self, _: &mut [OutgoingMessage]) -> Result<(), SendError> {
        Err(SendError::Stopped)
    }

    fn send(&self, _: Vec<OutgoingMessage>, _: Duration) -> SendFuture {
        Box::pin(std::future::ready(Err(SendError::Stopped)))
    }

    fn send_oneway(&self, _: OutgoingMessage) -> SendFuture {
        Box::pin(std::future::ready(Err(SendError::Stopped)))
    }
}

async fn call(plugin: &Plugin) -> ConsumeResult {
    plugin
        .listener()
        .consume_message(request(), CancelSignal::default())
        .await
}

async fn stop(plugin: Plugin) {
    plugin
        .stop(tokio::time::Instant::now() + Duration::from_secs(30))
        .await;
}

fn is_success(result: &ConsumeResult) -> bool {
    matches!(
        result,
        ConsumeResult::Concurrently(ConcurrentlyStatus::ConsumeSuccess { ack_index: None })
    )
}

fn request() -> Arc<ConsumeRequest> {
    request_of(&["hi"], ConsumeMode::Concurrently, 32)
}

fn request_of(
    bodies: &[&'static str],
    mode: ConsumeMode,
    messages_per_call: u32,
) -> Arc<ConsumeRequest> {
    let mut frame = BytesMut::new();
    for body in bodies {
        let stored = stored(Bytes::from_static(body.as_bytes()));
        stored.encode(&mut frame).expect("it fits");
    }
    let batch = MessageBatch::decode(frame.freeze(), &DecodeLimits::default());
    assert_eq!(batch.len(), bodies.len());
    Arc::new(ConsumeRequest {
        id: ConsumeRequestId(1),
        consumer_group: "g".into(),
        message_queue: MessageQueue::new("t", "b", 0),
        topic: "t".into(),
        message_model: MessageModel::Clustering,
        mode,
        runs: vec![MessageRun {
            range: 0..u32::try_from(batch.len()).expect("a few"),
            batch: Arc::new(batch),
            local_reconsume_times: 0,
        }],
        messages_per_call,
        consume_timeout: Duration::from_secs(60),
    })
}

fn stored(body: Bytes) -> StoredMessage {
    let host = "127.0.0.1:9876".parse().expect("an address");
    StoredMessage {
        version: MessageVersion::V1,
        body_crc: body_crc(&body),
        queue_id: 0,
        flag: 0,
        queue_offset: 7,
        commit_log_offset: 700,
        sys_flag: MessageSysFlag(0),
        born_timestamp_ms: 1,
        born_host: host,
        store_timestamp_ms: 2,
        store_host: host,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body,
        topic: "t".to_owned(),
        properties: Bytes::new(),
    }
}

/// Waits for a condition, at most half a minute.
async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let bound = tokio::time::Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(tokio::time::Instant::now() < bound, "waited for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
