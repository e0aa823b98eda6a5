//! `wasi:http/outgoing-handler`: requests go out by the tenant's client (`http.rs`), to
//! whom the grant names, within the time that the call has left.

use std::future::Future;
use std::sync::Arc;

use tokio::time::Instant;
use wasmtime_wasi_http::{
    Error, RequestOptions, WasiBody, WasiHttpCtx, WasiHttpCtxView, WasiHttpHooks, WasiHttpView,
};

use crate::deadline::CallClock;
use crate::http::{HEAD_BYTES_MAX, Outgoing};
use crate::http_tap::HttpTapped;
use crate::plugin::Plugin;
use crate::store::State;

/// What a guest may write of a body at once.
const BODY_CHUNK_BYTES: usize = 16 * 1024;

/// What one instance has for its requests.
pub(crate) struct Http {
    ctx: WasiHttpCtx,
    hooks: Hooks,
}

struct Hooks {
    plugin: Arc<Plugin>,
    clock: Arc<CallClock>,
}

impl Http {
    pub(crate) fn new(plugin: &Arc<Plugin>, clock: &Arc<CallClock>) -> Self {
        let mut ctx = WasiHttpCtx::new();
        ctx.set_field_size_limit(HEAD_BYTES_MAX);
        Self {
            ctx,
            hooks: Hooks {
                plugin: Arc::clone(plugin),
                clock: Arc::clone(clock),
            },
        }
    }
}

impl WasiHttpView for State {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView {
            hooks: &mut self.http.hooks,
            table: &mut self.table,
            ctx: &mut self.http.ctx,
        }
    }
}

type Sent = (
    http::Response<WasiBody>,
    Box<dyn Future<Output = Result<(), Error>> + Send>,
);

impl WasiHttpHooks for Hooks {
    /// Of each request that was made and never sent the host holds one write and what waits
    /// behind it, and an instance may have as many as it may have resources.
    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        BODY_CHUNK_BYTES
    }

    fn send_request(
        &mut self,
        request: http::Request<WasiBody>,
        options: Option<RequestOptions>,
        _received: Box<dyn Future<Output = Result<(), Error>> + Send>,
    ) -> Box<dyn Future<Output = Result<Sent, Error>> + Send> {
        let Some(grant) = self.plugin.config.grants.http.clone() else {
            return Box::new(std::future::ready(Err(Error::HttpRequestDenied)));
        };
        // A tenth is left for what the guest makes of an answer that did not come.
        let time = self.clock.remaining().mul_f64(0.9);
        let plugin = Arc::clone(&self.plugin);
        let client = Arc::clone(&self.plugin.config.http);
        let outgoing = Outgoing {
            plugin: plugin.name(),
            grant,
            request,
            deadline: Instant::now() + time,
            options: options.unwrap_or_default(),
            count_sent: Box::new(move |bytes| plugin.add_bytes_out(bytes)),
        };
        if let Some(tap) = &self.plugin.config.http_tap
            && outgoing.is_granted()
        {
            let request = &outgoing.request;
            match tap.asks(request.method().as_str(), &request.uri().to_string()) {
                HttpTapped::Send => {}
                HttpTapped::Answer(status) => return Box::new(outgoing.answered(status)),
            }
        }
        Box::new(client.send(outgoing))
    }
}
