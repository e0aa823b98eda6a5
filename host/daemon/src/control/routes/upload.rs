//! Components that come with a request, and the ledger: for whoever is on another machine.

use plugin_lifecycle::Digest;
use wasm::COMPONENT_BYTES_MAX;

use super::plugins::host;
use super::{Refusal, body};
use crate::control::directory::Directory;
use crate::control::http::{Answer, Request};
use crate::control::plugin_answers::{HistoryAnswer, HistoryRequest, UploadAnswer};
use crate::revisions::ledger;

/// The newest entries of the ledger that one answer has.
const ENTRIES_MAX: usize = 10_000;

pub(super) async fn upload(request: &Request, directory: &Directory) -> Result<Answer, Refusal> {
    let host = host(directory)?;
    if !request.body.starts_with(b"\0asm") {
        return Err(Refusal::new(
            400,
            format!(
                "the body is no WebAssembly; send the bytes of a component, at most {COMPONENT_BYTES_MAX}"
            ),
        ));
    }
    let (uploads, bytes) = (host.uploads(), request.body.clone());
    let digest = Digest::of(&bytes);
    let put = tokio::task::spawn_blocking(move || uploads.put(digest, &bytes)).await;
    let put = put.map_err(|error| Refusal::new(500, format!("writing it ended early: {error}")))?;
    let path = put.map_err(|error| Refusal::new(500, format!("it is not kept: {error:#}")))?;
    let answer = UploadAnswer {
        path: path.display().to_string(),
        sha256: digest.to_string(),
    };
    Ok(Answer::json(200, &answer))
}

pub(super) async fn history(request: &Request, directory: &Directory) -> Result<Answer, Refusal> {
    let HistoryRequest { plugin, newest } = body(request)?;
    let state_dir = host(directory)?.state_dir().to_owned();
    let read = tokio::task::spawn_blocking(move || ledger::read_all(&state_dir)).await;
    let read = read.map_err(|error| Refusal::new(500, error.to_string()))?;
    let (mut entries, damage) = read.map_err(|error| Refusal::new(500, format!("{error:#}")))?;
    if let Some(plugin) = plugin {
        entries.retain(|entry| entry.plugin == plugin);
    }
    let newest = newest.unwrap_or(ENTRIES_MAX).min(ENTRIES_MAX);
    entries.drain(..entries.len().saturating_sub(newest));
    Ok(Answer::json(200, &HistoryAnswer { entries, damage }))
}
