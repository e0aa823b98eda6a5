//! `[sources]`, from where components are fetched, and `[tenants.NAME.signatures]`, who
//! must have signed them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use plugin_lifecycle::document::{Document, Section};
use plugin_lifecycle::problem::Fault;
use plugin_lifecycle::signature::{Identity, PolicyPart, SignatureMode, SignaturePolicy};
use plugin_lifecycle::source::SourcesConfig;

use crate::config::connection::{base, read_file};
use crate::config::folders;

const FETCH_TIMEOUT_MAX: Duration = Duration::from_secs(600);
/// Of one tenant; each is tried on each signature.
const KEYS_MAX: usize = 16;

/// Reads `[sources]`; what is wrong has its default, and is a problem.
pub(super) fn read(document: &Document<'_>, section: Section<'_, '_>) -> SourcesConfig {
    let default = SourcesConfig::default();
    let docker_config = section.optional("docker_config", |value| {
        folders::expand(value.text()?, base(document, &section, "docker_config"))
    });
    let config = SourcesConfig {
        authorities: file(document, &section, "ca_file"),
        docker_config: docker_config.or_else(folders::docker_config),
        fetch_timeout: section.or("fetch_timeout", default.fetch_timeout, |value| {
            value.duration(Duration::from_secs(1)..=FETCH_TIMEOUT_MAX)
        }),
    };
    section.refuse_unknown();
    config
}

/// Reads `[tenants.NAME.signatures]`. A policy that would verify nothing is a problem.
pub(super) fn signatures(
    document: &Document<'_>,
    section: Section<'_, '_>,
) -> Arc<SignaturePolicy> {
    if !section.is_present() {
        return Arc::default();
    }
    let modes = [
        ("none", SignatureMode::None),
        ("warn", SignatureMode::Warn),
        ("require", SignatureMode::Require),
    ];
    let mode = section.required("policy", "\"require\"", |value| value.choice(&modes, &[]));
    let keys = section.or("keys", Vec::new(), |value| {
        let names = value.texts()?;
        if names.len() > KEYS_MAX {
            let what = format!("names {} keys", names.len());
            return Err(Fault::new(what, format!("name at most {KEYS_MAX}")));
        }
        let keys = names.iter().map(|name| {
            let path = folders::expand(name, base(document, &section, "keys"))?;
            Ok(((*name).to_owned(), read_file(&path)?))
        });
        keys.collect()
    });
    let mut identities = Vec::new();
    for one in section.list("identity") {
        let text = |key, example| {
            one.required(key, example, |value| match value.text()? {
                "" => Err(Fault::new("is empty", "name it, or remove the table")),
                text => Ok(text.to_owned()),
            })
        };
        let issuer = text("issuer", "\"https://token.actions.githubusercontent.com\"");
        let subject = text("subject", "\"releases@example.com\"");
        one.refuse_unknown();
        if let (Some(issuer), Some(subject)) = (issuer, subject) {
            identities.push(Identity { issuer, subject });
        }
    }
    let root = file(document, &section, "trusted_root");
    let is_read = !section.has("trusted_root") || root.is_some();
    if section.has("identity") && !section.has("trusted_root") {
        section.missing(
            "trusted_root",
            "add trusted_root = \"trusted_root.json\", the certificates and logs to believe (cosign trusted-root create prints one): nothing is fetched to verify",
        );
    }
    let is_in_use = mode.is_some_and(|mode| mode != SignatureMode::None);
    if is_in_use && !section.has("keys") && !section.has("identity") {
        section.fault(
            "policy",
            Fault::new(
                "trusts nobody",
                "add keys = [\"cosign.pub\"], or a table [[tenants.NAME.signatures.identity]] with issuer and subject",
            ),
        );
    }
    let root = root.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let policy = SignaturePolicy::new(
        mode.unwrap_or_default(),
        &keys,
        identities,
        root.as_deref().filter(|_| is_read),
    );
    let policy = policy.unwrap_or_else(|error| {
        let (key, what) = match error.part {
            PolicyPart::Key(number) => {
                let name = keys.get(number).map_or("", |(name, _)| name.as_str());
                ("keys", format!("\"{name}\" is no public key: {error}"))
            }
            PolicyPart::TrustedRoot => ("trusted_root", format!("cannot be used: {error}")),
        };
        let remedy =
            "name a PEM file as cosign public-key prints it, or the JSON of a trusted root";
        section.fault(key, Fault::new(what, remedy));
        SignaturePolicy::default()
    });
    section.refuse_unknown();
    Arc::new(policy)
}

fn file(document: &Document<'_>, section: &Section<'_, '_>, key: &'static str) -> Option<Vec<u8>> {
    section.optional(key, |value| {
        let path: PathBuf = folders::expand(value.text()?, base(document, section, key))?;
        read_file(&path)
    })
}
