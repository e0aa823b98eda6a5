//! `mqlet seek`: a queue of a running host goes on somewhere else.

use std::borrow::Cow;
use std::time::UNIX_EPOCH;

use clap::{ArgGroup, Args};

use crate::cli::{ControlArguments, GlobalArguments};
use crate::control::answers::{SeekAnswer, SeekPlace, SeekRequest};
use crate::control::client::ControlClient;
use crate::exit::{self, Exit};
use crate::output::Output;
use crate::runtime;

/// Let a queue of a running host go on somewhere else
#[derive(Args, Debug)]
#[command(
    after_help = exit::HELP,
    group = ArgGroup::new("place").required(true),
    long_about = "\
Lets one queue of a group go on at another offset. The new offset is stored at the broker
before anything is pulled from there; what was fetched is dropped, and calls under way
commit nothing. A pause stays in force.

What would pass over messages that were not consumed is refused and counted; --yes does it.
The answer says from where to where, and how to go back.

The queue must be held by this host (\"mqlet queues\" says who has it). In a broadcasting
group it moves for this host alone. In a group of pull tasks it moves the offset that the
next run is given; a plugin that keeps offsets of its own does not look at it. To move a
whole group or topic use RocketMQ's \"mqadmin resetOffsetByTime\", which a running host
obeys.

Examples:
  mqlet seek hello-group hello@broker-a:3 --offset 120
  mqlet seek hello-group hello@broker-a:3 --timestamp 2026-11-30T08:00:00Z
  mqlet seek hello-group hello@broker-a:3 --min
  mqlet seek hello-group hello@broker-a:3 --max --yes"
)]
pub(crate) struct SeekArguments {
    /// The consumer group
    pub(crate) group: String,
    /// The queue, written topic@broker:id
    pub(crate) queue: String,
    /// Go on at this offset
    #[arg(long, value_name = "OFFSET", group = "place")]
    pub(crate) offset: Option<u64>,
    /// Go on at the oldest message
    #[arg(long, group = "place")]
    pub(crate) min: bool,
    /// Go on at the end
    #[arg(long, group = "place")]
    pub(crate) max: bool,
    /// Go on at the first message stored at this time or later
    #[arg(long, value_name = "TIME", value_parser = timestamp, group = "place")]
    pub(crate) timestamp: Option<u64>,
    /// Pass over messages that were not consumed
    #[arg(long)]
    pub(crate) yes: bool,
    /// The group's tenant, when several have such a group
    #[arg(long, value_name = "TENANT")]
    pub(crate) tenant: Option<String>,
    #[command(flatten)]
    pub(crate) control: ControlArguments,
}

/// See [`SeekArguments`].
pub(crate) fn execute(
    global: &GlobalArguments,
    arguments: &SeekArguments,
    output: &mut Output,
) -> anyhow::Result<Exit> {
    let client = ControlClient::new(arguments.control.socket(global)?);
    let to = match (arguments.offset, arguments.timestamp, arguments.min) {
        (Some(offset), ..) => SeekPlace::Offset(offset),
        (_, Some(timestamp_ms), _) => SeekPlace::TimestampMs(timestamp_ms),
        (_, _, true) => SeekPlace::MinOffset,
        // One of the four is there.
        (_, _, false) => SeekPlace::MaxOffset,
    };
    let request = SeekRequest {
        consumer_group: arguments.group.clone(),
        tenant: arguments.tenant.clone(),
        queue: arguments.queue.clone(),
        to,
        skip: arguments.yes,
    };
    let answer: SeekAnswer = runtime::block_on(1, client.post("/v1/seek", &request))?;
    output.result(text(arguments, &answer), &answer)?;
    Ok(Exit::Done)
}

fn text(arguments: &SeekArguments, answer: &SeekAnswer) -> String {
    let SeekAnswer {
        consumer_group: group,
        queue,
        to,
        skipped,
        again,
        ..
    } = answer;
    let Some(from) = answer.from else {
        return format!("queue {queue} of group {group} begins at {to}");
    };
    let counted = match (skipped, again) {
        (0, 0) => "as before; what was fetched is fetched again".to_owned(),
        (0, 1) => "1 message comes again".to_owned(),
        (0, _) => format!("{again} messages come again"),
        (1, _) => "1 message is skipped".to_owned(),
        _ => format!("{skipped} messages are skipped"),
    };
    let back = match from == *to {
        true => String::new(),
        false => {
            let mut back = format!(
                "\nback: mqlet seek {} {} --offset {from}",
                quoted(group),
                quoted(queue)
            );
            if from > *to {
                back.push_str(" --yes");
            }
            let ControlArguments { socket, config } = &arguments.control;
            for (flag, value) in [
                ("tenant", arguments.tenant.as_deref().map(Cow::Borrowed)),
                ("socket", socket.as_ref().map(|path| path.to_string_lossy())),
                ("config", config.as_ref().map(|path| path.to_string_lossy())),
            ] {
                if let Some(value) = value {
                    back.push_str(&format!(" --{flag} {}", quoted(&value)));
                }
            }
            back
        }
    };
    format!("queue {queue} of group {group} goes on at {to}, from {from}: {counted}{back}")
}

/// As a shell takes it for one word.
fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "%+,-./:=@_".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return Cow::Borrowed(word);
    }
    Cow::Owned(format!("'{}'", word.replace('\'', r"'\''")))
}

/// Unix milliseconds of a time as manifests have it.
fn timestamp(text: &str) -> Result<u64, String> {
    let time = humantime::parse_rfc3339(text)
        .map_err(|error| format!("{error}; write it as 2026-11-30T08:00:00Z"))?;
    let since = time
        .duration_since(UNIX_EPOCH)
        .map_err(|_| "it is before 1970".to_owned())?;
    u64::try_from(since.as_millis()).map_err(|_| "it is too late".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        seek: SeekArguments,
    }

    fn told(flags: &[&str], from: Option<u64>, to: u64) -> String {
        let line = [&["seek", "G", "T@b:0", "--min"], flags].concat();
        let arguments = Line::try_parse_from(line).expect("a command line").seek;
        let at = from.unwrap_or(to);
        let answer = SeekAnswer {
            tenant: "shop".to_owned(),
            consumer_group: "G".to_owned(),
            queue: "T@b:0".to_owned(),
            from,
            to,
            skipped: to.saturating_sub(at),
            again: at.saturating_sub(to),
        };
        text(&arguments, &answer)
    }

    #[test]
    fn way_back_reaches_the_same_host_and_tenant() {
        let back = |flags: &[&str]| {
            let text = told(flags, Some(120), 4);
            let (_, back) = text.split_once("back: ").expect("a way back");
            back.to_owned()
        };
        assert_eq!(
            back(&["--tenant", "shop", "--socket", "/run/mqlet/control.sock"]),
            "mqlet seek G T@b:0 --offset 120 --yes --tenant shop --socket /run/mqlet/control.sock"
        );
        assert_eq!(
            back(&["--config", "it's mine/mqlet.toml"]),
            r"mqlet seek G T@b:0 --offset 120 --yes --config 'it'\''s mine/mqlet.toml'"
        );
        assert_eq!(quoted("a|b"), "'a|b'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn answer_says_what_it_costs_and_how_to_go_back() {
        let answer = |from: Option<u64>, to: u64| told(&[], from, to);
        expect_test::expect![[r"
            queue T@b:0 of group G goes on at 4, from 120: 116 messages come again
            back: mqlet seek G T@b:0 --offset 120 --yes"]]
        .assert_eq(&answer(Some(120), 4));
        expect_test::expect![[r"
            queue T@b:0 of group G goes on at 5, from 4: 1 message is skipped
            back: mqlet seek G T@b:0 --offset 4"]]
        .assert_eq(&answer(Some(4), 5));
        expect_test::expect![[
            "queue T@b:0 of group G goes on at 4, from 4: as before; what was fetched is fetched again"
        ]]
        .assert_eq(&answer(Some(4), 4));
        assert_eq!(answer(None, 4), "queue T@b:0 of group G begins at 4");
    }

    #[test]
    fn time_is_read_as_manifests_have_it() {
        assert_eq!(timestamp("1970-01-01T00:00:01Z"), Ok(1_000));
        for text in ["yesterday", "2026-11-30", "1790000000000"] {
            let error = timestamp(text).expect_err("no time");
            assert!(
                error.contains("write it as 2026-11-30T08:00:00Z"),
                "{error}"
            );
        }
    }
}
