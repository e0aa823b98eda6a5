//! One name server and one master broker in a folder of their own.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use end_to_end::workspace;

use crate::broker::{self, Connection};

/// Every retry and delay level takes a second, so that a test need not wait for
/// RocketMQ's own ten seconds to two hours.
pub const QUICK_LEVELS: &str =
    "messageDelayLevel=1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s";

/// The RocketMQ of the tests, unless one says otherwise.
pub const VERSION: &str = "5.5.0";

/// A running RocketMQ; killed when dropped.
#[derive(Debug)]
pub struct Cluster {
    directory: tempfile::TempDir,
    namesrv_addr: String,
    version: &'static str,
}

impl Cluster {
    /// Starts one with these lines of broker configuration.
    ///
    /// # Panics
    /// When it does not start; the script says why.
    pub fn start(settings: &[&str]) -> Self {
        Self::start_version(VERSION, settings)
    }

    /// One with [`QUICK_LEVELS`] for all tests of a program that want it: for topics and
    /// groups with names of their own. Killed when the last of them has ended.
    ///
    /// # Panics
    /// As [`Cluster::start`].
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());
        // A test that failed while it started one left nothing behind.
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let cluster = Arc::new(Self::start(&[QUICK_LEVELS]));
            *shared = Arc::downgrade(&cluster);
            cluster
        })
    }

    /// The same with another release of RocketMQ.
    ///
    /// # Panics
    /// As [`Cluster::start`].
    pub fn start_version(version: &'static str, settings: &[&str]) -> Self {
        Self::start_with(version, settings, &[])
    }

    /// The same with further options of the script.
    ///
    /// # Panics
    /// As [`Cluster::start`].
    pub fn start_with(version: &'static str, settings: &[&str], options: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let mut command = script(version);
        command.arg("start").arg(directory.path());
        command.args([
            "--namesrv-port",
            "0",
            "--broker-port",
            "0",
            "--broker-heap",
            "512m",
        ]);
        for setting in settings {
            command.args(["--set", setting]);
        }
        command.args(options);
        let output = run(&mut command);
        let namesrv_addr = output
            .lines()
            .find_map(|line| line.strip_prefix("NAMESRV_ADDR="))
            .expect("a started cluster prints its address")
            .to_owned();
        Self {
            directory,
            namesrv_addr,
            version,
        }
    }

    /// The release.
    pub fn version(&self) -> &'static str {
        self.version
    }

    /// `host:port` of the broker.
    pub fn broker_addr(&self) -> String {
        broker::broker_addr(&self.namesrv_addr)
    }

    /// `host:port` of the name server.
    pub fn namesrv_addr(&self) -> &str {
        &self.namesrv_addr
    }

    /// Makes a topic with this many queues.
    ///
    /// # Panics
    /// When the broker refuses.
    pub fn create_topic(&self, topic: &str, queues: u32) {
        let mut connection = Connection::open(&self.broker_addr());
        connection.create_topic(&self.namesrv_addr, topic, queues);
    }

    /// RocketMQ's own tool; its exit status says nothing, so judge the text.
    ///
    /// # Panics
    /// When the tool cannot be run.
    pub fn mqadmin(&self, arguments: &[&str]) -> String {
        let mut command = script(self.version);
        command
            .arg("mqadmin")
            .args(arguments)
            .env("NAMESRV_ADDR", &self.namesrv_addr);
        // `consumerStatus` writes into the current folder.
        command.current_dir(self.directory.path());
        run(&mut command)
    }

    /// Kills the broker as a crash does; the name server goes on.
    pub fn kill_broker(&self) {
        run(script(self.version)
            .arg("stop")
            .arg(self.directory.path())
            .args(["broker", "--kill"]));
    }

    /// Ends the broker in order, which takes it about fifteen seconds.
    pub fn stop_broker(&self) {
        run(script(self.version)
            .arg("stop")
            .arg(self.directory.path())
            .arg("broker"));
    }

    /// Starts what is not running, with the same ports, settings and data.
    pub fn restart(&self) {
        run(script(self.version).arg("start").arg(self.directory.path()));
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Nothing more can be done about a failure, and the test has its result.
        let _ = script(self.version)
            .arg("stop")
            .arg(self.directory.path())
            .arg("--kill")
            .output();
    }
}

/// The script that installs and starts RocketMQ.
pub fn script(version: &str) -> Command {
    let mut command = Command::new(script_path());
    command.args(["--version", version]);
    command
}

fn script_path() -> PathBuf {
    folder().join("rocketmq/rocketmq.sh")
}

/// This crate's folder.
pub fn folder() -> PathBuf {
    workspace::root().join(Path::new("tests/interop"))
}

pub(crate) fn run(command: &mut Command) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = command
        .output()
        .unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    let stderr = String::from_utf8_lossy(&stderr);
    assert!(
        status.success(),
        "{command:?} ended with {status}: {stderr}"
    );
    String::from_utf8_lossy(&stdout).into_owned() + &stderr
}
