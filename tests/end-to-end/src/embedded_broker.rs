//! `mqlet broker` and `mqlet send` as a user runs them.

use std::process::Command;
use std::time::Duration;

use crate::host_process::HostProcess;
use crate::workspace;

/// How long any one step of a test may take on a busy machine.
pub const BOUND: Duration = Duration::from_secs(60);

/// A running `mqlet broker`.
#[derive(Debug)]
pub struct EmbeddedBroker {
    /// The process.
    pub process: HostProcess,
    namesrv_addr: String,
}

impl EmbeddedBroker {
    /// On a free port, retries after 200 ms whatever the attempt.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start() -> Self {
        Self::start_at("127.0.0.1:0")
    }

    /// At this address.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_at(listen: &str) -> Self {
        let arguments = [
            "broker",
            "--listen",
            listen,
            "--message-delay-level",
            "200ms",
        ];
        let mut process = HostProcess::spawn(Command::new(workspace::mqlet()).args(arguments));
        let line = process.wait_for_line("namesrv_addr=", BOUND);
        let namesrv_addr = line.trim_start_matches("namesrv_addr=").to_owned();
        Self {
            process,
            namesrv_addr,
        }
    }

    /// Where it is.
    pub fn namesrv_addr(&self) -> &str {
        &self.namesrv_addr
    }

    /// Sends one message a line, and more arguments.
    ///
    /// # Panics
    /// When that fails.
    pub fn send<S: AsRef<str>>(&self, topic: &str, bodies: impl IntoIterator<Item = S>) {
        let mut process = send(&["send", topic, "--namesrv-addr", &self.namesrv_addr]);
        let mut text = String::new();
        for body in bodies {
            text.push_str(body.as_ref());
            text.push('\n');
        }
        process.write(&text);
        process.close_stdin();
        let status = process.wait(BOUND);
        assert!(status.success(), "{status}: {:?}", process.lines());
    }
}

/// `mqlet` with these arguments, its input open.
///
/// # Panics
/// When it cannot be started.
pub fn send(arguments: &[&str]) -> HostProcess {
    HostProcess::spawn(Command::new(workspace::mqlet()).args(arguments))
}

/// An address where nothing listens, for now.
///
/// `mqlet broker` takes the port after it, too. Both are below those that the system
/// gives to connections: one of these could take a port before the broker does.
///
/// # Panics
/// When there is no free pair.
pub fn free_address() -> String {
    const PORTS: std::ops::Range<u32> = 20_000..32_000;
    let nanos = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |now| now.subsec_nanos());
    let start = std::process::id().wrapping_mul(7_919).wrapping_add(nanos);
    let free = |port: u16| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok();
    let port = (0..PORTS.end - PORTS.start)
        .map(|step| PORTS.start + start.wrapping_add(step * 2) % (PORTS.end - PORTS.start))
        .filter_map(|port| u16::try_from(port).ok())
        .find(|&port| free(port) && free(port + 1))
        .expect("two free ports in a row");
    format!("127.0.0.1:{port}")
}
