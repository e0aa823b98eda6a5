//! Brokers to consume from: the embedded one in a process of its own, or a real
//! RocketMQ; and how they are filled and asked how far a group is.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use consumer::ClientConfig;
use driver::{Driver, DriverConfig};
use embedded_broker::{EmbeddedBroker, ServerConfig};
use protocol::code::{request_code, response_code};
use protocol::header::{
    GetMaxOffsetRequestHeader, GetMaxOffsetResponseHeader, Header,
    QueryConsumerOffsetRequestHeader, QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
};
use protocol::{Address, RemotingCommand};
use remoting::{ClientHandler, ConnectionError, RemotingClient, RemotingConfig, Responder};
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::{messages, workspace};

/// The topic that is consumed.
pub(crate) const TOPIC: &str = "Bench";
/// Its queues.
const QUEUES: u32 = 8;
/// A topic with more of them, on the embedded broker alone.
pub(crate) const WIDE_TOPIC: &str = "Wide";
pub(crate) const WIDE_QUEUES: u32 = 64;
/// Topics of one queue for thousands of groups, on the embedded broker alone.
pub(crate) const IDLE_TOPICS: usize = 100;
/// Groups and retry topics that the embedded broker may have.
const GROUPS_MAX: usize = 50_000;
/// Memory of the embedded broker; a message of 1 KiB takes 1.4.
const STORE_BYTES_MAX: u64 = 4 << 30;
/// Messages in one send.
const SEND_BATCH: u64 = 100;
/// Sends under way.
const SENDS: usize = 8;
const TIMEOUT: Duration = Duration::from_secs(30);

/// A running cluster; ended when dropped.
pub(crate) struct Cluster {
    namesrv_addr: Address,
    broker_addr: Address,
    process: Process,
}

enum Process {
    Embedded(Child),
    Real(TempDir),
}

impl Cluster {
    /// Starts this very program as an embedded broker.
    pub(crate) fn embedded() -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("--embedded-broker")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the embedded broker")?;
        let stdout = child.stdout.take().context("piped above")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let mut addresses = line.split_whitespace();
        let mut next = || -> Result<Address> {
            let text = addresses
                .next()
                .context("the embedded broker ended early")?;
            Ok(text.parse()?)
        };
        Ok(Self {
            namesrv_addr: next()?,
            broker_addr: next()?,
            process: Process::Embedded(child),
        })
    }

    /// Starts a RocketMQ with its defaults, and makes the topic.
    pub(crate) fn real() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let started = output(rocketmq().arg("start").arg(folder.path()).args([
            "--namesrv-port",
            "0",
            "--broker-port",
            "0",
        ]))?;
        let namesrv_addr = started
            .lines()
            .find_map(|line| line.strip_prefix("NAMESRV_ADDR="))
            .context("RocketMQ did not say where it is")?
            .parse()?;
        let options = fs::read_to_string(folder.path().join("options"))?;
        let port = options
            .lines()
            .find_map(|line| line.strip_prefix("broker_port="))
            .context("RocketMQ's port is not written down")?
            .parse()?;
        let cluster = Self {
            namesrv_addr,
            broker_addr: Address::new("127.0.0.1", port),
            process: Process::Real(folder),
        };
        let said = output(
            rocketmq()
                .env("NAMESRV_ADDR", cluster.namesrv_addr.to_string())
                .args(["mqadmin", "updateTopic", "-c", "DefaultCluster"])
                .args(["-t", TOPIC, "-r", &QUEUES.to_string()])
                .args(["-w", &QUEUES.to_string()]),
        )?;
        ensure!(said.contains("success"), "updateTopic said: {said}");
        Ok(cluster)
    }

    pub(crate) fn namesrv_addr(&self) -> &Address {
        &self.namesrv_addr
    }

    /// Process of the broker.
    pub(crate) fn process(&self) -> Result<u32> {
        match &self.process {
            Process::Embedded(child) => Ok(child.id()),
            Process::Real(folder) => {
                let text = fs::read_to_string(folder.path().join("broker.pid"))?;
                let id = text.split_whitespace().next().unwrap_or_default();
                Ok(id.parse()?)
            }
        }
    }

    /// Sends so many messages, in batches that take turns over the queues.
    pub(crate) async fn fill(&self, topic: &str, count: u64) -> Result<()> {
        let driver = self.client("fill", Arc::new(|_| {}));
        let producer = driver.producer();
        let body = messages::body();
        let mut sends = JoinSet::new();
        for first in (0..count).step_by(SEND_BATCH as usize) {
            if sends.len() == SENDS
                && let Some(sent) = sends.join_next().await
            {
                sent??;
            }
            let batch = (first..(first + SEND_BATCH).min(count))
                .map(|number| messages::outgoing(topic, number, &body))
                .collect();
            sends.spawn(producer.send(batch, TIMEOUT));
        }
        while let Some(sent) = sends.join_next().await {
            sent??;
        }
        driver.stop(Duration::ZERO).await;
        Ok(())
    }

    /// A client without groups.
    pub(crate) fn client(&self, name: &str, observer: driver::Observer) -> Driver {
        let id = format!("127.0.0.1@{}#{name}", std::process::id());
        let config = ClientConfig::new(id, vec![self.namesrv_addr.clone()]);
        Driver::start(DriverConfig::new(config), observer)
    }

    /// Looks at offsets.
    pub(crate) fn offsets(&self) -> Offsets {
        Offsets {
            remoting: RemotingClient::new(RemotingConfig::default(), Arc::new(Deaf)),
            broker_addr: self.broker_addr.clone(),
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        match &mut self.process {
            Process::Embedded(child) => {
                // It may be gone already.
                let _ = child.kill();
                let _ = child.wait();
            }
            Process::Real(folder) => {
                let mut stop = rocketmq();
                stop.arg("stop").arg(folder.path()).arg("--kill");
                let _ = stop.output();
            }
        }
    }
}

/// Committed and stored offsets of the topic, by a connection of its own.
pub(crate) struct Offsets {
    remoting: RemotingClient,
    broker_addr: Address,
}

impl Offsets {
    /// Messages that the group has committed, all queues together.
    pub(crate) async fn committed(&self, group: &str) -> Result<u64> {
        let mut sum = 0;
        for queue_id in 0..QUEUES.cast_signed() {
            sum += self.committed_in(group, TOPIC, queue_id).await?;
        }
        Ok(sum)
    }

    /// What the group has committed of one queue; 0 when that is nothing.
    pub(crate) async fn committed_in(
        &self,
        group: &str,
        topic: &str,
        queue_id: i32,
    ) -> Result<u64> {
        let header = QueryConsumerOffsetRequestHeader {
            consumer_group: group.to_owned(),
            topic: topic.to_owned(),
            queue_id,
            set_zero_if_not_found: Some(false),
            ..QueryConsumerOffsetRequestHeader::default()
        };
        let answer = self
            .ask(request_code::QUERY_CONSUMER_OFFSET, &header)
            .await?;
        if answer.code != response_code::SUCCESS {
            return Ok(0);
        }
        let header: QueryConsumerOffsetResponseHeader = answer.header()?;
        Ok(u64::try_from(header.offset).unwrap_or(0))
    }

    /// Makes the group, which the broker knows, one that has consumed everything there is.
    pub(crate) async fn commit_all(&self, group: &str) -> Result<()> {
        for queue_id in 0..QUEUES.cast_signed() {
            let header = GetMaxOffsetRequestHeader {
                topic: TOPIC.to_owned(),
                queue_id,
                ..GetMaxOffsetRequestHeader::default()
            };
            let answer = self.ask(request_code::GET_MAX_OFFSET, &header).await?;
            let stored: GetMaxOffsetResponseHeader = answer.header()?;
            let header = UpdateConsumerOffsetRequestHeader {
                consumer_group: group.to_owned(),
                topic: TOPIC.to_owned(),
                queue_id,
                commit_offset: stored.offset,
                ..UpdateConsumerOffsetRequestHeader::default()
            };
            let answer = self
                .ask(request_code::UPDATE_CONSUMER_OFFSET, &header)
                .await?;
            ensure!(answer.code == response_code::SUCCESS, "{answer:?}");
        }
        Ok(())
    }

    async fn ask(&self, code: i32, header: &impl Header) -> Result<RemotingCommand> {
        let command = RemotingCommand::request(code, header.encode());
        let answer = self.remoting.invoke(&self.broker_addr, command, TIMEOUT);
        Ok(answer.await?)
    }
}

/// Nobody asks us anything.
struct Deaf;

impl ClientHandler for Deaf {
    fn connected(&self, _: &Address) {}
    fn disconnected(&self, _: &Address, _: &ConnectionError, _: bool) {}
    fn request(&self, _: &Address, _: RemotingCommand, _: Responder) {}
}

/// The topic of a plugin of the benchmark `idle`.
pub(crate) fn idle_topic(plugin: usize) -> String {
    format!("Idle{}", plugin % IDLE_TOPICS)
}

/// What `--embedded-broker` does: serves until its standard input ends.
pub(crate) fn serve() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut config = ServerConfig::listening_on(SocketAddr::from(([127, 0, 0, 1], 0)));
        config.broker.store_bytes_max = STORE_BYTES_MAX;
        config.broker.groups_max = GROUPS_MAX;
        config.broker.topics_max = GROUPS_MAX;
        let broker = EmbeddedBroker::start(config).await?;
        broker.with_broker(|broker, _| broker.add_topic(TOPIC, QUEUES))?;
        broker.with_broker(|broker, _| broker.add_topic(WIDE_TOPIC, WIDE_QUEUES))?;
        for number in 0..IDLE_TOPICS {
            broker.with_broker(|broker, _| broker.add_topic(&idle_topic(number), 1))?;
        }
        writeln!(
            std::io::stdout(),
            "{} {}",
            broker.namesrv_addr(),
            broker.broker_addr()
        )?;
        tokio::task::spawn_blocking(|| std::io::stdin().read(&mut [0])).await??;
        broker.stop().await;
        Ok(())
    })
}

/// The script that runs RocketMQ.
pub(crate) fn rocketmq() -> Command {
    Command::new(workspace::root().join("tests/interop/rocketmq/rocketmq.sh"))
}

/// RocketMQ's class path.
pub(crate) fn class_path() -> Result<String> {
    Ok(output(rocketmq().arg("class-path"))?.trim().to_owned())
}

/// Compiles the Java program and returns the folder with it.
pub(crate) fn compile_java(folder: &Path) -> Result<PathBuf> {
    let classes = folder.join("classes");
    output(
        Command::new("javac")
            .args(["-cp", &class_path()?, "-d"])
            .arg(&classes)
            .arg(workspace::root().join("tests/bench/java/Bench.java")),
    )?;
    Ok(classes)
}

fn output(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        bail!(
            "{command:?} ended with {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
