//! `host:port` in every form: names, IPv4, IPv6 with and without brackets.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

/// Where a name server or broker listens. Names are resolved when connecting.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    host: Arc<str>,
    port: u16,
}

impl Address {
    /// `host` without brackets, never empty.
    pub fn new(host: &str, port: u16) -> Self {
        Self {
            host: host.into(),
            port,
        }
    }

    /// The host name or address, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// Why a text is no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not an address; write host:port, for example 10.0.0.1:9876 or [::1]:9876")]
pub struct ParseAddressError {
    /// The text as given.
    pub text: String,
}

impl FromStr for Address {
    type Err = ParseAddressError;

    /// Splits at the last colon, as RocketMQ does (`NetworkUtil#string2SocketAddress`).
    ///
    /// Differs from RocketMQ: blanks around are ignored, an empty host is an error instead
    /// of the local one, and what has colons must be an IPv6 address.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseAddressError {
            text: text.to_owned(),
        };
        let (host, port) = text.trim().rsplit_once(':').ok_or_else(error)?;
        let bracketed = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
        let host = bracketed.unwrap_or(host);
        let valid = if bracketed.is_some() || host.contains(':') {
            is_ipv6(host)
        } else {
            !host.is_empty() && !host.contains(|c: char| "[]/".contains(c) || c <= ' ')
        };
        if !valid || !port.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(error());
        }
        Ok(Self::new(host, port.parse().map_err(|_| error())?))
    }
}

/// With or without a zone (`fe80::1%eth0`).
fn is_ipv6(host: &str) -> bool {
    let (ip, zone) = host.split_once('%').unwrap_or((host, "zone"));
    ip.parse::<Ipv6Addr>().is_ok() && !zone.is_empty() && !zone.contains(|c| c <= ' ')
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::new(&address.ip().to_string(), address.port())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
