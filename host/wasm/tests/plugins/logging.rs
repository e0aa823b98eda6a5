//! What guests say becomes bounded, labelled lines.

use wasm::{LogLevel, LogSource};

use crate::support::{Plugin, all_done};

#[tokio::test]
async fn every_way_to_say_something_is_a_line() {
    let plugin = Plugin::load("print").await;

    assert_eq!(plugin.consume(&["a"]).await, all_done());

    let lines: Vec<_> = plugin
        .events
        .lines()
        .into_iter()
        .map(|line| (line.source, line.level, line.context, line.text))
        .collect();
    let log = |level, text: &str| {
        (
            LogSource::Logging,
            level,
            "levels".to_string(),
            text.to_string(),
        )
    };
    assert_eq!(
        lines,
        [
            (
                LogSource::Stdout,
                LogLevel::Info,
                String::new(),
                "to standard output 100".into()
            ),
            (
                LogSource::Stderr,
                LogLevel::Warn,
                String::new(),
                "to standard error 100".into()
            ),
            log(LogLevel::Trace, "trace"),
            log(LogLevel::Debug, "debug"),
            log(LogLevel::Info, "info"),
            log(LogLevel::Warn, "warn"),
            log(LogLevel::Error, "error"),
            log(LogLevel::Critical, "critical"),
            (
                LogSource::Stdout,
                LogLevel::Info,
                String::new(),
                "without an end".into()
            ),
        ]
    );
    assert_eq!(plugin.events.reports()[0].log_lines, 9);
}

#[tokio::test]
async fn flood_is_cut_to_its_limits_and_counted() {
    let plugin = Plugin::load_with("flood_log", |config| {
        config.limits.log_lines_per_second = 50;
        config.limits.log_bytes_per_call = 4000;
    })
    .await;

    assert_eq!(plugin.consume(&["a"]).await, all_done());

    let lines = plugin.events.lines();
    let bytes: usize = lines.iter().map(|line| line.text.len()).sum();
    assert!(!lines.is_empty() && bytes <= 4000, "{bytes} bytes");
    let [report] = plugin.events.reports().try_into().unwrap();
    assert_eq!(report.log_lines as usize, lines.len());
    assert_eq!(report.log_lines + report.log_lines_dropped, 30_002);
}

#[tokio::test]
async fn long_line_is_cut() {
    let plugin = Plugin::load_with("as_told", |config| {
        config.limits.log_bytes_per_call = 1 << 20;
    })
    .await;
    for way in ["log", "print"] {
        plugin
            .consume(&[&format!("{way} {}", "ä".repeat(5000))])
            .await;
        let line = plugin.events.lines().pop().unwrap();
        assert!(line.is_cut);
        assert_eq!(line.text.len(), wasm::LOG_LINE_BYTES_MAX);
    }
}
