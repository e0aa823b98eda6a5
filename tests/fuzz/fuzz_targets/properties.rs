//! Encoded message properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| protocol::fuzzing::properties(bytes));
