//! `mqlet deploy` (also `swap`), `rollback`, `promote`, `abort`, `cancel` and `remove`:
//! what is made of a plugin of a running host.

use std::time::Duration;

use anyhow::Context as _;
use clap::Args;

use super::plugins::shown;
use crate::cli::{self, ControlArguments, GlobalArguments};
use crate::control::client::ControlClient;
use crate::control::plugin_answers::{
    CanaryRequest, ChangeRequest, DeployRequest, PluginAnswer, RollbackRequest, ShadowRequest,
};
use crate::exit::{self, Exit};
use crate::output::Output;
use crate::runtime;

/// Which plugin, and as what it is known to whoever asks.
#[derive(Args, Clone, Debug)]
pub(crate) struct PluginArguments {
    /// The plugin
    pub(crate) plugin: String,
    /// Its tenant, when several have such a plugin
    #[arg(long, value_name = "TENANT")]
    pub(crate) tenant: Option<String>,
    /// Only if this revision serves now (its number)
    #[arg(long, value_name = "NUMBER")]
    pub(crate) expect: Option<u64>,
    #[command(flatten)]
    pub(crate) control: ControlArguments,
}

/// Replace a plugin of a running host with another component or manifest
#[derive(Args, Debug)]
#[command(
    after_help = exit::HELP,
    long_about = "\
Makes a component (or another manifest of the same plugin) the revision that serves: it is
read, checked, compiled and warmed up while the old one serves on, and then takes the next
batch. No message is lost or repeated, and the group does not rebalance. Whatever fails
before that leaves the old revision untouched.

The old one stays warm for the rollback window: \"mqlet rollback\" brings it back at once,
and so does the host when calls of the new one keep failing.

What was deployed so serves until the plugin's manifest (or the component it names) changes.

With --canary the new revision first gets a share of the messages, by their keys (in order:
of the queues). What it fails is given to the old one at once. After --canary-time it is
promoted by itself if it had enough messages, and aborted as soon as it does worse than the
old one in the same time by more than --canary-failures, --canary-dead-letters,
--canary-broken or --canary-slower allow.

With --shadow the new revision gets copies of the requests (or of a share of them), beside
the old one and without holding it up. What it does outside is written down and not done;
mqlet shadow shows what it did otherwise. It ends after --shadow-time, or by mqlet abort;
mqlet promote loads it anew, to serve.

Examples:
  mqlet deploy hello target/hello-2.wasm
  mqlet deploy hello staging/hello/plugin.toml --expect 3
  mqlet deploy hello hello-2.wasm --canary 10% --canary-time 5m
  mqlet deploy hello hello-2.wasm --shadow
  mqlet deploy hello oci://ghcr.io/shop/hello:1.2
  mqlet deploy hello 'https://example.com/hello-2.wasm#sha256=…'"
)]
pub(crate) struct DeployArguments {
    #[command(flatten)]
    pub(crate) plugin: PluginArguments,
    /// A component (.wasm), a manifest (.toml), https://…#sha256=… or oci://…
    #[arg(value_name = "SOURCE")]
    pub(crate) source: String,
    /// Though it was taken back before
    #[arg(long)]
    pub(crate) again: bool,
    /// Try it first with this share of the messages
    #[arg(long, value_name = "SHARE", value_parser = per_mille)]
    pub(crate) canary: Option<u16>,
    /// How long it is tried
    #[arg(long, value_name = "TIME", value_parser = cli::duration, default_value = "1m", requires = "canary")]
    pub(crate) canary_time: Duration,
    /// Messages that it must have had before it is promoted by itself
    #[arg(long, value_name = "COUNT", default_value_t = 500, requires = "canary")]
    pub(crate) canary_sample: u64,
    /// Messages that it may fail and the old one finish
    #[arg(long, value_name = "SHARE", value_parser = per_mille, default_value = "0.5%", requires = "canary")]
    pub(crate) canary_failures: u16,
    /// Messages that it may want among the dead letters and the old one not
    #[arg(long, value_name = "SHARE", value_parser = per_mille, default_value = "0%", requires = "canary")]
    pub(crate) canary_dead_letters: u16,
    /// Calls that may trap, break a limit or run out of time, beyond those of the old one
    #[arg(long, value_name = "SHARE", value_parser = per_mille, default_value = "5%", requires = "canary")]
    pub(crate) canary_broken: u16,
    /// How much longer 99 of 100 messages may take than in the old one
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "100%", requires = "canary")]
    pub(crate) canary_slower: u32,
    /// Give it copies of the requests first, or of this share of them
    #[arg(long, value_name = "SHARE", value_parser = per_mille, num_args = 0..=1, require_equals = true, default_missing_value = "100%", conflicts_with = "canary")]
    pub(crate) shadow: Option<u16>,
    /// How long it gets them
    #[arg(long, value_name = "TIME", value_parser = cli::duration, default_value = "10m", requires = "shadow")]
    pub(crate) shadow_time: Duration,
}

/// Let an older revision of a plugin serve again
#[derive(Args, Debug)]
#[command(
    after_help = exit::HELP,
    long_about = "\
Lets the revision that served before serve again, or the one with the number of --to.
Within the rollback window it is still warm, and has the next batch; later it is loaded
from what the host keeps, without the file it came from. Only component, settings, limits
and grants go back, not the group's subscriptions.

It serves until the plugin's manifest (or the component it names) changes.

Examples:
  mqlet rollback hello
  mqlet rollback hello --to 3"
)]
pub(crate) struct RollbackArguments {
    #[command(flatten)]
    pub(crate) plugin: PluginArguments,
    /// Number of the revision, as mqlet plugins shows it
    #[arg(long, value_name = "NUMBER")]
    pub(crate) to: Option<u64>,
}

/// Give a plugin's canary all messages
#[derive(Args, Debug)]
#[command(
    after_help = exit::HELP,
    long_about = "\
Ends the trial of a canary: it serves from the next batch on. A shadow is loaded anew, since
what it was loaded with does nothing outside, and serves then.

Examples:
  mqlet promote hello"
)]
pub(crate) struct PromoteArguments {
    #[command(flatten)]
    pub(crate) plugin: PluginArguments,
}

/// Take a plugin's canary away
#[derive(Args, Debug)]
#[command(
    after_help = exit::HELP,
    long_about = "\
Ends the trial of a canary: the revision that serves has all messages again. No message
loses an attempt. A shadow gets no more copies.

Examples:
  mqlet abort hello"
)]
pub(crate) struct AbortArguments {
    #[command(flatten)]
    pub(crate) plugin: PluginArguments,
}

/// Give up a deployment that does not serve yet
#[derive(Args, Debug)]
#[command(
    after_help = exit::HELP,
    long_about = "\
Gives up what is on its way, whichever step it is in, a canary included. What serves, serves
on.

Examples:
  mqlet cancel hello"
)]
pub(crate) struct CancelArguments {
    #[command(flatten)]
    pub(crate) plugin: PluginArguments,
}

/// Take a plugin out of a running host
#[derive(Args, Debug)]
#[command(
    after_help = exit::HELP,
    long_about = "\
Lets a plugin finish what it has, leaves its group, and ends it. It stays away, over
restarts too, until its manifest (or the component it names) changes.

Examples:
  mqlet remove hello"
)]
pub(crate) struct RemoveArguments {
    #[command(flatten)]
    pub(crate) plugin: PluginArguments,
}

/// See [`DeployArguments`].
pub(crate) fn deploy(
    global: &GlobalArguments,
    arguments: &DeployArguments,
    output: &mut Output,
) -> anyhow::Result<Exit> {
    let path = absolute(&arguments.source)?;
    let of = &arguments.plugin;
    let request = DeployRequest {
        plugin: of.plugin.clone(),
        tenant: of.tenant.clone(),
        path: Some(path),
        manifest: None,
        expect: of.expect,
        again: arguments.again,
        shadow: arguments.shadow.map(|share_per_mille| ShadowRequest {
            share_per_mille,
            length_ms: millis(arguments.shadow_time),
        }),
        canary: arguments.canary.map(|share_per_mille| CanaryRequest {
            share_per_mille,
            length_ms: millis(arguments.canary_time),
            sample_min: arguments.canary_sample,
            worse_per_mille_max: arguments.canary_failures,
            dead_per_mille_max: Some(arguments.canary_dead_letters),
            broken_per_mille_max: Some(arguments.canary_broken),
            slower_percent_max: Some(arguments.canary_slower),
        }),
    };
    ask(global, of, "/v1/deploy", &request, output)
}

/// The host does not know where we are.
fn absolute(source: &str) -> anyhow::Result<String> {
    if source.contains("://") {
        return Ok(source.to_owned());
    }
    let path = std::path::absolute(source).with_context(|| format!("cannot use {source}"))?;
    Ok(path.display().to_string())
}

/// See [`RollbackArguments`].
pub(crate) fn rollback(
    global: &GlobalArguments,
    arguments: &RollbackArguments,
    output: &mut Output,
) -> anyhow::Result<Exit> {
    let of = &arguments.plugin;
    let request = RollbackRequest {
        plugin: of.plugin.clone(),
        tenant: of.tenant.clone(),
        to: arguments.to,
        expect: of.expect,
    };
    ask(global, of, "/v1/rollback", &request, output)
}

/// `promote`, `abort` or `cancel`.
pub(crate) fn change(
    global: &GlobalArguments,
    of: &PluginArguments,
    change: &str,
    output: &mut Output,
) -> anyhow::Result<Exit> {
    let request = change_request(of, Some(change));
    ask(global, of, "/v1/change", &request, output)
}

/// See [`RemoveArguments`].
pub(crate) fn remove(
    global: &GlobalArguments,
    arguments: &RemoveArguments,
    output: &mut Output,
) -> anyhow::Result<Exit> {
    let of = &arguments.plugin;
    let client = ControlClient::new(of.control.socket(global)?);
    let request = change_request(of, None);
    let asked = client.deploy("/v1/remove", &request);
    let plugin: PluginAnswer = runtime::block_on(1, asked)?;
    let text = format!(
        "removed plugin \"{}\" until {} changes",
        plugin.plugin, plugin.manifest
    );
    output.result(text, &plugin)?;
    Ok(Exit::Done)
}

fn change_request(of: &PluginArguments, change: Option<&str>) -> ChangeRequest {
    ChangeRequest {
        plugin: of.plugin.clone(),
        tenant: of.tenant.clone(),
        change: change.map(str::to_owned),
        expect: of.expect,
    }
}

fn ask(
    global: &GlobalArguments,
    of: &PluginArguments,
    path: &str,
    request: &impl serde::Serialize,
    output: &mut Output,
) -> anyhow::Result<Exit> {
    let client = ControlClient::new(of.control.socket(global)?);
    let plugin: PluginAnswer = runtime::block_on(1, client.deploy(path, request))?;
    output.result(shown(&plugin), &plugin)?;
    Ok(Exit::Done)
}

/// `10%` or `0.5%`, in thousandths.
fn per_mille(text: &str) -> Result<u16, String> {
    let wrong = || "write a share as 10% or 0.5%".to_owned();
    let number = text.strip_suffix('%').ok_or_else(wrong)?;
    let (whole, tenths) = number.split_once('.').unwrap_or((number, "0"));
    let whole: u16 = whole.parse().map_err(|_| wrong())?;
    let tenths: u16 = tenths.parse().map_err(|_| wrong())?;
    match (whole, tenths) {
        (0..=100, 0..=9) => Ok(whole * 10 + tenths),
        _ => Err(wrong()),
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// `100%`, or more.
fn percent(text: &str) -> Result<u32, String> {
    let number = text.strip_suffix('%').and_then(|text| text.parse().ok());
    number.ok_or_else(|| "write it as 100%".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_is_read_in_tenths_of_a_percent() {
        assert_eq!(per_mille("10%"), Ok(100));
        assert_eq!(per_mille("0.5%"), Ok(5));
        for wrong in ["10", "x%", "101%", "1.25%", "%", "-1%"] {
            assert!(per_mille(wrong).is_err(), "{wrong}");
        }
    }
}
