//! A loaded guest whose events can be looked at, and requests for it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use consumer::listener::{
    CancelSignal, ConcurrentlyStatus, ConsumeMode, ConsumeRequest, ConsumeRequestId, ConsumeResult,
    MessageListener, MessageModel, MessageOutcome, MessageRun,
};
use consumer::publish::{MessageProducer, OutgoingMessage, SendError, SendFuture, SendResult};
use protocol::message::batch::DecodeLimits;
use protocol::message::codec::{MessageVersion, StoredMessage, body_crc};
use protocol::message::{MessageBatch, properties};
use protocol::sys_flag::MessageSysFlag;
use protocol::{MessageQueue, QueueOffset};
use wasm::{
    Artefact, CallReport, CheckedComponent, ComponentListener, Engine, EngineConfig, Event,
    FailureRecord, LoadError, LogLine, Observer, PluginConfig,
};

/// A bound for what must happen soon; it is never waited for in full.
pub const SOON: Duration = Duration::from_secs(30);

/// The engine of this test: as a host has it, with a small pool.
pub fn engine() -> &'static Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(|| {
        let config = EngineConfig {
            instances_max: 64,
            run_slots: 2,
            ..EngineConfig::default()
        };
        let ignore: Observer = Arc::new(|_: &Event| {});
        Engine::new(&config, &ignore).expect("wasmtime runs here")
    })
}

pub async fn compile(engine: &Engine, guest: &str) -> Artefact {
    let component = CheckedComponent::check(guest_artifacts::bytes(guest)).expect(guest);
    engine.compile(&component).await.expect(guest)
}

/// A guest with what it did.
pub struct Plugin {
    pub listener: Arc<ComponentListener>,
    pub events: Events,
    pub sent: Sent,
}

impl Plugin {
    pub async fn load(guest: &str) -> Self {
        Self::load_with(guest, |_| {}).await
    }

    pub async fn load_with(guest: &str, edit: impl FnOnce(&mut PluginConfig)) -> Self {
        match Self::try_load(guest, edit).await {
            Ok(plugin) => plugin,
            Err((error, _)) => panic!("{guest} is not loaded: {error}"),
        }
    }

    pub async fn try_load(
        guest: &str,
        edit: impl FnOnce(&mut PluginConfig),
    ) -> Result<Self, (LoadError, Events)> {
        let artefact = compile(engine(), guest).await;
        Self::load_in(engine(), &artefact, guest, edit).await
    }

    pub async fn load_in(
        engine: &Engine,
        artefact: &Artefact,
        guest: &str,
        edit: impl FnOnce(&mut PluginConfig),
    ) -> Result<Self, (LoadError, Events)> {
        let mut config = PluginConfig::new(guest, "r1");
        edit(&mut config);
        let events = Events::default();
        let sent = Sent::default();
        let loaded = ComponentListener::load(
            engine,
            artefact,
            config,
            Arc::new(sent.clone()),
            events.observer(),
        )
        .await;
        match loaded {
            Ok(listener) => Ok(Self {
                listener: Arc::new(listener),
                events,
                sent,
            }),
            Err(error) => Err((error, events)),
        }
    }

    /// Consumes messages with these bodies in one call.
    pub async fn consume(&self, bodies: &[&str]) -> ConsumeResult {
        self.consume_request(Request::of(bodies).build()).await
    }

    pub async fn consume_request(&self, request: ConsumeRequest) -> ConsumeResult {
        let mut result = self.consume_whole(request).await;
        // What most tests compare is what was answered.
        if let ConsumeResult::OrderlyCalls(calls) = &mut result {
            calls.iter_mut().for_each(|call| call.reason = None);
        }
        result
    }

    /// The same, with why calls in order broke.
    pub async fn consume_whole(&self, request: ConsumeRequest) -> ConsumeResult {
        let cancel = CancelSignal::default();
        self.listener
            .consume_message(Arc::new(request), cancel)
            .await
    }

    /// The reasons by which a guest tells what it saw, one a message.
    pub async fn reasons(&self, request: Request) -> Vec<String> {
        match self.consume_request(request.build()).await {
            ConsumeResult::Concurrently(ConcurrentlyStatus::Each(outcomes)) => outcomes
                .into_iter()
                .map(|outcome| match outcome {
                    MessageOutcome::DeadLetter { reason } => reason.to_string(),
                    other => panic!("not a dead letter: {other:?}"),
                })
                .collect(),
            other => panic!("no outcome for each message: {other:?}"),
        }
    }
}

/// Builds a request of one queue.
pub struct Request {
    bodies: Vec<Bytes>,
    properties: Vec<(String, String)>,
    pub topic: String,
    pub mode: ConsumeMode,
    pub messages_per_call: u32,
    pub consume_timeout: Duration,
    pub reconsume_times: i32,
    pub local_reconsume_times: u32,
    pub unique_key: bool,
}

impl Request {
    pub fn of(bodies: &[&str]) -> Self {
        Self::of_bytes(
            bodies
                .iter()
                .map(|body| Bytes::copy_from_slice(body.as_bytes())),
        )
    }

    pub fn of_bytes(bodies: impl IntoIterator<Item = Bytes>) -> Self {
        Self {
            bodies: bodies.into_iter().collect(),
            properties: Vec::new(),
            topic: "orders".into(),
            mode: ConsumeMode::Concurrently,
            messages_per_call: 32,
            consume_timeout: SOON,
            reconsume_times: 0,
            local_reconsume_times: 0,
            unique_key: true,
        }
    }

    /// For an orderly listener.
    pub fn in_order(bodies: &[&str]) -> Self {
        let mut request = Self::of(bodies);
        request.mode = ConsumeMode::Orderly { auto_commit: true };
        request
    }

    pub fn property(mut self, name: &str, value: &str) -> Self {
        self.properties.push((name.into(), value.into()));
        self
    }

    pub fn build(self) -> ConsumeRequest {
        let mut frame = BytesMut::new();
        for (index, body) in self.bodies.iter().enumerate() {
            self.message(index as i64, body.clone())
                .encode(&mut frame)
                .expect("the message fits");
        }
        let batch = MessageBatch::decode(frame.freeze(), &DecodeLimits::default());
        assert_eq!(batch.len(), self.bodies.len(), "{:?}", batch.unreadable());
        ConsumeRequest {
            id: ConsumeRequestId(1),
            consumer_group: "orders-group".into(),
            message_queue: MessageQueue::new(&self.topic, "broker-a", 3),
            topic: self.topic.as_str().into(),
            message_model: MessageModel::Clustering,
            mode: self.mode,
            runs: vec![MessageRun {
                range: 0..batch.len() as u32,
                batch: Arc::new(batch),
                local_reconsume_times: self.local_reconsume_times,
            }],
            messages_per_call: self.messages_per_call,
            consume_timeout: self.consume_timeout,
        }
    }

    fn message(&self, index: i64, body: Bytes) -> StoredMessage {
        let id = message_id(index);
        let mut entries = vec![("TAGS", "TagA"), ("KEYS", "k1 k2")];
        if self.unique_key {
            entries.push(("UNIQ_KEY", id.as_str()));
        }
        let own = self.properties.iter();
        entries.extend(own.map(|(name, value)| (name.as_str(), value.as_str())));
        StoredMessage {
            version: MessageVersion::for_topic(&self.topic),
            body_crc: body_crc(&body),
            queue_id: 3,
            flag: -7,
            queue_offset: 100 + index,
            commit_log_offset: 1_000_000 + index,
            sys_flag: MessageSysFlag::default(),
            born_timestamp_ms: 1_700_000_000_001,
            born_host: SocketAddr::from(([10, 0, 0, 1], 4711)),
            store_timestamp_ms: 1_700_000_000_002,
            store_host: SocketAddr::from(([10, 0, 0, 2], 10911)),
            reconsume_times: self.reconsume_times,
            prepared_transaction_offset: 0,
            body,
            topic: self.topic.clone(),
            properties: properties::encode(entries).into(),
        }
    }
}

/// The id of the message at this position.
pub fn message_id(index: i64) -> String {
    format!("0A000001000000000000{index:012X}")
}

/// Everything a plugin's observer heard.
#[derive(Clone, Default)]
pub struct Events {
    heard: Arc<Mutex<Vec<Event>>>,
    awaited_line: Arc<Mutex<Option<AwaitedLine>>>,
}

struct AwaitedLine {
    text: String,
    then: Box<dyn FnOnce() + Send>,
}

impl Events {
    pub fn observer(&self) -> Observer {
        let events = self.clone();
        Arc::new(move |event: &Event| {
            events.heard.lock().unwrap().push(event.clone());
            if let Event::LogLine { line, .. } = event {
                let mut awaited = events.awaited_line.lock().unwrap();
                let found = awaited.take_if(|awaited| line.text.contains(&awaited.text));
                drop(awaited);
                if let Some(AwaitedLine { then, .. }) = found {
                    then();
                }
            }
        })
    }

    /// Does something as soon as a guest logs a line with this text, in the midst of its
    /// call.
    pub fn on_line(&self, text: &str, then: impl FnOnce() + Send + 'static) {
        *self.awaited_line.lock().unwrap() = Some(AwaitedLine {
            text: text.to_owned(),
            then: Box::new(then),
        });
    }

    pub fn all(&self) -> Vec<Event> {
        self.heard.lock().unwrap().clone()
    }

    pub fn failures(&self) -> Vec<FailureRecord> {
        self.pick(|event| match event {
            Event::CallFailed(record) => Some((*record).clone()),
            _ => None,
        })
    }

    pub fn reports(&self) -> Vec<CallReport> {
        self.pick(|event| match event {
            Event::CallFinished(report) => Some(report),
            _ => None,
        })
    }

    pub fn lines(&self) -> Vec<LogLine> {
        self.pick(|event| match event {
            Event::LogLine { line, .. } => Some(line),
            _ => None,
        })
    }

    pub fn instances_created(&self) -> usize {
        self.pick(|event| matches!(event, Event::InstanceCreated { .. }).then_some(()))
            .len()
    }

    pub fn pick<T>(&self, pick: impl FnMut(Event) -> Option<T>) -> Vec<T> {
        self.all().into_iter().filter_map(pick).collect()
    }
}

/// A producer that remembers, and may be told to refuse or to wait.
#[derive(Clone, Default)]
pub struct Sent {
    pub messages: Arc<Mutex<Vec<OutgoingMessage>>>,
    pub timeouts: Arc<Mutex<Vec<Duration>>>,
    pub refusal: Arc<Mutex<Option<SendError>>>,
    pub hangs: Arc<std::sync::atomic::AtomicBool>,
    pub prepared: Arc<std::sync::atomic::AtomicUsize>,
}

impl Sent {
    fn answer(&self, messages: Vec<OutgoingMessage>) -> SendFuture {
        let refusal = self.refusal.lock().unwrap().clone();
        let hangs = self.hangs.load(std::sync::atomic::Ordering::Relaxed);
        let results = messages
            .iter()
            .enumerate()
            .map(|(index, message)| SendResult {
                message_id: format!("sent-{index}"),
                offset_message_id: "offset-id".into(),
                message_queue: MessageQueue::new(&message.topic, "broker-b", 5),
                queue_offset: QueueOffset(9),
            })
            .collect();
        self.messages.lock().unwrap().extend(messages);
        Box::pin(async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            match refusal {
                Some(refusal) => Err(refusal),
                None => Ok(results),
            }
        })
    }
}

impl MessageProducer for Sent {
    fn prepare(&self, messages: &mut [OutgoingMessage]) -> Result<(), SendError> {
        for message in messages {
            if message.body.is_empty() {
                let reason = "the body is empty".to_owned();
                return Err(SendError::Illegal { reason });
            }
            let number = self
                .prepared
                .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            message.message_id = Some(format!("prepared-{number}"));
        }
        Ok(())
    }

    fn send(&self, messages: Vec<OutgoingMessage>, timeout: Duration) -> SendFuture {
        self.timeouts.lock().unwrap().push(timeout);
        self.answer(messages)
    }

    fn send_oneway(&self, message: OutgoingMessage) -> SendFuture {
        self.answer(vec![message])
    }
}

pub fn all_done() -> ConsumeResult {
    ConsumeResult::Concurrently(ConcurrentlyStatus::ConsumeSuccess { ack_index: None })
}

pub fn each(outcomes: Vec<MessageOutcome>) -> ConsumeResult {
    ConsumeResult::Concurrently(ConcurrentlyStatus::Each(outcomes))
}

pub fn later(delay_level: Option<i32>) -> MessageOutcome {
    MessageOutcome::ReconsumeLater { delay_level }
}

/// A message of a batch that failed alone, as this record says.
pub fn broke(plugin: &Plugin, record: usize) -> MessageOutcome {
    MessageOutcome::Failed {
        reason: plugin.events.failures()[record].kind.to_string().into(),
    }
}

/// One message that failed by itself, for the reason that was told last.
pub fn failed_alone(plugin: &Plugin) -> ConsumeResult {
    let record = plugin.events.failures().pop().expect("a failure is told");
    ConsumeResult::Failed {
        reason: record.kind.to_string().into(),
    }
}

/// Waits until something is so.
pub async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < SOON, "{what}: not within {SOON:?}");
        tokio::task::yield_now().await;
    }
}
