//! The rules of a RocketMQ consumer: pure, no I/O, no clock.

pub mod listener;
pub mod publish;
