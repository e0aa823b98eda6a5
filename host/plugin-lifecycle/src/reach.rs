//! What the plugins of a tenant reach the outside by, and how far they may.

use std::fmt;
use std::sync::Arc;

use wasm::{HttpClient, HttpConfig, KeyValueStore, Secrets};

use crate::ceiling::Ceiling;
use crate::manifest::Manifest;
use crate::manifest::secrets::SecretPlace;

/// Reads a secret; the error says what to do.
pub type ReadSecret = Arc<dyn Fn(&SecretPlace) -> Result<String, String> + Send + Sync>;

/// Shared by the plugins of a tenant.
#[derive(Clone)]
pub struct Reach {
    /// Sends their requests.
    pub http: Arc<HttpClient>,
    /// Keeps their buckets; `None`: none can be opened.
    pub key_value: Option<Arc<dyn KeyValueStore>>,
    /// `None`: there are no secrets.
    pub read_secret: Option<ReadSecret>,
    /// `None`: whatever their manifests say.
    pub ceiling: Option<Ceiling>,
}

impl Default for Reach {
    fn default() -> Self {
        Self {
            http: HttpClient::new(HttpConfig::default()),
            key_value: None,
            read_secret: None,
            ceiling: None,
        }
    }
}

impl fmt::Debug for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reach")
            .field("ceiling", &self.ceiling)
            .finish_non_exhaustive()
    }
}

impl Reach {
    /// The secrets of a plugin, read now.
    ///
    /// # Errors
    /// Every one that cannot be had, a line each.
    pub fn secrets(&self, manifest: &Manifest) -> Result<Secrets, String> {
        let (mut secrets, mut missing) = (Vec::new(), Vec::new());
        for (name, place) in manifest.secrets() {
            let read = match &self.read_secret {
                Some(read) => read(place),
                None => Err("here are no secrets".to_owned()),
            };
            match read {
                Ok(value) => secrets.push((name.clone(), value)),
                Err(reason) => missing.push(format!("secret \"{name}\" {reason}")),
            }
        }
        if missing.is_empty() {
            Ok(Secrets::new(secrets))
        } else {
            Err(missing.join("\n"))
        }
    }
}
