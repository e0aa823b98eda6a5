//! One request for bytes, bounded in every way: size, time, redirects, and where those may
//! lead.
//!
//! Whoever wrote the manifest chose the first address; where it leads from there is chosen
//! by its server, which must not be able to make this host ask others that it cannot reach
//! itself. So a redirect stays encrypted, and from a public address it leads to public ones
//! alone: names are looked up once, and what is checked is what is connected to.

use std::error::Error as _;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderValue, LOCATION, WWW_AUTHENTICATE};
use reqwest::{Certificate, Client, Response, Url, redirect};
use tokio_rustls::rustls::crypto::ring;

use super::SourceError;

/// Redirects that are followed for one request.
const REDIRECTS_MAX: usize = 5;
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// Without a byte.
const SILENCE_MAX: Duration = Duration::from_secs(15);
/// Before each further attempt.
const RETRY_PAUSES: [Duration; 3] = [
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(3),
];

/// Asks servers; clones share connections.
#[derive(Clone, Debug)]
pub(super) struct Web {
    anywhere: Client,
    /// Connects to public addresses alone.
    public_only: Client,
}

/// What is asked for.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) url: Url,
    pub(super) accept: Option<&'static str>,
    /// Marked as sensitive; given up when a redirect leads to another server.
    pub(super) authorization: Option<HeaderValue>,
    /// More is not taken in.
    pub(super) bytes_max: u64,
}

impl Request {
    pub(super) fn new(url: Url, bytes_max: u64) -> Self {
        Self {
            url,
            accept: None,
            authorization: None,
            bytes_max,
        }
    }
}

/// What came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    Body(Bytes),
    /// Status 401, and what the server wants to know.
    Challenge(String),
}

impl Web {
    /// `authorities`: PEM, trusted beside the system's.
    pub(super) fn new(authorities: Option<&[u8]>) -> Result<Self, SourceError> {
        let settings = |reason: String| SourceError::Settings { reason };
        // The first one of the process stays; it is the same everywhere.
        let _ = ring::default_provider().install_default();
        let authorities = match authorities {
            None => Vec::new(),
            Some(pem) => Certificate::from_pem_bundle(pem)
                .map_err(|error| settings(format!("ca_file cannot be read: {}", cause(&error))))?,
        };
        let client = |is_public_only| {
            Client::builder()
                .user_agent(concat!("mqlet/", env!("CARGO_PKG_VERSION")))
                .redirect(redirect::Policy::none())
                // What a proxy connects to cannot be checked here.
                .no_proxy()
                .connect_timeout(CONNECT_TIME_MAX)
                .read_timeout(SILENCE_MAX)
                .dns_resolver(Arc::new(Resolver { is_public_only }))
                .tls_certs_merge(authorities.clone())
                .build()
                .map_err(|error| settings(format!("TLS cannot be spoken: {}", cause(&error))))
        };
        Ok(Self {
            anywhere: client(false)?,
            public_only: client(true)?,
        })
    }

    /// Asks, again after a pause when that may help.
    pub(super) async fn get(&self, request: &Request) -> Result<Answer, SourceError> {
        let mut pauses = RETRY_PAUSES.iter();
        loop {
            let answer = self.get_once(request).await;
            match (answer, pauses.next()) {
                (Err(error), Some(pause)) if error.is_retryable() => {
                    tokio::time::sleep(*pause).await;
                }
                (answer, _) => return answer,
            }
        }
    }

    async fn get_once(&self, request: &Request) -> Result<Answer, SourceError> {
        let mut url = request.url.clone();
        let mut is_public_only = false;
        for _ in 0..=REDIRECTS_MAX {
            let client = match is_public_only {
                true => &self.public_only,
                false => &self.anywhere,
            };
            let response = send(client, &url, request).await?;
            if !response.status().is_redirection() {
                return read(response, &url, request.bytes_max).await;
            }
            let to = target(&response, &url)?;
            // Once it is on the public internet, it stays there.
            is_public_only = is_public_only || is_public_host(&url).await;
            check_redirect(&url, &to, is_public_only)?;
            url = to;
        }
        Err(SourceError::Redirect {
            to: "one address after the other".to_owned(),
            url: shown(&request.url),
            reason: "which has no end",
        })
    }
}

async fn send(client: &Client, url: &Url, request: &Request) -> Result<Response, SourceError> {
    let mut asked = client.get(url.clone());
    if let Some(accept) = request.accept {
        asked = asked.header(ACCEPT, accept);
    }
    if let Some(authorization) = &request.authorization
        && url.origin() == request.url.origin()
    {
        asked = asked.header(AUTHORIZATION, authorization);
    }
    asked.send().await.map_err(|error| unreachable(url, &error))
}

async fn read(mut response: Response, url: &Url, bytes_max: u64) -> Result<Answer, SourceError> {
    let status = response.status();
    if status.as_u16() == 401
        && let Some(challenge) = response.headers().get(WWW_AUTHENTICATE)
        && let Ok(challenge) = challenge.to_str()
    {
        return Ok(Answer::Challenge(challenge.to_owned()));
    }
    if status.as_u16() != 200 {
        return Err(SourceError::Status {
            url: shown(url),
            status: status.as_u16(),
        });
    }
    let too_large = || SourceError::TooLarge {
        url: shown(url),
        bytes_max,
    };
    let announced = response.content_length().unwrap_or(0);
    if announced > bytes_max {
        return Err(too_large());
    }
    let mut body = BytesMut::with_capacity(usize::try_from(announced).unwrap_or(0));
    while let Some(chunk) = response
        .chunk()
        .await
        .map_err(|error| unreachable(url, &error))?
    {
        if (body.len() + chunk.len()) as u64 > bytes_max {
            return Err(too_large());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Answer::Body(body.freeze()))
}

fn target(response: &Response, url: &Url) -> Result<Url, SourceError> {
    let location = response.headers().get(LOCATION);
    let to = location.and_then(|location| url.join(location.to_str().ok()?).ok());
    to.ok_or_else(|| SourceError::Status {
        url: shown(url),
        status: response.status().as_u16(),
    })
}

fn check_redirect(url: &Url, to: &Url, is_public_only: bool) -> Result<(), SourceError> {
    let refused = |reason| SourceError::Redirect {
        url: shown(url),
        to: shown(to),
        reason,
    };
    let is_loopback = url.scheme() == "http" && is_loopback_host(to);
    if to.scheme() != "https" && !(to.scheme() == "http" && is_loopback) {
        return Err(refused("which is not encrypted"));
    }
    // A name is looked at when it is looked up.
    if is_public_only && literal(to).is_some_and(|ip| !wasm::is_public(ip)) {
        return Err(refused("which is not an address of the public internet"));
    }
    Ok(())
}

/// At least one of its addresses is. It is asked only where a redirect begins.
async fn is_public_host(url: &Url) -> bool {
    if let Some(ip) = literal(url) {
        return wasm::is_public(ip);
    }
    let host = url.host_str().unwrap_or_default();
    match tokio::net::lookup_host((host, 443)).await {
        Ok(mut found) => found.any(|address| wasm::is_public(address.ip())),
        // The stricter of the two.
        Err(_) => true,
    }
}

fn literal(url: &Url) -> Option<IpAddr> {
    let host = url.host_str()?;
    host.trim_start_matches('[')
        .trim_end_matches(']')
        .parse()
        .ok()
}

/// An address of this machine by its very name: no name server is believed.
pub(super) fn is_loopback_host(url: &Url) -> bool {
    match literal(url) {
        Some(ip) => ip.is_loopback(),
        None => url.host_str() == Some("localhost"),
    }
}

/// Without its query, which may hold a signature that lets anybody in.
pub(super) fn shown(url: &Url) -> String {
    let mut shown = url.clone();
    shown.set_query(None);
    shown.set_fragment(None);
    shown.to_string()
}

fn unreachable(url: &Url, error: &reqwest::Error) -> SourceError {
    let reason = if error.is_timeout() {
        "it does not answer in time".to_owned()
    } else {
        cause(error)
    };
    SourceError::Unreachable {
        url: shown(url),
        reason,
    }
}

/// The innermost reason; those around it repeat the address.
fn cause(error: &reqwest::Error) -> String {
    let mut innermost: Option<&dyn std::error::Error> = error.source();
    while let Some(next) = innermost.and_then(std::error::Error::source) {
        innermost = Some(next);
    }
    match innermost {
        Some(reason) => reason.to_string(),
        None if error.is_body() || error.is_decode() => "the answer is cut".to_owned(),
        None => "the request failed".to_owned(),
    }
}

#[derive(Debug)]
struct Resolver {
    is_public_only: bool,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let is_public_only = self.is_public_only;
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let found: Vec<SocketAddr> = found
                .filter(|address| !is_public_only || wasm::is_public(address.ip()))
                .collect();
            if found.is_empty() {
                let reason = "it has no address of the public internet, and it was led to from one";
                return Err(io::Error::other(reason).into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_stay_encrypted_and_do_not_lead_into_private_networks() {
        let url = |text: &str| Url::parse(text).expect("an address");
        let check = |from, to, is_public_only| {
            check_redirect(&url(from), &url(to), is_public_only).map_err(|error| error.to_string())
        };
        check("https://a.example/x", "https://b.example/y", true).expect("from name to name");
        check("https://10.0.0.1/x", "https://10.0.0.2/y", false).expect("within a network");
        check("http://127.0.0.1/x", "http://127.0.0.1:2/y", false).expect("on this machine");
        for (from, to, is_public_only, reason) in [
            (
                "https://a.example/x",
                "http://a.example/x",
                true,
                "not encrypted",
            ),
            (
                "https://a.example/x",
                "http://127.0.0.1/x",
                true,
                "not encrypted",
            ),
            (
                "https://a.example/x",
                "ftp://a.example/x",
                true,
                "not encrypted",
            ),
            (
                "https://a.example/x",
                "https://169.254.169.254/k",
                true,
                "public internet",
            ),
            (
                "https://a.example/x",
                "https://[::ffff:10.0.0.1]/",
                true,
                "public internet",
            ),
        ] {
            let error = check(from, to, is_public_only).expect_err(to);
            assert!(error.contains(reason), "{error}");
        }
    }

    #[tokio::test]
    async fn name_that_was_led_to_has_public_addresses_alone() {
        let name: Name = "localhost".parse().expect("a name");
        let resolver = Resolver {
            is_public_only: true,
        };
        assert!(resolver.resolve(name).await.is_err());
        let name: Name = "localhost".parse().expect("a name");
        let resolver = Resolver {
            is_public_only: false,
        };
        assert!(resolver.resolve(name).await.is_ok());
    }

    #[test]
    fn what_a_query_says_is_not_shown() {
        let url = Url::parse("https://a.example/x?X-Amz-Signature=secret#y").expect("an address");
        assert_eq!(shown(&url), "https://a.example/x");
    }
}
