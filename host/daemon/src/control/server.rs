//! The control socket's connections: who asks, and what of a request may take how long.

use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::task::JoinSet;

use super::accept::serve_each;
use super::answers::ErrorAnswer;
use super::directory::Directory;
use super::http::{self, Answer, HttpError, REQUEST_BYTES_MAX, Request};
use super::routes;
use super::socket::{ControlSocket, SocketError};

/// To read a request, to find its answer (but a deployment takes as long as compiling and
/// `init` do), and to write it: each.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(10);
/// For a component of the largest size, over a slow line.
const UPLOAD_TIME_MAX: Duration = Duration::from_secs(60);
/// Told to any other user.
const NOT_YOURS: &str = "this host belongs to another user; ask as that user";

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
        tasks.spawn(serve_each(listener, "the control socket", move |stream| {
            connection(stream, directory.clone())
        }));
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

async fn connection(mut stream: UnixStream, directory: Directory) -> Result<(), HttpError> {
    let asker = asker(&stream);
    serve_one(&mut stream, asker, &directory).await
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

/// Reads a request and answers it, for whoever is found to be behind it: nobody else's body
/// is read.
pub(super) async fn serve_request(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    asker: impl FnOnce(&Request) -> Result<String, Answer>,
    directory: &Directory,
) -> Result<(), HttpError> {
    let asked = async {
        let (mut request, rest) = in_time(http::read_request_head(stream)).await??;
        let asker = asker(&request);
        if asker.is_ok() {
            let (bytes_max, time_max) = match request.path.as_str() {
                "/v1/upload" => (
                    usize::try_from(wasm::COMPONENT_BYTES_MAX).unwrap_or(usize::MAX),
                    UPLOAD_TIME_MAX,
                ),
                _ => (REQUEST_BYTES_MAX, REQUEST_TIME_MAX),
            };
            let body = http::read_request_body(stream, rest, bytes_max);
            let body = tokio::time::timeout(time_max, body).await;
            request.body = body.map_err(|_| late())??;
        }
        Ok((request, asker))
    };
    let answer = match asked.await {
        Ok((request, Ok(asker))) if is_deployment(&request) => {
            routes::answer(&request, &asker, directory).await
        }
        Ok((request, Ok(asker))) => in_time(routes::answer(&request, &asker, directory)).await?,
        Ok((_, Err(refusal))) => refusal,
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

pub(super) async fn in_time<T>(work: impl Future<Output = T>) -> Result<T, HttpError> {
    let worked = tokio::time::timeout(REQUEST_TIME_MAX, work).await;
    worked.map_err(|_| late())
}

fn late() -> HttpError {
    HttpError::Io(std::io::ErrorKind::TimedOut.into())
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
