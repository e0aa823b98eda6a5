//! `mqlet explain`: what a target is, and every reason that is about it.

use consumer::status::{GroupStatus, Reason};
use driver::DriverStatus;
use protocol::MessageQueue;

use super::answers::{
    ExplainAnswer, Finding, ReasonAnswer, group_without_client, main_reason, parse_queue,
};
use super::directory::{PluginState, TenantEntry};

/// More would not be read.
const FINDINGS_MAX: usize = 200;
/// Names shown to somebody whose target is not there.
const KNOWN_MAX: usize = 10;

/// A tenant, and how its client is doing.
pub(super) type Snapshot = (TenantEntry, DriverStatus);

/// Everything about the target. The error is for people: it is not here.
pub(super) fn explain(target: &str, hosts: &[Snapshot]) -> Result<ExplainAnswer, String> {
    let mut findings = match parse_queue(target) {
        Some(queue) => of_queue(&queue, hosts),
        None => of_name(target, hosts),
    };
    if findings.is_empty() {
        return Err(not_here(target, hosts));
    }
    // Stable: in the order of the listing otherwise.
    findings.sort_by_key(|finding| finding.reason.healthy);
    let healthy = findings.iter().all(|finding| finding.reason.healthy);
    let left_out = findings.len().saturating_sub(FINDINGS_MAX);
    findings.truncate(FINDINGS_MAX);
    Ok(ExplainAnswer {
        target: target.to_owned(),
        healthy,
        findings,
        left_out,
    })
}

fn groups(hosts: &[Snapshot]) -> impl Iterator<Item = (&Snapshot, &GroupStatus)> {
    hosts.iter().flat_map(|host| {
        let groups = host.1.client.groups.iter();
        groups.map(move |group| (host, group))
    })
}

fn of_queue(queue: &MessageQueue, hosts: &[Snapshot]) -> Vec<Finding> {
    let found = groups(hosts);
    found
        .filter_map(|((entry, status), group)| {
            let reason = group.explain(queue)?;
            Some(Finding {
                tenant: entry.tenant.name().to_string(),
                consumer_group: group.consumer_group.to_string(),
                about: Some(queue.to_string()),
                reason: ReasonAnswer::of(&reason, status),
            })
        })
        .collect()
}

/// Of a group or plugin, else of a topic.
fn of_name(target: &str, hosts: &[Snapshot]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for host in hosts {
        let (entry, status) = host;
        for (consumer_group, plugin) in &entry.plugins {
            if target != consumer_group && target != plugin.name {
                continue;
            }
            let groups = &status.client.groups;
            match groups
                .iter()
                .find(|one| *one.consumer_group == **consumer_group)
            {
                // A plugin that failed while its group is there still consumes nothing.
                Some(group) if !matches!(plugin.state, PluginState::Failed(_)) => {
                    findings.extend(of_group(host, group));
                }
                _ => {
                    let client_id = &status.client.client_id;
                    let tenant = entry.tenant.name();
                    let answer = group_without_client(tenant, consumer_group, plugin, client_id);
                    findings.push(Finding {
                        tenant: answer.tenant,
                        consumer_group: answer.consumer_group,
                        about: None,
                        reason: answer.reason,
                    });
                }
            }
        }
    }
    if findings.is_empty() {
        for (host, group) in groups(hosts) {
            findings.extend(of_topic(target, host, group));
        }
    }
    findings
}

/// What is wrong with the group and each of its queues, or that all is well.
fn of_group(host: &Snapshot, group: &GroupStatus) -> Vec<Finding> {
    let finding = |about, reason: &Reason| finding(host, group, about, reason);
    let mut findings: Vec<Finding> = group
        .reasons
        .iter()
        .map(|reason| finding(None, reason))
        .collect();
    let queues = group.topics.iter().flat_map(|topic| &topic.queues);
    let unhealthy = queues.filter(|queue| !queue.reason.cause.is_healthy());
    findings.extend(unhealthy.map(|queue| finding(Some(queue.queue.to_string()), &queue.reason)));
    if findings.is_empty() {
        findings.push(finding(None, &main_reason(group)));
    }
    findings
}

fn of_topic(target: &str, host: &Snapshot, group: &GroupStatus) -> Vec<Finding> {
    let Some(topic) = group.topics.iter().find(|topic| *topic.topic == *target) else {
        return Vec::new();
    };
    let finding = |about, reason: &Reason| finding(host, group, about, reason);
    let mut findings = Vec::new();
    if let Some(reason) = &topic.reason {
        findings.push(finding(Some(topic.topic.to_string()), reason));
    }
    for queue in &topic.queues {
        findings.push(finding(Some(queue.queue.to_string()), &queue.reason));
    }
    for other in &topic.others {
        if let Some(reason) = group.explain(&other.queue) {
            findings.push(finding(Some(other.queue.to_string()), &reason));
        }
    }
    if findings.is_empty() {
        findings.push(finding(None, &main_reason(group)));
    }
    findings
}

fn finding(
    (entry, status): &Snapshot,
    group: &GroupStatus,
    about: Option<String>,
    reason: &Reason,
) -> Finding {
    Finding {
        tenant: entry.tenant.name().to_string(),
        consumer_group: group.consumer_group.to_string(),
        about,
        reason: ReasonAnswer::of(reason, status),
    }
}

fn not_here(target: &str, hosts: &[Snapshot]) -> String {
    let names = hosts.iter().flat_map(|(entry, _)| entry.plugins.keys());
    let mut known: Vec<&str> = names.map(String::as_str).collect();
    known.sort_unstable();
    let more = if known.len() > KNOWN_MAX { ", …" } else { "" };
    known.truncate(KNOWN_MAX);
    format!(
        "this host has no group, plugin or topic \"{target}\"; its groups are {}{more}; a queue is written topic@broker:id",
        known.join(", ")
    )
}
