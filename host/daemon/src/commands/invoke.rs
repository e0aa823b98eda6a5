//! `mqlet invoke`: one plugin and one message or batch, no broker.

mod input;
mod producer;
mod queue;
mod report;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use consumer::GroupConfig;
use consumer::listener::{CancelSignal, ConsumeRequest};
use consumer::pull_task::{PullTaskId, PullTaskRequest};
use plugin_lifecycle::compile_cache::CompileCache;
use plugin_lifecycle::manifest::folder;
use plugin_lifecycle::runner::LOADS_MAX;
use plugin_lifecycle::{DeployError, EventKind, Manifest, Plugin, RunnerConfig};
use tokio::sync::Semaphore;

use crate::cli::{self, GlobalArguments, HostArguments};
use crate::config::problem::refused;
use crate::config::{self, HostConfig, overrides};
use crate::exit::{self, Exit, Refused};
use crate::output::Output;
use crate::reach;
use producer::NotedProducer;
use queue::MemoryQueue;
use report::Report;

/// Call a plugin with a message or a batch; no broker
#[derive(Args, Debug)]
#[command(
    after_help = exit::HELP,
    long_about = "\
Calls a plugin once, with one message or with a batch, inside the limits of its manifest and
without a broker; what it sends is shown and goes nowhere. Prints the outcome of each
message, the time, CPU time and memory of the call, and the plugin's log lines. Ends with 5
when an outcome is not \"done\".

An orderly plugin gets the messages of a queue in order, up to the first that it suspends. A
pull task runs once for each queue that the messages are of, with them as its content and no
offset committed.

The messages come from --body, from --message, or from standard input, one body a line.
Nothing is built: the component has to be there (\"mqlet dev\" builds it).

A message as JSON, every field optional:

  {\"topic\": \"orders\", \"tags\": \"paid\", \"keys\": [\"4711\"], \"sharding_key\": \"4711\",
   \"properties\": {\"region\": \"eu\"}, \"body\": \"text\", \"body_base64\": \"…\", \"reconsume_times\": 0,
   \"broker_name\": \"broker-a\", \"queue_id\": 0, \"queue_offset\": 0}

Examples:
  mqlet invoke plugins/hello/rust --body hi
  mqlet invoke plugins/hello/rust --body hi --tag paid --key 4711 --property region=eu
  mqlet invoke plugins/hello/rust --body hi --count 32          a batch
  mqlet invoke plugins/hello/rust --message message.json        an object, an array, or JSON lines
  seq 1 100 | mqlet invoke plugins/hello/rust"
)]
pub(crate) struct InvokeArguments {
    /// Folder with a plugin.toml, or the manifest itself
    pub(crate) plugin: PathBuf,
    /// Body of the message, as text
    #[arg(long, value_name = "TEXT", conflicts_with = "message")]
    pub(crate) body: Option<String>,
    /// File with a message as JSON, an array of them, or one a line; "-" is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) message: Option<PathBuf>,
    /// Topic of the message [default: the first subscription of the plugin]
    #[arg(long, value_name = "TOPIC")]
    pub(crate) topic: Option<String>,
    /// Tag of the message; RocketMQ has one
    #[arg(long, value_name = "TAG")]
    pub(crate) tag: Option<String>,
    /// Key of the message; can be repeated
    #[arg(long = "key", value_name = "KEY")]
    pub(crate) keys: Vec<String>,
    /// Property of the message; can be repeated
    #[arg(long = "property", value_name = "KEY=VALUE", value_parser = cli::property)]
    pub(crate) properties: Vec<(String, String)>,
    /// How often the message was delivered before
    #[arg(long, value_name = "COUNT")]
    pub(crate) reconsume_times: Option<u32>,
    /// The same message this many times, in batches as the manifest says
    #[arg(long, default_value_t = 1, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) count: u32,
}

/// See [`InvokeArguments`].
pub(crate) fn execute(
    global: &GlobalArguments,
    arguments: &InvokeArguments,
    output: &mut Output,
) -> anyhow::Result<Exit> {
    let overrides = overrides::collect(global, &HostArguments::default());
    let (host, _) = config::without_file(overrides).map_err(|problems| refused(&problems.0))?;
    let manifest = folder::find(&arguments.plugin)
        .map_err(|problem| refused(&[problem]))
        .and_then(|file| Manifest::load(&file).map_err(|problems| refused(&problems.0)))?;
    let messages = input::messages(arguments)?;
    let group = manifest.group_config();
    let requests = input::requests(&messages, &group)?;

    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(host.worker_threads)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let mut report = runtime.block_on(invoke(&host, manifest, &group, &requests))?;
    for (number, message) in messages.iter().enumerate() {
        if let Some(why) = input::not_delivered(message, &group) {
            report.notes.push(format!(
                "a consumer would not get message {}: {why}",
                number + 1
            ));
        }
    }
    output.result(report.text(), &report)?;
    Ok(if report.is_done() {
        Exit::Done
    } else {
        Exit::NotDone
    })
}

/// Loads the plugin as a host does, calls it as the consumer does, and ends it.
async fn invoke(
    host: &HostConfig,
    manifest: Manifest,
    group: &GroupConfig,
    requests: &[Arc<ConsumeRequest>],
) -> anyhow::Result<Report> {
    let events: Arc<Mutex<Events>> = Arc::default();
    let producer = NotedProducer::default();
    let config = runner_config(host, &events, producer.clone())?;
    let name = manifest.name().clone();
    let mut report = Report {
        plugin: name.to_string(),
        ..Report::default()
    };

    let plugin = Plugin::start(name, config);
    let started = Instant::now();
    let deployed = plugin.deploy(Arc::new(manifest)).await;
    report.load_us = report::whole_microseconds(started.elapsed());
    if let Err(error) = deployed {
        bail!(refused_plugin(&error, &take(&events)));
    }
    if let Some((_, revision)) = plugin.status().active {
        report.revision = revision.to_string();
    }
    for request in requests {
        match group.pull_task_interval() {
            None => consume(&plugin, request, &mut report).await,
            Some(interval) => run_task(&plugin, request, interval, &mut report).await,
        }
    }
    plugin
        .stop(tokio::time::Instant::now() + host.drain_timeout)
        .await;

    let events = take(&events);
    report.compiled_before = events.lifecycle.contains(&EventKind::CacheUsed);
    report
        .notes
        .extend(events.lifecycle.iter().filter_map(cache_note));
    events
        .calls
        .iter()
        .for_each(|event| report.add_event(event));
    producer
        .sent()
        .into_iter()
        .for_each(|message| report.add_sent(message));
    Ok(report)
}

async fn consume(plugin: &Plugin, request: &Arc<ConsumeRequest>, report: &mut Report) {
    let listener = plugin.listener();
    let call = listener.consume_message(Arc::clone(request), CancelSignal::default());
    report.add_result(request, &call.await);
}

/// One run of a pull task for the queue that a request is of.
async fn run_task(
    plugin: &Plugin,
    request: &Arc<ConsumeRequest>,
    interval: Duration,
    report: &mut Report,
) {
    let queue = Arc::new(MemoryQueue::new(request));
    let task = PullTaskRequest {
        id: PullTaskId(request.id.0),
        consumer_group: Arc::clone(&request.consumer_group),
        message_queue: request.message_queue.clone(),
        message_model: request.message_model,
        consume_timeout: request.consume_timeout,
    };
    let puller = Arc::<MemoryQueue>::clone(&queue);
    let run = plugin
        .pull_task()
        .do_pull_task(Arc::new(task), puller, CancelSignal::default());
    report.add_run(request, &queue, &run.await, interval);
}

/// What observers heard, in order.
#[derive(Default)]
struct Events {
    lifecycle: Vec<EventKind>,
    calls: Vec<wasm::Event>,
}

fn runner_config(
    host: &HostConfig,
    events: &Arc<Mutex<Events>>,
    producer: NotedProducer,
) -> anyhow::Result<RunnerConfig> {
    let of_lifecycle = Arc::clone(events);
    let observer: plugin_lifecycle::event::Observer =
        Arc::new(move |event: &plugin_lifecycle::Event| {
            lock(&of_lifecycle).lifecycle.push(event.kind.clone());
        });
    let of_calls = Arc::clone(events);
    let wasm_observer: wasm::Observer = Arc::new(move |event: &wasm::Event| {
        lock(&of_calls).calls.push(event.clone());
    });
    let engine_config = wasm::EngineConfig {
        // One instance at a time needs no pool.
        instances_max: 0,
        worker: wasm::WorkerProgram::this().ok(),
        ..wasm::EngineConfig::default()
    };
    Ok(RunnerConfig {
        engine: wasm::Engine::new(&engine_config, &wasm_observer)
            .context("cannot run WebAssembly")?,
        cache: Arc::new(CompileCache::open_or_off(&host.cache_dir, &observer)),
        tenant: wasm::Tenant::new(wasm::TenantConfig::new("invoke")),
        producer: Arc::new(producer),
        reach: reach::in_memory(),
        fetcher: Arc::default(),
        signatures: Arc::default(),
        drain_timeout: host.drain_timeout,
        rollback_window: Duration::ZERO,
        observer,
        wasm_observer,
        loads: Arc::new(Semaphore::new(LOADS_MAX)),
    })
}

/// The problems, and what the plugin said before it failed.
fn refused_plugin(error: &DeployError, events: &Events) -> Refused {
    let mut text = error.to_string();
    for event in &events.calls {
        if let wasm::Event::LogLine { line, .. } = event {
            text.push_str("\n  log: ");
            text.push_str(&line.text);
        }
    }
    Refused(text)
}

fn cache_note(kind: &EventKind) -> Option<String> {
    match kind {
        EventKind::CacheOff { reason, .. } => Some(format!("compiled code is not kept: {reason}")),
        EventKind::CacheNotWritten { reason } => {
            Some(format!("compiled code was not kept: {reason}"))
        }
        EventKind::CacheEntryRefused { reason } => {
            Some(format!("kept code was not used: {reason}"))
        }
        _ => None,
    }
}

fn take(events: &Mutex<Events>) -> Events {
    std::mem::take(&mut lock(events))
}

/// Whoever panicked while holding the list left it whole.
fn lock(events: &Mutex<Events>) -> MutexGuard<'_, Events> {
    events.lock().unwrap_or_else(PoisonError::into_inner)
}
