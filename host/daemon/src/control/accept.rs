//! How connections of the control socket and of the API are taken: so many at once, each
//! for so long.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tracing::{debug, warn};

use super::http::HttpError;

/// Connections served at once; others wait to be accepted.
const CONNECTIONS_MAX: usize = 16;
/// From accept to the last byte of an answer, a deployment's too.
const CONNECTION_TIME_MAX: Duration = super::client::DEPLOY_TIME_MAX;
/// After the system refused a connection (no file handle left).
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

pub(super) trait Listener: Send {
    type Stream: Send + 'static;

    fn accept(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Listener for UnixListener {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<UnixStream> {
        UnixListener::accept(self).await.map(|(stream, _)| stream)
    }
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<TcpStream> {
        TcpListener::accept(self).await.map(|(stream, _)| stream)
    }
}

/// Serves every connection to `what`, for people, until it is dropped.
pub(super) async fn serve_each<L, F>(
    listener: L,
    what: &'static str,
    serve: impl Fn(L::Stream) -> F + Send,
) where
    L: Listener + Sync,
    F: Future<Output = Result<(), HttpError>> + Send + 'static,
{
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
            Ok(stream) => {
                let served = serve(stream);
                connections.spawn(async move {
                    let _permit = permit;
                    match tokio::time::timeout(CONNECTION_TIME_MAX, served).await {
                        Ok(Ok(())) => {}
                        Ok(Err(error)) => debug!(target: "mqlet", "{what}: {error}"),
                        Err(_) => debug!(target: "mqlet", "{what}: a request took too long"),
                    }
                });
            }
            Err(error) => {
                warn!(target: "mqlet", "cannot accept a connection to {what}: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
