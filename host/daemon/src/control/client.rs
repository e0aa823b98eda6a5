//! Asks a running host over its control socket.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use super::answers::ErrorAnswer;
use super::http::{self, Request};
use super::socket;

/// A host answers at once, or is stuck.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(15);

/// Until a deployment is answered: compiling and `init` are in it.
pub(super) const DEPLOY_TIME_MAX: Duration = Duration::from_secs(120);

/// Why there is no answer that a command could show.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ControlError {
    #[error(
        "no host runs at {path}; start one with mqlet run or mqlet dev, or name its control socket with --socket"
    )]
    NoHost { path: String },
    #[error("the control socket {path} belongs to another user; ask as that user")]
    Denied { path: String },
    #[error("{0}")]
    Refused(String),
}

/// A host, by its socket.
#[derive(Debug)]
pub(crate) struct ControlClient {
    path: PathBuf,
}

impl ControlClient {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Asks for a listing.
    ///
    /// # Errors
    /// No host is there, or it refuses.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        self.ask("GET", path, Vec::new(), ANSWER_TIME_MAX).await
    }

    /// Asks for something to be done.
    ///
    /// # Errors
    /// No host is there, or it refuses.
    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<T> {
        let body = serde_json::to_vec(body)?;
        self.ask("POST", path, body, ANSWER_TIME_MAX).await
    }

    /// Asks for something that takes compiling.
    ///
    /// # Errors
    /// No host is there, it refuses, or what was asked for failed.
    pub(crate) async fn deploy<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<T> {
        let body = serde_json::to_vec(body)?;
        self.ask("POST", path, body, DEPLOY_TIME_MAX).await
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: Vec<u8>,
        time_max: Duration,
    ) -> anyhow::Result<T> {
        let request = Request {
            method: method.to_owned(),
            path: path.to_owned(),
            body,
            bearer: None,
        };
        let asked = async {
            let mut stream = connect(&self.path).await?;
            let answer = http::exchange(&mut stream, &request).await;
            answer.context("the host did not answer")
        };
        let answer = tokio::time::timeout(time_max, asked)
            .await
            .with_context(|| {
                let seconds = time_max.as_secs();
                format!("the host does not answer within {seconds} s; look at its log")
            })??;
        if answer.status != 200 {
            let refusal: Result<ErrorAnswer, _> = serde_json::from_slice(&answer.body);
            let error = refusal.map_or_else(
                |_| format!("the host answered with status {}", answer.status),
                |refusal| refusal.error,
            );
            return Err(ControlError::Refused(error).into());
        }
        serde_json::from_slice(&answer.body)
            .context("the host's answer is not understood; use the mqlet that it runs")
    }
}

async fn connect(path: &Path) -> anyhow::Result<UnixStream> {
    let shown = || path.display().to_string();
    socket::check_path(path)?;
    match UnixStream::connect(path).await {
        Ok(stream) => Ok(stream),
        Err(error) => match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                Err(ControlError::NoHost { path: shown() }.into())
            }
            ErrorKind::PermissionDenied => Err(ControlError::Denied { path: shown() }.into()),
            _ => Err(error).with_context(|| format!("cannot connect to {}", shown())),
        },
    }
}
