//! What a command prints on standard output: text for people or JSON for programs.
//!
//! Logs and errors go to standard error; this is for results only. JSON is one value a
//! line, so that a reader can take results as they come.

use std::io::Write;

use clap::ValueEnum;
use serde::Serialize;

use crate::printable;

/// `--output`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum OutputFormat {
    /// For people.
    #[default]
    Text,
    /// For programs: one JSON value a line.
    Json,
}

/// Standard output in the format that was asked for.
pub(crate) struct Output {
    format: OutputFormat,
    writer: Box<dyn Write + Send>,
}

impl Output {
    /// Standard output.
    pub(crate) fn stdout(format: OutputFormat) -> Self {
        Self {
            format,
            writer: Box::new(std::io::stdout()),
        }
    }

    /// Which of the two.
    pub(crate) fn format(&self) -> OutputFormat {
        self.format
    }

    /// One result: its text (which may have several lines) or its JSON on one line.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub(crate) fn result(
        &mut self,
        text: impl std::fmt::Display,
        json: &impl Serialize,
    ) -> std::io::Result<()> {
        match self.format {
            OutputFormat::Text => self.write_text(&text.to_string())?,
            OutputFormat::Json => {
                serde_json::to_writer(&mut self.writer, json)?;
                self.writer.write_all(b"\n")?;
            }
        }
        self.writer.flush()
    }

    /// A line that only people want (progress, hints); nothing with `--output json`.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub(crate) fn note(&mut self, text: impl std::fmt::Display) -> std::io::Result<()> {
        match self.format {
            OutputFormat::Text => {
                self.write_text(&text.to_string())?;
                self.writer.flush()
            }
            OutputFormat::Json => Ok(()),
        }
    }

    /// The one place where text for people gets to a terminal.
    fn write_text(&mut self, text: &str) -> std::io::Result<()> {
        writeln!(self.writer, "{}", printable::lines(text))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Screen(Arc<Mutex<Vec<u8>>>);

    impl Write for Screen {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("no panic").write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn no_text_has_control_characters() {
        let screen = Screen::default();
        let mut output = Output {
            format: OutputFormat::Text,
            writer: Box::new(screen.clone()),
        };
        output.result("a\u{1b}[2J\nb", &()).expect("written");
        output.note("\u{7}c").expect("written");
        let text = screen.0.lock().expect("no panic").clone();
        assert_eq!(text, b"a\\u{1b}[2J\nb\n\\u{7}c\n");
    }
}
