//! From a request's address to a connection: its name is compared with the grant, resolved
//! once, and what it resolves to is checked and connected to exactly. No second look-up can
//! lead elsewhere.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};
use wasmtime_wasi_http::Error;

use super::HttpClient;
use crate::grants::HttpGrant;
use crate::grants::address::{host_name, is_public};

/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 8;

/// Whom a request is for.
pub(super) struct Target {
    host: String,
    port: u16,
    default_port: u16,
    is_tls: bool,
}

impl Target {
    pub(super) fn of(uri: &http::Uri) -> Result<Self, Error> {
        let authority = uri.authority().ok_or(Error::HttpRequestUriInvalid)?;
        if authority.as_str().contains('@') || authority.host().is_empty() {
            return Err(Error::HttpRequestUriInvalid);
        }
        let is_tls = uri.scheme() == Some(&http::uri::Scheme::HTTPS);
        let default_port = if is_tls { 443 } else { 80 };
        Ok(Self {
            host: host_name(authority.host()),
            port: authority.port_u16().unwrap_or(default_port),
            default_port,
            is_tls,
        })
    }

    pub(super) fn is_granted(&self, grant: &HttpGrant, method: &str) -> bool {
        method != "CONNECT" && grant.allows(method, &self.host, self.port, self.default_port)
    }
}

/// What HTTP is spoken over.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

impl HttpClient {
    /// Where the target is, as far as it may be connected to.
    pub(super) async fn addresses(
        &self,
        target: &Target,
        grant: &HttpGrant,
        until: Instant,
    ) -> Result<Vec<SocketAddr>, Error> {
        let found = self
            .resolve(target, until)
            .await?
            .map_err(|error| Error::DnsError {
                rcode: Some(error.to_string()),
                info_code: None,
            })?;
        if found.is_empty() {
            return Err(Error::DestinationNotFound);
        }
        let may_connect = |address: &SocketAddr| {
            let ip = address.ip();
            is_public(ip) || is_named(grant, ip) || is_named(grant, ip.to_canonical())
        };
        let allowed: Vec<_> = found
            .into_iter()
            .filter(may_connect)
            .take(ADDRESSES_MAX)
            .collect();
        if allowed.is_empty() {
            return Err(Error::DestinationIpProhibited);
        }
        Ok(allowed)
    }

    /// A look-up cannot be ended: it has a thread until the resolver gives up. So it runs on
    /// beyond its time, with the permit, and those that come meanwhile wait.
    async fn resolve(
        &self,
        target: &Target,
        until: Instant,
    ) -> Result<io::Result<Vec<SocketAddr>>, Error> {
        if let Ok(address) = target.host.parse::<IpAddr>() {
            return Ok(Ok(vec![SocketAddr::new(address, target.port)]));
        }
        let permit = timeout_at(until, Arc::clone(&self.look_ups).acquire_owned())
            .await
            .map_err(|_| Error::DnsTimeout)?;
        let (name, port) = (target.host.clone(), target.port);
        let resolver = self.config.resolver.clone();
        // Nobody owns it: it is one of a few, ends by itself, and has nothing to clean up.
        let looking = tokio::spawn(async move {
            let _until_it_ends = permit;
            match resolver {
                Some(resolver) => resolver(name, port).await,
                None => {
                    let found = tokio::net::lookup_host((name, port)).await?;
                    Ok(found.collect())
                }
            }
        });
        let found = timeout_at(until, looking)
            .await
            .map_err(|_| Error::DnsTimeout)?;
        Ok(found.unwrap_or_else(|panic| Err(io::Error::other(panic))))
    }

    /// Connects to the first of these that answers.
    pub(super) async fn connect(
        &self,
        target: &Target,
        addresses: &[SocketAddr],
    ) -> Result<Box<dyn Stream>, Error> {
        let mut refused = Error::DestinationNotFound;
        for address in addresses {
            let stream = match TcpStream::connect(address).await {
                Ok(stream) => stream,
                Err(error) => {
                    refused = match error.kind() {
                        io::ErrorKind::ConnectionRefused => Error::ConnectionRefused,
                        io::ErrorKind::TimedOut => Error::ConnectionTimeout,
                        _ => Error::DestinationUnavailable,
                    };
                    continue;
                }
            };
            // A request is one write; it matters to nobody if this cannot be set.
            let _set = stream.set_nodelay(true);
            if !target.is_tls {
                return Ok(Box::new(stream));
            }
            let name = ServerName::try_from(target.host.clone())
                .map_err(|_| Error::HttpRequestUriInvalid)?;
            let connecting = self.tls().await?.connect(name, stream);
            let stream = connecting.await.map_err(|error| of_tls(&error))?;
            return Ok(Box::new(stream));
        }
        Err(refused)
    }

    async fn tls(&self) -> Result<TlsConnector, Error> {
        let told = |reason: &String| Error::InternalError(Some(reason.clone()));
        if let Some(made) = self.tls.get() {
            return made.clone().map_err(|reason| told(&reason));
        }
        let extra_roots = self.config.extra_roots.clone();
        let made = tokio::task::spawn_blocking(move || connector(&extra_roots)).await;
        let made = made.unwrap_or_else(|error| Err(error.to_string()));
        let made = self.tls.get_or_init(|| made);
        made.clone().map_err(|reason| told(&reason))
    }
}

fn is_named(grant: &HttpGrant, address: IpAddr) -> bool {
    let networks = &grant.private;
    networks.iter().any(|network| network.contains(address))
}

/// Trusts what the machine trusts. Reads files.
fn connector(extra_roots: &[bytes::Bytes]) -> Result<TlsConnector, String> {
    let mut roots = RootCertStore::empty();
    for certificate in rustls_native_certs::load_native_certs().certs {
        // A machine has some that nobody can use.
        let _unusable = roots.add(certificate);
    }
    for certificate in extra_roots {
        roots
            .add(CertificateDer::from(certificate.to_vec()))
            .map_err(|error| error.to_string())?;
    }
    if roots.is_empty() {
        return Err("this machine trusts no certificate".to_owned());
    }
    let provider = Arc::new(crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

fn of_tls(error: &io::Error) -> Error {
    use tokio_rustls::rustls::Error as Tls;
    match error
        .get_ref()
        .and_then(|error| error.downcast_ref::<Tls>())
    {
        Some(Tls::InvalidCertificate(_)) => Error::TlsCertificateError,
        Some(Tls::AlertReceived(alert)) => Error::TlsAlertReceived {
            alert_id: Some((*alert).into()),
            alert_message: Some(format!("{alert:?}")),
        },
        _ => Error::TlsProtocolError,
    }
}
