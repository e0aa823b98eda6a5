//! The control socket: how `mqlet groups`, `queues`, `explain`, `pause`, `resume` and
//! `drain` talk to a running host.
//!
//! A Unix socket for this user alone, speaking HTTP with JSON. `socket` owns the place in
//! the file system, `http` the bytes, `accept` the connections and their bounds, `server` who
//! asks, `api` the same over TCP for whoever has a token, `routes`
//! what is answered, from the plain types of `answers`; `client` is the other side.
//! `openapi` describes all of it for programs;
//! `directory` says which tenants and plugins there are.

mod accept;
pub(crate) mod answers;
mod api;
pub(crate) mod client;
pub(crate) mod directory;
mod explain;
mod http;
mod openapi;
pub(crate) mod plugin_answers;
mod routes;
mod server;
pub(crate) mod shadow_answers;
pub(crate) mod socket;

pub(crate) use api::ApiServer;
pub(crate) use directory::Directory;
pub(crate) use server::ControlServer;
