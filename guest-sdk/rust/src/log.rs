//! Log lines. The macros are the usual way; standard output and standard error become
//! log lines too.
//!
//! The host bounds them: `log_lines_per_second` and `log_bytes_per_call` of the manifest.

use std::fmt::Arguments;

#[cfg(target_family = "wasm")]
use crate::bindings::wasi::logging::logging::log as host_log;
#[cfg(not(target_family = "wasm"))]
use crate::testing::host::log as host_log;

pub use crate::bindings::wasi::logging::logging::Level;

/// Writes one line. The context says what part of the program speaks.
pub fn log(level: Level, context: &str, text: Arguments<'_>) {
    match text.as_str() {
        Some(text) => host_log(level, context, text),
        None => host_log(level, context, &text.to_string()),
    }
}

/// Logs the finest detail.
#[macro_export]
macro_rules! trace {
    ($($text:tt)+) => { $crate::log::log($crate::log::Level::Trace, module_path!(), format_args!($($text)+)) };
}

/// Logs what helps to find a mistake.
#[macro_export]
macro_rules! debug {
    ($($text:tt)+) => { $crate::log::log($crate::log::Level::Debug, module_path!(), format_args!($($text)+)) };
}

/// Logs what an operator may want to see.
#[macro_export]
macro_rules! info {
    ($($text:tt)+) => { $crate::log::log($crate::log::Level::Info, module_path!(), format_args!($($text)+)) };
}

/// Logs something unusual that still works.
#[macro_export]
macro_rules! warn {
    ($($text:tt)+) => { $crate::log::log($crate::log::Level::Warn, module_path!(), format_args!($($text)+)) };
}

/// Logs a failure.
#[macro_export]
macro_rules! error {
    ($($text:tt)+) => { $crate::log::log($crate::log::Level::Error, module_path!(), format_args!($($text)+)) };
}
