//! `mqlet broker`: the embedded name server and broker alone.

use std::net::SocketAddr;

use anyhow::Context as _;
use clap::Args;
use embedded_broker::delay::DelayLevels;
use embedded_broker::{EmbeddedBroker, ServerConfig};
use serde::Serialize;

use crate::cli::{GlobalArguments, HostArguments};
use crate::config::{self, overrides, problem};
use crate::exit::{self, Exit, UsageError};
use crate::output::Output;
use crate::runtime;
use crate::signals::Signals;
use crate::telemetry::{self, Telemetry};

/// Run the embedded name server and broker alone
#[derive(Args, Debug)]
#[command(
    after_help = exit::HELP,
    long_about = "\
Runs a name server and a broker in one process, in memory: for development and tests on one
machine. The broker listens on the port after the name server's, or on a free one when that
is 0. RocketMQ's own clients can use it. Messages are gone when it stops.

When it serves, it prints \"namesrv_addr=HOST:PORT\" on standard output. Ctrl-C stops it.

Examples:
  mqlet broker
  mqlet broker --listen 127.0.0.1:19876 --topic orders --topic payments --queues 8
  mqlet send orders \"4711\" --namesrv-addr 127.0.0.1:9876"
)]
pub(crate) struct BrokerArguments {
    /// Where the name server listens; port 0 takes a free one and prints it
    #[arg(long, default_value = "127.0.0.1:9876", value_name = "ADDRESS")]
    pub(crate) listen: SocketAddr,
    /// Create this topic; can be repeated. Others are created when first sent to
    #[arg(long = "topic", value_name = "TOPIC")]
    pub(crate) topics: Vec<String>,
    /// Queues of a topic
    #[arg(long, default_value_t = 4, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) queues: u32,
    /// What the delay levels 1, 2, … wait, as RocketMQ's messageDelayLevel: "1s 5s 10s"
    #[arg(long, default_value = DELAY_LEVELS, value_name = "TIMES", hide_default_value = true)]
    pub(crate) message_delay_level: DelayLevels,
}

/// RocketMQ: `MessageStoreConfig#messageDelayLevel`.
const DELAY_LEVELS: &str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h";

/// See [`BrokerArguments`].
pub(crate) fn execute(
    global: &GlobalArguments,
    arguments: BrokerArguments,
    output: &mut Output,
) -> anyhow::Result<Exit> {
    let overrides = overrides::collect(global, &HostArguments::default());
    let (host, log) =
        config::without_file(overrides).map_err(|problems| problem::refused(&problems.0))?;
    telemetry::log::init(&log);
    runtime::block_on(host.worker_threads, serve(arguments, output))
}

async fn serve(arguments: BrokerArguments, output: &mut Output) -> anyhow::Result<Exit> {
    let mut signals = Signals::new().context("cannot listen to signals")?;
    let mut config = ServerConfig::listening_on(arguments.listen);
    config.observer = Telemetry::default().broker_observer();
    config.broker.default_topic_queue_nums = arguments.queues;
    config.broker.delay_levels = arguments.message_delay_level;
    let broker = EmbeddedBroker::start(config).await?;
    for topic in &arguments.topics {
        broker
            .with_broker(|broker, _| broker.add_topic(topic, arguments.queues))
            .map_err(|error| UsageError(error.to_string()))?;
    }
    let serving = Serving {
        namesrv_addr: broker.namesrv_addr().to_string(),
        broker_addr: broker.broker_addr().to_string(),
        topics: &arguments.topics,
    };
    output.result(
        format_args!("namesrv_addr={}", serving.namesrv_addr),
        &serving,
    )?;
    output.note("serving in memory until Ctrl-C")?;
    signals.next().await;
    tokio::select! {
        () = broker.stop() => Ok(Exit::Done),
        () = signals.next() => Ok(Exit::Interrupted),
    }
}

/// What is printed when it serves.
#[derive(Serialize)]
struct Serving<'a> {
    namesrv_addr: String,
    broker_addr: String,
    topics: &'a [String],
}
