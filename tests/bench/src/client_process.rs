//! Clients that are programs: `mqlet run`, and Java's push consumer. Started, watched
//! from outside until their group has committed most of the topic, ended.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use consumer::GroupConfig;
use driver::Event;
use protocol::Address;
use protocol::subscription::SubscriptionData;
use tempfile::TempDir;
use tokio::sync::Notify;

use crate::broker::{self, Cluster, TOPIC};
use crate::end_to_end::new_group;
use crate::listener::Native;
use crate::report::Sample;
use crate::{machine, workspace};

/// How often a client is looked at: 100 looks cost a broker less than a pull loop.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// A run ends here: the last messages are committed by a timer, not by the next pull.
const SHARE_WATCHED: f64 = 0.9;
const RUN_MAX: Duration = Duration::from_secs(300);

/// A folder with configuration and one plugin.
pub(crate) struct Mqlet {
    folder: TempDir,
    program: PathBuf,
    guest: PathBuf,
}

impl Mqlet {
    /// With the defaults of everything but the first offset.
    pub(crate) fn new(cluster: &Cluster, guest: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        fs::create_dir(folder.path().join("plugins"))?;
        let config = format!(
            "[host]\ncache_dir = {:?}\nstate_dir = {:?}\n\n[tenants.bench]\n\
             namesrv_addr = [\"{}\"]\nplugins = \"plugins\"\n",
            folder.path().join("cache"),
            folder.path().join("state"),
            cluster.namesrv_addr(),
        );
        fs::write(folder.path().join("mqlet.toml"), config)?;
        Ok(Self {
            folder,
            program: workspace::mqlet()?,
            guest: workspace::guest(guest),
        })
    }

    /// `mqlet run` with this group.
    pub(crate) fn start(&self, group: &str) -> Result<Command> {
        let manifest = format!(
            "name = \"bench\"\ncomponent = {:?}\nconsumer_group = \"{group}\"\n\
             consume_from_where = \"first_offset\"\n\n[[subscription]]\ntopic = \"{TOPIC}\"\n",
            self.guest,
        );
        fs::write(self.folder.path().join("plugins/bench.toml"), manifest)?;
        let mut command = Command::new(&self.program);
        command
            .args(["run", "mqlet.toml"])
            .current_dir(self.folder.path())
            .stderr(fs::File::create(self.folder.path().join("log"))?);
        Ok(command)
    }
}

/// The Java program, compiled.
pub(crate) struct Java {
    folder: TempDir,
    class_path: String,
}

impl Java {
    pub(crate) fn compile() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let classes = broker::compile_java(folder.path())?;
        let class_path = format!("{}:{}", classes.display(), broker::class_path()?);
        Ok(Self { folder, class_path })
    }

    /// `DefaultMQPushConsumer` with its defaults and a heap of at most 512 MiB.
    pub(crate) fn start(&self, namesrv: &Address, group: &str, count: u64) -> Result<Command> {
        let mut command = Command::new("java");
        command
            .arg("-Xmx512m")
            .arg(format!("-Duser.home={}", self.folder.path().display()))
            .args(["-cp", &self.class_path, "Bench", "push"])
            .args([&namesrv.to_string(), TOPIC, group, &count.to_string()])
            .current_dir(self.folder.path());
        Ok(command)
    }
}

/// What is seen of a client at one moment.
#[derive(Clone, Copy)]
struct Look {
    at: Instant,
    committed: u64,
    cpu: Duration,
    peak_memory: u64,
}

/// Starts a client with a new group and watches it.
pub(crate) async fn watch(
    cluster: &Cluster,
    count: u64,
    start: impl FnOnce(&str) -> Result<Command>,
) -> Result<Sample> {
    let group = new_group();
    let offsets = cluster.offsets();
    let broker = cluster.process()?;
    let broker_cpu_before = machine::cpu_of(broker).unwrap_or_default();
    let began = Instant::now();
    let mut client = Client::start(&mut start(&group)?)?;
    let mut first: Option<Look> = None;
    let last = loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        let committed = offsets.committed(&group).await?;
        let (Some(cpu), Some(peak_memory)) = (
            machine::cpu_of(client.id()),
            machine::peak_memory_of(client.id()),
        ) else {
            bail!("the client ended after {committed} of {count} messages");
        };
        let look = Look {
            at: Instant::now(),
            committed,
            cpu,
            peak_memory,
        };
        if committed > 0 && first.is_none() {
            first = Some(look);
        }
        if committed as f64 >= count as f64 * SHARE_WATCHED {
            break look;
        }
        ensure!(
            began.elapsed() < RUN_MAX,
            "{committed} of {count} messages after {RUN_MAX:?}"
        );
    };
    let broker_cpu = machine::cpu_of(broker).unwrap_or_default() - broker_cpu_before;
    client.end();
    let first = first.context("it has committed, so there was a first look")?;
    let per_million = |time: Duration| time.as_secs_f64() * 1e6 / last.committed as f64;
    let seen = last.committed - first.committed;
    ensure!(seen > 0, "too few messages: they went between two looks");
    Ok(vec![
        ("rate", seen as f64 / (last.at - first.at).as_secs_f64()),
        (
            "cpu",
            (last.cpu - first.cpu).as_secs_f64() * 1e6 / seen as f64,
        ),
        ("cpu, whole process", per_million(last.cpu)),
        ("broker's cpu", per_million(broker_cpu)),
        ("peak MiB", last.peak_memory as f64 / f64::from(1 << 20)),
        ("first commit ms", (first.at - began).as_secs_f64() * 1e3),
    ])
}

/// From the start of the process to the guest's first line, with a group that had
/// consumed everything but one message.
pub(crate) async fn first_message(cluster: &Cluster, ledger: &Mqlet) -> Result<Duration> {
    let group = new_group();
    make_group(cluster, &group).await?;
    cluster.fill(TOPIC, 1).await?;
    let mut command = ledger.start(&group)?;
    tokio::task::spawn_blocking(move || {
        let began = Instant::now();
        let mut client = Client::start(command.stderr(Stdio::piped()))?;
        let stderr = client.0.stderr.take().context("piped above")?;
        let mut said = String::new();
        for line in BufReader::new(stderr).lines() {
            let line = line?;
            if line.contains("ledger[") {
                let elapsed = began.elapsed();
                client.end();
                return Ok(elapsed);
            }
            said.push_str(&line);
            said.push('\n');
        }
        bail!("mqlet ended without a message:\n{said}")
    })
    .await?
}

/// Makes a group that has consumed everything, as a member that came and went leaves it.
async fn make_group(cluster: &Cluster, group: &str) -> Result<()> {
    let offsets = cluster.offsets();
    let has_queues = Arc::new(Notify::new());
    let heard = Arc::clone(&has_queues);
    let member = cluster.client(
        "maker",
        Arc::new(move |event| {
            if let Event::Client(consumer::Event::Rebalanced { topic, .. }) = event
                && **topic == *TOPIC
            {
                heard.notify_one();
            }
        }),
    );
    let config = GroupConfig::builder(group)
        .subscription(SubscriptionData::all(TOPIC))
        .build()?;
    member.subscribe(config, Arc::new(Native)).await?;
    // Then the broker has answered its heartbeat. Left earlier, it may be forgotten
    // before it is known, and the next member share the queues with it for minutes.
    tokio::time::timeout(RUN_MAX, has_queues.notified()).await?;
    member.stop(Duration::from_secs(5)).await;
    offsets.commit_all(group).await
}

/// Killed when dropped.
struct Client(Child);

impl Client {
    fn start(command: &mut Command) -> Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {command:?}"))?;
        Ok(Self(child))
    }

    fn id(&self) -> u32 {
        self.0.id()
    }

    fn end(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.end();
    }
}
