//! Facts about the call that is running.

use std::time::Duration;

#[cfg(target_family = "wasm")]
use crate::bindings::mqlet::listener::call as host;
#[cfg(not(target_family = "wasm"))]
use crate::testing::host::call as host;

pub use crate::bindings::mqlet::listener::call::MessageDetails;

/// Time left until the call is killed.
pub fn remaining() -> Duration {
    Duration::from_millis(host::remaining_ms().into())
}

/// The consumer is stopping or the queue was taken away, so the answer may not be used:
/// finish early, or take no notice.
pub fn is_cancelled() -> bool {
    host::cancelled()
}

/// Names the code and configuration that are running; made for people.
pub fn revision() -> String {
    host::revision()
}

/// W3C trace context of the call, when it is traced.
pub fn traceparent() -> Option<String> {
    host::traceparent()
}

/// The host's wall clock, since 1970.
pub fn now() -> Duration {
    Duration::from_millis(host::now_ms())
}

/// Fresh random bytes, at most 4096.
pub fn random(count: u32) -> Vec<u8> {
    host::random(count)
}

pub(crate) fn details(index: u32) -> Option<MessageDetails> {
    host::details(index)
}
