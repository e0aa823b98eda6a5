//! A folder with `mqlet.toml` and manifests, and the host that runs it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::host_process::HostProcess;
use crate::workspace;

/// What `mqlet run` is given. Hosts of all tests share compiled code.
#[derive(Debug)]
pub struct HostFolder {
    folder: TempDir,
}

impl HostFolder {
    /// One tenant at this name server, without plugins; `host` stands in `[host]`.
    ///
    /// # Panics
    /// When files cannot be written.
    pub fn new(namesrv_addr: &str, host: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir(folder.path().join("plugins")).expect("a folder of ours");
        let config = format!(
            "[host]\nstate_dir = \"state\"\n{host}\n[log]\nformat = \"json\"\n\n\
             [tenants.test]\nnamesrv_addr = [\"{namesrv_addr}\"]\nplugins = \"plugins\"\n"
        );
        fs::write(folder.path().join("mqlet.toml"), config).expect("a folder of ours");
        Self { folder }
    }

    /// Adds a plugin that consumes the topic of its name from its beginning; `more` are
    /// further tables of the manifest.
    ///
    /// # Panics
    /// When files cannot be written.
    #[must_use]
    pub fn with_plugin(self, name: &str, component: &Path, more: &str) -> Self {
        self.with_plugin_in("plugins", name, component, more)
    }

    /// Adds a plugin of another kind that consumes the topic of its name; `more` are
    /// further tables of its manifest.
    ///
    /// # Panics
    /// When files cannot be written.
    #[must_use]
    pub fn with_plugin_of_kind(self, kind: &str, name: &str, component: &Path, more: &str) -> Self {
        let head = match kind {
            "scheduled-pull" => "",
            _ => "consume_from_where = \"first_offset\"\n",
        };
        let manifest = format!(
            "name = {name:?}\ncomponent = {component:?}\nlistener = {kind:?}\n{head}\
             consumer_group = \"{name}-group\"\n[[subscription]]\ntopic = {name:?}\n{more}\n"
        );
        let file = self.folder.path().join(format!("plugins/{name}.toml"));
        fs::write(file, manifest).expect("a folder of ours");
        self
    }

    /// Adds a tenant at this name server; its plugins come with [`Self::with_plugin_of`].
    ///
    /// # Panics
    /// When files cannot be written.
    #[must_use]
    pub fn with_empty_tenant(self, name: &str, namesrv_addr: &str) -> Self {
        self.with_tenant_table(name, namesrv_addr, "")
    }

    /// Adds a plugin, as [`Self::with_plugin`] does, to another tenant.
    ///
    /// # Panics
    /// When files cannot be written.
    #[must_use]
    pub fn with_plugin_of(self, tenant: &str, name: &str, component: &Path, more: &str) -> Self {
        self.with_plugin_in(tenant, name, component, more)
    }

    fn with_plugin_in(self, folder: &str, name: &str, component: &Path, more: &str) -> Self {
        let manifest = format!(
            "name = {name:?}\ncomponent = {component:?}\nconsumer_group = \"{name}-group\"\n\
             consume_from_where = \"first_offset\"\n[[subscription]]\ntopic = {name:?}\n{more}\n"
        );
        let file = self.folder.path().join(format!("{folder}/{name}.toml"));
        fs::write(file, manifest).expect("a folder of ours");
        self
    }

    /// Adds a tenant at this name server with one plugin; both have this name, which is
    /// the plugin's topic too.
    ///
    /// # Panics
    /// When files cannot be written.
    #[must_use]
    pub fn with_tenant(self, name: &str, namesrv_addr: &str, component: &Path) -> Self {
        self.with_tenant_of(name, namesrv_addr, "", component, "")
    }

    /// The same; `keys` stand in the tenant's table, `more` are further tables of the
    /// manifest.
    ///
    /// # Panics
    /// When files cannot be written.
    #[must_use]
    pub fn with_tenant_of(
        self,
        name: &str,
        namesrv_addr: &str,
        keys: &str,
        component: &Path,
        more: &str,
    ) -> Self {
        self.with_tenant_table(name, namesrv_addr, keys)
            .with_plugin_in(name, name, component, more)
    }

    fn with_tenant_table(self, name: &str, namesrv_addr: &str, keys: &str) -> Self {
        let file = self.folder.path().join("mqlet.toml");
        let mut config = fs::read_to_string(&file).expect("written above");
        config.push_str(&format!(
            "[tenants.{name}]\nnamesrv_addr = [\"{namesrv_addr}\"]\nplugins = \"{name}\"\n{keys}\n"
        ));
        fs::write(file, config).expect("a folder of ours");
        fs::create_dir(self.folder.path().join(name)).expect("a folder of ours");
        self
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// `mqlet run` on it, with these further arguments.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn run(&self, arguments: &[&str]) -> HostProcess {
        HostProcess::spawn(
            Command::new(workspace::mqlet())
                .args(["run", "mqlet.toml"])
                .args(arguments)
                .env("XDG_CACHE_HOME", workspace::cache())
                .current_dir(self.path()),
        )
    }

    /// A command of `mqlet`, in this folder.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn mqlet(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(workspace::mqlet());
        command.args(arguments).current_dir(self.path());
        command.output().expect("mqlet starts")
    }

    /// What a command that succeeds prints.
    ///
    /// # Panics
    /// When it fails.
    pub fn printed(&self, arguments: &[&str]) -> String {
        let output = self.mqlet(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    /// What a command that fails says.
    ///
    /// # Panics
    /// When it succeeds.
    pub fn refused(&self, arguments: &[&str]) -> String {
        let output = self.mqlet(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
        String::from_utf8(output.stderr).expect("UTF-8")
    }
}
