//! The control socket's routes over TCP, on this machine alone, for whoever has the token:
//! one request a connection, with the same bounds.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tracing::{debug, warn};

use super::answers::ErrorAnswer;
use super::directory::Directory;
use super::http::{Answer, Request};
use super::server::{ACCEPT_PAUSE, CONNECTIONS_MAX, DEPLOY_TIME_MAX, serve_request};
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
        tasks.spawn(serve(listener, config.token.clone(), directory));
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

async fn serve(listener: TcpListener, token: ApiToken, directory: Directory) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    // Ended with this task.
    let mut connections = JoinSet::new();
    loop {
        // Never closed.
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
            return;
        };
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => {
                connections.spawn(connection(stream, token.clone(), directory.clone(), permit));
            }
            Err(error) => {
                warn!(target: "mqlet", "cannot accept a connection to the API: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(
    mut stream: TcpStream,
    token: ApiToken,
    directory: Directory,
    _permit: OwnedSemaphorePermit,
) {
    let served = serve_request(&mut stream, |request| asker(request, &token), &directory);
    match tokio::time::timeout(DEPLOY_TIME_MAX, served).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!(target: "mqlet", "API: {error}"),
        Err(_) => debug!(target: "mqlet", "API: a request took too long"),
    }
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
