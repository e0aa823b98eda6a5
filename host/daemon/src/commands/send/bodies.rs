//! Where the bodies of `mqlet send` come from: an argument, a file, or standard input, one
//! message a line. They come in groups that can be sent as one batch.

use std::fs::File;
use std::io::{self, BufRead, Read};
use std::path::Path;

use anyhow::Context as _;
use bytes::Bytes;
use tokio::sync::mpsc;

/// Messages of one group.
pub(super) const GROUP_MESSAGES_MAX: usize = 128;
/// Bytes of the bodies of one group, except that one body always fits.
const GROUP_BYTES_MAX: usize = 256 << 10;
/// Groups that are read ahead of what is sent.
const GROUPS_WAITING_MAX: usize = 16;
/// A longer line or file is refused; brokers take 4 MiB by default.
const BODY_BYTES_MAX: u64 = 64 << 20;
/// What is read from standard input at once.
const READ_BYTES: usize = 1 << 20;

/// Groups of bodies as they come; an error is the last one.
pub(super) type Groups = mpsc::Receiver<anyhow::Result<Vec<Bytes>>>;

/// The whole content of a file.
pub(super) fn of_file(path: &Path) -> anyhow::Result<Bytes> {
    let read = || {
        let mut content = Vec::new();
        File::open(path)?
            .take(BODY_BYTES_MAX + 1)
            .read_to_end(&mut content)?;
        Ok::<_, io::Error>(content)
    };
    let content = read().with_context(|| format!("cannot read {}", path.display()))?;
    anyhow::ensure!(
        content.len() as u64 <= BODY_BYTES_MAX,
        "{} is larger than {BODY_BYTES_MAX} bytes, more than any broker takes",
        path.display()
    );
    Ok(content.into())
}

/// One body, so many times.
pub(super) fn repeated(body: Bytes, count: u64, group_messages_max: usize) -> Groups {
    let (groups, receiver) = mpsc::channel(GROUPS_WAITING_MAX);
    let group = group_messages_max.min((GROUP_BYTES_MAX / body.len().max(1)).max(1));
    tokio::spawn(async move {
        let mut left = count;
        while left > 0 {
            let now = usize::try_from(left).unwrap_or(usize::MAX).min(group);
            left -= now as u64;
            if groups.send(Ok(vec![body.clone(); now])).await.is_err() {
                return;
            }
        }
    });
    receiver
}

/// The lines of standard input, each so many times. What has been typed is sent at once;
/// what comes faster is grouped.
pub(super) fn of_lines(count: u64, group_messages_max: usize) -> Groups {
    let (groups, receiver) = mpsc::channel(GROUPS_WAITING_MAX);
    // Not a task of the runtime's pool: a read from a terminal never ends.
    std::thread::spawn(move || {
        let mut input = io::BufReader::with_capacity(READ_BYTES, io::stdin());
        read_lines(&mut input, count, group_messages_max, |group| {
            groups.blocking_send(group).is_ok()
        });
    });
    receiver
}

/// Gives groups to `take` until that says no more, or the input ends.
fn read_lines<R: Read>(
    input: &mut io::BufReader<R>,
    count: u64,
    group_messages_max: usize,
    mut take: impl FnMut(anyhow::Result<Vec<Bytes>>) -> bool,
) {
    let mut group = Vec::new();
    let mut group_bytes = 0;
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut *input)
            .take(BODY_BYTES_MAX + 1)
            .read_until(b'\n', &mut line);
        let is_end = match read {
            Ok(bytes) => bytes == 0,
            Err(error) => {
                if group.is_empty() || take(Ok(std::mem::take(&mut group))) {
                    take(Err(
                        anyhow::Error::new(error).context("cannot read standard input")
                    ));
                }
                return;
            }
        };
        if line.len() as u64 > BODY_BYTES_MAX {
            take(Err(anyhow::anyhow!(
                "a line of standard input is longer than {BODY_BYTES_MAX} bytes, more than any broker takes"
            )));
            return;
        }
        let body = line.strip_suffix(b"\n").unwrap_or(&line);
        let body = body.strip_suffix(b"\r").unwrap_or(body);
        // RocketMQ has no empty messages.
        if !body.is_empty() {
            let body = Bytes::copy_from_slice(body);
            for _ in 0..count {
                group_bytes += body.len();
                group.push(body.clone());
                let is_full = group.len() >= group_messages_max || group_bytes >= GROUP_BYTES_MAX;
                if is_full {
                    group_bytes = 0;
                    if !take(Ok(std::mem::take(&mut group))) {
                        return;
                    }
                }
            }
        }
        let may_wait = is_end || !input.buffer().contains(&b'\n');
        if may_wait && !group.is_empty() {
            group_bytes = 0;
            if !take(Ok(std::mem::take(&mut group))) {
                return;
            }
        }
        if is_end {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(input: &[u8], capacity: usize, count: u64, max: usize) -> Vec<Vec<Bytes>> {
        let mut reader = io::BufReader::with_capacity(capacity, input);
        let mut groups = Vec::new();
        read_lines(&mut reader, count, max, |group| {
            groups.push(group.expect("readable"));
            true
        });
        groups
    }

    #[test]
    fn every_line_that_is_not_empty_is_a_body() {
        assert_eq!(
            groups(b"one\n\ntwo\r\nthree", 1024, 1, 10),
            [vec!["one", "two"], vec!["three"]]
        );
        assert!(groups(b"", 1024, 1, 10).is_empty());
    }

    #[test]
    fn groups_are_bounded_and_what_is_there_is_not_kept_waiting() {
        assert_eq!(
            groups(b"1\n2\n3\n", 1024, 1, 2),
            [vec!["1", "2"], vec!["3"]]
        );
        // A buffer with one line has nothing to wait for.
        assert_eq!(groups(b"1\n2\n", 2, 1, 10), [vec!["1"], vec!["2"]]);
        assert_eq!(groups(b"1\n", 1024, 3, 2), [vec!["1", "1"], vec!["1"]]);
    }

    #[test]
    fn nothing_is_read_after_nobody_wants_it() {
        let mut reader = io::BufReader::with_capacity(4, &b"1\n2\n3\n4\n"[..]);
        let mut taken = 0;
        read_lines(&mut reader, 1, 1, |_| {
            taken += 1;
            taken < 2
        });
        assert_eq!(taken, 2);
    }
}
