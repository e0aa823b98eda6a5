//! What a guest finds on the host's side: one file for each WIT interface that we
//! implement, and WASI, sealed. Everything here is linked for every plugin, because
//! many toolchains import it used or not; grants are asked when a function is called.

mod call;
mod config;
pub(crate) mod http;
pub(crate) mod key_value;
mod logging;
pub(crate) mod producer;
pub(crate) mod pull_consumer;
pub(crate) mod stdio;

use wasmtime::component::{HasSelf, Linker};

use crate::bindings::{mqlet, reach, scheduled_pull, wasi};
use crate::store::State;

/// The linker of an engine.
pub(crate) fn linker(engine: &wasmtime::Engine) -> wasmtime::Result<Linker<State>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    mqlet::listener::types::add_to_linker::<State, HasSelf<State>>(&mut linker, |state| state)?;
    mqlet::listener::call::add_to_linker::<State, HasSelf<State>>(&mut linker, |state| state)?;
    mqlet::listener::producer::add_to_linker::<State, HasSelf<State>>(&mut linker, |state| state)?;
    scheduled_pull::mqlet::listener::pull_consumer::add_to_linker::<State, HasSelf<State>>(
        &mut linker,
        |state| state,
    )?;
    wasi::logging::logging::add_to_linker::<State, HasSelf<State>>(&mut linker, |state| state)?;
    // Components that import these without a grant are refused before they are linked
    // (`component.rs`).
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
    reach::wasi::config::store::add_to_linker::<State, HasSelf<State>>(&mut linker, |state| state)?;
    reach::wasi::keyvalue::store::add_to_linker::<State, HasSelf<State>>(&mut linker, |state| {
        state
    })?;
    reach::wasi::keyvalue::atomics::add_to_linker::<State, HasSelf<State>>(&mut linker, |state| {
        state
    })?;
    Ok(linker)
}
