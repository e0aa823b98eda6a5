//! The control socket's routes over TCP, on this machine alone, for whoever has the token:
//! one request a connection, with the same bounds.

use std::net::SocketAddr;

use anyhow::Context as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::accept::serve_each;
use super::answers::ErrorAnswer;
use super::directory::Directory;
use super::http::{Answer, HttpError, Request};
use super::server::serve_request;
use crate::config::{ApiConfig, ApiToken};

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
        let token = config.token.clone();
        tasks.spawn(serve_each(listener, "the API", move |stream| {
            connection(stream, token.clone(), directory.clone())
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
    token: ApiToken,
    directory: Directory,
) -> Result<(), HttpError> {
    serve_request(&mut stream, |request| asker(request, &token), &directory).await
}

fn asker(request: &Request, token: &ApiToken) -> Result<String, Answer> {
    match &request.bearer {
        Some(given) if token.is(given) => Ok(ASKER.to_owned()),
        _ => Err(Answer::json(
            401,
            &ErrorAnswer::new("send the token of [control] as authorization: Bearer TOKEN"),
        )),
    }
}
