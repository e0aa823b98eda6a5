//! The two ids of a message: the broker's, from where it lies, and the producer's, UNIQ_KEY.
//!
//! Both are upper-case hex and both have 32 characters with IPv4: which one a text is,
//! only the broker can tell.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const ID_CHARS_V4: usize = 32;
const ID_CHARS_V6: usize = 56;

/// The broker's id: address of the broker and commit-log offset.
/// RocketMQ: `MessageDecoder#createMessageId`.
pub fn offset_message_id(store_host: SocketAddr, commit_log_offset: u64) -> String {
    let mut id = String::with_capacity(ID_CHARS_V6);
    push_ip(&mut id, store_host.ip());
    let port = u32::from(store_host.port());
    // Writing to a string cannot fail.
    let _ = write!(id, "{port:08X}{commit_log_offset:016X}");
    id
}

/// A text is no id of this kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{}\" is not {kind}: {reason}", id.escape_debug())]
pub struct ParseMessageIdError {
    id: String,
    kind: &'static str,
    reason: &'static str,
}

/// The broker and commit-log offset that an id names.
/// RocketMQ: `MessageDecoder#decodeMessageId`.
///
/// Differs from RocketMQ: it reads characters that are not hex as something, and offsets
/// below zero.
pub fn parse_offset_message_id(id: &str) -> Result<(SocketAddr, u64), ParseMessageIdError> {
    let error = |reason| ParseMessageIdError {
        id: id.to_owned(),
        kind: "an offset message id",
        reason,
    };
    let (ip, rest) = parse_ip(id).map_err(error)?;
    let (port, offset) = rest.split_at(8);
    let port = u32::from_str_radix(port, 16)
        .ok()
        .and_then(|port| u16::try_from(port).ok())
        .ok_or_else(|| error("its port is above 65535; it may be a UNIQ_KEY"))?;
    let offset = u64::from_str_radix(offset, 16)
        .ok()
        .filter(|&offset| i64::try_from(offset).is_ok())
        .ok_or_else(|| error("its offset is below zero"))?;
    Ok((SocketAddr::new(ip, port), offset))
}

/// What a UNIQ_KEY says about its producer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UniqueIdParts {
    /// The producer's address.
    pub ip: IpAddr,
    /// Low 16 bits of its process id.
    pub pid: u16,
    /// Distinguishes generators of one process.
    pub discriminator: u32,
    /// Milliseconds since the first of the month, by the producer's clock.
    pub ms_of_month: u32,
    /// Counts the ids of a generator.
    pub counter: u16,
}

impl UniqueIdParts {
    /// Takes an id apart. RocketMQ: `MessageClientIDSetter#getIPFromID`, `#getPidFromID`.
    pub fn parse(id: &str) -> Result<Self, ParseMessageIdError> {
        let error = |reason| ParseMessageIdError {
            id: id.to_owned(),
            kind: "a UNIQ_KEY",
            reason,
        };
        let (ip, rest) = parse_ip(id).map_err(error)?;
        let number = |from: usize, to: usize| {
            u32::from_str_radix(&rest[from..to], 16).map_err(|_| error("it is not hex"))
        };
        Ok(Self {
            ip,
            pid: number(0, 4)? as u16,
            discriminator: number(4, 12)?,
            ms_of_month: number(12, 20)?,
            counter: number(20, 24)? as u16,
        })
    }

    /// The id.
    pub fn to_id(self) -> String {
        let mut id = String::with_capacity(ID_CHARS_V6);
        push_ip(&mut id, self.ip);
        // Writing to a string cannot fail.
        let _ = write!(
            id,
            "{:04X}{:08X}{:08X}{:04X}",
            self.pid, self.discriminator, self.ms_of_month, self.counter
        );
        id
    }
}

/// Makes UNIQ_KEYs: no two alike within 65,536 ids a millisecond.
/// RocketMQ: `MessageClientIDSetter#createUniqID`.
#[derive(Clone, Debug)]
pub struct UniqueIdGenerator {
    ip: IpAddr,
    pid: u16,
    discriminator: u32,
    counter: u16,
}

impl UniqueIdGenerator {
    /// A generator; give every one of a process another random `discriminator`.
    pub fn new(ip: IpAddr, pid: u32, discriminator: u32) -> Self {
        Self {
            ip,
            // The low half, as RocketMQ takes it.
            pid: pid as u16,
            discriminator,
            counter: 0,
        }
    }

    /// The next id at this Unix time.
    ///
    /// Differs from RocketMQ: the month begins in UTC, not in local time; only lookups
    /// that guess the time from the id notice.
    pub fn next_id(&mut self, unix_ms: u64) -> String {
        let parts = UniqueIdParts {
            ip: self.ip,
            pid: self.pid,
            discriminator: self.discriminator,
            ms_of_month: ms_of_month(unix_ms),
            counter: self.counter,
        };
        self.counter = self.counter.wrapping_add(1);
        parts.to_id()
    }
}

/// Milliseconds since the first of the month, UTC. At most 31 days: fits an i32.
fn ms_of_month(unix_ms: u64) -> u32 {
    const DAY_MS: u64 = 86_400_000;
    // Days are counted in years that begin in March, so that the leap day is the last.
    let days = unix_ms / DAY_MS + 719_468;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5;
    (day_of_month * DAY_MS + unix_ms % DAY_MS) as u32
}

fn push_ip(id: &mut String, ip: IpAddr) {
    // RocketMQ's addresses turn mapped IPv4 into IPv4 as well.
    // Writing to a string cannot fail.
    let _ = match ip.to_canonical() {
        IpAddr::V4(ip) => write!(id, "{:08X}", ip.to_bits()),
        IpAddr::V6(ip) => write!(id, "{:032X}", ip.to_bits()),
    };
}

/// The address and the 24 characters behind it, all of them hex digits.
fn parse_ip(id: &str) -> Result<(IpAddr, &str), &'static str> {
    if !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err("it is not hex");
    }
    let ip_chars = match id.len() {
        ID_CHARS_V4 => 8,
        ID_CHARS_V6 => 32,
        _ => return Err("it has neither 32 nor 56 characters"),
    };
    let (ip, rest) = id.split_at(ip_chars);
    let bits = u128::from_str_radix(ip, 16).map_err(|_| "it is not hex")?;
    let ip = if ip_chars == 8 {
        IpAddr::V4(Ipv4Addr::from_bits(bits as u32))
    } else {
        IpAddr::V6(Ipv6Addr::from_bits(bits))
    };
    Ok((ip, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_count_and_wrap() {
        // 2023-11-14T22:13:20Z is 13 days, 22:13:20 into its month.
        let mut generator =
            UniqueIdGenerator::new(IpAddr::from([10, 0, 0, 5]), 0x7_1267, 0x18B4_AAC2);
        let ms = 13 * 86_400_000 + 80_000_000_u32;
        for counter in 0..=u32::from(u16::MAX) + 1 {
            let id = generator.next_id(1_700_000_000_000);
            let expected = format!("0A000005126718B4AAC2{ms:08X}{:04X}", counter as u16);
            assert_eq!(id, expected);
        }
    }

    #[test]
    fn months_begin_at_their_first_day() {
        // 2024-02-29, 2024-03-01, 1970-01-01, 2100-03-01 (no leap year), each 00:00 + 1 ms.
        for (unix_s, day) in [
            (1_709_164_800, 28),
            (1_709_251_200, 0),
            (0, 0),
            (4_107_542_400_u64, 0),
        ] {
            assert_eq!(
                ms_of_month(unix_s * 1000 + 1),
                day * 86_400_000 + 1,
                "{unix_s}"
            );
        }
    }
}
