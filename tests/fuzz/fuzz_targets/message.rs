//! Bodies of pull answers and of producers' batches.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| protocol::fuzzing::message(bytes));
