//! `api`, `api_token` and `[control.tls]` of `[control]`: the control socket's routes over
//! TCP. In plain text they are for this machine alone, by a token; for other machines they
//! are encrypted, and a certificate says who asks.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use plugin_lifecycle::Digest;
use plugin_lifecycle::document::{Document, Section};
use plugin_lifecycle::problem::Fault;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use crate::config::connection::{base, read_file, secret};
use crate::config::folders;

/// Characters of a token.
const TOKEN_MIN: usize = 16;

/// Where the API listens, and who may ask.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ApiConfig {
    pub(crate) address: SocketAddr,
    /// `None`: a certificate is enough.
    pub(crate) token: Option<ApiToken>,
    /// `None`: plain text, on this machine alone.
    pub(crate) tls: Option<ApiTls>,
}

/// A token, by its digest: comparing digests tells nobody how much of one is right.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ApiToken(Digest);

impl ApiToken {
    fn new(token: &str) -> Self {
        Self(Digest::of(token.as_bytes()))
    }

    /// It is this one.
    pub(crate) fn is(&self, token: &str) -> bool {
        self.0 == Digest::of(token.as_bytes())
    }
}

impl fmt::Debug for ApiToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiToken")
    }
}

/// How the API is encrypted.
#[derive(Clone)]
pub(crate) struct ApiTls {
    config: Arc<ServerConfig>,
    /// Whoever asks shows a certificate.
    wants_certificates: bool,
}

impl ApiTls {
    /// `clients`: authorities of those who may ask; `None`: whoever asks is not known by a
    /// certificate. All are PEM.
    fn new(certificate: &[u8], key: &[u8], clients: Option<&[u8]>) -> anyhow::Result<Self> {
        let provider = Arc::new(ring::default_provider());
        let chain = certificates(certificate).context("certificate_file")?;
        let key = PrivateKeyDer::from_pem_slice(key).context("private_key_file")?;
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?;
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(authorities) => {
                let mut roots = RootCertStore::empty();
                for authority in certificates(authorities).context("client_ca_file")? {
                    roots.add(authority).context("client_ca_file")?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                        .build()
                        .context("client_ca_file")?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let config = builder
            .with_single_cert(chain, key)
            .context("certificate_file and private_key_file")?;
        Ok(Self {
            config: Arc::new(config),
            wants_certificates: clients.is_some(),
        })
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.config))
    }
}

impl PartialEq for ApiTls {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.config, &other.config)
    }
}

impl Eq for ApiTls {}

impl fmt::Debug for ApiTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiTls")
    }
}

fn certificates(pem: &[u8]) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>()?;
    anyhow::ensure!(!found.is_empty(), "there is no certificate in it");
    Ok(found)
}

/// `None` also beside a problem.
pub(super) fn read(document: &Document<'_>, section: &Section<'_, '_>) -> Option<ApiConfig> {
    const REMEDY: &str = "write an address with a port, for example \"127.0.0.1:9878\"";
    let address = section.optional("api", |value| {
        let address = value.text()?.parse::<SocketAddr>();
        address.map_err(|_| Fault::new("is no address", REMEDY))
    });
    let token = section.optional("api_token", |value| {
        let token = secret(document, section, "api_token", value)?;
        match token.len() >= TOKEN_MIN {
            true => Ok(ApiToken::new(&token)),
            false => Err(Fault::new(
                format!("has fewer than {TOKEN_MIN} characters"),
                "make a random one, for example with openssl rand -hex 32",
            )),
        }
    });
    let tls_section = section.section("tls");
    let has_tls = tls_section.is_present();
    let tls = tls(document, tls_section);
    let knows_clients = tls.as_ref().is_some_and(|tls| tls.wants_certificates);
    // What is wrong with the table is said already.
    let is_judged = tls.is_some() || !has_tls;
    if let Some(address) = address
        && !address.ip().is_loopback()
        && is_judged
        && !knows_clients
    {
        section.fault(
            "api",
            Fault::new(
                "can be reached from other machines",
                "write an address of this machine, for example \"127.0.0.1:9878\", or add a table [control.tls] with certificate_file, private_key_file and client_ca_file",
            ),
        );
        return None;
    }
    if section.has("api") && !section.has("api_token") && is_judged && !knows_clients {
        let remedy = "add api_token = { file = \"…\" }: nobody gets in without it";
        section.fault("api", Fault::new("stands alone", remedy));
        return None;
    }
    for key in ["api_token", "tls"] {
        if section.has(key) && !section.has("api") {
            let remedy = "add api = \"127.0.0.1:9878\", or remove it";
            section.fault(key, Fault::new("stands alone", remedy));
        }
    }
    if has_tls && tls.is_none() || section.has("api_token") && token.is_none() {
        return None;
    }
    Some(ApiConfig {
        address: address?,
        token,
        tls,
    })
}

fn tls(document: &Document<'_>, section: Section<'_, '_>) -> Option<ApiTls> {
    if !section.is_present() {
        return None;
    }
    let file = |key| {
        section.optional(key, |value| {
            let path: PathBuf = folders::expand(value.text()?, base(document, &section, key))?;
            read_file(&path)
        })
    };
    let certificate = file("certificate_file");
    let key = file("private_key_file");
    let clients = file("client_ca_file");
    for wanted in ["certificate_file", "private_key_file"] {
        if !section.has(wanted) {
            section.missing(wanted, &format!("add {wanted} = \"server.pem\""));
        }
    }
    let is_read = clients.is_some() || !section.has("client_ca_file");
    let made = match (certificate, key) {
        (Some(certificate), Some(key)) if is_read => {
            ApiTls::new(&certificate, &key, clients.as_deref())
                .map_err(|error| {
                    let what = format!("cannot be used: {error:#}");
                    let remedy =
                        "give PEM files of a certificate, its key and the clients' authorities";
                    section.fault("", Fault::new(what, remedy));
                })
                .ok()
        }
        _ => None,
    };
    section.refuse_unknown();
    made
}
