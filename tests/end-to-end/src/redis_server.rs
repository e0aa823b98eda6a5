//! A real `redis-server` on this machine, ended with the test.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::embedded_broker::free_address;

/// A Redis that keeps nothing on a disk.
#[derive(Debug)]
pub struct RedisServer {
    process: Child,
    folder: tempfile::TempDir,
    address: String,
}

impl RedisServer {
    /// Starts one; `None`, with a word about it, where there is none to start. A machine
    /// that checks everything has one.
    ///
    /// # Panics
    /// When it is missing on such a machine, or does not start.
    pub fn start() -> Option<Self> {
        if Command::new("redis-server")
            .arg("--version")
            .output()
            .is_err()
        {
            let missing = "redis-server is missing; run tests/toolchain/install.sh redis";
            assert!(std::env::var_os("CI").is_none(), "{missing}");
            #[expect(clippy::print_stderr, reason = "a test that did not run says so")]
            {
                eprintln!("not tested: {missing}");
            }
            return None;
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let address = free_address();
        Some(Self {
            process: spawn(folder.path(), &address),
            folder,
            address,
        })
    }

    /// `HOST:PORT`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Ends it at once.
    ///
    /// # Panics
    /// When it is gone already.
    pub fn kill(&mut self) {
        self.process.kill().expect("a process of ours");
        self.process.wait().expect("a process of ours");
    }

    /// Starts it again, empty, at the same address.
    pub fn start_again(&mut self) {
        self.process = spawn(self.folder.path(), &self.address);
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn spawn(folder: &Path, address: &str) -> Child {
    let (host, port) = address.rsplit_once(':').expect("with a port");
    let mut command = Command::new("redis-server");
    command.args(["--bind", host, "--port", port, "--save", "", "--dir"]);
    command.arg(folder).stdout(Stdio::null());
    command.spawn().expect("redis-server starts")
}
