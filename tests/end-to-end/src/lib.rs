//! What tests of the real binary need: a process to start and watch, the ledger of
//! what its plugins consumed, and waiting for conditions.
//!
//! Tests here and in `tests/interop` use the binary as a user does: files, arguments,
//! signals, standard output. They never link the host's crates.

pub mod embedded_broker;
pub mod eventually;
pub mod faulty_link;
pub mod front_name_server;
pub mod host_folder;
pub mod host_process;
pub mod hostile_peer;
pub mod hostile_proxy;
pub mod ledger;
pub mod redis_server;
pub mod remoting_frame;
pub mod soak;
pub mod swapping;
pub mod timer;
pub mod workspace;
