//! Events as log lines, in text or JSON, on standard error. One file for each crate's
//! events. Lines have fields for what programs look for, and never a message's body.
//!
//! Targets are the names of the parts (`consumer`, `driver`, `wasm`, `plugin`, `broker`,
//! `guest`, `mqlet`), so that `--log-level "info,consumer=debug"` works.

pub(super) mod broker;
pub(super) mod consumer;
pub(super) mod driver;
pub(super) mod plugin;
pub(super) mod wasm;

use std::fmt;
use std::io::IsTerminal as _;

use tracing::field::Field;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::fmt::format::{Writer, debug_fn};

use crate::cli::LogFormat;
use crate::config::LogConfig;
use crate::printable;

/// Starts the log of this process. Later calls change nothing.
///
/// Lines are written where they happen, so that what a guest logged before it answered
/// is out when its answer counts, whatever happens to the process.
pub(crate) fn init(config: &LogConfig) {
    // The level was checked when it was read.
    let filter = EnvFilter::try_new(&config.level).unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    // A second start in one process would be another test's.
    let _ = match config.format {
        LogFormat::Text => builder
            .fmt_fields(debug_fn(text_field).delimited(" "))
            .try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
}

/// One field of a line of text. `tracing_subscriber` escapes the message alone, and names
/// of groups, queues and brokers stand in the other fields.
fn text_field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let text = format!("{value:?}");
    let text = printable::log_text(&text);
    match field.name() {
        "message" => writer.write_str(&text),
        // Of the crate `log`: where in the source.
        name if name.starts_with("log.") => Ok(()),
        name => write!(writer, "{name}={text}"),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("no panic").write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_peers_say_moves_no_cursor_and_makes_no_line_of_its_own() {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .with_ansi(false)
            .without_time()
            .fmt_fields(debug_fn(text_field).delimited(" "))
            .finish();
        let queue = "T@broker\u{1b}[2J:1";
        let error = "no\r\nERROR mqlet: all is lost\u{9b}2J";
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(target: "consumer", %queue, count = 3, "refused: {error}");
        });
        let text = lines.0.lock().expect("no panic").clone();
        let expected = " WARN consumer: refused: no\\r\n    ERROR mqlet: all is lost\\u{9b}2J \
                        queue=T@broker\\u{1b}[2J:1 count=3\n";
        assert_eq!(String::from_utf8_lossy(&text), expected);
    }
}
