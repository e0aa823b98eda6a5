//! What is answered to which request.

mod failures;
mod plugins;
mod seek;
mod shadow;
mod upload;
mod usage;

use std::sync::Arc;

use consumer::pause::{PauseKind, PauseScope};
use driver::{DriverError, DriverStatus};
use protocol::MessageQueue;
use serde::de::DeserializeOwned;

use super::answers::{self, ErrorAnswer, ExplainRequest, PauseRequest};
use super::directory::{Directory, TenantEntry};
use super::explain::{self, Snapshot};
use super::http::{Answer, Request};
use super::openapi;

/// A longer reason is cut: it is shown with every queue.
const REASON_CHARS_MAX: usize = 200;

/// Why a request was not served.
struct Refusal {
    status: u16,
    error: String,
}

impl Refusal {
    fn new(status: u16, error: impl Into<String>) -> Self {
        Self {
            status,
            error: error.into(),
        }
    }
}

/// The answer, whatever it is.
pub(super) async fn answer(request: &Request, asker: &str, directory: &Directory) -> Answer {
    let served = match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/openapi.json") => Ok(Answer::json(200, &openapi::description())),
        ("GET", "/v1/groups") => Ok(groups(directory).await),
        ("GET", "/v1/queues") => Ok(queues(directory).await),
        ("GET", "/v1/usage") => Ok(usage::usage(directory)),
        ("POST", "/v1/explain") => explain(request, directory).await,
        ("POST", "/v1/pause") => pause(request, asker, directory, PauseKind::Pause).await,
        ("POST", "/v1/drain") => pause(request, asker, directory, PauseKind::Drain).await,
        ("POST", "/v1/resume") => resume(request, directory).await,
        ("POST", "/v1/seek") => seek::seek(request, directory).await,
        ("POST", "/v1/failures") => failures::failures(request, directory),
        ("GET", "/v1/plugins") => plugins::plugins(directory),
        ("POST", "/v1/deploy") => plugins::deploy(request, asker, directory).await,
        ("POST", "/v1/upload") => upload::upload(request, directory).await,
        ("POST", "/v1/history") => upload::history(request, directory).await,
        ("POST", "/v1/shadow") => shadow::shadow(request, directory),
        ("POST", "/v1/rollback") => plugins::rollback(request, asker, directory).await,
        ("POST", "/v1/change") => plugins::change(request, asker, directory).await,
        ("POST", "/v1/remove") => plugins::remove(request, asker, directory).await,
        (_, path) if openapi::knows(path) => Err(Refusal::new(
            405,
            format!("{} does not take {}", request.path, request.method),
        )),
        (_, path) => Err(Refusal::new(404, format!("there is nothing at {path}"))),
    };
    served.unwrap_or_else(|refusal| Answer::json(refusal.status, &ErrorAnswer::new(refusal.error)))
}

/// How the clients are doing; those that have stopped are left out.
async fn snapshots(directory: &Directory) -> Vec<Snapshot> {
    let mut all = Vec::new();
    for entry in directory.tenants() {
        if let Ok(status) = entry.tenant.driver().status().await {
            all.push((entry, status));
        }
    }
    all
}

async fn groups(directory: &Directory) -> Answer {
    let mut all = Vec::new();
    for (entry, status) in snapshots(directory).await {
        all.extend(groups_of(&entry, &status));
    }
    Answer::json(200, &all)
}

fn groups_of(entry: &TenantEntry, status: &DriverStatus) -> Vec<answers::GroupAnswer> {
    let tenant = entry.tenant.name();
    let joined = status.client.groups.iter().map(|group| {
        let plugin = entry.plugins.get(&*group.consumer_group);
        answers::group(tenant, plugin, group, status)
    });
    let mut all: Vec<_> = joined.collect();
    for (consumer_group, plugin) in &entry.plugins {
        if all
            .iter()
            .all(|group| group.consumer_group != *consumer_group)
        {
            let client_id = &status.client.client_id;
            all.push(answers::group_without_client(
                tenant,
                consumer_group,
                plugin,
                client_id,
            ));
        }
    }
    all.sort_by(|a, b| a.consumer_group.cmp(&b.consumer_group));
    all
}

async fn queues(directory: &Directory) -> Answer {
    let mut all = Vec::new();
    for (entry, status) in snapshots(directory).await {
        let tenant = entry.tenant.name();
        for group in &status.client.groups {
            for topic in &group.topics {
                let ours = topic.queues.iter();
                all.extend(ours.map(|queue| answers::queue(tenant, group, queue, &status)));
                let others = topic.others.iter();
                all.extend(others.map(|one| answers::other_queue(tenant, group, one, &status)));
            }
        }
    }
    Answer::json(200, &all)
}

async fn explain(request: &Request, directory: &Directory) -> Result<Answer, Refusal> {
    let ExplainRequest { target } = body(request)?;
    let answer = explain::explain(&target, &snapshots(directory).await);
    match answer {
        Ok(answer) => Ok(Answer::json(200, &answer)),
        Err(error) => Err(Refusal::new(404, error)),
    }
}

async fn pause(
    request: &Request,
    asker: &str,
    directory: &Directory,
    kind: PauseKind,
) -> Result<Answer, Refusal> {
    let request: PauseRequest = body(request)?;
    let scope = scope(&request)?;
    let entry = tenant_of(
        &request.consumer_group,
        request.tenant.as_deref(),
        directory,
    )?;
    let reason = request.reason.as_deref().map(str::trim);
    let by: Arc<str> = match reason.filter(|reason| !reason.is_empty()) {
        Some(reason) => {
            let reason: String = reason
                .chars()
                .filter(|character| !character.is_control())
                .take(REASON_CHARS_MAX)
                .collect();
            format!("{asker} ({reason})").into()
        }
        None => asker.into(),
    };
    let driver = entry.tenant.driver();
    let paused = driver.pause(&request.consumer_group, scope, kind, by).await;
    paused.map_err(|error| refused(&error))?;
    the_group(&request, &entry).await
}

async fn resume(request: &Request, directory: &Directory) -> Result<Answer, Refusal> {
    let request: PauseRequest = body(request)?;
    let scope = scope(&request)?;
    let entry = tenant_of(
        &request.consumer_group,
        request.tenant.as_deref(),
        directory,
    )?;
    let driver = entry.tenant.driver();
    let resumed = driver.resume(&request.consumer_group, scope).await;
    resumed.map_err(|error| refused(&error))?;
    the_group(&request, &entry).await
}

/// How the group is now.
async fn the_group(request: &PauseRequest, entry: &TenantEntry) -> Result<Answer, Refusal> {
    let status = entry.tenant.driver().status().await;
    let status = status.map_err(|error| refused(&error))?;
    let groups = groups_of(entry, &status);
    let found = groups
        .into_iter()
        .find(|group| group.consumer_group == request.consumer_group);
    match found {
        Some(group) => Ok(Answer::json(200, &group)),
        None => Err(Refusal::new(404, "the group has left meanwhile")),
    }
}

fn refused(error: &DriverError) -> Refusal {
    let status = match error {
        DriverError::UnknownGroup { .. } => 404,
        _ => 409,
    };
    Refusal::new(status, error.to_string())
}

fn body<T: DeserializeOwned>(request: &Request) -> Result<T, Refusal> {
    serde_json::from_slice(&request.body)
        .map_err(|error| Refusal::new(400, format!("the body is not understood: {error}")))
}

fn scope(request: &PauseRequest) -> Result<PauseScope, Refusal> {
    match (&request.topic, &request.queue) {
        (None, None) => Ok(PauseScope::Group),
        (Some(topic), None) => Ok(PauseScope::Topic(topic.as_str().into())),
        (None, Some(text)) => Ok(PauseScope::Queue(queue(text)?)),
        (Some(_), Some(_)) => Err(Refusal::new(400, "name a topic or a queue, not both")),
    }
}

fn queue(text: &str) -> Result<MessageQueue, Refusal> {
    answers::parse_queue(text).ok_or_else(|| {
        let error = format!("\"{text}\" is no queue; write topic@broker:id");
        Refusal::new(400, error)
    })
}

fn tenant_of(
    consumer_group: &str,
    tenant: Option<&str>,
    directory: &Directory,
) -> Result<TenantEntry, Refusal> {
    let mut found = directory.tenants();
    found.retain(|entry| {
        tenant.is_none_or(|tenant| tenant == &**entry.tenant.name())
            && entry.plugins.contains_key(consumer_group)
    });
    match found.len() {
        0 => Err(Refusal::new(
            404,
            format!("this host has no group \"{consumer_group}\"; mqlet groups lists them"),
        )),
        1 => Ok(found.remove(0)),
        _ => Err(Refusal::new(
            409,
            format!("several tenants have a group \"{consumer_group}\"; name one with --tenant"),
        )),
    }
}
