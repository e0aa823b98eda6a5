//! `wasi:logging`: lines with a level and a context.

use crate::bindings::wasi::logging::logging::{Host, Level};
use crate::event::LogLevel;
use crate::store::State;

impl Host for State {
    fn log(&mut self, level: Level, context: String, message: String) {
        let level = match level {
            Level::Trace => LogLevel::Trace,
            Level::Debug => LogLevel::Debug,
            Level::Info => LogLevel::Info,
            Level::Warn => LogLevel::Warn,
            Level::Error => LogLevel::Error,
            Level::Critical => LogLevel::Critical,
        };
        self.lines.log(&self.plugin, level, &context, &message);
    }
}
