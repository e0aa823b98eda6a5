//! `mqlet run` with one tenant and the guest `ledger`, which writes down what it
//! consumed.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use end_to_end::host_process::HostProcess;
use end_to_end::workspace;

/// What a test may want to be different.
#[derive(Clone, Debug)]
pub struct HostSettings<'a> {
    /// The guest's component.
    pub component: &'a Path,
    /// Where the name server listens.
    pub namesrv_addr: &'a str,
    /// The group.
    pub consumer_group: &'a str,
    /// The topic.
    pub topic: &'a str,
    /// Lines for the manifest's `[consume]` table.
    pub consume: &'a str,
}

/// A group of a host with several plugins.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    /// Its name, and the plugin's.
    pub consumer_group: &'a str,
    /// Its topic.
    pub topic: &'a str,
    /// How it divides queues.
    pub strategy: &'a str,
}

/// Writes configuration and manifest into `folder` and starts `mqlet run` on them.
/// Hosts that share a folder share its compiled code.
///
/// # Panics
/// When the files cannot be written or the host does not start.
pub fn start(folder: &Path, settings: &HostSettings<'_>) -> HostProcess {
    let group = Group {
        consumer_group: settings.consumer_group,
        topic: settings.topic,
        strategy: "AVG",
    };
    write_manifest(
        folder,
        settings.component,
        &group,
        "ledger",
        settings.consume,
    );
    run(folder, settings.namesrv_addr)
}

/// The same with a plugin for each of these groups.
///
/// # Panics
/// As [`start`].
pub fn start_groups(
    folder: &Path,
    component: &Path,
    namesrv_addr: &str,
    groups: &[Group<'_>],
) -> HostProcess {
    for group in groups {
        write_manifest(folder, component, group, group.consumer_group, "");
    }
    run(folder, namesrv_addr)
}

fn write_manifest(folder: &Path, component: &Path, group: &Group<'_>, name: &str, consume: &str) {
    let plugins = folder.join("plugins");
    fs::create_dir_all(&plugins).expect("a folder of ours");
    let manifest = format!(
        "name = {name:?}\ncomponent = {component:?}\nconsumer_group = {group_name:?}\n\
         allocate_message_queue_strategy = {strategy:?}\n\
         consume_from_where = \"first_offset\"\n\n[[subscription]]\ntopic = {topic:?}\n\n\
         [consume]\n{consume}\n\n[limits]\nlog_lines_per_second = 1000000\n\
         log_bytes_per_call = \"1MiB\"\n",
        group_name = group.consumer_group,
        strategy = group.strategy,
        topic = group.topic,
    );
    fs::write(plugins.join(format!("{name}.toml")), manifest).expect("a folder of ours");
}

/// `mqlet run` on the manifests that stand in `plugins` of this folder.
///
/// # Panics
/// As [`start`].
pub fn run(folder: &Path, namesrv_addr: &str) -> HostProcess {
    let config = format!(
        "[host]\ncache_dir = {cache:?}\nstate_dir = {state:?}\n\n[log]\nformat = \"json\"\n\n\
         [tenants.test]\nnamesrv_addr = [{namesrv_addr:?}]\nplugins = \"plugins\"\n",
        cache = folder.join("cache"),
        state = folder.join("state"),
    );
    fs::write(folder.join("mqlet.toml"), config).expect("a folder of ours");
    HostProcess::spawn(
        Command::new(workspace::mqlet())
            .args(["run", "mqlet.toml"])
            .current_dir(folder),
    )
}

/// What a command of `mqlet` prints in the folder of a host.
///
/// # Panics
/// When it fails.
pub fn mqlet(folder: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(workspace::mqlet());
    let output = command.args(arguments).current_dir(folder).output();
    let output = output.unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).expect("mqlet prints UTF-8")
}

/// Sends these bodies, one message each, with `mqlet send`.
///
/// # Panics
/// When it fails.
pub fn send(namesrv_addr: &str, topic: &str, bodies: impl IntoIterator<Item = String>) {
    let mut process = HostProcess::spawn(Command::new(workspace::mqlet()).args([
        "send",
        topic,
        "--namesrv-addr",
        namesrv_addr,
    ]));
    let mut text = String::new();
    for body in bodies {
        text.push_str(&body);
        text.push('\n');
    }
    process.write(&text);
    process.close_stdin();
    let status = process.wait(Duration::from_secs(300));
    assert!(
        status.success(),
        "mqlet send ended with {status}: {:?}",
        process.lines()
    );
}
