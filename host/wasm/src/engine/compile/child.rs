//! The host's side of a worker that compiles (`worker/compile.rs`): starts it, gives it the
//! component, waits for its answer, and says in plain words what ended it when there is
//! none.
//!
//! The code that comes back is run: it is trusted as what the worker's program would have
//! compiled in this process, for the pipe is ours alone and nobody else's program was
//! started. A worker that dies, is killed or says what makes no sense gives no code at all.

use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Child;
use tokio::time::timeout;

use super::CompileLimits;
use crate::error::{CompileStop, LoadError};
use crate::worker::WorkerProgram;
use crate::worker::compile::{CompileAnswer, ROLE};

/// Machine code of a component of 64 MiB has a few times its size.
const ANSWER_BYTES_MAX: u64 = 1 << 30;
/// Of what a worker says before it dies.
const LAST_WORDS_BYTES_MAX: u64 = 16 * 1024;

pub(super) async fn compile(
    program: &WorkerProgram,
    limits: &CompileLimits,
    component: &Bytes,
    key: &str,
) -> Result<Vec<u8>, LoadError> {
    let stopped = |stop| LoadError::CompileStopped(stop);
    let mut child = start(program, limits)
        .map_err(|error| stopped(CompileStop::NotStarted(error.to_string())))?;
    let ended = timeout(limits.timeout, converse(&mut child, component)).await;
    let Ok(ended) = ended else {
        // Its end is awaited, so that the next one has its memory.
        let _dead_already = child.kill().await;
        return Err(stopped(CompileStop::Timeout(limits.timeout)));
    };
    let (answer, last_words, status) =
        ended.map_err(|error| stopped(CompileStop::Died(error.to_string())))?;
    if !status.success() {
        return Err(stopped(why_it_died(status, &last_words, limits)));
    }
    match CompileAnswer::parse(answer, key) {
        Some(CompileAnswer::Code(code)) => Ok(code),
        Some(CompileAnswer::Refused(reason)) if is_out_of_memory(&reason) => {
            Err(stopped(CompileStop::Memory(limits.memory)))
        }
        Some(CompileAnswer::Refused(reason)) => Err(LoadError::Compile { reason }),
        None => Err(stopped(CompileStop::Died(
            "its answer is none of this engine's".to_owned(),
        ))),
    }
}

fn start(program: &WorkerProgram, limits: &CompileLimits) -> std::io::Result<Child> {
    let seconds = limits.cpu_time.as_secs_f64().to_string();
    let memory = limits.memory.to_string();
    let arguments = ["--cpu-seconds", &seconds, "--memory-bytes", &memory].map(OsStr::new);
    program
        .command(ROLE, &arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
}

async fn converse(
    child: &mut Child,
    component: &Bytes,
) -> std::io::Result<(Vec<u8>, String, ExitStatus)> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let write = async {
        if let Some(mut stdin) = stdin {
            // One that died meanwhile says so by its status.
            let _broken = stdin.write_all(component).await;
            let _broken = stdin.shutdown().await;
        }
    };
    let read = read_all(stdout, ANSWER_BYTES_MAX);
    let hear = read_all(stderr, LAST_WORDS_BYTES_MAX);
    let ((), answer, last_words) = tokio::join!(write, read, hear);
    let status = child.wait().await?;
    let last_words = String::from_utf8_lossy(&last_words?).into_owned();
    Ok((answer?, last_words, status))
}

/// Up to so many bytes; what comes after them stops whoever writes it.
async fn read_all(pipe: Option<impl AsyncRead + Unpin>, most: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(most).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

fn why_it_died(status: ExitStatus, last_words: &str, limits: &CompileLimits) -> CompileStop {
    const SIGXCPU: i32 = rustix::process::Signal::XCPU.as_raw();
    if status.signal() == Some(SIGXCPU) {
        return CompileStop::CpuTime(limits.cpu_time);
    }
    if is_out_of_memory(last_words) {
        return CompileStop::Memory(limits.memory);
    }
    let last_line = last_words.lines().rfind(|line| !line.trim().is_empty());
    CompileStop::Died(match last_line {
        Some(line) => format!("{status}: {}", crate::outcome::short(line)),
        None => status.to_string(),
    })
}

/// The words of Rust's allocator, and of the system.
fn is_out_of_memory(text: &str) -> bool {
    text.contains("memory allocation of") || text.contains("Cannot allocate memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ended_it_is_told_apart() {
        let limits = CompileLimits::default();
        let why = |status, words: &str| why_it_died(ExitStatus::from_raw(status), words, &limits);
        assert_eq!(why(24, ""), CompileStop::CpuTime(limits.cpu_time));
        assert_eq!(
            why(6, "memory allocation of 1048576 bytes failed\n"),
            CompileStop::Memory(limits.memory)
        );
        let CompileStop::Died(reason) = why(9, "one\n\n") else {
            panic!("it was killed");
        };
        assert!(
            reason.contains("signal: 9") && reason.contains("one"),
            "{reason}"
        );
    }
}
