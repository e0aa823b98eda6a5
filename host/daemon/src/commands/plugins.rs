//! `mqlet plugins`: the plugins of a running host and their revisions.

use clap::Args;

use crate::cli::{ControlArguments, GlobalArguments};
use crate::control::client::ControlClient;
use crate::control::plugin_answers::{PluginAnswer, PluginsAnswer};
use crate::exit::{self, Exit};
use crate::output::{Output, OutputFormat};
use crate::runtime;
use crate::table::Table;

/// List the plugins of a running host and their revisions
#[derive(Args, Debug)]
#[command(
    after_help = exit::HELP,
    long_about = "\
Lists the plugins of a running host: the revision that serves and its number, what is on its
way and how far it is, a canary and what it did so far, why the newest deployment does not
serve, and who has put something else in the place of the manifest. With a name it shows
that plugin's steps with their times, and the revisions that are kept for a rollback.

Examples:
  mqlet plugins
  mqlet plugins hello
  mqlet plugins --output json"
)]
pub(crate) struct PluginsArguments {
    /// Show only this plugin, with its revisions
    pub(crate) plugin: Option<String>,
    #[command(flatten)]
    pub(crate) control: ControlArguments,
}

/// See [`PluginsArguments`].
pub(crate) fn execute(
    global: &GlobalArguments,
    arguments: &PluginsArguments,
    output: &mut Output,
) -> anyhow::Result<Exit> {
    let client = ControlClient::new(arguments.control.socket(global)?);
    let answer: PluginsAnswer = runtime::block_on(1, client.get("/v1/plugins"))?;
    let mut plugins = answer.plugins;
    if let Some(name) = &arguments.plugin {
        plugins.retain(|plugin| plugin.plugin == *name);
        anyhow::ensure!(
            !plugins.is_empty(),
            "this host has no plugin \"{name}\"; mqlet plugins lists them"
        );
    }
    match output.format() {
        OutputFormat::Json => {
            for plugin in &plugins {
                output.result("", plugin)?;
            }
        }
        OutputFormat::Text if arguments.plugin.is_some() => {
            for plugin in &plugins {
                output.note(shown(plugin))?;
                output.note(revisions(plugin))?;
            }
        }
        OutputFormat::Text => {
            if plugins.is_empty() {
                output.note("no plugin")?;
            } else {
                output.note(table(&plugins))?;
            }
            for problem in &answer.problems {
                output.note(format_args!("a manifest changes nothing: {problem}"))?;
            }
        }
    }
    Ok(Exit::Done)
}

fn table(plugins: &[PluginAnswer]) -> Table {
    let mut table = Table::new(&[
        "PLUGIN", "TENANT", "STATE", "NUMBER", "REVISION", "CALLS", "NEXT", "NOTE",
    ]);
    for plugin in plugins {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let next = match (&plugin.canary, &plugin.step) {
            (_, Some(step)) => Some(step.clone()),
            (Some(canary), None) => Some(format!("canary {}", canary.revision)),
            (None, None) => None,
        };
        let pinned = plugin.pinned_by.as_ref();
        let note = match (&plugin.failure, pinned) {
            (Some(failure), _) => failure.lines().next().map(str::to_owned),
            (None, pinned) => pinned.map(|by| format!("not as its manifest says, by {by}")),
        };
        table.row(vec![
            plugin.plugin.clone(),
            plugin.tenant.clone(),
            plugin.state.clone(),
            or_none(plugin.number.map(|number| number.to_string())),
            or_none(plugin.revision.clone()),
            plugin.calls.to_string(),
            or_none(next),
            or_none(note),
        ]);
    }
    table
}

/// One plugin, in lines; also what the commands that change it print.
pub(super) fn shown(plugin: &PluginAnswer) -> String {
    let mut lines = vec![match (plugin.number, &plugin.revision) {
        (Some(number), Some(revision)) => format!(
            "plugin \"{}\" serves revision {number} ({revision})",
            plugin.plugin
        ),
        _ => format!("plugin \"{}\" is {}", plugin.plugin, plugin.state),
    }];
    if !plugin.steps.is_empty() {
        let steps = plugin.steps.iter();
        let steps: Vec<String> = steps
            .map(|step| format!("{} {:.1} ms", step.step, step.ms))
            .collect();
        lines.push(format!("steps: {}", steps.join(", ")));
    }
    if let Some(canary) = &plugin.canary {
        lines.push(format!(
            "canary: revision {} ({}): of {} messages it failed {}, {} of them by its own fault",
            canary.number.unwrap_or_default(),
            canary.revision,
            canary.sample,
            canary.failed,
            canary.worse
        ));
        let ms = |time: Option<f64>| time.map_or("-".to_owned(), |ms| format!("{ms:.2} ms"));
        lines.push(format!(
            "canary: {} dead letters that the other does not want, {} broken calls, p99 {} (the other: {})",
            canary.dead,
            canary.broken,
            ms(canary.p99_ms),
            ms(canary.p99_serving_ms)
        ));
    }
    if let Some(number) = plugin.shadow {
        lines.push(format!(
            "shadow: revision {number} gets copies; mqlet shadow {} shows what it found",
            plugin.plugin
        ));
    }
    if let Some(failure) = &plugin.failure {
        lines.push(format!("the newest deployment does not serve: {failure}"));
    }
    if let Some(by) = &plugin.pinned_by {
        lines.push(format!(
            "not as its manifest says, by {by}, until {} changes",
            plugin.manifest
        ));
    }
    lines.join("\n")
}

fn revisions(plugin: &PluginAnswer) -> Table {
    let mut table = Table::new(&["NUMBER", "REVISION", "COMPONENT", "BY", "STATE"]);
    for kept in &plugin.revisions {
        let state = match (&kept.refused, plugin.number == Some(kept.number)) {
            (_, true) => "serves".to_owned(),
            (Some(reason), false) => format!("refused: {reason}"),
            (None, false) if kept.warm => "warm".to_owned(),
            (None, false) => "kept".to_owned(),
        };
        table.row(vec![
            kept.number.to_string(),
            kept.revision.clone(),
            kept.component.chars().take(12).collect(),
            kept.by.clone(),
            state,
        ]);
    }
    table
}
