//! `mqlet run` and `mqlet send` as one tenant, however it reaches its cluster, with the
//! guest `ledger` as every plugin.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use end_to_end::host_process::HostProcess;
use end_to_end::workspace;

/// A tenant of a configuration file in a folder of its own.
#[derive(Debug)]
pub struct Tenant {
    folder: tempfile::TempDir,
}

/// One plugin.
#[derive(Clone, Copy, Debug)]
pub struct Plugin<'a> {
    /// The guest's component.
    pub component: &'a Path,
    /// `concurrent` or `orderly`.
    pub listener: &'a str,
    /// Its name is the group's.
    pub consumer_group: &'a str,
    /// The topic.
    pub topic: &'a str,
    /// Lines of the manifest's `[[subscription]]` behind the topic.
    pub subscription: &'a str,
    /// Lines of its `[consume]`.
    pub consume: &'a str,
}

impl<'a> Plugin<'a> {
    /// Everything of a topic.
    pub fn of(component: &'a Path, consumer_group: &'a str, topic: &'a str) -> Self {
        Self {
            component,
            listener: "concurrent",
            consumer_group,
            topic,
            subscription: "",
            consume: "",
        }
    }
}

impl Tenant {
    /// `connection` is what stands in `[tenants.test]`, and may go on with
    /// `[tenants.test.tls]`.
    ///
    /// # Panics
    /// When the files cannot be written.
    pub fn new(connection: &str, plugins: &[Plugin<'_>]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path();
        let config = format!(
            "[host]\ncache_dir = {cache:?}\nstate_dir = {state:?}\n\n[log]\nformat = \"json\"\n\n\
             [tenants.test]\nplugins = \"plugins\"\n{connection}\n",
            cache = path.join("cache"),
            state = path.join("state"),
        );
        fs::write(path.join("mqlet.toml"), config).expect("a folder of ours");
        fs::create_dir(path.join("plugins")).expect("a folder of ours");
        for plugin in plugins {
            let Plugin {
                component,
                listener,
                consumer_group,
                topic,
                subscription,
                consume,
            } = plugin;
            let manifest = format!(
                "name = {consumer_group:?}\ncomponent = {component:?}\n\
                 listener = {listener:?}\nconsumer_group = {consumer_group:?}\nconsume_from_where = \"first_offset\"\n\n\
                 [[subscription]]\ntopic = {topic:?}\n{subscription}\n\n[consume]\n{consume}\n\n\
                 [limits]\nlog_lines_per_second = 1000000\nlog_bytes_per_call = \"1MiB\"\n"
            );
            let file = path.join("plugins").join(format!("{consumer_group}.toml"));
            fs::write(file, manifest).expect("a folder of ours");
        }
        Self { folder }
    }

    /// The folder of the configuration file.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts the host.
    pub fn run(&self) -> HostProcess {
        HostProcess::spawn(
            Command::new(workspace::mqlet())
                .args(["run", "mqlet.toml"])
                .current_dir(self.folder.path()),
        )
    }

    /// Sends these bodies, a message each, with further arguments of `mqlet send`; the
    /// lines it wrote, and whether it succeeded.
    pub fn send(&self, topic: &str, bodies: &[String], arguments: &[&str]) -> (bool, Vec<String>) {
        let mut process = HostProcess::spawn(
            Command::new(workspace::mqlet())
                .args(["send", topic, "--tenant", "test"])
                .args(arguments)
                .current_dir(self.folder.path()),
        );
        process.write(&(bodies.join("\n") + "\n"));
        process.close_stdin();
        let status = process.wait(Duration::from_secs(120));
        (status.success(), process.lines())
    }
}
