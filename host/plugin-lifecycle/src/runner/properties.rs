//! What tools show of the revision that serves: plugin, revision, digest, limits.

use super::load::Material;
use crate::manifest::Manifest;
use crate::value::bytes_text;

/// Names and values, the names under `mqlet.`, since tools put them beside RocketMQ's.
pub(super) fn of(manifest: &Manifest, material: &Material) -> Vec<(String, String)> {
    let limits = manifest.limits();
    let time = |time| humantime::format_duration(time).to_string();
    let mut properties = vec![
        ("plugin", manifest.name().to_string()),
        ("limits.memory", bytes_text(limits.memory)),
        ("limits.compute_time", time(limits.compute_time)),
        ("limits.init_time", time(limits.init_time)),
        (
            "limits.isolation",
            format!("{:?}", limits.isolation).to_lowercase(),
        ),
    ];
    if let Some(revision) = material.revision {
        properties.push(("revision", revision.to_string()));
    }
    if let Some(artifact) = &material.artifact {
        properties.push(("component.sha256", artifact.digest.to_string()));
    }
    properties
        .into_iter()
        .map(|(name, value)| (format!("mqlet.{name}"), value))
        .collect()
}
