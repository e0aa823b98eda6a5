//! A `mqlet` process (or any other program) under test: its output is read all the
//! while, and it is killed when the test ends, however it ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::eventually::eventually;
use crate::ledger::{self, Delivery};

/// How much of a program's output a failed test shows.
const LINES_SHOWN: usize = 40;
const CHARACTERS_SHOWN: usize = 240;

/// A running program.
#[derive(Debug)]
pub struct HostProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    output: Arc<Mutex<Output>>,
    readers: Vec<JoinHandle<()>>,
}

#[derive(Default, Debug)]
struct Output {
    lines: Vec<String>,
    deliveries: Vec<(Instant, Delivery)>,
}

impl HostProcess {
    /// Starts it; standard output and error are read into one list of lines.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn spawn(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let output = Arc::new(Mutex::new(Output::default()));
        let stdout = child.stdout.take().expect("piped above");
        let stderr = child.stderr.take().expect("piped above");
        let readers = vec![
            reader(stdout, Arc::clone(&output)),
            reader(stderr, Arc::clone(&output)),
        ];
        Self {
            stdin: child.stdin.take(),
            child,
            output,
            readers,
        }
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// All lines so far.
    pub fn lines(&self) -> Vec<String> {
        self.output
            .lock()
            .expect("readers do not panic")
            .lines
            .clone()
    }

    /// What the guest `ledger` consumed in this process so far.
    pub fn deliveries(&self) -> Vec<Delivery> {
        let seen = self.timed_deliveries();
        seen.into_iter().map(|(_, delivery)| delivery).collect()
    }

    /// The same, each with the time at which its line was read.
    pub fn timed_deliveries(&self) -> Vec<(Instant, Delivery)> {
        self.output
            .lock()
            .expect("readers do not panic")
            .deliveries
            .clone()
    }

    /// How many messages that were so far, repeats included.
    pub fn delivery_count(&self) -> usize {
        self.output
            .lock()
            .expect("readers do not panic")
            .deliveries
            .len()
    }

    /// Waits for a line with this text and returns it.
    ///
    /// # Panics
    /// When the program ended or the bound passed without it; shows its last lines.
    pub fn wait_for_line(&mut self, text: &str, bound: Duration) -> String {
        let found = eventually(&format!("a line with \"{text}\""), bound, || {
            // Looked at before the lines, so that a last line is not missed.
            let ended = self.child.try_wait().ok().flatten();
            if ended.is_some() {
                self.join_readers();
            }
            let lines = self.lines();
            match lines.iter().find(|line| line.contains(text)) {
                Some(line) => Some(Ok(line.clone())),
                None => ended.map(|status| Err((status, lines))),
            }
        });
        found.unwrap_or_else(|(status, lines)| {
            panic!(
                "ended with {status} before a line with \"{text}\":\n{}",
                lines.join("\n")
            )
        })
    }

    /// Writes to its standard input.
    ///
    /// # Panics
    /// When the input was closed.
    pub fn write(&mut self, text: &str) {
        let stdin = self.stdin.as_mut().expect("standard input is open");
        stdin
            .write_all(text.as_bytes())
            .expect("the program reads its input");
    }

    /// Ends its standard input.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Ctrl-C.
    ///
    /// # Panics
    /// When the signal cannot be sent.
    pub fn interrupt(&self) {
        let status = Command::new("kill")
            .args(["-INT", &self.id().to_string()])
            .status();
        assert!(
            status.is_ok_and(|status| status.success()),
            "cannot interrupt {}",
            self.id()
        );
    }

    /// Ends it at once, as a crash does.
    pub fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.join_readers();
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When the bound passes.
    pub fn wait(&mut self, bound: Duration) -> ExitStatus {
        let status = eventually("the end of the program", bound, || {
            self.child.try_wait().ok().flatten()
        });
        self.join_readers();
        status
    }

    fn join_readers(&mut self) {
        for reader in self.readers.drain(..) {
            reader.join().expect("readers do not panic");
        }
    }
}

impl Drop for HostProcess {
    #[expect(clippy::print_stderr, reason = "what a failed test shows")]
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let mut lines = self.lines();
            // What was consumed is long and says little.
            lines.retain(|line| ledger::deliveries(line).is_empty());
            eprintln!("last lines of process {}:", self.id());
            for line in &lines[lines.len().saturating_sub(LINES_SHOWN)..] {
                let shown: String = line.chars().take(CHARACTERS_SHOWN).collect();
                eprintln!("{shown}");
            }
        }
    }
}

fn reader(source: impl Read + Send + 'static, output: Arc<Mutex<Output>>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut source = BufReader::new(source);
        let mut line = Vec::new();
        while source
            .read_until(b'\n', &mut line)
            .is_ok_and(|bytes| bytes > 0)
        {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            let deliveries = ledger::deliveries(&text);
            let mut output = output.lock().expect("readers do not panic");
            let now = Instant::now();
            let seen = deliveries.into_iter().map(|delivery| (now, delivery));
            output.deliveries.extend(seen);
            output.lines.push(text);
            line.clear();
        }
    })
}
