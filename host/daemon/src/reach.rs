//! What the plugins of a tenant reach the outside by: its HTTP client, its buckets, and the
//! secrets that this process can read.

mod bucket_store;

use std::path::Path;
use std::sync::Arc;

use plugin_lifecycle::document::Section;
use plugin_lifecycle::problem::Fault;
use plugin_lifecycle::{Ceiling, Manifest, Problem, Reach, ReadSecret, SecretPlace};
use wasm::{CONNECTIONS_MAX_DEFAULT, HttpClient, HttpConfig};

use bucket_store::{BucketStore, Quota};

/// A larger file is no secret.
const SECRET_BYTES_MAX: u64 = 64 << 10;

/// How much a tenant's plugins may reach, together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReachLimits {
    /// Connections for HTTP at once.
    pub(crate) http_connections: usize,
    /// What all its buckets may keep.
    pub(crate) buckets: Quota,
}

impl Default for ReachLimits {
    fn default() -> Self {
        Self {
            http_connections: CONNECTIONS_MAX_DEFAULT,
            buckets: Quota::default(),
        }
    }
}

/// Reads `http_connections`, `bucket_keys` and `bucket_bytes` of a tenant.
pub(crate) fn read_limits(tenant: &Section<'_, '_>) -> ReachLimits {
    let default = ReachLimits::default();
    let connections = tenant.optional("http_connections", |value| value.count(1..=10_000));
    let connections = connections.and_then(|connections| usize::try_from(connections).ok());
    ReachLimits {
        http_connections: connections.unwrap_or(default.http_connections),
        buckets: Quota {
            keys: tenant.or("bucket_keys", default.buckets.keys, |value| {
                value.count(0..=1_000_000_000)
            }),
            bytes: tenant.or("bucket_bytes", default.buckets.bytes, |value| {
                value.byte_size(0..=1 << 44)
            }),
        },
    }
}

/// Buckets are kept in a file of this folder, made when the first one is opened.
pub(crate) fn of_tenant(
    folder: &Path,
    tenant: &str,
    limits: ReachLimits,
    ceiling: Option<Ceiling>,
) -> Reach {
    let file = folder.join(format!("{tenant}.redb"));
    Reach {
        http: HttpClient::new(HttpConfig {
            connections_max: limits.http_connections,
            ..HttpConfig::default()
        }),
        key_value: Some(Arc::new(BucketStore::in_file(file, limits.buckets))),
        read_secret: Some(read_secret()),
        ceiling,
    }
}

/// Buckets that end with the process.
pub(crate) fn in_memory() -> Reach {
    Reach {
        http: HttpClient::new(HttpConfig::default()),
        key_value: Some(Arc::new(BucketStore::in_memory(Quota::default()))),
        read_secret: Some(read_secret()),
        ceiling: None,
    }
}

/// Of the secrets of a manifest, those that cannot be read here and now.
pub(crate) fn missing_secrets(manifest: &Manifest) -> Vec<Problem> {
    let read = read_secret();
    let missing = manifest.secrets().iter().filter_map(|(name, place)| {
        let reason = read(place).err()?;
        let (what, remedy) = reason
            .rsplit_once("; ")
            .unwrap_or((&reason, "name another"));
        Some(manifest.secret_problem(name, Fault::new(what, remedy)))
    });
    missing.collect()
}

/// Reads a secret from the environment or a file.
fn read_secret() -> ReadSecret {
    Arc::new(|place| match place {
        SecretPlace::Variable(name) => std::env::var(name).map_err(|error| match error {
            std::env::VarError::NotPresent => {
                format!("is in the environment variable {name}, which is not set; set it")
            }
            std::env::VarError::NotUnicode(_) => {
                format!("is in the environment variable {name}, which is no text; correct it")
            }
        }),
        SecretPlace::File(file) => {
            let shown = file.display();
            let unreadable = |reason: String| {
                format!(
                    "is in {shown}, which cannot be read: {reason}; correct path or permissions"
                )
            };
            let length = std::fs::metadata(file).map_err(|error| unreadable(error.to_string()))?;
            if length.len() > SECRET_BYTES_MAX {
                return Err(unreadable(format!(
                    "it has more than {SECRET_BYTES_MAX} bytes"
                )));
            }
            let text =
                std::fs::read_to_string(file).map_err(|error| unreadable(error.to_string()))?;
            Ok(text.trim_end_matches(['\r', '\n']).to_owned())
        }
    })
}
