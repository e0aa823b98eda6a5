//! Frames without their length field, typed headers and bodies included.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| protocol::fuzzing::command(bytes));
