//! `mqlet explain`: why a queue, group or topic is as it is.

use std::fmt::Write as _;

use clap::Args;

use crate::cli::{ControlArguments, GlobalArguments};
use crate::control::answers::{ExplainAnswer, ExplainRequest};
use crate::control::client::ControlClient;
use crate::exit::{self, Exit};
use crate::output::Output;
use crate::runtime;

/// Say why a queue, group or topic of a running host is as it is
#[derive(Args, Debug)]
#[command(
    after_help = exit::HELP,
    long_about = "\
Says why a queue, group, topic or plugin of a running host is as it is: what it waits for,
what happens next by itself and when, and what can be done. Queues that are in order are
left out of a group's answer.

Examples:
  mqlet explain hello-group
  mqlet explain hello@broker-a:3      a queue is written topic@broker:id
  mqlet explain hello --output json"
)]
pub(crate) struct ExplainArguments {
    /// A queue (topic@broker:id), a consumer group, a plugin or a topic
    pub(crate) target: String,
    #[command(flatten)]
    pub(crate) control: ControlArguments,
}

/// See [`ExplainArguments`].
pub(crate) fn execute(
    global: &GlobalArguments,
    arguments: &ExplainArguments,
    output: &mut Output,
) -> anyhow::Result<Exit> {
    let client = ControlClient::new(arguments.control.socket(global)?);
    let request = ExplainRequest {
        target: arguments.target.clone(),
    };
    let asked = client.post("/v1/explain", &request);
    let answer: ExplainAnswer = runtime::block_on(1, asked)?;
    output.result(text(&answer), &answer)?;
    Ok(Exit::Done)
}

pub(super) fn text(answer: &ExplainAnswer) -> String {
    let mut text = String::new();
    for finding in &answer.findings {
        if !text.is_empty() {
            text.push('\n');
        }
        let about = finding.about.as_deref().unwrap_or("the whole group");
        let reason = &finding.reason;
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "group {} (tenant {}), {about}: {}\n  {}",
            finding.consumer_group, finding.tenant, reason.cause, reason.what
        );
        if !reason.next.is_empty() {
            let _ = write!(text, "\n  next: {}", reason.next);
        }
        if !reason.remedy.is_empty() {
            let _ = write!(text, "\n  do:   {}", reason.remedy);
        }
    }
    if answer.left_out > 0 {
        let _ = write!(
            text,
            "\nand {} more; mqlet queues lists them",
            answer.left_out
        );
    }
    text
}
