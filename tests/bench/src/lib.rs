//! Benchmark programs; `cargo xtask bench` runs them.
