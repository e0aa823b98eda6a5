//! A slave or another broker beside a cluster.

use std::fs;
use std::process::Command;

use crate::cluster::{self, VERSION};

/// Killed when dropped.
#[derive(Debug)]
pub struct Joined(tempfile::TempDir);

impl Joined {
    /// Starts one at this name server, with these lines of broker configuration.
    ///
    /// # Panics
    /// When it does not start; the script says why.
    pub fn start(namesrv_addr: &str, broker_name: &str, settings: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut command = cluster::script(VERSION);
        command.arg("start").arg(folder.path());
        command.args(["--join", namesrv_addr, "--broker-port", "0"]);
        command.args(["--broker-name", broker_name, "--broker-heap", "512m"]);
        for setting in settings {
            command.args(["--set", setting]);
        }
        cluster::run(&mut command);
        Self(folder)
    }

    /// `host:port` of it.
    ///
    /// # Panics
    /// Never: a started broker has one.
    pub fn addr(&self) -> String {
        let options = fs::read_to_string(self.0.path().join("options")).expect("started");
        let port = options
            .lines()
            .find_map(|line| line.strip_prefix("broker_port="))
            .expect("a port");
        format!("127.0.0.1:{port}")
    }

    /// Ends it as a crash does.
    pub fn kill(&self) {
        cluster::run(&mut self.stop());
    }

    /// Starts it again, with its data.
    pub fn restart_at_another_port(&self) {
        let mut command = cluster::script(VERSION);
        command.arg("start").arg(self.0.path());
        cluster::run(command.args(["--broker-port", "0"]));
    }

    fn stop(&self) -> Command {
        let mut command = cluster::script(VERSION);
        command.arg("stop").arg(self.0.path()).arg("--kill");
        command
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        // Nothing more can be done about a failure, and the test has its result.
        let _ = self.stop().output();
    }
}
