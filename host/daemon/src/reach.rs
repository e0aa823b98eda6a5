//! What the plugins of a tenant reach the outside by: its HTTP client, its buckets, and the
//! secrets that this process can read.

mod bucket_store;
mod quota;
mod redis_buckets;

use std::path::Path;
use std::sync::Arc;

use plugin_lifecycle::document::{Document, Section};
use plugin_lifecycle::problem::Fault;
use plugin_lifecycle::{Ceiling, Manifest, Problem, Reach, ReadSecret, SecretPlace};
use wasm::{CONNECTIONS_MAX_DEFAULT, HttpClient, HttpConfig, KeyValueStore};

use bucket_store::BucketStore;
use quota::Quota;
use redis_buckets::{RedisBuckets, RedisPlace};

use crate::config::connection;

/// A larger file is no secret.
const SECRET_BYTES_MAX: u64 = 64 << 10;

/// What a tenant's plugins may reach, together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ReachConfig {
    /// Connections for HTTP at once.
    http_connections: usize,
    /// What all its buckets may keep.
    quota: Quota,
    /// Where they are; `None`: in a file of this host.
    redis: Option<RedisPlace>,
}

/// Reads `http_connections`, `bucket_keys`, `bucket_bytes` and `key_value` of a tenant.
pub(crate) fn read(document: &Document<'_>, tenant: &Section<'_, '_>) -> ReachConfig {
    let default = Quota::default();
    let connections = tenant.optional("http_connections", |value| value.count(1..=10_000));
    let connections = connections.and_then(|connections| usize::try_from(connections).ok());
    ReachConfig {
        http_connections: connections.unwrap_or(CONNECTIONS_MAX_DEFAULT),
        quota: Quota {
            keys: tenant.or("bucket_keys", default.keys, |value| {
                value.count(0..=1_000_000_000)
            }),
            bytes: tenant.or("bucket_bytes", default.bytes, |value| {
                value.byte_size(0..=1 << 44)
            }),
        },
        redis: redis(document, tenant),
    }
}

fn redis(document: &Document<'_>, tenant: &Section<'_, '_>) -> Option<RedisPlace> {
    const REMEDY: &str = "write redis://HOST:PORT/DATABASE, and username and password beside it";
    let section = tenant.section("key_value");
    let present = section.is_present();
    let place = match present {
        true => section.required("redis", "\"redis://10.0.0.1:6379\"", |value| {
            RedisPlace::parse(value.text()?).map_err(|what| Fault::new(what, REMEDY))
        }),
        false => None,
    };
    let username = section.optional("username", |value| value.text().map(str::to_owned));
    let password = section.optional("password", |value| {
        connection::secret(document, &section, "password", value)
    });
    if username.is_some() && !section.has("password") {
        section.missing(
            "password",
            "add password = { env = \"NAME\" }: a user has one",
        );
    }
    section.refuse_unknown();
    Some(place?.logged_in(username.as_deref(), password.as_deref()))
}

/// Buckets are in the tenant's Redis, or else in a file of this folder, made when the
/// first one is opened.
pub(crate) fn of_tenant(
    folder: &Path,
    tenant: &str,
    config: &ReachConfig,
    ceiling: Option<Ceiling>,
) -> Reach {
    let quota = config.quota;
    let key_value: Arc<dyn KeyValueStore> = match &config.redis {
        Some(place) => Arc::new(RedisBuckets::new(place.clone(), tenant, quota)),
        None => Arc::new(BucketStore::in_file(
            folder.join(format!("{tenant}.redb")),
            quota,
        )),
    };
    Reach {
        http: HttpClient::new(HttpConfig {
            connections_max: config.http_connections,
            ..HttpConfig::default()
        }),
        key_value: Some(key_value),
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
