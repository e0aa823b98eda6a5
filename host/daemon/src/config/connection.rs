//! `[tenants.NAME]`: how a tenant reaches its cluster and who it is there; name servers,
//! namespace, access key, TLS.
//!
//! Secrets are named, never written here, and read with the file: what is missing is told
//! by `check` too.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use driver::DriverConfig;
use plugin_lifecycle::document::{Document, Section};
use plugin_lifecycle::problem::{Fault, Place};
use plugin_lifecycle::value::{SecretSource, Value};
use protocol::{Address, Credentials};
use remoting::TlsConfig;
use remoting::tls::{TlsConfigError, TlsOptions, TlsPart};

use crate::config::folders;
use crate::identity;

const ADDRESSES_MAX: usize = 64;
/// A larger file is no secret, certificate or key.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// With a group of the largest length behind it, brokers still take the name.
const NAMESPACE_LENGTH_MAX: usize = 64;

/// A cluster, and who we are there.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionConfig {
    /// Not empty.
    pub(crate) namesrv_addr: Vec<Address>,
    /// Around the names of groups and topics; empty for none.
    pub(crate) namespace: String,
    /// Signs requests.
    pub(crate) credentials: Option<Credentials>,
    /// `None` is plain text.
    pub(crate) tls: Option<TlsConfig>,
    /// TLS, and anybody is trusted.
    pub(crate) tls_is_insecure: bool,
}

impl ConnectionConfig {
    /// Plain text, nobody in particular.
    pub(crate) fn plain(namesrv_addr: Vec<Address>) -> Self {
        Self {
            namesrv_addr,
            namespace: String::new(),
            credentials: None,
            tls: None,
            tls_is_insecure: false,
        }
    }

    /// A client of this cluster, everything else by default.
    pub(crate) fn driver_config(self) -> DriverConfig {
        let mut client = identity::client_config(self.namesrv_addr);
        client.namespace = self.namespace;
        let mut config = DriverConfig::new(client);
        config.remoting.credentials = self.credentials;
        config.remoting.tls = self.tls;
        config
    }

    /// Whether two tenants reach the same cluster.
    pub(super) fn shares_cluster_with(&self, other: &Self) -> bool {
        let mut addresses = self.namesrv_addr.iter();
        addresses.any(|address| other.namesrv_addr.contains(address))
    }
}

/// Reads a tenant's connection. What is wrong has its default, and is a problem.
pub(super) fn read(document: &Document<'_>, section: &Section<'_, '_>) -> ConnectionConfig {
    let namesrv_addr = section.required("namesrv_addr", "[\"10.0.0.1:9876\"]", addresses);
    let namespace = section.or("namespace", String::new(), |value| {
        let namespace = value.text()?;
        check_namespace(namespace)?;
        Ok(namespace.to_owned())
    });
    let credentials = credentials(document, section);
    let (tls, tls_is_insecure) = tls(document, section);
    ConnectionConfig {
        namesrv_addr: namesrv_addr.unwrap_or_default(),
        namespace,
        credentials,
        tls,
        tls_is_insecure,
    }
}

fn check_namespace(namespace: &str) -> Result<(), Fault> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '|');
    if let Some(character) = namespace.chars().find(|&c| !allowed(c)) {
        return Err(Fault::new(
            format!("contains {character:?}"),
            "write letters, digits, _, - and |",
        ));
    }
    if namespace.is_empty() || namespace.len() > NAMESPACE_LENGTH_MAX {
        return Err(Fault::new(
            format!("has {} characters", namespace.len()),
            format!("write 1 to {NAMESPACE_LENGTH_MAX}, or remove it"),
        ));
    }
    Ok(())
}

fn credentials(document: &Document<'_>, section: &Section<'_, '_>) -> Option<Credentials> {
    // A name, not a secret: it may stand here.
    let access_key = section.optional("access_key", |value| match value.text() {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => secret(document, section, "access_key", value),
    });
    let named = |key| section.optional(key, |value| secret(document, section, key, value));
    let secret_key = named("secret_key");
    let security_token = named("security_token");
    if section.has("secret_key") && !section.has("access_key") {
        section.missing(
            "access_key",
            "add access_key = \"NAME\": requests are signed with both",
        );
    }
    if section.has("access_key") && !section.has("secret_key") {
        section.missing(
            "secret_key",
            "add secret_key = { env = \"NAME\" }: requests are signed with both",
        );
    }
    if section.has("security_token") && !section.has("access_key") {
        section.missing(
            "access_key",
            "add access_key and secret_key: a token goes with them",
        );
    }
    match Credentials::new(access_key?, secret_key?, security_token) {
        Ok(credentials) => Some(credentials),
        Err(error) => {
            let fault = Fault::new(
                format!("cannot be used: {error}"),
                "give the keys as the cluster's administrator gave them",
            );
            section.fault("access_key", fault);
            None
        }
    }
}

/// A secret that is named: a variable, or a file whose last line end does not count. A
/// variable or flag of our own holds it itself.
pub(crate) fn secret(
    document: &Document<'_>,
    section: &Section<'_, '_>,
    key: &'static str,
    value: Value<'_>,
) -> Result<String, Fault> {
    match value.secret()? {
        SecretSource::Given(text) => Ok(text.to_owned()),
        SecretSource::Variable(name) => match std::env::var(name) {
            Ok(value) => Ok(value),
            Err(std::env::VarError::NotPresent) => Err(Fault::new(
                format!("names the environment variable {name}, which is not set"),
                "set it, or name another",
            )),
            Err(std::env::VarError::NotUnicode(_)) => Err(Fault::new(
                format!("names the environment variable {name}, which is no text"),
                "correct its value",
            )),
        },
        SecretSource::File(name) => {
            let path = folders::expand(name, base(document, section, key))?;
            let bytes = read_file(&path)?;
            let text = String::from_utf8(bytes).map_err(|_| {
                Fault::new(
                    format!("names {}, which is no text", path.display()),
                    "name the file that holds the secret alone",
                )
            })?;
            Ok(text.trim_end_matches(['\r', '\n']).to_owned())
        }
    }
}

/// How certificates are checked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TlsMode {
    Off,
    Verify,
    Insecure,
}

fn tls(document: &Document<'_>, tenant: &Section<'_, '_>) -> (Option<TlsConfig>, bool) {
    let section = tenant.section("tls");
    let default = if section.is_present() {
        TlsMode::Verify
    } else {
        TlsMode::Off
    };
    let mode = section.or("mode", default, |value| {
        value.choice(
            &[
                ("verify", TlsMode::Verify),
                ("off", TlsMode::Off),
                ("insecure", TlsMode::Insecure),
            ],
            &[],
        )
    });
    let pem = |key| {
        section.optional(key, |value| {
            let path = folders::expand(value.text()?, base(document, &section, key))?;
            read_file(&path)
        })
    };
    let ca = pem("ca_file");
    let certificate = pem("certificate_file");
    let private_key = pem("private_key_file");
    let server_name = section.optional("server_name", |value| value.text().map(str::to_owned));
    let mut is_complete = true;
    for (given, wanted) in [
        ("certificate_file", "private_key_file"),
        ("private_key_file", "certificate_file"),
    ] {
        if section.has(given) && !section.has(wanted) {
            let remedy = format!("add {wanted}: a certificate is shown with its key");
            section.missing(wanted, &remedy);
            is_complete = false;
        }
    }
    let insecure = mode == TlsMode::Insecure;
    for key in ["ca_file", "server_name"] {
        if insecure && section.has(key) {
            let remedy = "remove it, or set mode = \"verify\"";
            section.fault(key, Fault::new("is not looked at in this mode", remedy));
        }
    }
    let was_read = |key, value: &Option<Vec<u8>>| value.is_some() || !section.has(key);
    is_complete &= was_read("ca_file", &ca)
        && was_read("certificate_file", &certificate)
        && was_read("private_key_file", &private_key);
    let options = TlsOptions {
        ca,
        client_certificate: certificate.zip(private_key),
        server_name,
        insecure,
    };
    let config = match mode {
        TlsMode::Off => None,
        TlsMode::Verify | TlsMode::Insecure if !is_complete => None,
        TlsMode::Verify | TlsMode::Insecure => match TlsConfig::new(&options) {
            Ok(config) => Some(config),
            Err(error) => {
                let key = key_of(&error);
                let what = format!("cannot be used: {:#}", anyhow::Error::from(error));
                section.fault(key, Fault::new(what, "correct it, or give another"));
                None
            }
        },
    };
    section.refuse_unknown();
    (config, insecure)
}

fn key_of(error: &TlsConfigError) -> &'static str {
    match error {
        TlsConfigError::Pem { part, .. } | TlsConfigError::NoCertificate { part } => match part {
            TlsPart::Authorities => "ca_file",
            TlsPart::ClientCertificate => "certificate_file",
            TlsPart::PrivateKey => "private_key_file",
        },
        TlsConfigError::Authority(_) => "ca_file",
        TlsConfigError::NoSystemAuthorities => "mode",
        TlsConfigError::ClientCertificate(_) => "certificate_file",
        TlsConfigError::ServerName(_) => "server_name",
    }
}

/// Where a path of this key begins: at the file, or where the user is.
pub(super) fn base<'d>(
    document: &'d Document<'_>,
    section: &Section<'_, '_>,
    key: &str,
) -> &'d Path {
    match section.place(key) {
        Place::File { .. } => document.file().parent().unwrap_or(Path::new("")),
        Place::Environment { .. } | Place::Flag { .. } => Path::new(""),
    }
}

pub(super) fn read_file(path: &PathBuf) -> Result<Vec<u8>, Fault> {
    let unreadable = |reason: String| {
        Fault::new(
            format!("names {}, which cannot be read: {reason}", path.display()),
            "correct the path, or the file's permissions",
        )
    };
    let file = File::open(path).map_err(|error| unreadable(error.to_string()))?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| unreadable(error.to_string()))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(unreadable(format!(
            "it has more than {FILE_BYTES_MAX} bytes"
        )));
    }
    Ok(bytes)
}

fn addresses(value: Value<'_>) -> Result<Vec<Address>, Fault> {
    // RocketMQ's own form, several in one text with ";", is read too.
    let texts: Vec<&str> = value
        .texts()?
        .into_iter()
        .flat_map(|text| text.split(';'))
        .map(str::trim)
        .filter(|text| !text.is_empty())
        .collect();
    if texts.is_empty() {
        return Err(Fault::new(
            "names no name server",
            "write at least one, for example [\"10.0.0.1:9876\"]",
        ));
    }
    if texts.len() > ADDRESSES_MAX {
        return Err(Fault::new(
            format!("names {} servers", texts.len()),
            format!("write at most {ADDRESSES_MAX}"),
        ));
    }
    texts
        .into_iter()
        .map(|text| {
            text.parse::<Address>().map_err(|_| {
                Fault::new(
                    format!("\"{text}\" is not an address"),
                    "write host:port, for example 10.0.0.1:9876 or [::1]:9876",
                )
            })
        })
        .collect()
}
