//! A worker that compiles one component: its bytes come on standard input, machine code or
//! the reason why there is none goes to standard output, and that is all it can do.
//!
//! What goes out begins with a line: `code KEY BYTES` or `refused KEY BYTES`, with the
//! engine's compatibility key and the number of bytes that follow. Whoever reads it takes
//! nothing that is cut, longer, or of another engine.

use std::io::{self, Read as _, Write};

use rayon::ThreadPoolBuilder;

use super::sandbox::{self, SandboxError, SystemLimits};
use crate::component::COMPONENT_BYTES_MAX;
use crate::engine::{self, CompileLimits};

/// The subcommand.
pub(crate) const ROLE: &str = "compile-worker";
/// Lowest priority that Linux has.
const NICE: i32 = 19;
/// The first line of an answer.
const HEAD_BYTES_MAX: usize = 256;

/// Why a worker did not even try.
#[derive(Debug, thiserror::Error)]
enum WorkerError {
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error("no threads: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
    #[error("{0}")]
    Engine(#[from] crate::error::EngineError),
    #[error("its pipes: {0}")]
    Pipe(#[from] io::Error),
    #[error("more than a component may have")]
    TooLarge,
}

/// The whole life of the process: call it before anything else has a thread.
///
/// # Errors
/// For people, when there is no answer on standard output.
pub fn compile_worker(limits: &CompileLimits) -> Result<(), String> {
    run(limits).map_err(|error| format!("cannot compile here: {error}"))
}

fn run(limits: &CompileLimits) -> Result<(), WorkerError> {
    let system_limits = SystemLimits {
        memory: limits.memory,
        cpu_time: Some(limits.cpu_time),
    };
    system_limits.apply()?;
    // Refused where a sandbox forbids it: it then competes with the guests.
    let _refused = rustix::process::nice(NICE);
    // All threads, before none can be made.
    ThreadPoolBuilder::new().build_global()?;
    rayon::broadcast(|_| ());
    let engine = engine::compiling()?;
    let mut component = Vec::new();
    let most = COMPONENT_BYTES_MAX + 1;
    io::stdin().lock().take(most).read_to_end(&mut component)?;
    if component.len() as u64 > COMPONENT_BYTES_MAX {
        return Err(WorkerError::TooLarge);
    }
    sandbox::confine()?;
    let (word, answer) = match engine.precompile_component(&component) {
        Ok(code) => ("code", code),
        Err(error) => ("refused", format!("{error:#}").into_bytes()),
    };
    let mut output = io::stdout().lock();
    let key = engine::compatibility_key(&engine);
    writeln!(output, "{word} {key} {}", answer.len())?;
    output.write_all(&answer)?;
    output.flush()?;
    Ok(())
}

/// What a worker answered.
pub(crate) enum CompileAnswer {
    Code(Vec<u8>),
    Refused(String),
}

impl CompileAnswer {
    /// Reads a whole answer. `None`: it is none, or of another engine.
    pub(crate) fn parse(mut bytes: Vec<u8>, key: &str) -> Option<Self> {
        let head = &bytes[..bytes.len().min(HEAD_BYTES_MAX)];
        let end = head.iter().position(|byte| *byte == b'\n')?;
        let mut words = std::str::from_utf8(&head[..end]).ok()?.split(' ');
        let is_code = match words.next()? {
            "code" => true,
            "refused" => false,
            _ => return None,
        };
        if words.next()? != key {
            return None;
        }
        let announced: usize = words.next()?.parse().ok()?;
        if words.next().is_some() || bytes.len() - end - 1 != announced {
            return None;
        }
        bytes.drain(..=end);
        Some(match is_code {
            true => Self::Code(bytes),
            false => Self::Refused(String::from_utf8_lossy(&bytes).into_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_answer_of_the_same_engine_is_taken() {
        let parse = |text: &str| CompileAnswer::parse(text.as_bytes().to_vec(), "k1");
        assert!(
            matches!(parse("code k1 3\nabc"), Some(CompileAnswer::Code(code)) if code == b"abc")
        );
        assert!(
            matches!(parse("refused k1 2\nno"), Some(CompileAnswer::Refused(text)) if text == "no")
        );
        for other in [
            "",
            "code k1 3",
            "code k1 3\nab",
            "code k1 3\nabcd",
            "code k2 3\nabc",
            "code k1 -3\nabc",
            "code k1 3 4\nabc",
            "codes k1 3\nabc",
            "code  k1 3\nabc",
        ] {
            assert!(parse(other).is_none(), "{other:?}");
        }
    }
}
