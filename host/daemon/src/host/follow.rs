//! Follows the folders of manifests: a new manifest is served, a changed one deployed, one
//! that is gone drains and leaves. What is wrong with a file is said once, and changes
//! nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use plugin_lifecycle::manifest::folder;
use plugin_lifecycle::manifest::name::PluginName;
use plugin_lifecycle::{Manifest, Problem, Problems};
use tokio::task::JoinSet;
use tracing::{error, info, warn};

use super::{Host, desired};
use crate::watch::Watch;

/// Between two looks when nothing is told: a folder that was made anew is watched by
/// nobody, and some file systems tell nothing.
const LOOK_PAUSE: Duration = Duration::from_secs(10);
/// Who asked, in listings.
const BY_FILE: &str = "manifest";

/// `None` where nothing can be watched: then the folders are looked at now and then.
pub(super) fn watch(host: &Host) -> Option<Watch> {
    let mut watch = match Watch::new() {
        Ok(watch) => watch,
        Err(error) => {
            let seconds = LOOK_PAUSE.as_secs();
            warn!(target: "mqlet", "changes of manifests are noticed within {seconds} s, not at once: {error:#}");
            return None;
        }
    };
    for one in &host.tenants {
        add(&mut watch, one.folder().to_owned());
    }
    Some(watch)
}

fn add(watch: &mut Watch, path: PathBuf) {
    if let Err(error) = watch.add([path]) {
        warn!(target: "mqlet", "changes of a manifest or component are noticed late: {error:#}");
    }
}

/// For ever.
pub(super) async fn follow(host: &Arc<Host>, watch: &mut Option<Watch>) -> Infallible {
    let mut changes = JoinSet::new();
    for one in &host.tenants {
        let hosted: Vec<_> = one.plugins().values().map(Arc::clone).collect();
        for hosted in hosted {
            watch_component(watch, &hosted.manifest());
        }
    }
    loop {
        let changed = async {
            match watch {
                Some(watch) => watch.changed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = changed => {}
            () = host.look_again.notified() => {}
            () = tokio::time::sleep(LOOK_PAUSE) => {}
        }
        while changes.try_join_next().is_some() {}
        for number in 0..host.tenants.len() {
            look(host, number, watch, &mut changes).await;
        }
    }
}

async fn look(
    host: &Arc<Host>,
    number: usize,
    watch: &mut Option<Watch>,
    changes: &mut JoinSet<()>,
) {
    let one = &host.tenants[number];
    let path = one.folder().to_owned();
    let mut seen = std::mem::take(&mut *one.seen.lock().unwrap_or_else(PoisonError::into_inner));
    let looked = tokio::task::spawn_blocking(move || {
        let found = desired::look(&path, &mut seen);
        (found, seen)
    });
    let Ok((found, seen)) = looked.await else {
        return;
    };
    *one.seen.lock().unwrap_or_else(PoisonError::into_inner) = seen;
    let found = match found {
        Ok(found) => found,
        Err(problem) => {
            let reason = format!("{problem}; what serves, serves on");
            tell(host, number, vec![(one.folder().to_owned(), reason)], &[]);
            return;
        }
    };
    let mut problems = found.problems;
    let mut manifests = found.manifests;
    // Half of a file may well be a manifest; its end is told.
    let is_written = |path: &Path| {
        watch
            .as_ref()
            .is_some_and(|watch| watch.is_being_written(path))
    };
    let mut half: BTreeSet<PathBuf> = found.files.iter().cloned().collect();
    half.retain(|file| is_written(file));
    let incomplete = manifests.iter().filter(|(m, _)| {
        let file = m.component().file();
        file.is_some_and(is_written)
    });
    half.extend(incomplete.map(|(manifest, _)| manifest.file().to_owned()));
    problems.retain(|(file, _)| !half.contains(file));
    manifests.retain(|(manifest, _)| !half.contains(manifest.file()));
    // What serves already comes first: a newcomer gives way.
    manifests.sort_by_cached_key(|(manifest, _)| {
        let plugins = one.plugins();
        let hosted = plugins.get(manifest.name().as_str());
        hosted.is_none_or(|hosted| hosted.source() != manifest.file())
    });
    let mut taken = Taken::default();
    let mut wanted = Vec::new();
    for (manifest, fingerprint) in manifests {
        if let Some(conflict) = taken.conflict(&manifest) {
            problems.push((manifest.file().to_owned(), conflict.to_string()));
            continue;
        }
        taken.add(&manifest);
        wanted.push((manifest, fingerprint));
    }
    let mut stays: BTreeSet<PathBuf> = problems.iter().map(|(file, _)| file.clone()).collect();
    stays.extend(half.iter().cloned());
    let of_others = groups_of_others(host, number, &wanted, &stays);
    wanted.retain(|(manifest, _)| !of_others.iter().any(|(file, _)| file == manifest.file()));
    problems.extend(of_others);
    let mut broken: BTreeSet<PathBuf> = problems.iter().map(|(file, _)| file.clone()).collect();
    broken.extend(half);
    let names: BTreeSet<String> = wanted.iter().map(|(m, _)| m.name().to_string()).collect();
    one.forget_removed(|name| !names.contains(name));
    let hosted: Vec<_> = one.plugins().values().map(Arc::clone).collect();
    let gone: Vec<_> = hosted
        .into_iter()
        .filter(|hosted| !names.contains(hosted.name()))
        .filter(|hosted| !broken.contains(&hosted.source()))
        .collect();
    // An empty folder is a disk that is not there, more often than a wish.
    if found.files.is_empty() && !gone.is_empty() {
        let reason = format!(
            "{}: holds no manifest any more; its plugins serve on until there is one, or \"mqlet remove\" takes them away",
            one.folder().display()
        );
        tell(host, number, vec![(one.folder().to_owned(), reason)], &[]);
        return;
    }
    tell(host, number, problems, &found.files);
    for hosted in gone {
        if one.underway.leaves_out(hosted.name()) {
            continue;
        }
        let (host, change) = (Arc::clone(host), one.underway.begin(hosted.name()));
        changes.spawn(async move {
            let _change = change;
            info!(target: "mqlet", tenant = %hosted.tenant_name(), plugin = hosted.name(), "plugin \"{}\" has no manifest any more: it leaves its group", hosted.name());
            host.forget(number, &hosted, BY_FILE).await;
        });
    }
    for (manifest, fingerprint) in wanted {
        let name = manifest.name().clone();
        let known = one.plugins().get(name.as_str()).map(Arc::clone);
        let has_changed = match &known {
            Some(hosted) => hosted.is_new(&fingerprint) || hosted.wants_group(),
            None => !one.is_removed(name.as_str(), &fingerprint),
        };
        if !has_changed || one.underway.leaves_out(name.as_str()) {
            continue;
        }
        watch_component(watch, &manifest);
        let (host, change) = (Arc::clone(host), one.underway.begin(name.as_str()));
        changes.spawn(async move {
            let _change = change;
            let applied = match known {
                Some(hosted) if hosted.is_new(&fingerprint) => {
                    hosted.apply_file(manifest, &fingerprint, BY_FILE).await
                }
                Some(hosted) => hosted.group_again().await,
                None => host.begin(number, manifest).await.map(|_| ()),
            };
            let tenant = host.tenants[number].tenant.name();
            let serves = match host.plugin(name.as_str(), Some(&**tenant)) {
                Ok((_, hosted)) => hosted.serves(),
                Err(_) => false,
            };
            match applied {
                Ok(()) => host.set_state(number, &name, None),
                Err(error) => {
                    error!(target: "mqlet", %tenant, plugin = %name, "the manifest of plugin \"{name}\" changes nothing: {error:#}");
                    host.set_state(number, &name, (!serves).then_some(&error));
                }
            }
        });
    }
}

/// Of what is wanted, by file: groups that other tenants have, or that commands have put
/// plugins on, and names that a tenant cannot have. The plugins of files that `stays` names
/// keep their groups.
fn groups_of_others(
    host: &Host,
    number: usize,
    wanted: &[(Manifest, String)],
    stays: &BTreeSet<PathBuf>,
) -> Vec<(PathBuf, String)> {
    let one = &host.tenants[number];
    let fingerprints: BTreeMap<&str, &str> = wanted
        .iter()
        .map(|(manifest, fingerprint)| (manifest.name().as_str(), fingerprint.as_str()))
        .collect();
    let is_new = |name: &str, fingerprint: &str| {
        let plugins = one.plugins();
        let hosted = plugins.get(name);
        hosted.is_none_or(|hosted| hosted.is_new(fingerprint))
    };
    // What changes, or goes, gives its group away; between files that was looked at.
    let changing: BTreeSet<String> = {
        let plugins = one.plugins();
        let changing = plugins.values().filter(|hosted| {
            let fingerprint = fingerprints.get(hosted.name());
            match fingerprint {
                Some(fingerprint) => hosted.is_new(fingerprint),
                None => !stays.contains(&hosted.source()),
            }
        });
        changing.map(|hosted| hosted.name().to_owned()).collect()
    };
    let mut problems = Vec::new();
    for (manifest, fingerprint) in wanted {
        let name = manifest.name().as_str();
        if !is_new(name, fingerprint) || one.is_removed(name, fingerprint) {
            continue;
        }
        let found = host.group_problems(number, manifest, |of, other| {
            of == number && changing.contains(other)
        });
        if !found.is_empty() {
            problems.push((manifest.file().to_owned(), Problems(found).to_string()));
        }
    }
    problems
}

/// Names and groups of the manifests that were looked at so far: thousands of them are not
/// compared with each other.
#[derive(Default)]
struct Taken {
    by_name: BTreeMap<String, Manifest>,
    by_group: BTreeMap<String, PluginName>,
}

impl Taken {
    /// Why a manifest cannot stand beside them.
    fn conflict(&self, manifest: &Manifest) -> Option<Problem> {
        let by_name = self.by_name.get(manifest.name().as_str());
        let of_group = self.by_group.get(manifest.consumer_group());
        let by_group = of_group.and_then(|name| self.by_name.get(name.as_str()));
        let other = by_name.or(by_group)?;
        folder::conflicts(&[other.clone(), manifest.clone()]).pop()
    }

    fn add(&mut self, manifest: &Manifest) {
        let name = manifest.name().clone();
        self.by_name.insert(name.to_string(), manifest.clone());
        self.by_group
            .insert(manifest.consumer_group().to_owned(), name);
    }
}

/// Says what is new, and forgets what is mended.
fn tell(host: &Host, number: usize, problems: Vec<(PathBuf, String)>, files: &[PathBuf]) {
    let one = &host.tenants[number];
    let mut known = one.problems.lock().unwrap_or_else(PoisonError::into_inner);
    if !files.is_empty() {
        known.retain(|file, _| problems.iter().any(|(other, _)| other == file));
    }
    for (file, reason) in problems {
        if known.get(&file) != Some(&reason) {
            let tenant = one.tenant.name();
            error!(target: "mqlet", %tenant, "a manifest changes nothing: {reason}");
            known.insert(file, reason);
        }
    }
}

fn watch_component(watch: &mut Option<Watch>, manifest: &Manifest) {
    if let (Some(watch), Some(file)) = (watch, manifest.component().file()) {
        add(watch, file.to_owned());
    }
}
