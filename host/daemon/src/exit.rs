//! How the process ends: exit codes, and how an error is shown to a person.
//!
//! A command returns an [`Exit`] when it ended as its help says, and an error when it
//! could not do what it was asked to. Errors end with 1 unless their chain holds a
//! [`UsageError`] (2) or a [`Refused`] (3).

use std::io::Write as _;
use std::process::ExitCode;

use crate::printable;

/// The last lines of every `--help`.
pub(crate) const HELP: &str = "\
Exit codes:
  0    done as asked
  1    it failed
  2    wrong usage
  3    configuration, manifest or component refused; nothing was opened
  4    stopped, but calls were killed at the drain deadline
  5    invoke: an outcome other than done
  130  second Ctrl-C: stopped at once";

/// Every way to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exit {
    /// Done as asked.
    Done,
    /// It failed.
    Failed,
    /// Wrong usage; clap ends with the same number.
    Usage,
    /// Configuration, manifest or component refused.
    Refused,
    /// Stopped, but calls were killed at the drain deadline.
    CallsKilled,
    /// `invoke`: an outcome other than done.
    NotDone,
    /// The second Ctrl-C.
    Interrupted,
}

impl Exit {
    /// The number the shell sees.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Refused => 3,
            Self::CallsKilled => 4,
            Self::NotDone => 5,
            Self::Interrupted => 130,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Flags that clap cannot check by itself.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UsageError(pub(crate) String);

/// A configuration, manifest or component that is not used. Its text is complete: all
/// problems, each with its remedy.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Refused(pub(crate) String);

/// Shows an error on standard error and says how to end.
///
/// A reader that closed standard output (`mqlet … | head`) is no error to talk about.
pub(crate) fn report(error: &anyhow::Error) -> Exit {
    if error.chain().any(is_broken_pipe) {
        return Exit::Failed;
    }
    // Nobody is left to tell when standard error cannot be written.
    let text = format!("{error:#}");
    let _ = writeln!(std::io::stderr(), "mqlet: {}", printable::lines(&text));
    exit_of(error)
}

fn exit_of(error: &anyhow::Error) -> Exit {
    if error.chain().any(|cause| cause.is::<UsageError>()) {
        Exit::Usage
    } else if error.chain().any(|cause| cause.is::<Refused>()) {
        Exit::Refused
    } else {
        Exit::Failed
    }
}

fn is_broken_pipe(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn cause_of_an_error_decides_the_exit_code() {
        let refused = Err::<(), _>(Refused("mqlet.toml: no".into())).context("cannot start");
        let usage = Err::<(), _>(UsageError("no body".into())).context("cannot send");
        let failed = Err::<(), _>(std::io::Error::other("disk")).context("cannot write");

        assert_eq!(exit_of(&refused.expect_err("given")), Exit::Refused);
        assert_eq!(exit_of(&usage.expect_err("given")), Exit::Usage);
        assert_eq!(exit_of(&failed.expect_err("given")), Exit::Failed);
    }

    #[test]
    fn help_names_every_exit_code() {
        for exit in [
            Exit::Done,
            Exit::Failed,
            Exit::Usage,
            Exit::Refused,
            Exit::CallsKilled,
            Exit::NotDone,
            Exit::Interrupted,
        ] {
            let code = exit.code().to_string();
            assert!(
                HELP.lines()
                    .any(|line| line.split_whitespace().next() == Some(&code)),
                "{exit:?}"
            );
        }
    }
}
