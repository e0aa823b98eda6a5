//! `mqlet shadow`: what a plugin's shadow did otherwise.

use std::fmt::Write as _;

use clap::Args;

use crate::cli::{ControlArguments, GlobalArguments};
use crate::control::client::ControlClient;
use crate::control::shadow_answers::{ShadowAnswer, ShadowOf};
use crate::exit::{self, Exit};
use crate::output::{Output, OutputFormat};
use crate::printable;
use crate::runtime;

/// Show what the shadow of a plugin did otherwise than the revision that serves
#[derive(Args, Debug)]
#[command(
    after_help = exit::HELP,
    long_about = "\
Shows what the last shadow of a plugin (mqlet deploy --shadow) did otherwise than the
revision that serves: outcomes of messages, and messages sent, requests made and keys written
that are not the same, with the first twenty of them. What a shadow does outside is written
down and not done. The report is kept until the next shadow, or the end of the host.

Examples:
  mqlet shadow hello
  mqlet shadow hello --output json"
)]
pub(crate) struct ShadowArguments {
    /// The plugin
    pub(crate) plugin: String,
    /// Its tenant, when several have such a plugin
    #[arg(long, value_name = "TENANT")]
    pub(crate) tenant: Option<String>,
    #[command(flatten)]
    pub(crate) control: ControlArguments,
}

/// See [`ShadowArguments`].
pub(crate) fn execute(
    global: &GlobalArguments,
    arguments: &ShadowArguments,
    output: &mut Output,
) -> anyhow::Result<Exit> {
    let client = ControlClient::new(arguments.control.socket(global)?);
    let request = ShadowOf {
        plugin: arguments.plugin.clone(),
        tenant: arguments.tenant.clone(),
    };
    let shadow: ShadowAnswer = runtime::block_on(1, client.post("/v1/shadow", &request))?;
    match output.format() {
        OutputFormat::Json => output.result("", &shadow)?,
        OutputFormat::Text => output.note(text(&shadow))?,
    }
    Ok(Exit::Done)
}

fn text(shadow: &ShadowAnswer) -> String {
    let mut text = match (shadow.is_running, shadow.number) {
        (true, Some(number)) => format!(
            "plugin \"{}\": revision {number} gets copies",
            shadow.plugin
        ),
        (true, None) => format!("plugin \"{}\" has a shadow", shadow.plugin),
        (false, _) => format!("plugin \"{}\": its last shadow has ended", shadow.plugin),
    };
    // Writing to a string does not fail.
    let _ = write!(
        text,
        "\n{} requests copied, {} left out for want of room; {} compared, of {} messages\n\
         {} messages with another outcome, {} requests with other effects, {} effects not performed",
        shadow.copied,
        shadow.left_out,
        shadow.compared,
        shadow.messages,
        shadow.other_outcomes,
        shadow.other_effects,
        shadow.not_performed
    );
    for sample in &shadow.samples {
        let _ = write!(
            text,
            "\n  {} {} ({}): {}\n    serves: {}\n    shadow: {}",
            sample.queue,
            sample.queue_offset,
            printable::one_line(&sample.message_id),
            sample.kind,
            printable::one_line(&sample.serving),
            printable::one_line(&sample.shadow)
        );
    }
    text
}
