//! `[secrets]`: texts for `wasi:config` that stand in no file of settings; here is where
//! each of them is. They are read when the plugin is loaded, by who knows the environment.

use std::path::{Path, PathBuf};

use wasm::Grants;

use crate::document::Section;
use crate::problem::{Fault, beside};
use crate::value::SecretSource;

/// More secrets are refused.
pub const SECRETS_MAX: usize = 100;

/// Where a secret is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SecretPlace {
    /// A variable of the host's environment.
    Variable(String),
    /// A file; its last line end does not count.
    File(PathBuf),
}

/// Reads `[secrets]`.
pub(super) fn read(
    file: &Path,
    section: &Section<'_, '_>,
    settings: &[(String, String)],
    grants: &Grants,
) -> Vec<(String, SecretPlace)> {
    let secrets = section.entries(|value| match value.secret()? {
        SecretSource::Variable(name) => Ok(SecretPlace::Variable(name.to_owned())),
        SecretSource::File(name) => Ok(SecretPlace::File(beside(file, Path::new(name)))),
        SecretSource::Given(_) => Err(Fault::new(
            "is a secret in a file of settings",
            "write { env = \"NAME\" } with a variable's name, or { file = \"PATH\" }",
        )),
    });
    if let Some((name, _)) = secrets.first()
        && !grants.config
    {
        let remedy = "add config = true to [grants]: secrets are had by wasi:config alone";
        section.fault(name, Fault::new("reaches nobody", remedy));
    }
    for (name, _) in &secrets {
        if settings.iter().any(|(setting, _)| setting == name) {
            let remedy = "rename one of the two: wasi:config has both by name";
            section.fault(name, Fault::new("is a name of [settings] too", remedy));
        }
    }
    if secrets.len() > SECRETS_MAX {
        let what = format!("has more than {SECRETS_MAX} entries");
        section.fault("", Fault::new(what, "put several into one file"));
    }
    secrets
}
