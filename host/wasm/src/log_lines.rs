//! What guests say, as bounded, labelled lines: `wasi:logging`, stdout, stderr.
//!
//! A line has at most 4 KiB, a call at most `log_bytes_per_call`, a plugin at most
//! `log_lines_per_second`, and its tenant too; what is over is dropped and counted. The last lines of a call
//! are kept for its failure record whether or not they were dropped.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::event::{Event, LogLevel, LogLine, LogSource};
use crate::plugin::Plugin;

/// Text of one line; the rest of the line is cut.
pub const LOG_LINE_BYTES_MAX: usize = 4 * 1024;
/// Lines kept for a failure record.
pub const LAST_LOG_LINES_MAX: usize = 10;
/// The `context` of `wasi:logging` is cut here.
const CONTEXT_BYTES_MAX: usize = 128;

/// The lines of one instance. Shared by its store and its two output streams.
#[derive(Debug)]
pub(crate) struct LogLines {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    stdout: Unfinished,
    stderr: Unfinished,
    call: CallLines,
}

/// A line of which the end has not been seen.
#[derive(Debug, Default)]
struct Unfinished {
    text: Vec<u8>,
    is_cut: bool,
}

/// What one call said.
#[derive(Debug, Default)]
pub(crate) struct CallLines {
    bytes: usize,
    /// Lines that were passed on.
    pub(crate) lines: u32,
    /// Lines over a limit.
    pub(crate) dropped: u32,
    /// The last ones.
    pub(crate) last: VecDeque<LogLine>,
}

impl LogLines {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(State {
                stdout: Unfinished::default(),
                stderr: Unfinished::default(),
                call: CallLines::default(),
            }),
        }
    }

    /// A line of `wasi:logging`.
    pub(crate) fn log(&self, plugin: &Plugin, level: LogLevel, context: &str, message: &str) {
        let (text, is_cut) = cut(message, LOG_LINE_BYTES_MAX);
        self.lock().call.add(
            plugin,
            LogLine {
                source: LogSource::Logging,
                level,
                context: cut(context, CONTEXT_BYTES_MAX).0.to_string(),
                text: text.to_string(),
                is_cut,
            },
        );
    }

    /// Bytes that the guest wrote to one of its streams.
    pub(crate) fn write(&self, plugin: &Plugin, source: LogSource, bytes: &[u8]) {
        let state = &mut *self.lock();
        let unfinished = match source {
            LogSource::Stderr => &mut state.stderr,
            LogSource::Stdout | LogSource::Logging => &mut state.stdout,
        };
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            unfinished.push(&rest[..end]);
            state.call.add(plugin, unfinished.finish(source));
            rest = &rest[end + 1..];
        }
        unfinished.push(rest);
    }

    /// Ends the call: unfinished lines are lines. Answers what the call said.
    pub(crate) fn finish_call(&self, plugin: &Plugin) -> CallLines {
        let state = &mut *self.lock();
        for (unfinished, source) in [
            (&mut state.stdout, LogSource::Stdout),
            (&mut state.stderr, LogSource::Stderr),
        ] {
            if !unfinished.text.is_empty() {
                state.call.add(plugin, unfinished.finish(source));
            }
        }
        std::mem::take(&mut state.call)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // An observer that panics may poison it; the lines are still well-formed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Unfinished {
    fn push(&mut self, bytes: &[u8]) {
        let room = LOG_LINE_BYTES_MAX - self.text.len();
        self.is_cut |= bytes.len() > room;
        self.text.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn finish(&mut self, source: LogSource) -> LogLine {
        if self.text.last() == Some(&b'\r') {
            self.text.pop();
        }
        let line = LogLine {
            source,
            level: match source {
                LogSource::Stderr => LogLevel::Warn,
                LogSource::Stdout | LogSource::Logging => LogLevel::Info,
            },
            context: String::new(),
            text: String::from_utf8_lossy(&self.text).into_owned(),
            is_cut: self.is_cut,
        };
        self.text.clear();
        self.is_cut = false;
        line
    }
}

impl CallLines {
    /// Of a call whose lines were told elsewhere.
    pub(crate) fn counted(lines: u32, dropped: u32) -> Self {
        Self {
            lines,
            dropped,
            ..Self::default()
        }
    }

    fn add(&mut self, plugin: &Plugin, line: LogLine) {
        let bytes = line.text.len() + line.context.len();
        let fits = self.bytes.saturating_add(bytes) <= plugin.config.limits.log_bytes_per_call;
        let rates =
            || plugin.line_rate.take(1, Instant::now()) && plugin.config.tenant.take_log_line();
        let line = if fits && rates() {
            self.bytes += bytes;
            self.lines = self.lines.saturating_add(1);
            let event = Event::LogLine {
                plugin: plugin.name(),
                revision: plugin.revision(),
                line,
            };
            plugin.emit(&event);
            let Event::LogLine { line, .. } = event else {
                return;
            };
            line
        } else {
            self.dropped = self.dropped.saturating_add(1);
            line
        };
        if self.last.len() == LAST_LOG_LINES_MAX {
            self.last.pop_front();
        }
        self.last.push_back(line);
    }
}

impl LogLine {
    /// Cuts its texts as those of a guest are cut.
    pub(crate) fn bound(&mut self) {
        if self.text.len() > LOG_LINE_BYTES_MAX {
            self.text = cut(&self.text, LOG_LINE_BYTES_MAX).0.to_owned();
            self.is_cut = true;
        }
        if self.context.len() > CONTEXT_BYTES_MAX {
            self.context = cut(&self.context, CONTEXT_BYTES_MAX).0.to_owned();
        }
    }
}

/// The longest start of a text that has at most so many bytes.
pub(crate) fn cut(text: &str, bytes_max: usize) -> (&str, bool) {
    if text.len() <= bytes_max {
        return (text, false);
    }
    let mut end = bytes_max;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    (&text[..end], true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::testing::plugin_with_events;

    #[test]
    fn bytes_become_lines_wherever_they_are_cut() {
        let (plugin, events) = plugin_with_events(|_| {});
        let lines = LogLines::new();
        for bytes in ["a\nb", "c\r\n", "", "\nrest"] {
            lines.write(&plugin, LogSource::Stdout, bytes.as_bytes());
        }
        let call = lines.finish_call(&plugin);
        assert_eq!(events.log_texts(), ["a", "bc", "", "rest"]);
        assert_eq!((call.lines, call.dropped), (4, 0));
    }

    #[test]
    fn a_line_without_end_is_cut_and_takes_no_memory() {
        let (plugin, events) = plugin_with_events(|_| {});
        let lines = LogLines::new();
        for _ in 0..1000 {
            lines.write(&plugin, LogSource::Stderr, &[b'x'; 1000]);
        }
        lines.write(&plugin, LogSource::Stderr, b"\nnext\n");
        let texts = events.log_texts();
        assert_eq!(texts[0].len(), LOG_LINE_BYTES_MAX);
        assert_eq!(texts[1], "next");
    }

    #[test]
    fn what_is_over_a_limit_is_counted_and_the_last_lines_are_kept() {
        let (plugin, events) = plugin_with_events(|config| {
            config.limits.log_lines_per_second = 5;
            config.limits.log_bytes_per_call = 1000;
        });
        let lines = LogLines::new();
        for i in 0..100 {
            lines.log(&plugin, LogLevel::Info, "", &format!("line {i}"));
        }
        let call = lines.finish_call(&plugin);
        assert_eq!(events.log_texts().len(), 5);
        assert_eq!((call.lines, call.dropped), (5, 95));
        assert_eq!(call.last.len(), LAST_LOG_LINES_MAX);
        assert_eq!(call.last.back().unwrap().text, "line 99");

        lines.log(&plugin, LogLevel::Info, "", &"y".repeat(1001));
        assert_eq!(lines.finish_call(&plugin).dropped, 1);
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(cut("añb", 2), ("a", true));
        assert_eq!(cut("añb", 3), ("añ", true));
        assert_eq!(cut("añb", 4), ("añb", false));
    }
}
