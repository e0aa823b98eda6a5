//! One file a command: its flags, its help, what it does.
//!
//! A command takes its arguments and an [`Output`] for results. It makes its own tokio
//! runtime when it needs one, since the number of threads is a setting.

pub(crate) mod dev;

pub(crate) mod run;

pub(crate) mod check;

pub(crate) mod invoke;

pub(crate) mod broker;

pub(crate) mod send;

pub(crate) mod groups;

pub(crate) mod queues;

pub(crate) mod explain;

pub(crate) mod pause;

pub(crate) mod seek;

pub(crate) mod failures;
pub(crate) mod usage;

pub(crate) mod plugins;

pub(crate) mod deploy;

pub(crate) mod shadow;

pub(crate) mod history;

pub(crate) mod worker;

use crate::cli::{Cli, Command};
use crate::exit::Exit;
use crate::output::Output;

/// Runs what was asked for.
///
/// # Errors
/// What went wrong; `exit::report` turns it into an exit code.
pub(crate) fn execute(cli: Cli) -> anyhow::Result<Exit> {
    let global = cli.global;
    let mut output = Output::stdout(global.output);
    match cli.command {
        Command::Dev(arguments) => dev::execute(&global, arguments, &mut output),
        Command::Run(arguments) => run::execute(&global, &arguments, &mut output),
        Command::Check(arguments) => check::execute(&global, &arguments, &mut output),
        Command::Invoke(arguments) => invoke::execute(&global, &arguments, &mut output),
        Command::Broker(arguments) => broker::execute(&global, arguments, &mut output),
        Command::Send(arguments) => send::execute(&global, arguments, &mut output),
        Command::Groups(arguments) => groups::execute(&global, &arguments, &mut output),
        Command::Queues(arguments) => queues::execute(&global, &arguments, &mut output),
        Command::Explain(arguments) => explain::execute(&global, &arguments, &mut output),
        Command::Pause(arguments) => pause::pause(&global, &arguments, &mut output),
        Command::Drain(arguments) => pause::drain(&global, &arguments, &mut output),
        Command::Resume(arguments) => pause::resume(&global, &arguments, &mut output),
        Command::Seek(arguments) => seek::execute(&global, &arguments, &mut output),
        Command::Failures(arguments) => failures::execute(&global, &arguments, &mut output),
        Command::Usage(arguments) => usage::execute(&global, &arguments, &mut output),
        Command::Plugins(arguments) => plugins::execute(&global, &arguments, &mut output),
        Command::Deploy(arguments) => deploy::deploy(&global, &arguments, &mut output),
        Command::Shadow(arguments) => shadow::execute(&global, &arguments, &mut output),
        Command::Rollback(arguments) => deploy::rollback(&global, &arguments, &mut output),
        Command::Promote(arguments) => {
            deploy::change(&global, &arguments.plugin, "promote", &mut output)
        }
        Command::Abort(arguments) => {
            deploy::change(&global, &arguments.plugin, "abort", &mut output)
        }
        Command::Cancel(arguments) => {
            deploy::change(&global, &arguments.plugin, "cancel", &mut output)
        }
        Command::Remove(arguments) => deploy::remove(&global, &arguments, &mut output),
        Command::History(arguments) => history::execute(&global, &arguments, &mut output),
        Command::CompileWorker(arguments) => worker::compile(&arguments),
        Command::PluginWorker => worker::plugin(),
    }
}
