//! The control socket's routes over TCP: on this machine for whoever has the token, for
//! other machines over TLS for whoever has a certificate of the right authority. One
//! request a connection, with the same bounds.

use std::net::SocketAddr;

use anyhow::Context as _;
use plugin_lifecycle::Digest;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::accept::serve_each;
use super::answers::ErrorAnswer;
use super::directory::Directory;
use super::http::{Answer, HttpError, Request};
use super::server::{in_time, serve_request};
use crate::config::api::{ApiConfig, ApiTls, ApiToken};

/// Who asked, in listings and the ledger.
const ASKER: &str = "the API";

/// Serves until it is dropped.
#[derive(Debug)]
pub(crate) struct ApiServer {
    address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl ApiServer {
    /// Binds the address and serves it.
    ///
    /// # Errors
    /// The address is not to be had.
    pub(crate) async fn start(config: &ApiConfig, directory: Directory) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(config.address).await.with_context(|| {
            format!(
                "cannot listen on {}; set api of [control] to a free address",
                config.address
            )
        })?;
        let address = listener.local_addr().context("no address")?;
        let mut tasks = JoinSet::new();
        let (tls, token) = (
            config.tls.as_ref().map(ApiTls::acceptor),
            config.token.clone(),
        );
        tasks.spawn(serve_each(listener, "the API", move |stream| {
            connection(stream, tls.clone(), token.clone(), directory.clone())
        }));
        Ok(Self {
            address,
            _tasks: tasks,
        })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn connection(
    mut stream: TcpStream,
    tls: Option<TlsAcceptor>,
    token: Option<ApiToken>,
    directory: Directory,
) -> Result<(), HttpError> {
    let Some(tls) = tls else {
        let asker = |request: &Request| asker(request, token.as_ref(), None);
        return serve_request(&mut stream, asker, &directory).await;
    };
    let mut stream = in_time(tls.accept(stream)).await??;
    let shown = stream.get_ref().1.peer_certificates();
    let certificate = shown
        .and_then(|chain| chain.first())
        .map(|one| Digest::of(one));
    let asker = |request: &Request| asker(request, token.as_ref(), certificate);
    serve_request(&mut stream, asker, &directory).await
}

/// A certificate was verified when it was shown; where one is wanted there is one.
fn asker(
    request: &Request,
    token: Option<&ApiToken>,
    certificate: Option<Digest>,
) -> Result<String, Answer> {
    let is_known = match (token, &request.bearer) {
        (None, _) => certificate.is_some(),
        (Some(token), Some(given)) => token.is(given),
        (Some(_), None) => false,
    };
    if !is_known {
        return Err(Answer::json(
            401,
            &ErrorAnswer::new("send the token of [control] as authorization: Bearer TOKEN"),
        ));
    }
    Ok(match certificate {
        Some(certificate) => format!("{ASKER} (certificate {})", certificate.short()),
        None => ASKER.to_owned(),
    })
}
