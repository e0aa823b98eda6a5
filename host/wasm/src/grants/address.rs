//! Names and networks of a grant, and which addresses are the public internet.
//!
//! A name is what a guest writes in its request. Where it leads is decided when it is
//! connected to: whatever it resolves to, an address outside the public internet is
//! refused unless the grant names it (`http/connect.rs`).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A name, and a port if it is not the scheme's own: `api.example.org`,
/// `*.example.org:8443`, `10.0.0.7`, `[::1]:8080`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostPattern {
    /// In small letters, without a dot at its end; of `*.name` the name.
    name: String,
    /// Names below it, in place of itself.
    is_below: bool,
    port: Option<u16>,
}

/// Addresses with a common beginning: `10.0.0.0/8`, `fd00::/8`, or one address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

/// Why a text is none of these.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ParseGrantError {
    /// Empty, or with characters that no name has.
    #[error("is no name of a host")]
    Host,
    /// A star anywhere but before the first dot.
    #[error("has a * that does not stand for the beginning of a name")]
    Star,
    /// No number from 1 to 65535.
    #[error("has no port after its colon")]
    Port,
    /// No address, or a prefix that is too long.
    #[error("is neither an address nor a network")]
    Network,
}

impl HostPattern {
    /// Whether a request to this host is meant. `host` is as [`host_name`] gives it.
    pub(crate) fn matches(&self, host: &str, port: u16, default_port: u16) -> bool {
        let is_named = if self.is_below {
            host.strip_suffix(self.name.as_str())
                .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
        } else {
            host == self.name
        };
        is_named && port == self.port.unwrap_or(default_port)
    }

    /// Whether everything that `other` allows is allowed by this.
    pub fn covers(&self, other: &Self) -> bool {
        let name = match (self.is_below, other.is_below) {
            (false, false) => self.name == other.name,
            (false, true) => false,
            (true, is_below) => {
                let rest = other.name.strip_suffix(self.name.as_str());
                rest.is_some_and(|rest| rest.ends_with('.') || (rest.is_empty() && is_below))
            }
        };
        name && self.port == other.port
    }
}

/// A name as it is compared: small letters, no brackets, no dot at the end.
pub(crate) fn host_name(host: &str) -> String {
    let host = host.strip_prefix('[').unwrap_or(host);
    let host = host.strip_suffix(']').unwrap_or(host);
    // One address has one text.
    match host.parse::<IpAddr>() {
        Ok(address) => address.to_string(),
        Err(_) => host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase(),
    }
}

impl FromStr for HostPattern {
    type Err = ParseGrantError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (host, port) = match text.rsplit_once(':') {
            // A bare IPv6 address has colons and no port.
            Some(_) if text.parse::<Ipv6Addr>().is_ok() => (text, None),
            Some((_, after)) if after.ends_with(']') => (text, None),
            Some((host, port)) => {
                let port = port.parse().ok().filter(|port| *port > 0);
                (host, Some(port.ok_or(ParseGrantError::Port)?))
            }
            None => (text, None),
        };
        let (host, is_below) = match host.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (host, false),
        };
        if host.contains('*') {
            return Err(ParseGrantError::Star);
        }
        let name = host_name(host);
        let is_address = name.parse::<IpAddr>().is_ok();
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if name.is_empty() || (!is_address && !name.chars().all(allowed)) {
            return Err(ParseGrantError::Host);
        }
        Ok(Self {
            name,
            is_below,
            port,
        })
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let star = if self.is_below { "*." } else { "" };
        if self.name.contains(':') {
            write!(f, "[{}]", self.name)?;
        } else {
            write!(f, "{star}{}", self.name)?;
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl Network {
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        let (ours, theirs, bits) = match (self.address, address) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => (
                u128::from(ours.to_bits()),
                u128::from(theirs.to_bits()),
                32_u32,
            ),
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => (ours.to_bits(), theirs.to_bits(), 128),
            _ => return false,
        };
        let ignored = bits - u32::from(self.prefix);
        ours.checked_shr(ignored) == theirs.checked_shr(ignored)
    }

    /// Whether every address of `other` is one of this.
    pub fn covers(&self, other: &Self) -> bool {
        self.prefix <= other.prefix && self.contains(other.address)
    }
}

impl FromStr for Network {
    type Err = ParseGrantError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| ParseGrantError::Network)?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => longest,
            Some(prefix) => prefix.parse().map_err(|_| ParseGrantError::Network)?,
        };
        if prefix > longest {
            return Err(ParseGrantError::Network);
        }
        Ok(Self { address, prefix })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let longest = if self.address.is_ipv4() { 32 } else { 128 };
        if self.prefix == longest {
            write!(f, "{}", self.address)
        } else {
            write!(f, "{}/{}", self.address, self.prefix)
        }
    }
}

/// Whether an address may be connected to without a grant of its own. Addresses of IPv6
/// that stand for one of IPv4 are what they stand for.
pub fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// IANA's registry of special-purpose addresses, and multicast.
fn is_public_v4(address: Ipv4Addr) -> bool {
    let special = match address.octets() {
        [0 | 10 | 127, ..] | [169, 254, ..] | [192, 168, ..] => true,
        [100, second, ..] => (64..128).contains(&second),
        [172, second, ..] => (16..32).contains(&second),
        [192, 0, 0 | 2, _] | [192, 88, 99, _] => true,
        [198, 18 | 19, ..] | [198, 51, 100, _] | [203, 0, 113, _] => true,
        [first, ..] => first >= 224,
    };
    !special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let embedded = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match address.segments() {
        // Unspecified, loopback, and the old IPv4-compatible form.
        [0, 0, 0, 0, 0, 0, _, _] => false,
        // NAT64: what stands behind is IPv4.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => embedded(high, low),
        [0x64, 0xff9b, ..] => false,
        // 6to4.
        [0x2002, high, low, ..] => embedded(high, low),
        // Teredo and others for protocols; documentation.
        [0x2001, second, ..] => second >= 0x200 && second != 0xdb8,
        [0x3fff, ..] | [0x5f00, ..] => false,
        [0x100, 0, 0, _, ..] => false,
        // Global unicast is what begins with 001: private, link-local, site-local and
        // multicast addresses do not.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_public_internet_is_public() {
        for address in [
            "1.1.1.1",
            "172.32.0.1",
            "100.128.0.1",
            "2606:4700::1111",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
        ] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
        for address in [
            "127.0.0.1",
            "127.8.8.8",
            "0.0.0.0",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.0.1",
            "169.254.169.254",
            "100.64.0.1",
            "100.100.100.200",
            "192.0.0.192",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "fd00:ec2::254",
            "fc00::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2001::1",
            "2001:db8::1",
            "100::1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn pattern_is_for_its_names_and_its_port() {
        let pattern = |text: &str| text.parse::<HostPattern>().unwrap();
        assert!(pattern("API.example.org").matches("api.example.org", 443, 443));
        assert!(!pattern("api.example.org").matches("api.example.org", 8443, 443));
        assert!(pattern("api.example.org:8443").matches("api.example.org", 8443, 443));
        let below = pattern("*.example.org");
        assert!(below.matches("a.b.example.org", 80, 80));
        for host in [
            "example.org",
            ".example.org",
            "badexample.org",
            "example.org.evil",
        ] {
            assert!(!below.matches(host, 80, 80), "{host}");
        }
        assert!(pattern("[::1]:8080").matches(&host_name("[0:0::1]"), 8080, 80));
        assert!(pattern("::1").matches("::1", 80, 80));
        assert_eq!(pattern("[::1]:8080").to_string(), "[::1]:8080");
        assert_eq!(pattern("*.example.org:1").to_string(), "*.example.org:1");
        for wrong in [
            "", "*", "a.*.org", "*.", "a b", "a:0", "a:b", "http://a", "a/b", "u@a",
        ] {
            assert!(wrong.parse::<HostPattern>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn network_has_its_addresses_and_covers_smaller_ones() {
        let network = |text: &str| text.parse::<Network>().unwrap();
        assert!(network("10.0.0.0/8").contains("10.9.9.9".parse().unwrap()));
        assert!(!network("10.0.0.0/8").contains("11.0.0.0".parse().unwrap()));
        assert!(network("0.0.0.0/0").contains("8.8.8.8".parse().unwrap()));
        assert!(!network("127.0.0.1").contains("127.0.0.2".parse().unwrap()));
        assert!(network("fd00::/8").covers(&network("fd12::/16")));
        assert!(!network("10.1.0.0/16").covers(&network("10.0.0.0/8")));
        for wrong in ["10.0.0.0/33", "x", "10.0.0/8", "::1/129"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn wider_pattern_covers_narrower_ones() {
        let pattern = |text: &str| text.parse::<HostPattern>().unwrap();
        let covers = |wide: &str, narrow: &str| pattern(wide).covers(&pattern(narrow));
        assert!(covers("*.example.org", "a.example.org"));
        assert!(covers("*.example.org", "*.a.example.org"));
        assert!(covers("*.example.org", "*.example.org"));
        assert!(!covers("*.example.org", "example.org"));
        assert!(!covers("a.example.org", "*.a.example.org"));
        assert!(!covers("*.example.org", "a.example.org:8080"));
    }
}
