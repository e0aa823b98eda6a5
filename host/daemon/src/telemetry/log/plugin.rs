//! Lines of deployments: the steps of a plugin on its way, and what became of it.

use std::sync::Arc;

use plugin_lifecycle::breaker::BreakerEvent;
use plugin_lifecycle::{Event, EventKind, RevisionId};
use tracing::{debug, error, info, warn};

pub(in crate::telemetry) fn event(tenant: &Arc<str>, event: &Event) {
    let plugin = &event.plugin;
    match &event.kind {
        EventKind::StepStarted { generation, step } => {
            info!(target: "plugin", %tenant, %plugin, %generation, %step, "plugin \"{plugin}\": {step} …");
        }
        EventKind::StepDone {
            generation,
            step,
            took,
        } => {
            debug!(target: "plugin", %tenant, %plugin, %generation, %step, ?took, "plugin \"{plugin}\": {step} took {took:.1?}");
        }
        EventKind::DeployFailed {
            generation,
            step,
            reason,
        } => {
            error!(target: "plugin", %tenant, %plugin, %generation, %step, "plugin \"{plugin}\" is not deployed: {reason}");
        }
        EventKind::Superseded { generation, by } => {
            info!(target: "plugin", %tenant, %plugin, %generation, %by, "plugin \"{plugin}\": a newer deployment takes its place");
        }
        EventKind::Activated {
            generation,
            revision,
            before,
        } => {
            let before = before.map(|before| before.to_string());
            info!(target: "plugin", %tenant, %plugin, %generation, %revision, before, "plugin \"{plugin}\": revision {revision} is active");
        }
        EventKind::Unchanged { revision, .. } => {
            debug!(target: "plugin", %tenant, %plugin, %revision, "plugin \"{plugin}\": revision {revision} serves already");
        }
        EventKind::Cancelled { generation } => {
            info!(target: "plugin", %tenant, %plugin, %generation, "plugin \"{plugin}\": the deployment is cancelled");
        }
        EventKind::CanaryStarted { revision, .. } => {
            info!(target: "plugin", %tenant, %plugin, %revision, "plugin \"{plugin}\": revision {revision} is on trial, as a canary");
        }
        EventKind::CanaryAborted {
            revision, reason, ..
        } => {
            warn!(target: "plugin", %tenant, %plugin, %revision, "plugin \"{plugin}\": the canary is aborted: {reason}");
        }
        EventKind::ShadowStarted { revision, .. } => {
            info!(target: "plugin", %tenant, %plugin, %revision, "plugin \"{plugin}\": revision {revision} gets copies, as a shadow");
        }
        EventKind::ShadowEnded {
            revision, reason, ..
        } => {
            info!(target: "plugin", %tenant, %plugin, %revision, "plugin \"{plugin}\": the shadow gets no more copies: {reason}; mqlet shadow {plugin} shows what it found");
        }
        EventKind::RolledBack {
            revision,
            to,
            reason,
        } => {
            error!(target: "plugin", %tenant, %plugin, %revision, %to, "plugin \"{plugin}\": revision {to} serves again, and {revision} is refused: {reason}");
        }
        EventKind::Switched(report) => {
            let (revision, by, in_flight) = (report.revision, &report.by, report.in_flight);
            let pause = report.first_call_after;
            debug!(target: "plugin", %tenant, %plugin, %revision, %by, in_flight, ?pause, "plugin \"{plugin}\": the switch to {revision} is complete");
        }
        EventKind::DrainDeadline { generation } => {
            warn!(target: "plugin", %tenant, %plugin, %generation, "plugin \"{plugin}\": calls of the revision before did not end within the drain timeout and are killed");
        }
        EventKind::Breaker { revision, event } => breaker(tenant, plugin, *revision, event),
        EventKind::Fetched {
            source,
            resolved,
            component,
        } => {
            let resolved = resolved.as_deref();
            info!(target: "plugin", %tenant, %plugin, source, resolved, component = component.short(), "plugin \"{plugin}\": component {} came from {}", component.short(), resolved.unwrap_or(source));
        }
        EventKind::Signed { component, by } => {
            debug!(target: "plugin", %tenant, %plugin, component = component.short(), by, "plugin \"{plugin}\": component {} is signed by {by}", component.short());
        }
        EventKind::NotSigned { component, reason } => {
            warn!(target: "plugin", %tenant, %plugin, component = component.short(), "plugin \"{plugin}\": component {} is used though {reason}", component.short());
        }
        EventKind::CacheOff { folder, reason } => {
            warn!(target: "plugin", folder = %folder.display(), "compiled components are not kept, every start compiles again: {reason}; choose another folder with --cache-dir");
        }
        EventKind::CacheEntryRefused { reason } => {
            warn!(target: "plugin", %tenant, %plugin, "an entry of the compile cache is no use and is made again: {reason}");
        }
        EventKind::CacheNotWritten { reason } => {
            warn!(target: "plugin", %tenant, %plugin, "the compiled component is not kept, the next start compiles again: {reason}");
        }
        other => debug!(target: "plugin", %tenant, %plugin, "plugin \"{plugin}\": {other:?}"),
    }
}

fn breaker(tenant: &Arc<str>, plugin: &Arc<str>, revision: RevisionId, event: &BreakerEvent) {
    match event {
        BreakerEvent::Tripped {
            failures,
            reason,
            pause,
        } => {
            error!(target: "plugin", %tenant, %plugin, %revision, failures, "plugin \"{plugin}\" keeps failing and is held back, so that its messages do not become dead letters: {failures} calls in a row failed, the last one: {reason}; one message is tried in {pause:?}, and mqlet failures says more");
        }
        BreakerEvent::ProbeFailed { reason, pause } => {
            warn!(target: "plugin", %tenant, %plugin, %revision, "plugin \"{plugin}\" still fails and stays held back, the next message is tried in {pause:?}: {reason}");
        }
        BreakerEvent::Closed { lasted } => {
            info!(target: "plugin", %tenant, %plugin, %revision, "plugin \"{plugin}\" works again after {lasted:.1?}, and is called as before");
        }
    }
}
