//! Thousands of plugins in one process, nearly all of them idle: what they cost, how soon
//! one of them wakes, and whether the few that work notice the others.
//!
//! `mqlet run` with a group for each plugin, 100 topics of one queue and 100 different
//! components; the embedded broker is another process. Each plugin reads the messages of
//! its own tag.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use consumer::publish::OutgoingMessage;
use driver::Driver;
use tempfile::TempDir;

use crate::broker::{Cluster, IDLE_TOPICS, idle_topic};
use crate::report::{Report, Target, median};
use crate::{Options, machine, workspace};

/// Plugins that get messages, one of each topic.
const ACTIVE: usize = IDLE_TOPICS;
/// Loading, and the first pull of every queue.
const LOAD_MAX: Duration = Duration::from_secs(900);
const WAKE_MAX: Duration = Duration::from_secs(30);
const CONSUME_MAX: Duration = Duration::from_secs(300);
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// Messages in one send.
const SEND_BATCH: usize = 50;
/// Between two looks at offsets.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// A run ends here: the last messages are committed by a timer.
const SHARE_WATCHED: f64 = 0.9;

pub(crate) fn run(options: &Options) -> Result<()> {
    let plugins = options.plugins.unwrap_or(options.pick(1_000, 10_000));
    ensure!(plugins >= ACTIVE, "at least {ACTIVE} plugins are needed");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(compare(options, plugins))
}

async fn compare(options: &Options, plugins: usize) -> Result<()> {
    let mut report = Report::new("idle", "one host");
    // Both hosts use what the first one compiled.
    let cache = tempfile::tempdir()?;
    let alone = measure(options, ACTIVE, cache.path()).await?;
    report.add("only the active ones", alone.sample());
    let many = measure(options, plugins, cache.path()).await?;
    let subject = format!("{plugins} plugins");
    report.add(&subject, many.sample());
    report.judge("resident, MiB", many.resident_mib, Target::AtMost(1024.0));
    report.judge("idle, % of one core", many.idle_cpu, Target::AtMost(5.0));
    report.judge(
        "threads more than with the active ones alone",
        many.threads - alone.threads,
        Target::AtMost(0.0),
    );
    report.judge(
        "slowest first message, ms",
        many.wake_max_ms,
        Target::AtMost(50.0),
    );
    report.judge(
        "messages a second beside the active ones alone",
        many.per_second / alone.per_second,
        Target::AtLeast(0.9),
    );
    report.note(
        "CPU a message beside the active ones alone",
        many.cpu_us / alone.cpu_us,
    );
    report.print()?;
    Ok(())
}

/// What a host with so many plugins was seen to do.
struct Measured {
    load_s: f64,
    resident_mib: f64,
    threads: f64,
    idle_cpu: f64,
    wake_ms: f64,
    wake_max_ms: f64,
    per_second: f64,
    cpu_us: f64,
}

impl Measured {
    fn sample(&self) -> Vec<(&'static str, f64)> {
        vec![
            ("load s", self.load_s),
            ("MiB", self.resident_mib),
            ("threads", self.threads),
            ("idle % CPU", self.idle_cpu),
            ("wake ms", self.wake_ms),
            ("msg/s", self.per_second),
            ("CPU us/msg", self.cpu_us),
        ]
    }
}

async fn measure(options: &Options, plugins: usize, cache: &Path) -> Result<Measured> {
    let cluster = Cluster::embedded()?;
    let components = options.pick(10, 100);
    let folder = folder(&cluster, plugins, components, cache)?;
    let started = Instant::now();
    let host = Host::start(folder.path())?;
    host.wait_for(&format!("serving {plugins} plugins"), LOAD_MAX)?;
    let load_s = started.elapsed().as_secs_f64();
    println!("{plugins} plugins loaded after {load_s:.1} s");
    // Instances that were made at load go after a minute.
    tokio::time::sleep(Duration::from_secs(options.pick(10, 75))).await;

    let watched = Duration::from_secs(options.pick(20, 60));
    let before = host.cpu()?;
    tokio::time::sleep(watched).await;
    let idle = (host.cpu()? - before).as_secs_f64() / watched.as_secs_f64();
    let (resident, threads) = machine::memory_and_threads_of(host.id()).context("it ended")?;

    let client = cluster.client("idle", Arc::new(|_| {}));
    let mut wakes = Vec::new();
    for number in 0..options.pick(10, 50) {
        // Spread over all of them; none twice.
        let plugin = number * (plugins / 50).max(1) + number % IDLE_TOPICS;
        wakes.push(host.wake(&client, plugin % plugins).await?);
    }
    let messages = options.pick(200, 1_000);
    let (per_second, cpu_us) = host.work(&cluster, &client, messages).await?;
    client.stop(Duration::ZERO).await;
    Ok(Measured {
        load_s,
        #[expect(clippy::cast_precision_loss, reason = "MiB")]
        resident_mib: resident as f64 / f64::from(1 << 20),
        threads: f64::from(threads),
        idle_cpu: idle * 100.0,
        wake_max_ms: wakes.iter().copied().fold(0.0, f64::max),
        wake_ms: median(wakes),
        per_second,
        cpu_us,
    })
}

/// A host and what it writes.
struct Host {
    child: Child,
    lines: Receiver<String>,
}

impl Host {
    fn start(folder: &Path) -> Result<Self> {
        let mut child = Command::new(workspace::mqlet()?)
            .args(["run", "mqlet.toml"])
            .current_dir(folder)
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start mqlet")?;
        let stderr = child.stderr.take().context("piped above")?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                // Nobody may be listening any more; the pipe is read all the same.
                let _ = sender.send(line);
            }
        });
        Ok(Self { child, lines })
    }

    fn id(&self) -> u32 {
        self.child.id()
    }

    fn cpu(&self) -> Result<Duration> {
        machine::cpu_of(self.id()).context("the host has ended")
    }

    fn wait_for(&self, text: &str, bound: Duration) -> Result<()> {
        let deadline = Instant::now() + bound;
        let mut last = String::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) if line.contains(text) => return Ok(()),
                Ok(line) => last = line,
                Err(RecvTimeoutError::Timeout) => bail!("no \"{text}\" in time; last: {last}"),
                Err(RecvTimeoutError::Disconnected) => bail!("the host has ended: {last}"),
            }
        }
    }

    /// From sending a message to the line of its listener, in milliseconds.
    async fn wake(&self, client: &Driver, plugin: usize) -> Result<f64> {
        while self.lines.try_recv().is_ok() {}
        let started = Instant::now();
        let producer = client.producer();
        let body = format!("wake-{plugin}");
        producer
            .send(vec![message(plugin, body.clone())], SEND_TIMEOUT)
            .await?;
        self.wait_for(&format!(":{body}]"), WAKE_MAX)?;
        Ok(started.elapsed().as_secs_f64() * 1000.0)
    }

    /// Messages a second and CPU microseconds a message, of one plugin of each topic.
    async fn work(&self, cluster: &Cluster, client: &Driver, each: usize) -> Result<(f64, f64)> {
        let offsets = cluster.offsets();
        let mut before = 0;
        for plugin in 0..ACTIVE {
            before += offsets
                .committed_in(&group(plugin), &idle_topic(plugin), 0)
                .await?;
        }
        let producer = client.producer();
        let cpu = self.cpu()?;
        let started = Instant::now();
        for _ in 0..each / SEND_BATCH {
            for plugin in 0..ACTIVE {
                let batch = (0..SEND_BATCH)
                    .map(|number| message(plugin, format!("work-{number}")))
                    .collect();
                producer.send(batch, SEND_TIMEOUT).await?;
            }
        }
        let sent = (each / SEND_BATCH * SEND_BATCH * ACTIVE) as u64;
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a count"
        )]
        let watched = before + (sent as f64 * SHARE_WATCHED) as u64;
        loop {
            let mut committed = 0;
            for plugin in 0..ACTIVE {
                committed += offsets
                    .committed_in(&group(plugin), &idle_topic(plugin), 0)
                    .await?;
            }
            if committed >= watched {
                break;
            }
            ensure!(
                started.elapsed() < CONSUME_MAX,
                "{committed} of {watched} committed in time"
            );
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        let elapsed = started.elapsed().as_secs_f64();
        let cpu = (self.cpu()? - cpu).as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let sent = sent as f64;
        Ok((sent * SHARE_WATCHED / elapsed, cpu * 1e6 / sent))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn message(plugin: usize, body: String) -> OutgoingMessage {
    OutgoingMessage {
        topic: idle_topic(plugin),
        body: body.into(),
        tags: Some(group(plugin)),
        ..OutgoingMessage::default()
    }
}

fn group(plugin: usize) -> String {
    format!("idle-{plugin}")
}

/// Configuration, manifests and components.
fn folder(cluster: &Cluster, plugins: usize, components: usize, cache: &Path) -> Result<TempDir> {
    let folder = tempfile::tempdir()?;
    let path = folder.path();
    fs::create_dir(path.join("plugins"))?;
    fs::write(
        path.join("mqlet.toml"),
        format!(
            "[host]\ncache_dir = {cache:?}\nstate_dir = \"state\"\n\n[tenants.bench]\n\
             namesrv_addr = [\"{}\"]\nplugins = \"plugins\"\n",
            cluster.namesrv_addr()
        ),
    )?;
    let guest = fs::read(workspace::guest("ledger"))?;
    for number in 0..components {
        let component = different(&guest, number)?;
        fs::write(
            path.join(format!("plugins/component-{number}.wasm")),
            component,
        )?;
    }
    for plugin in 0..plugins {
        let mut manifest = String::new();
        // Writing to a string does not fail.
        let _ = write!(
            manifest,
            "name = \"plugin-{plugin}\"\ncomponent = \"component-{}.wasm\"\n\
             consumer_group = \"{}\"\nconsume_from_where = \"first_offset\"\n\
             [[subscription]]\ntopic = \"{}\"\nexpression = \"{}\"\n",
            plugin % components,
            group(plugin),
            idle_topic(plugin),
            group(plugin),
        );
        fs::write(path.join(format!("plugins/plugin-{plugin}.toml")), manifest)?;
    }
    Ok(folder)
}

/// The same component with another digest: a custom section more.
fn different(component: &[u8], number: usize) -> Result<Vec<u8>> {
    let name = format!("bench-{number}");
    let mut bytes = component.to_vec();
    // Section 0, its size, the length of its name, its name.
    bytes.push(0);
    bytes.push(u8::try_from(name.len() + 1)?);
    bytes.push(u8::try_from(name.len())?);
    bytes.extend_from_slice(name.as_bytes());
    Ok(bytes)
}
