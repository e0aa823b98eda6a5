//! `mqlet send`: messages from the command line to the embedded broker or any cluster.

mod bodies;

use std::fmt;
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use clap::Args;
use consumer::publish::{Delay, MessageProducer, OutgoingMessage, SendError, SendResult};
use consumer::request::is_access_refused;
use driver::Driver;
use plugin_lifecycle::document::Override;
use protocol::Address;
use serde::Serialize;
use tokio::task::JoinSet;

use crate::cli::{self, GlobalArguments, HostArguments};
use crate::config::connection::ConnectionConfig;
use crate::config::{self, LogConfig, overrides, problem};
use crate::exit::{self, Exit, UsageError};
use crate::output::Output;
use crate::runtime;
use crate::signals::Signals;
use crate::telemetry::{self, Telemetry};
use bodies::Groups;

/// Send messages to a topic
#[derive(Args, Debug)]
#[command(
    after_help = exit::HELP,
    long_about = "\
Sends messages to a topic, of the embedded broker or of any RocketMQ cluster, and prints
where each one went.

The body is the argument, the whole content of --file, or comes from standard input, one
message a line (empty lines are left out). Lines that come fast are sent in batches; the
order of messages is kept within a batch only. The first 100 results are printed, then a
summary. The first failure ends it.

Examples:
  mqlet send hello \"good morning\"
  mqlet send hello \"good morning\" --tag greeting --key 4711 --property region=eu
  mqlet send hello --file picture.png
  seq 1 1000 | mqlet send hello
  mqlet send hello hi --count 100 --delay-level 3
  mqlet send hello hi --namesrv-addr \"10.0.0.1:9876;10.0.0.2:9876\"
  mqlet send hello hi --tenant shop --config /etc/mqlet/mqlet.toml"
)]
pub(crate) struct SendArguments {
    /// Where to
    pub(crate) topic: String,
    /// Body of the message, as text
    #[arg(conflicts_with = "file")]
    pub(crate) body: Option<String>,
    /// File whose content is the body of one message
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Tag of the messages; RocketMQ has one
    #[arg(long, value_name = "TAG")]
    pub(crate) tag: Option<String>,
    /// Index key of the messages; can be repeated
    #[arg(long = "key", value_name = "KEY")]
    pub(crate) keys: Vec<String>,
    /// Property of the messages; can be repeated
    #[arg(long = "property", value_name = "KEY=VALUE", value_parser = cli::property)]
    pub(crate) properties: Vec<(String, String)>,
    /// Send every message this many times
    #[arg(long, default_value_t = 1, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: u64,
    /// RocketMQ's delay level: 1 is 1s, 2 5s, 3 10s, 4 30s, 5 1m … 18 2h; 0 sends at once
    #[arg(long, default_value_t = 0, value_name = "LEVEL")]
    pub(crate) delay_level: u32,
    /// Name servers of the cluster, separated by ";"
    /// [env: NAMESRV_ADDR] [default: those of --tenant, else 127.0.0.1:9876]
    #[arg(long, value_delimiter = ';', value_name = "HOST:PORT")]
    pub(crate) namesrv_addr: Vec<Address>,
    /// Send as this tenant of a configuration file: its name servers (unless --namesrv-addr
    /// names others), access key, namespace and TLS; NAMESRV_ADDR is not looked at then
    #[arg(long, value_name = "NAME")]
    pub(crate) tenant: Option<String>,
    /// The configuration file with the tenant
    #[arg(
        long,
        default_value = config::CONFIG_FILE_NAME,
        requires = "tenant",
        value_name = "FILE"
    )]
    pub(crate) config: PathBuf,
    /// How long to wait for the broker's answer to one message
    #[arg(long, default_value = "3s", value_parser = cli::duration, value_name = "TIME")]
    pub(crate) timeout: Duration,
}

/// Sends under way at once, batches or single messages.
const SENDS_MAX: usize = 32;
/// Messages whose place is printed; the others are in the summary.
const RESULT_LINES_MAX: u64 = 100;
/// So few messages of one body go out one by one, over all queues.
const SINGLES_MAX: u64 = 64;
const WORKER_THREADS: usize = 2;
/// RocketMQ: `MixAll#NAMESRV_ADDR_ENV`.
const NAMESRV_ADDR: &str = "NAMESRV_ADDR";
/// Of `mqlet broker`.
const NAMESRV_ADDR_DEFAULT: &str = "127.0.0.1:9876";

/// See [`SendArguments`].
pub(crate) fn execute(
    global: &GlobalArguments,
    mut arguments: SendArguments,
    output: &mut Output,
) -> anyhow::Result<Exit> {
    protocol::topic::check_topic_name(&arguments.topic)
        .map_err(|error| UsageError(error.to_string()))?;
    let overrides = overrides::collect(global, &HostArguments::default());
    let given = std::mem::take(&mut arguments.namesrv_addr);
    let mut connection = match &arguments.tenant {
        None if given.is_empty() => ConnectionConfig::plain(usual_name_servers()?),
        None => ConnectionConfig::plain(Vec::new()),
        Some(tenant) => config::tenant_connection(&arguments.config, tenant, overrides.clone())
            .map_err(|problems| problem::refused(&problems))?,
    };
    // A flag is stronger than the file.
    if !given.is_empty() {
        connection.namesrv_addr = given;
    }
    arguments.namesrv_addr.clone_from(&connection.namesrv_addr);
    let log = log_config(overrides)?;
    telemetry::log::init(&log);
    runtime::block_on(WORKER_THREADS, send(arguments, connection, output))
}

/// Those of somebody who names none: RocketMQ's own variable, else this machine.
fn usual_name_servers() -> anyhow::Result<Vec<Address>> {
    let text = std::env::var(NAMESRV_ADDR).unwrap_or_else(|_| NAMESRV_ADDR_DEFAULT.to_owned());
    let parts = text.split(';').map(str::trim);
    let addresses = parts.filter(|part| !part.is_empty()).map(|part| {
        part.parse::<Address>().map_err(|error| {
            UsageError(format!(
                "environment variable {NAMESRV_ADDR}: \"{part}\" is no address: {error}; write host:port, several with \";\""
            ))
        })
    });
    let addresses: Vec<Address> = addresses.collect::<Result<_, _>>()?;
    if addresses.is_empty() {
        return Ok(vec![NAMESRV_ADDR_DEFAULT.parse()?]);
    }
    Ok(addresses)
}

/// Connections and retries are only of interest to who asks for them.
fn log_config(overrides: Vec<Override>) -> anyhow::Result<LogConfig> {
    let asked = overrides.iter().any(|one| one.key == "log.level");
    let (_, mut log) =
        config::without_file(overrides).map_err(|problems| problem::refused(&problems.0))?;
    if !asked {
        "error".clone_into(&mut log.level);
    }
    Ok(log)
}

async fn send(
    arguments: SendArguments,
    connection: ConnectionConfig,
    output: &mut Output,
) -> anyhow::Result<Exit> {
    let groups = groups(&arguments)?;
    let tenant = arguments.tenant.as_deref().unwrap_or_default().into();
    let driver = Driver::start(
        connection.driver_config(),
        Telemetry::default().driver_observer(&tenant),
    );
    let mut sending = Sending::new(driver.producer(), &arguments, output);
    let mut signals = Signals::new().context("cannot listen to signals")?;
    let ended = tokio::select! {
        ended = sending.run(groups) => ended,
        () = signals.next() => Err(anyhow::anyhow!("interrupted")),
        bug = driver.failed() => Err(anyhow::anyhow!("the client failed: {bug}")),
    };
    let summary = sending.summary();
    driver.stop(Duration::ZERO).await;
    match ended {
        Ok(()) => {
            if summary.sent != 1 {
                output.result(&summary, &summary)?;
            }
            Ok(Exit::Done)
        }
        Err(error) => {
            if summary.sent > 0 {
                output.result(&summary, &summary)?;
            }
            Err(error.context(format!("cannot send to topic \"{}\"", arguments.topic)))
        }
    }
}

fn groups(arguments: &SendArguments) -> anyhow::Result<Groups> {
    // RocketMQ delays no batches.
    let is_single = arguments.delay_level > 0;
    let group_messages_max = if is_single {
        1
    } else {
        bodies::GROUP_MESSAGES_MAX
    };
    let body = match (&arguments.body, &arguments.file) {
        (Some(text), _) => Bytes::from(text.clone()),
        (None, Some(file)) => bodies::of_file(file)?,
        (None, None) => {
            if std::io::stdin().is_terminal() {
                // A hint for a person; nobody else reads it.
                let _ = writeln!(
                    std::io::stderr(),
                    "mqlet: reading messages from standard input, one a line; Ctrl-D ends"
                );
            }
            return Ok(bodies::of_lines(arguments.count, group_messages_max));
        }
    };
    let group_messages_max = if arguments.count <= SINGLES_MAX {
        1
    } else {
        group_messages_max
    };
    Ok(bodies::repeated(body, arguments.count, group_messages_max))
}

/// What is under way and what came of it.
struct Sending<'a> {
    producer: Arc<dyn MessageProducer>,
    arguments: &'a SendArguments,
    output: &'a mut Output,
    started: Instant,
    under_way: JoinSet<Result<Vec<SendResult>, SendError>>,
    sent: u64,
}

impl<'a> Sending<'a> {
    fn new(
        producer: Arc<dyn MessageProducer>,
        arguments: &'a SendArguments,
        output: &'a mut Output,
    ) -> Self {
        Self {
            producer,
            arguments,
            output,
            started: Instant::now(),
            under_way: JoinSet::new(),
            sent: 0,
        }
    }

    /// Sends everything. The first failure ends it, after what is under way.
    async fn run(&mut self, mut groups: Groups) -> anyhow::Result<()> {
        let mut failure = None;
        while failure.is_none() {
            tokio::select! {
                group = groups.recv(), if self.under_way.len() < SENDS_MAX => match group {
                    Some(Ok(bodies)) => self.start(bodies),
                    Some(Err(error)) => failure = Some(error),
                    None => break,
                },
                Some(ended) = self.under_way.join_next() => failure = self.ended(ended).err(),
            }
        }
        while let Some(ended) = self.under_way.join_next().await {
            if let Err(error) = self.ended(ended) {
                failure.get_or_insert(error);
            }
        }
        failure.map_or(Ok(()), Err)
    }

    fn start(&mut self, bodies: Vec<Bytes>) {
        let arguments = self.arguments;
        let messages = bodies
            .into_iter()
            .map(|body| OutgoingMessage {
                topic: arguments.topic.clone(),
                body,
                tags: arguments.tag.clone(),
                keys: arguments.keys.clone(),
                properties: arguments.properties.clone(),
                delay: Some(Delay::Level(arguments.delay_level)),
                ..OutgoingMessage::default()
            })
            .collect();
        self.under_way
            .spawn(self.producer.send(messages, arguments.timeout));
    }

    fn ended(
        &mut self,
        ended: Result<Result<Vec<SendResult>, SendError>, tokio::task::JoinError>,
    ) -> anyhow::Result<()> {
        let results = ended
            .context("a send ended early")?
            .map_err(|error| explained(error, self.arguments))?;
        for result in &results {
            self.sent += 1;
            if self.sent <= RESULT_LINES_MAX {
                let view = ResultView::new(result);
                self.output.result(&view, &view)?;
            }
        }
        Ok(())
    }

    fn summary(&self) -> Summary {
        Summary {
            topic: self.arguments.topic.clone(),
            sent: self.sent,
            seconds: self.started.elapsed().as_secs_f64(),
        }
    }
}

/// The error with what to do about it.
fn explained(error: SendError, arguments: &SendArguments) -> anyhow::Error {
    let servers: Vec<String> = arguments
        .namesrv_addr
        .iter()
        .map(ToString::to_string)
        .collect();
    let servers = servers.join(";");
    let remedy = match &error {
        SendError::NoRoute { topic } => format!(
            "create it on the cluster of {servers} (\"mqlet broker --topic {topic}\" does for the embedded one), or correct its name"
        ),
        SendError::Unreachable { .. } => format!(
            "check that the name server {servers} and its brokers run and can be reached from here, or give another with --namesrv-addr; \"mqlet broker\" starts one on this machine"
        ),
        SendError::Timeout { .. } => format!(
            "check that the name server {servers} and its brokers run, or wait longer with --timeout"
        ),
        SendError::TooLarge { .. } => {
            "send less at once; brokers take 4 MiB unless their maxMessageSize says otherwise"
                .to_owned()
        }
        SendError::Broker { code, remark } if is_access_refused(*code, remark) => {
            "check access_key and secret_key of the tenant (--tenant), and what they may do"
                .to_owned()
        }
        SendError::Broker { .. } => "the broker's words say what it wants".to_owned(),
        // It names its remedy.
        SendError::Illegal { .. } => return error.into(),
        SendError::Overloaded { .. } | SendError::Stopped => "try again".to_owned(),
    };
    anyhow::anyhow!("{error}; {remedy}")
}

/// Where one message is now.
#[derive(Serialize)]
struct ResultView<'a> {
    message_id: &'a str,
    offset_message_id: &'a str,
    topic: &'a str,
    broker_name: &'a str,
    queue_id: u32,
    queue_offset: u64,
}

impl<'a> ResultView<'a> {
    fn new(result: &'a SendResult) -> Self {
        Self {
            message_id: &result.message_id,
            offset_message_id: &result.offset_message_id,
            topic: &result.message_queue.topic,
            broker_name: &result.message_queue.broker_name,
            queue_id: result.message_queue.queue_id,
            queue_offset: result.queue_offset.0,
        }
    }
}

impl fmt::Display for ResultView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            message_id,
            topic,
            broker_name,
            queue_id,
            queue_offset,
            ..
        } = self;
        write!(
            f,
            "{message_id} is in {topic}, broker {broker_name}, queue {queue_id}, offset {queue_offset}"
        )
    }
}

/// All of it.
#[derive(Serialize)]
struct Summary {
    topic: String,
    sent: u64,
    seconds: f64,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "sent {} messages to {} in {:.1} s",
            self.sent, self.topic, self.seconds
        )
    }
}
