//! A consumer on a broker, from the first message to the last: a native listener and a
//! sandboxed one in this process, `mqlet run` as users start it, and on a real RocketMQ
//! its own Java client beside them.
//!
//! Every run is a new group that starts at the first offset and does nothing with its
//! messages. Listeners in this process are counted by the events of their client; whole
//! processes by what their group has committed at the broker, which is the same for every
//! client there is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use consumer::config::GroupConfigBuilder;
use consumer::listener::MessageListener;
use consumer::{ClientConfig, ConsumeFromWhere, GroupConfig};
use driver::{Driver, DriverConfig, Event};
use plugin_lifecycle::event::Generation;
use plugin_lifecycle::slot::{PluginSlot, Serving};
use protocol::subscription::SubscriptionData;
use tokio::sync::Notify;

use crate::broker::{Cluster, TOPIC};
use crate::client_process::{self, Java, Mqlet};
use crate::listener::{self, Guest, Native};
use crate::report::{Report, Sample, Target};
use crate::{Options, machine};

const NATIVE: &str = "native listener, in process";
const WASM: &str = "wasm listener, in process";
const MQLET: &str = "mqlet run";
const JAVA: &str = "Java DefaultMQPushConsumer";

/// For one run.
const RUN_MAX: Duration = Duration::from_secs(300);

pub(crate) fn run(options: &Options) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        on(options, "embedded broker", &Cluster::embedded()?, None).await?;
        if options.real {
            let cluster = Cluster::real()?;
            let java = Java::compile()?;
            on(options, "RocketMQ 5.5.0", &cluster, Some(&java)).await?;
        }
        Ok(())
    })
}

async fn on(options: &Options, name: &str, cluster: &Cluster, java: Option<&Java>) -> Result<()> {
    let count = options.messages.unwrap_or(match (options.quick, java) {
        (true, _) => 20_000,
        (false, None) => 200_000,
        (false, Some(_)) => 500_000,
    });
    cluster.fill(TOPIC, count).await?;
    let engine = listener::engine(|_| {})?;
    let component = Guest::compile(&engine, "succeed").await?.load().await?;
    let slot = PluginSlot::new();
    slot.switch(Some(Arc::new(Serving::new(Generation(1), component))));
    let slot: Arc<dyn MessageListener> = Arc::new(slot);
    let mqlet = Mqlet::new(cluster, "succeed")?;

    let mut report = Report::new(
        &format!("end to end, {name}, {count} messages of 1 KiB"),
        "messages a second, CPU s a million messages, MiB",
    );
    // Compiles the component, and reads the broker's files for the first time.
    client_process::watch(cluster, count, |group| mqlet.start(group)).await?;
    for _ in 0..options.pick(2, 7) {
        let native: Arc<dyn MessageListener> = Arc::new(Native);
        report.add(NATIVE, in_process(cluster, group(), native, count).await?);
        report.add(
            WASM,
            in_process(cluster, group(), Arc::clone(&slot), count).await?,
        );
        let watched = client_process::watch(cluster, count, |group| mqlet.start(group)).await;
        report.add(MQLET, watched?);
        if let Some(java) = java {
            let watched = client_process::watch(cluster, count, |group| {
                java.start(cluster.namesrv_addr(), group, count)
            });
            report.add(JAVA, watched.await?);
        }
    }
    let ratio =
        |report: &Report, pair, column| report.paired(pair, column, |one, other| one / other);
    let rate = ratio(&report, (WASM, NATIVE), "rate");
    report.judge(
        "messages a second, wasm / native",
        rate,
        Target::AtLeast(0.85),
    );
    let cpu = ratio(&report, (WASM, NATIVE), "cpu");
    report.note("CPU, wasm / native", cpu);
    if java.is_some() {
        let rate = ratio(&report, (MQLET, JAVA), "rate");
        report.judge(
            "messages a second, mqlet / Java",
            rate,
            Target::AtLeast(1.5),
        );
        let cpu = ratio(&report, (MQLET, JAVA), "cpu, whole process");
        report.judge("CPU, mqlet / Java", cpu, Target::AtMost(0.25));
        let memory = ratio(&report, (MQLET, JAVA), "peak MiB");
        report.judge(
            "peak memory, mqlet / Java",
            memory,
            Target::AtMost(1.0 / 6.0),
        );
    }
    report.print()?;

    let mut report = Report::new(
        &format!("first message of an existing group, {name}"),
        "ms after the process was started",
    );
    let ledger = Mqlet::new(cluster, "ledger")?;
    // Compiles the component.
    client_process::first_message(cluster, &ledger).await?;
    for _ in 0..options.pick(2, 7) {
        let first = client_process::first_message(cluster, &ledger).await?;
        report.add(MQLET, vec![("ms", first.as_secs_f64() * 1e3)]);
    }
    let first = report.median(MQLET, "ms");
    report.judge("first message, ms", first, Target::AtMost(300.0));
    report.print()?;
    Ok(())
}

/// A group that nobody used before.
pub(crate) fn new_group() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("bench-{}-{number}", now.as_millis())
}

/// What the observer of a client writes down.
#[derive(Default)]
struct Counter {
    done: AtomicU64,
    first: Mutex<Option<(Instant, Duration)>>,
    all: Notify,
}

impl Counter {
    fn add(&self, messages: u64, count: u64) {
        let before = self.done.fetch_add(messages, Ordering::Relaxed);
        if before == 0 {
            let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
            *first = Some((Instant::now(), machine::process_cpu()));
        }
        if before + messages >= count {
            self.all.notify_one();
        }
    }
}

/// A new group that reads the topic from its start.
fn group() -> GroupConfigBuilder {
    GroupConfig::builder(new_group()).subscription(SubscriptionData::all(TOPIC))
}

/// One run in this process.
pub(crate) async fn in_process(
    cluster: &Cluster,
    group: GroupConfigBuilder,
    listener: Arc<dyn MessageListener>,
    count: u64,
) -> Result<Sample> {
    let counter = Arc::new(Counter::default());
    let seen = Arc::clone(&counter);
    let config = group
        .consume_from_where(ConsumeFromWhere::FirstOffset)
        .build()?;
    let group = config.consumer_group();
    let id = format!("127.0.0.1@{}#{group}", std::process::id());
    let client = ClientConfig::new(id, vec![cluster.namesrv_addr().clone()]);
    let driver = Driver::start(
        DriverConfig::new(client),
        Arc::new(move |event: &Event| {
            if let Event::Client(consumer::Event::Consumed { done, .. }) = event {
                seen.add(u64::from(*done), count);
            }
        }),
    );
    driver.subscribe(config, listener).await?;
    tokio::time::timeout(RUN_MAX, counter.all.notified())
        .await
        .with_context(|| {
            let done = counter.done.load(Ordering::Relaxed);
            format!("{done} of {count} messages after {RUN_MAX:?}")
        })?;
    let (ended, cpu_after) = (Instant::now(), machine::process_cpu());
    driver.stop(Duration::from_secs(5)).await;
    let first = *counter.first.lock().unwrap_or_else(PoisonError::into_inner);
    let (began, cpu_before) = first.context("all is done, so something was first")?;
    Ok(vec![
        ("rate", count as f64 / (ended - began).as_secs_f64()),
        (
            "cpu",
            (cpu_after - cpu_before).as_secs_f64() / count as f64 * 1e6,
        ),
    ])
}
