//! What a command prints on standard output: text for people or JSON for programs.
//!
//! Logs and errors go to standard error; this is for results only. JSON is one value a
//! line, so that a reader can take results as they come.

use std::io::Write;

use clap::ValueEnum;
use serde::Serialize;

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
            OutputFormat::Text => writeln!(self.writer, "{text}")?,
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
                writeln!(self.writer, "{text}")?;
                self.writer.flush()
            }
            OutputFormat::Json => Ok(()),
        }
    }
}
