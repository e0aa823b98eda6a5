//! Real components in their box. `support.rs` loads a guest of `tests/guests` (built by
//! `cargo xtask guests`) and makes requests; the rest is claims.

#![expect(
    unreachable_pub,
    clippy::unwrap_used,
    reason = "a test binary has no public items, and a panic is how it fails"
)]

mod answers;
mod calls;
mod ending;
mod facts;
mod hostile;
mod limits;
mod loading;
mod logging;
mod neighbours;
mod orderly;
mod outbox;
mod pools;
mod pull_task;
mod reach;
mod reach_http;
mod reach_sdk;
mod support;
mod web_server;
