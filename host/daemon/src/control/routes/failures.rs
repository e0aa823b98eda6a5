//! Failed calls that are remembered.

use super::{Refusal, body};
use crate::control::answers::failures::{FailureAnswer, FailuresRequest};
use crate::control::directory::Directory;
use crate::control::http::{Answer, Request};

pub(super) fn failures(request: &Request, directory: &Directory) -> Result<Answer, Refusal> {
    let request: FailuresRequest = body(request)?;
    let plugin = request.plugin.as_deref();
    let mut all: Vec<FailureAnswer> = Vec::new();
    let mut is_known = plugin.is_none();
    for entry in directory.tenants() {
        let tenant = entry.tenant.name();
        if request
            .tenant
            .as_ref()
            .is_some_and(|only| **only != **tenant)
        {
            continue;
        }
        let mut plugins = entry.plugins.values();
        is_known |= plugins.any(|known| plugin == Some(&known.name));
        let records = entry.tenant.failures().records(plugin);
        is_known |= !records.is_empty();
        let newest = &records[records.len().saturating_sub(request.newest)..];
        all.extend(
            newest
                .iter()
                .map(|record| FailureAnswer::new(tenant, record)),
        );
    }
    if !is_known {
        let plugin = plugin.unwrap_or_default();
        return Err(Refusal::new(
            404,
            format!("this host has no plugin \"{plugin}\"; mqlet groups lists them"),
        ));
    }
    Ok(Answer::json(200, &all))
}
