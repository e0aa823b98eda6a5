//! The control socket's connections: how many, how long, and who asks.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tracing::{debug, warn};

use super::answers::ErrorAnswer;
use super::directory::Directory;
use super::http::{self, Answer, HttpError, Request};
use super::routes;
use super::socket::{ControlSocket, SocketError};

/// Connections served at once; others wait to be accepted.
pub(super) const CONNECTIONS_MAX: usize = 16;
/// From accept to the last byte of the answer; a deployment takes as long as compiling
/// and `init` do.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(10);
/// From accept to the last byte of a deployment's answer.
pub(super) const DEPLOY_TIME_MAX: Duration = super::client::DEPLOY_TIME_MAX;
/// Told to any other user.
const NOT_YOURS: &str = "this host belongs to another user; ask as that user";
/// After the system refused a connection (no file handle left).
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Serves until it is dropped; the socket goes with it.
#[derive(Debug)]
pub(crate) struct ControlServer {
    socket: ControlSocket,
    _tasks: JoinSet<()>,
}

impl ControlServer {
    /// Binds the socket and serves it. Needs a tokio runtime.
    ///
    /// # Errors
    /// There is no socket to be had.
    pub(crate) fn start(path: &Path, directory: Directory) -> Result<Self, SocketError> {
        let (socket, listener) = ControlSocket::bind(path)?;
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(listener, directory));
        Ok(Self {
            socket,
            _tasks: tasks,
        })
    }

    /// Where it listens.
    pub(crate) fn path(&self) -> &Path {
        self.socket.path()
    }
}

async fn serve(listener: UnixListener, directory: Directory) {
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
                connections.spawn(connection(stream, directory.clone(), permit));
            }
            Err(error) => {
                warn!(target: "mqlet", "cannot accept a connection to the control socket: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(mut stream: UnixStream, directory: Directory, _permit: OwnedSemaphorePermit) {
    let asker = asker(&stream);
    let served = serve_one(&mut stream, asker, &directory);
    match tokio::time::timeout(DEPLOY_TIME_MAX, served).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!(target: "mqlet", "control socket: {error}"),
        Err(_) => debug!(target: "mqlet", "control socket: a request took too long"),
    }
}

/// Reads a request and answers it. Those who have no say here are refused unread: they are
/// not waited for, and keep nobody else out.
async fn serve_one(
    stream: &mut UnixStream,
    asker: Option<String>,
    directory: &Directory,
) -> Result<(), HttpError> {
    let answer = match asker {
        None => Answer::json(403, &ErrorAnswer::new(NOT_YOURS)),
        Some(asker) => return serve_request(stream, |_| Ok(asker), directory).await,
    };
    in_time(http::write_answer(stream, &answer)).await??;
    Ok(())
}

/// Reads a request and answers it, for whoever is found to be behind it.
pub(super) async fn serve_request(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    asker: impl FnOnce(&Request) -> Result<String, Answer>,
    directory: &Directory,
) -> Result<(), HttpError> {
    let answer = match in_time(http::read_request(stream)).await? {
        Ok(request) => match asker(&request) {
            Ok(asker) if is_deployment(&request) => {
                routes::answer(&request, &asker, directory).await
            }
            Ok(asker) => in_time(routes::answer(&request, &asker, directory)).await?,
            Err(refusal) => refusal,
        },
        Err(HttpError::TooLarge(what)) => {
            Answer::json(413, &ErrorAnswer::new(format!("too large: {what}")))
        }
        Err(HttpError::Malformed(what)) => {
            Answer::json(400, &ErrorAnswer::new(format!("not understood: {what}")))
        }
        // Nobody is left to be answered.
        Err(error @ (HttpError::Io(_) | HttpError::Early)) => return Err(error),
    };
    in_time(http::write_answer(stream, &answer)).await??;
    Ok(())
}

/// What compiles and runs `init` before it is answered.
fn is_deployment(request: &http::Request) -> bool {
    matches!(
        request.path.as_str(),
        "/v1/deploy" | "/v1/rollback" | "/v1/remove"
    )
}

async fn in_time<T>(work: impl Future<Output = T>) -> Result<T, HttpError> {
    let worked = tokio::time::timeout(REQUEST_TIME_MAX, work).await;
    worked.map_err(|_| HttpError::Io(std::io::ErrorKind::TimedOut.into()))
}

/// Who is on the other side, for people; `None` for those who have no say here. The
/// socket's mode keeps them away, unless somebody has changed it, or was there before it.
fn asker(stream: &UnixStream) -> Option<String> {
    let asker = stream.peer_cred().ok()?.uid();
    let ours = rustix::process::geteuid().as_raw();
    may_ask(asker, ours).then(|| format!("user {asker}"))
}

/// The host's own user, and root, who can do everything anyway.
fn may_ask(asker: u32, ours: u32) -> bool {
    asker == ours || asker == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_hosts_own_user_and_root_may_ask() {
        for (asker, ours, may) in [
            (1000, 1000, true),
            (0, 1000, true),
            (0, 0, true),
            (1000, 0, false),
            (1000, 1001, false),
        ] {
            assert_eq!(may_ask(asker, ours), may, "{asker} asks {ours}");
        }
        let (one, _other) = UnixStream::pair().expect("a pair");
        assert!(asker(&one).is_some(), "this process is the host's user");
    }

    #[tokio::test]
    async fn another_user_is_refused_without_a_request_and_is_told_so() {
        let request = http::Request {
            method: "POST".to_owned(),
            path: "/v1/pause".to_owned(),
            // More than a socket holds.
            body: vec![b'x'; 4 << 20],
            bearer: None,
        };
        let (mut here, mut there) = UnixStream::pair().expect("a pair");
        // It ends though nothing was asked.
        serve_one(&mut there, None, &Directory::default())
            .await
            .expect("refused");
        drop(there);
        let answer = http::exchange(&mut here, &request).await;
        let answer = answer.expect("what was said before the request");
        assert_eq!(answer.status, 403);
        assert!(String::from_utf8_lossy(&answer.body).contains(NOT_YOURS));
    }
}
