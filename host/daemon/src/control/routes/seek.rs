//! A queue goes on somewhere else.

use consumer::{SeekError, SeekForward, SeekTo};
use driver::DriverError;
use protocol::{MessageQueue, QueueOffset};

use super::{Refusal, body, queue, refused, tenant_of};
use crate::control::answers::{SeekAnswer, SeekPlace, SeekRequest};
use crate::control::directory::{Directory, TenantEntry};
use crate::control::http::{Answer, Request};

pub(super) async fn seek(request: &Request, directory: &Directory) -> Result<Answer, Refusal> {
    let request: SeekRequest = body(request)?;
    let queue = queue(&request.queue)?;
    let entry = tenant_of(
        &request.consumer_group,
        request.tenant.as_deref(),
        directory,
    )?;
    let to = place(request.to)?;
    let forward = match request.skip {
        true => SeekForward::Skips,
        false => SeekForward::Refused,
    };
    let driver = entry.tenant.driver();
    let sought = driver.seek(&request.consumer_group, queue.clone(), to, forward);
    let sought = match sought.await {
        Ok(sought) => sought,
        Err(error) => return Err(explained(&error, &request, &queue, &entry).await),
    };
    let (from, to) = (sought.from.map(|from| from.0), sought.to.0);
    let at = from.unwrap_or(to);
    Ok(Answer::json(
        200,
        &SeekAnswer {
            tenant: entry.tenant.name().to_string(),
            consumer_group: request.consumer_group,
            queue: queue.to_string(),
            from,
            to,
            skipped: to.saturating_sub(at),
            again: at.saturating_sub(to),
        },
    ))
}

fn place(place: SeekPlace) -> Result<SeekTo, Refusal> {
    Ok(match place {
        SeekPlace::Offset(offset) => {
            let known = i64::try_from(offset).ok().and_then(QueueOffset::from_wire);
            let none = || Refusal::new(400, format!("{offset} is no offset"));
            SeekTo::Offset(known.ok_or_else(none)?)
        }
        SeekPlace::MinOffset => SeekTo::MinOffset,
        SeekPlace::MaxOffset => SeekTo::MaxOffset,
        SeekPlace::TimestampMs(timestamp_ms) => SeekTo::Timestamp(timestamp_ms),
    })
}

/// The refusal with what to do about it.
async fn explained(
    error: &DriverError,
    request: &SeekRequest,
    queue: &MessageQueue,
    entry: &TenantEntry,
) -> Refusal {
    let DriverError::Seek(reason) = error else {
        return refused(error);
    };
    let remedy = match reason {
        SeekError::WouldSkip { .. } => {
            "it stays where it is; add --yes (\"skip\": true) to pass over them".to_owned()
        }
        SeekError::NotHeld { .. } => match owner(request, queue, entry).await {
            Some(owner) => format!("that is {owner}"),
            None => "mqlet queues says who has it".to_owned(),
        },
        SeekError::NoBroker { .. } => "mqlet explain says more".to_owned(),
        // They name their remedy, or there is none.
        SeekError::Leaving
        | SeekError::NotBegun { .. }
        | SeekError::Failed { .. }
        | SeekError::Ended { .. } => {
            return refused(error);
        }
    };
    let Refusal { status, error } = refused(error);
    Refusal::new(status, format!("{error}; {remedy}"))
}

/// The member that has the queue, as far as known.
async fn owner(request: &SeekRequest, queue: &MessageQueue, entry: &TenantEntry) -> Option<String> {
    let status = entry.tenant.driver().status().await.ok()?;
    let mut groups = status.client.groups.into_iter();
    let group = groups.find(|group| *group.consumer_group == *request.consumer_group)?;
    let mut others = group.topics.into_iter().flat_map(|topic| topic.others);
    others.find(|other| other.queue == *queue)?.owner
}
