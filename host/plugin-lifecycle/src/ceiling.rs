//! `[tenants.NAME.grants]`: the most that the plugins of a tenant may be granted. A tenant
//! without this table has no ceiling; with it, what it does not name is granted to nobody.

mod places;

use wasm::{HostPattern, Network};

use crate::document::Section;
use crate::manifest::Manifest;
use crate::manifest::grants::{named, parsed};
use crate::manifest::secrets::SecretPlace;
use crate::problem::{Fault, Problem};
use places::{Folders, Variables};

/// What a tenant's plugins may be granted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ceiling {
    /// As it is called in what is said of it.
    table: String,
    topics: Vec<String>,
    hosts: Vec<HostPattern>,
    private: Vec<Network>,
    buckets: Vec<String>,
    config: bool,
    /// Those that a granted folder may be, or be in.
    folder: Folders,
    /// What secrets may be read from.
    secret_variables: Variables,
    secret_files: Folders,
}

impl Ceiling {
    /// Reads the table of this tenant; `None` when it is not there.
    pub fn read(tenant: &str, section: Section<'_, '_>) -> Option<Self> {
        if !section.is_present() {
            return None;
        }
        let secrets = section.section("secrets");
        let texts = |key, remedy| section.or(key, Vec::new(), |value| named(value, remedy));
        let ceiling = Self {
            table: format!("[tenants.{tenant}.grants]"),
            topics: texts("topics", "name topics that plugins may send to"),
            hosts: section.or("hosts", Vec::new(), |value| {
                let hosts = named(value, "name hosts that plugins may ask")?;
                parsed(
                    &hosts,
                    "write a name, *.NAME or an address, with :PORT if needed",
                )
            }),
            private: section.or("private", Vec::new(), |value| {
                let networks = named(value, "name networks that plugins may connect to")?;
                parsed(
                    &networks,
                    "write an address or a network, for example 10.1.0.0/16",
                )
            }),
            buckets: texts("buckets", "name buckets that plugins may open"),
            config: section.or("config", false, |value| value.boolean()),
            folder: Folders::read(&section, "folder"),
            secret_variables: Variables::read(&secrets, "env"),
            secret_files: Folders::read(&secrets, "files"),
        };
        secrets.refuse_unknown();
        section.refuse_unknown();
        Some(ceiling)
    }

    /// What a manifest is granted beyond it, each with its name. Follows links to where
    /// folders and files are; blocks.
    pub fn exceeded_by(&self, manifest: &Manifest) -> Vec<Problem> {
        let grants = manifest.grants();
        let mut beyond: Vec<(&str, &str, String)> = Vec::new();
        let mut add = |key, of_ceiling, name: String| beyond.push((key, of_ceiling, name));
        if let Some(producer) = &grants.producer {
            let topics = producer.topics.iter();
            for topic in topics.filter(|topic| !self.topics.contains(topic)) {
                add("grants.producer.topics", "topics", format!("\"{topic}\""));
            }
        }
        if let Some(http) = &grants.http {
            for host in &http.hosts {
                if !self.hosts.iter().any(|wide| wide.covers(host)) {
                    add("grants.http.hosts", "hosts", format!("\"{host}\""));
                }
            }
            for network in &http.private {
                if !self.private.iter().any(|wide| wide.covers(network)) {
                    add("grants.http.private", "private", format!("\"{network}\""));
                }
            }
        }
        let buckets = grants.buckets.iter();
        for bucket in buckets.filter(|bucket| !self.buckets.contains(bucket)) {
            add(
                "grants.keyvalue.buckets",
                "buckets",
                format!("\"{bucket}\""),
            );
        }
        if grants.config && !self.config {
            add("grants.config", "config", "true".to_owned());
        }
        let folder = grants.folder.as_ref();
        if let Some(folder) = folder.filter(|folder| !self.folder.contain(folder)) {
            add(
                "grants.folder",
                "folder",
                format!("\"{}\"", folder.display()),
            );
        }
        let mut problems: Vec<_> = beyond
            .into_iter()
            .map(|(key, of_ceiling, name)| {
                manifest.grants_problem(key, &name, self.fault("is", of_ceiling))
            })
            .collect();
        problems.extend(self.secrets_beyond(manifest));
        problems
    }

    fn secrets_beyond(&self, manifest: &Manifest) -> impl Iterator<Item = Problem> {
        manifest.secrets().iter().filter_map(move |(name, place)| {
            let (is_within, what, of_ceiling) = match place {
                SecretPlace::Variable(variable) => (
                    self.secret_variables.contain(variable),
                    format!("is in the environment variable {variable}, which is"),
                    "secrets.env",
                ),
                SecretPlace::File(file) => (
                    self.secret_files.contain(file),
                    format!("is in {}, which is", file.display()),
                    "secrets.files",
                ),
            };
            let problem = || manifest.secret_problem(name, self.fault(&what, of_ceiling));
            (!is_within).then(problem)
        })
    }

    fn fault(&self, what: &str, of_ceiling: &str) -> Fault {
        let table = &self.table;
        Fault::new(
            format!("{what} more than its tenant may have: {table} {of_ceiling} does not allow it"),
            format!("remove it, or have it added to {of_ceiling} of {table}"),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::document::Document;

    fn ceiling(text: &str) -> Option<Ceiling> {
        let text = format!("[tenants.shop]\n{text}");
        let document = Document::parse(Path::new("mqlet.toml"), &text, Vec::new()).unwrap();
        let tenants = document.root().section("tenants").sections();
        let (name, tenant) = tenants.into_iter().next().unwrap();
        let ceiling = Ceiling::read(&name, tenant.section("grants"));
        assert_eq!(document.into_problems(), []);
        ceiling
    }

    fn exceeded(ceiling: &Ceiling, grants: &str) -> Vec<String> {
        let text = format!(
            "name = \"a\"\ncomponent = \"a.wasm\"\nconsumer_group = \"g\"\n\
             [[subscription]]\ntopic = \"t\"\n[grants]\n{grants}"
        );
        let manifest = Manifest::parse(Path::new("plugin.toml"), &text).expect("valid");
        let problems = ceiling.exceeded_by(&manifest);
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn tenant_without_the_table_has_no_ceiling() {
        assert_eq!(ceiling(""), None);
    }

    #[test]
    fn what_is_beyond_is_named_on_both_sides() {
        let ceiling = ceiling(
            "[tenants.shop.grants]\ntopics = [\"out\"]\nhosts = [\"*.example.org\"]\n\
             private = [\"10.0.0.0/8\"]\nsecrets = { env = [\"SHOP_*\"] }\n",
        )
        .unwrap();
        let within = "producer = { topics = [\"out\"] }\n\
             http = { hosts = [\"api.example.org\"], private = [\"10.1.0.0/16\"] }\n";
        assert_eq!(exceeded(&ceiling, within), [""; 0]);
        let beyond = "producer = { topics = [\"out\", \"money\"] }\n\
             http = { hosts = [\"example.com\"], private = [\"127.0.0.1\"] }\n\
             keyvalue = { buckets = [\"b\"] }\nconfig = true\nfolder = \"/etc\"\n\
             [secrets]\na = { env = \"SHOP_KEY\" }\nb = { env = \"BANK_KEY\" }\n\
             c = { file = \"/etc/shadow\" }\n";
        let problems = exceeded(&ceiling, beyond);
        assert_eq!(problems.len(), 8, "{problems:?}");
        let contains = |at: usize, text: &str| {
            assert!(problems[at].contains(text), "{}", problems[at]);
        };
        contains(
            5,
            "grants.folder = \"/etc\": is more than its tenant may have",
        );
        contains(
            6,
            "secrets.b: is in the environment variable BANK_KEY, which is more than",
        );
        contains(
            7,
            "secrets.c: is in /etc/shadow, which is more than its tenant may have",
        );
        assert_eq!(
            problems[0],
            "plugin.toml:6: grants.producer.topics = \"money\": is more than its tenant may have: \
             [tenants.shop.grants] topics does not allow it; remove it, or have it added to topics \
             of [tenants.shop.grants]"
        );
    }
}
