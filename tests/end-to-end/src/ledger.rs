//! What plugins consumed, as the guest `ledger` writes it down.
//!
//! That guest logs one line a call, `ledger[times:queue:body times:queue:body …]`,
//! before it answers. A line that is there was delivered; a message whose line is
//! missing was not finished, since the answer comes after the line.

use std::collections::BTreeMap;

/// One message in one call of the guest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delivery {
    /// Attempts before this one.
    pub reconsume_times: u32,
    /// The queue it was pulled from.
    pub queue_id: u32,
    /// Its body, a text without blanks.
    pub body: String,
}

/// The deliveries in a line of a host's output; none when it is another line.
pub fn deliveries(line: &str) -> Vec<Delivery> {
    let Some((_, rest)) = line.split_once("ledger[") else {
        return Vec::new();
    };
    let Some((entries, _)) = rest.split_once(']') else {
        return Vec::new();
    };
    entries
        .split(' ')
        .filter_map(|entry| {
            let mut parts = entry.splitn(3, ':');
            Some(Delivery {
                reconsume_times: parts.next()?.parse().ok()?,
                queue_id: parts.next()?.parse().ok()?,
                body: parts.next()?.to_owned(),
            })
        })
        .collect()
}

/// How often each body was delivered.
pub fn counts<'a>(deliveries: impl IntoIterator<Item = &'a Delivery>) -> BTreeMap<&'a str, usize> {
    let mut counts = BTreeMap::new();
    for delivery in deliveries {
        *counts.entry(delivery.body.as_str()).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_line_is_read_from_any_log_format() {
        let line = r#"{"level":"INFO","plugin":"p","message":"ledger[0:3:m1 2:0:m2]"}"#;
        assert_eq!(
            deliveries(line),
            [
                Delivery {
                    reconsume_times: 0,
                    queue_id: 3,
                    body: "m1".into()
                },
                Delivery {
                    reconsume_times: 2,
                    queue_id: 0,
                    body: "m2".into()
                },
            ]
        );
        assert_eq!(deliveries("another line"), []);
    }
}
