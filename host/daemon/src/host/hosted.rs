//! One plugin of a host: what is deployed, how its group consumes, and its book.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use consumer::SubscribeError;
use driver::DriverError;
use plugin_lifecycle::event::Step;
use plugin_lifecycle::{
    CanaryPlan, Change, Deploy, DeployError, DeployOutcome, Deployed, Digest, EventKind, Manifest,
    OnFetched, Plugin, RevisionId, ShadowPlan, preflight,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::{info, warn};

use super::Store;
use crate::app::Tenant;
use crate::control::Directory;
use crate::revisions::book::{Book, Kept, Pin};
use crate::revisions::changes::Changes;
use crate::revisions::components::HeldComponent;
use crate::revisions::now_ms;
use crate::revisions::shared_book::SharedBook;

/// What is left when its group was left: guests that shut down.
const END_TIMEOUT: Duration = Duration::from_secs(1);
/// A group that another plugin is leaving is waited for, so much longer than calls may take
/// to end.
const LEAVING_SLACK: Duration = Duration::from_secs(5);
/// Between two tries to join it.
const JOIN_PAUSE: Duration = Duration::from_millis(100);

/// Between two attempts to fetch what a manifest names; doubled after each.
const FETCH_AGAIN_FIRST: Duration = Duration::from_secs(10);
const FETCH_AGAIN_MAX: Duration = Duration::from_secs(600);

/// When the component of a manifest is to be fetched again.
#[derive(Clone, Copy, Debug)]
struct Again {
    at: tokio::time::Instant,
    pause: Duration,
}

/// Why a change that was asked for was not made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RefusedChange {
    /// There is no such plugin or revision.
    #[error("{0}")]
    Unknown(String),
    /// It is not as whoever asked believes.
    #[error("{0}")]
    Conflict(String),
    /// It was tried; what served before serves on.
    #[error("{0:#}")]
    Failed(#[from] anyhow::Error),
}

/// How a revision is deployed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DeployHow {
    /// Though it was taken back before.
    pub(crate) though_refused: bool,
    /// On trial first.
    pub(crate) canary: Option<CanaryPlan>,
    /// With copies first.
    pub(crate) shadow: Option<ShadowPlan>,
}

impl DeployHow {
    /// As it was asked for before, whatever became of it since.
    const AGAIN: Self = Self {
        though_refused: true,
        canary: None,
        shadow: None,
    };
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Hosted {
    tenant: Arc<Tenant>,
    plugin: Plugin,
    store: Store,
    directory: Directory,
    book: SharedBook,
    /// The manifest of its folder, by which it is known there whatever a command has
    /// deployed. Held for a look.
    source: Mutex<PathBuf>,
    /// Held for a look.
    applied: Mutex<Applied>,
    /// How the group consumes; `None`: it has not been joined. Held while it is changed,
    /// which has to wait for brokers, and by nobody who serves messages.
    group: tokio::sync::Mutex<Option<Manifest>>,
    /// The group could not be made what the manifest says.
    wants_group: AtomicBool,
    /// It leaves for good.
    leaves: AtomicBool,
    /// One change at a time of those that name the revision they expect.
    expecting: Arc<Semaphore>,
    /// A server that did not have what the manifest names may have it later.
    again: Mutex<Option<Again>>,
}

/// What was applied last, of the revision that serves.
#[derive(Debug)]
struct Applied {
    manifest: Manifest,
    /// `None`: nothing yet.
    revision: Option<RevisionId>,
}

/// What a deployment's book was told of it.
#[derive(Debug)]
enum Told {
    Nothing,
    Announced(RevisionId),
    /// Something newer took its place while its bytes were still on their way.
    Over,
}

impl Hosted {
    /// A plugin of this manifest that serves nothing yet; its book is opened.
    ///
    /// # Errors
    /// The task that opens it ended early.
    pub(super) async fn new(
        tenant: &Arc<Tenant>,
        manifest: &Manifest,
        store: Store,
        directory: &Directory,
    ) -> anyhow::Result<Arc<Self>> {
        let (of_tenant, name) = (Arc::clone(tenant.name()), manifest.name().to_string());
        let place = store.clone();
        let opened = tokio::task::spawn_blocking(move || {
            Book::open(&place.state_dir, &of_tenant, &name, &place.components)
        });
        let (book, damage) = opened.await.context("opening a book ended early")?;
        if let Some(damage) = damage {
            warn!(target: "mqlet", tenant = %tenant.name(), plugin = %manifest.name(), "revisions from before are forgotten: {damage:#}");
        }
        Ok(Arc::new(Self {
            plugin: tenant.start_plugin(manifest),
            tenant: Arc::clone(tenant),
            store,
            directory: directory.clone(),
            book: SharedBook::new(book),
            source: Mutex::new(manifest.file().to_owned()),
            applied: Mutex::new(Applied {
                manifest: manifest.clone(),
                revision: None,
            }),
            group: tokio::sync::Mutex::new(None),
            wants_group: AtomicBool::new(false),
            leaves: AtomicBool::new(false),
            expecting: Arc::new(Semaphore::new(1)),
            again: Mutex::default(),
        }))
    }

    pub(crate) fn name(&self) -> &str {
        self.plugin.name().as_str()
    }

    pub(crate) fn tenant_name(&self) -> &Arc<str> {
        self.tenant.name()
    }

    pub(crate) fn plugin(&self) -> &Plugin {
        &self.plugin
    }

    /// What was applied last.
    pub(crate) fn manifest(&self) -> Manifest {
        self.applied().manifest.clone()
    }

    /// The same, for a look.
    pub(super) fn with_manifest<T>(&self, look: impl FnOnce(&Manifest) -> T) -> T {
        look(&self.applied().manifest)
    }

    fn applied(&self) -> MutexGuard<'_, Applied> {
        self.applied.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its manifest in the folder.
    pub(crate) fn source(&self) -> PathBuf {
        let source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        source.clone()
    }

    fn set_source(&self, file: &Path) {
        let mut source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        file.clone_into(&mut source);
    }

    /// Not across a wait.
    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock()
    }

    /// Whether it has calls.
    pub(crate) fn serves(&self) -> bool {
        self.plugin.status().active.is_some()
    }

    pub(crate) fn number_of(&self, revision: RevisionId) -> Option<u64> {
        self.book().number_of(revision)
    }

    /// Its manifest or component is not what was looked at last, or could not be fetched
    /// and is to be tried again.
    pub(super) fn is_new(&self, fingerprint: &str) -> bool {
        let again = *self.again.lock().unwrap_or_else(PoisonError::into_inner);
        self.book().applied() != Some(fingerprint)
            || again.is_some_and(|again| again.at <= tokio::time::Instant::now())
    }

    /// What came of applying a manifest decides whether it is applied again by itself.
    fn note_fetch(&self, manifest: &Manifest, failure: Option<&anyhow::Error>) {
        let is_fetch = |error: &anyhow::Error| {
            let failed = error.downcast_ref::<DeployError>();
            matches!(
                failed,
                Some(DeployError::Failed {
                    step: Step::Fetch,
                    ..
                })
            )
        };
        let mut again = self.again.lock().unwrap_or_else(PoisonError::into_inner);
        *again = match failure {
            Some(error) if manifest.component().is_remote() && is_fetch(error) => {
                let before = again.map_or(FETCH_AGAIN_FIRST, |again| again.pause * 2);
                let pause = before.min(FETCH_AGAIN_MAX);
                Some(Again {
                    at: tokio::time::Instant::now() + pause,
                    pause,
                })
            }
            _ => None,
        };
    }

    /// The group could not be made what the manifest says: another try may do it.
    pub(super) fn wants_group(&self) -> bool {
        self.wants_group.load(Ordering::Acquire)
    }

    /// The try.
    pub(super) async fn group_again(&self) -> anyhow::Result<()> {
        self.regroup(&self.manifest()).await
    }

    /// A command has taken it away, and its manifest has not changed since.
    pub(super) fn is_removed(&self, fingerprint: &str) -> bool {
        let book = self.book();
        book.pin().is_some_and(|pin| pin.is_removed) && book.applied() == Some(fingerprint)
    }

    /// The number of what serves is this one, and no other change that names one is made
    /// while the permit is held: of two that expect the same, the second is refused.
    ///
    /// # Errors
    /// It is another one.
    pub(crate) async fn expect(
        &self,
        expected: Option<u64>,
    ) -> Result<Option<OwnedSemaphorePermit>, RefusedChange> {
        let Some(expected) = expected else {
            return Ok(None);
        };
        let permit = Arc::clone(&self.expecting).acquire_owned().await;
        let permit = permit.map_err(anyhow::Error::from)?;
        let active = self.plugin.status().active;
        let serving = active.and_then(|(_, revision)| self.number_of(revision));
        if serving == Some(expected) {
            return Ok(Some(permit));
        }
        let serving = serving.map_or("none".to_owned(), |number| number.to_string());
        Err(RefusedChange::Conflict(format!(
            "plugin \"{}\" serves revision {serving}, not {expected}: somebody was faster; look at mqlet plugins and ask again",
            self.name()
        )))
    }

    /// Begins to serve after a start: what the manifest says, unless a command has put
    /// something else in its place. When that does not work, what served before.
    pub(super) async fn begin(&self, manifest: Manifest, fingerprint: &str) -> anyhow::Result<()> {
        let (refused, serving, is_pinned) = {
            let book = self.book();
            let is_pinned = book.pin().is_some() && book.applied() == Some(fingerprint);
            (book.refused().to_vec(), book.serving().cloned(), is_pinned)
        };
        for one in refused {
            if let Ok(digest) = one.revision.parse::<Digest>() {
                let revision = RevisionId::of_digest(digest);
                self.plugin.refuse(revision, one.reason).await?;
            }
        }
        let kept = serving.map(|kept| (kept.number, self.runs(&manifest, &kept)));
        if is_pinned && let Some((number, Ok(kept))) = &kept {
            info!(target: "mqlet", plugin = self.name(), "plugin \"{}\" serves revision {number}, which a command has put in the place of its manifest", self.name());
            let by = "restart";
            self.apply(kept.clone(), by, DeployHow::AGAIN).await?;
            return Ok(());
        }
        // What came over a network once is here: a start needs no server, and a tag leads
        // where it led.
        let fetched = {
            let book = self.book();
            let fetched = book.fetched_for(&manifest).cloned();
            fetched.filter(|_| manifest.component().is_remote())
        };
        let manifest = match fetched.map(|fetched| self.runs(&manifest, &fetched)) {
            Some(Ok(kept)) => if_whole(kept, manifest).await?,
            Some(Err(_)) | None => manifest,
        };
        let Err(error) = self.apply_file(manifest, fingerprint, "start").await else {
            return Ok(());
        };
        if let Some(DeployError::Superseded | DeployError::Cancelled) = error.downcast_ref() {
            // A command came before it was loaded, and has the word.
            return Ok(());
        }
        let Some((number, Ok(kept))) = kept else {
            return Err(error);
        };
        warn!(target: "mqlet", tenant = %self.tenant_name(), plugin = self.name(), "plugin \"{}\" serves revision {number}, as before the start; its manifest does not work: {error:#}", self.name());
        let again = self.apply(kept, "restart", DeployHow::AGAIN).await;
        again.map(|_| ()).map_err(|_| error)
    }

    /// The manifest has changed: it has the word, whatever a command said before.
    ///
    /// # Errors
    /// It does not serve; what served before does.
    pub(super) async fn apply_file(
        &self,
        manifest: Manifest,
        fingerprint: &str,
        by: &str,
    ) -> anyhow::Result<()> {
        self.set_source(manifest.file());
        // Whatever comes of it: the same file is not tried again and again.
        self.book().set_applied(fingerprint);
        let applied = self.apply_or_promote(manifest.clone(), by).await;
        self.note_fetch(&manifest, applied.as_ref().err());
        if applied.is_ok() {
            self.book().set_pin(None);
        }
        self.save().await;
        applied
    }

    /// What the file says is to serve, also when a command has it on trial.
    async fn apply_or_promote(&self, manifest: Manifest, by: &str) -> anyhow::Result<()> {
        let deployed = self
            .apply(manifest.clone(), by, DeployHow::default())
            .await?;
        if deployed.outcome != DeployOutcome::OnTrial {
            return Ok(());
        }
        let is_promoted = self.plugin.change(Change::Promote, by.into()).await?;
        anyhow::ensure!(
            is_promoted,
            "its trial ended while it was to serve; save the manifest again"
        );
        self.settle(manifest, deployed.revision).await
    }

    /// A command puts a revision in the place of the manifest's.
    ///
    /// # Errors
    /// It does not serve; what served before does.
    pub(crate) async fn deploy(
        &self,
        manifest: Manifest,
        by: &str,
        how: DeployHow,
    ) -> Result<Deployed, RefusedChange> {
        let deployed = self.apply(manifest, by, how).await?;
        self.pin(by, false).await?;
        Ok(deployed)
    }

    /// An older revision serves again; without a number the one that served before.
    ///
    /// # Errors
    /// It is not kept, or does not work any more.
    pub(crate) async fn rollback(&self, to: Option<u64>, by: &str) -> Result<Kept, RefusedChange> {
        let kept = {
            let book = self.book();
            match to {
                Some(number) => book.numbered(number).cloned(),
                None => self.allowed_previous(&book)?,
            }
        };
        let kept = kept.ok_or_else(|| {
            RefusedChange::Unknown(match to {
                Some(number) => format!(
                    "revision {number} of plugin \"{}\" is not kept; mqlet plugins lists those that are",
                    self.name()
                ),
                None => format!("plugin \"{}\" has had no other revision", self.name()),
            })
        })?;
        let manifest = self.runs(&self.manifest(), &kept)?;
        let digest: Digest = kept.revision.parse().map_err(anyhow::Error::from)?;
        let revision = RevisionId::of_digest(digest);
        let warm = self.plugin.rollback(revision, by.into()).await;
        match warm.map_err(anyhow::Error::from)? {
            Some(_) => {
                *self.applied() = Applied {
                    manifest,
                    revision: Some(revision),
                };
            }
            None => {
                self.apply(manifest, by, DeployHow::AGAIN).await?;
            }
        }
        self.pin(by, false).await?;
        Ok(kept)
    }

    /// What served before, unless the host has taken that back.
    fn allowed_previous(&self, book: &Book) -> Result<Option<Kept>, RefusedChange> {
        let Some(previous) = book.previous() else {
            return Ok(None);
        };
        let mut refused = book.refused().iter();
        match refused.find(|refused| refused.revision == previous.revision) {
            None => Ok(Some(previous.clone())),
            Some(refused) => Err(RefusedChange::Conflict(format!(
                "the host took revision {} of plugin \"{}\" back already: {}; rollback --to {} brings it back for all the same",
                previous.number,
                self.name(),
                refused.reason,
                previous.number
            ))),
        }
    }

    /// Ends a trial, or gives up what is on its way.
    ///
    /// # Errors
    /// There is nothing like that.
    pub(crate) async fn change(&self, change: Change, by: &str) -> Result<(), RefusedChange> {
        if change == Change::Promote
            && let Some((_, shadow)) = self.plugin.status().shadow
        {
            // Loading is large beside all else that is waited for here.
            return Box::pin(self.promote_shadow(shadow, by)).await;
        }
        let nothing = match change {
            Change::Promote | Change::Abort => "has no canary and no shadow",
            Change::Cancel => "has nothing on its way",
        };
        let changed = self.plugin.change(change, by.into()).await;
        match changed.map_err(anyhow::Error::from)? {
            true => Ok(()),
            false => Err(RefusedChange::Conflict(format!(
                "plugin \"{}\" {nothing}",
                self.name()
            ))),
        }
    }

    /// What a shadow was loaded with does nothing outside: the same revision is loaded anew.
    async fn promote_shadow(&self, shadow: RevisionId, by: &str) -> Result<(), RefusedChange> {
        let kept = {
            let book = self.book();
            let number = book.number_of(shadow);
            number.and_then(|number| book.numbered(number)).cloned()
        };
        let kept = kept.ok_or_else(|| {
            RefusedChange::Unknown(format!("revision {shadow} is not kept; deploy it again"))
        })?;
        let manifest = self.runs(&self.manifest(), &kept)?;
        self.apply(manifest, by, DeployHow::AGAIN).await?;
        self.pin(by, false).await
    }

    pub(super) async fn pin_removed(&self, by: &str) -> Result<(), RefusedChange> {
        self.pin(by, true).await
    }

    /// Leaves the group for good: whatever is still under way joins it no more.
    pub(super) async fn leave_for_good(&self) {
        self.leaves.store(true, Ordering::Release);
        self.leave().await;
    }

    /// Leaves the group; what was fetched and is not finished, somebody else gets.
    async fn leave(&self) {
        let mut group = self.group.lock().await;
        if let Some(manifest) = group.take()
            && let Err(error) = self
                .tenant
                .driver()
                .unsubscribe(manifest.consumer_group())
                .await
        {
            warn!(target: "mqlet", plugin = self.name(), "plugin \"{}\" does not leave its group in order: {error}", self.name());
        }
    }

    /// No calls are left: its guests shut down.
    pub(super) async fn end(&self) {
        self.plugin
            .end(tokio::time::Instant::now() + END_TIMEOUT)
            .await;
    }

    /// Something has happened to its revisions: what a restart has to know stands in the
    /// book from here on, which is to be written when it is returned.
    pub(super) fn note(&self, happened: &EventKind) -> Option<SharedBook> {
        match happened {
            EventKind::Activated { revision, .. } => {
                self.book().set_serving(*revision);
                self.note_manifest(*revision);
            }
            // It has a number from here on.
            EventKind::CanaryStarted { revision, .. } => {
                self.book().keep(*revision);
            }
            EventKind::RolledBack {
                revision, reason, ..
            } => self.book().refuse(*revision, reason),
            EventKind::CanaryAborted { .. } => {
                let refused = self.plugin.status().refused;
                let mut book = self.book();
                for (revision, reason) in refused {
                    book.refuse(revision, &reason);
                }
            }
            _ => return None,
        }
        Some(self.book.clone())
    }

    /// What serves now, the next deployment of a component alone is like: also when it was
    /// a canary before, or came back by itself.
    fn note_manifest(&self, revision: RevisionId) {
        let kept = {
            let book = self.book();
            let kept = book.number_of(revision).and_then(|of| book.numbered(of));
            kept.cloned()
        };
        let mut applied = self.applied();
        if applied.revision != Some(revision)
            && let Some(kept) = kept
            && let Ok(manifest) = self.runs(&applied.manifest, &kept)
        {
            *applied = Applied {
                manifest,
                revision: Some(revision),
            };
        }
    }

    /// The manifest of a kept revision, with the group of that one.
    fn runs(&self, group: &Manifest, kept: &Kept) -> anyhow::Result<Manifest> {
        let revision = self.book().manifest_of(kept)?;
        anyhow::ensure!(
            revision.kind() == group.kind(),
            "revision {} is a plugin of kind {}, and the group has one of kind {}: deploy a manifest instead",
            kept.number,
            revision.kind().name(),
            group.kind().name()
        );
        let text = revision.text().to_owned();
        Ok(group.clone().with_revision_of(&revision).with_text(&text))
    }

    /// Deploys a manifest, and changes the group if that is another one.
    async fn apply(
        &self,
        manifest: Manifest,
        by: &str,
        how: DeployHow,
    ) -> anyhow::Result<Deployed> {
        let before = self.group.lock().await.clone();
        if (how.canary.is_some() || how.shadow.is_some())
            && let Some(now) = &before
        {
            // There is one group, and it may be the other revision's for ever.
            anyhow::ensure!(
                now.kind() == manifest.kind() && of_group(now) == of_group(&manifest),
                "its kind, [[subscription]], [consume] or another key of its group is not as it is now, and a canary or a shadow shares the group with what serves: deploy it without --canary or --shadow, or change the group first"
            );
        }
        // What the group has now is not for a listener of another kind.
        let leaves_first = before.as_ref().filter(|now| now.kind() != manifest.kind());
        if leaves_first.is_some() {
            self.leave().await;
        }
        let deployed = match self.load(&manifest, by, how, before.as_ref()).await {
            Ok(deployed) => deployed,
            Err(error) => {
                if let Some(before) = leaves_first {
                    self.regroup(before).await.context(error.to_string())?;
                }
                return Err(error);
            }
        };
        if deployed.outcome != DeployOutcome::OnTrial {
            self.settle(manifest, deployed.revision).await?;
        }
        Ok(deployed)
    }

    /// It serves: the next look compares with it, and the group is its.
    async fn settle(&self, manifest: Manifest, revision: RevisionId) -> anyhow::Result<()> {
        *self.applied() = Applied {
            manifest: manifest.clone(),
            revision: Some(revision),
        };
        self.regroup(&manifest).await
    }

    async fn load(
        &self,
        manifest: &Manifest,
        by: &str,
        how: DeployHow,
        group: Option<&Manifest>,
    ) -> anyhow::Result<Deployed> {
        let manifest = self.kept_already(manifest.clone()).await?;
        let told = Arc::new(Mutex::new(Told::Nothing));
        let threads = |manifest: &Manifest| manifest.group_config().consume_thread_max();
        // Its instances and its breaker are made by these, and they are no part of the
        // revision.
        let is_made_otherwise = group.is_some_and(|group| threads(group) != threads(&manifest))
            || self.with_manifest(|now| now.breaker() != manifest.breaker());
        let deploy = Deploy {
            though_refused: how.though_refused,
            canary: how.canary,
            shadow: how.shadow,
            anew: is_made_otherwise,
            is_of_another_kind: group.is_some_and(|group| group.kind() != manifest.kind()),
            on_fetched: Some(self.keeper(&manifest, by, how, &told)),
            ..Deploy::new(Arc::new(manifest), by)
        };
        let deployed = self.plugin.deploy_as(deploy).await;
        match &deployed {
            // What serves by it was noted when it happened.
            Ok(deployed) => {
                self.book().keep(deployed.revision);
            }
            Err(_) => {
                let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
                if let Told::Announced(revision) = std::mem::replace(&mut *told, Told::Over) {
                    self.book().give_up(revision);
                }
            }
        }
        self.save().await;
        Ok(deployed?)
    }

    /// Bytes that are pinned and kept are not fetched again.
    async fn kept_already(&self, manifest: Manifest) -> anyhow::Result<Manifest> {
        let Some(wanted) = manifest.sha256() else {
            return Ok(manifest);
        };
        if manifest.component_bytes_at().is_some() {
            return Ok(manifest);
        }
        let path = self.store.components.path(wanted);
        if_whole(manifest.clone().kept_at(path, wanted), manifest).await
    }

    /// Takes a copy of the component as soon as its bytes are known to be those that are
    /// wanted, and announces its revision: it may serve before anybody is told.
    fn keeper(
        &self,
        manifest: &Manifest,
        by: &str,
        how: DeployHow,
        told: &Arc<Mutex<Told>>,
    ) -> OnFetched {
        let components = self.store.components.clone();
        let (book, told) = (self.book.clone(), Arc::clone(told));
        let (manifest, by) = (manifest.clone(), by.to_owned());
        let tenant = Arc::clone(self.tenant_name());
        Arc::new(move |artifact, revision| {
            // Until it is announced.
            let _held = HeldComponent::new(&components, artifact.digest);
            if let Err(error) = components.put(artifact) {
                warn!(target: "mqlet", "a component is not kept: after a restart it is wanted from {} again: {error:#}", manifest.component());
            }
            let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
            if let Told::Over = *told {
                return;
            }
            *told = Told::Announced(revision);
            let mut book = book.lock();
            tell_changes(&book, &tenant, revision, &manifest, artifact.digest);
            if how.though_refused {
                book.allow(revision);
            }
            book.announce(revision, artifact.digest, &manifest, &by);
        })
    }

    /// The group consumes as this manifest says; when that cannot be, as before where that
    /// can be, and later looks try it again.
    async fn regroup(&self, manifest: &Manifest) -> anyhow::Result<()> {
        let mut group = self.group.lock().await;
        let regrouped = self.change_group(&mut group, manifest).await;
        self.wants_group
            .store(regrouped.is_err(), Ordering::Release);
        if let Some(now) = &*group {
            self.directory.put(&self.tenant, now);
        }
        regrouped
    }

    async fn change_group(
        &self,
        group: &mut Option<Manifest>,
        manifest: &Manifest,
    ) -> anyhow::Result<()> {
        let driver = self.tenant.driver();
        let Some(now) = group.clone() else {
            self.join(manifest).await?;
            *group = Some(manifest.clone());
            return Ok(());
        };
        if of_group(&now) == of_group(manifest) {
            return Ok(());
        }
        if only_filters_differ(&now, manifest) {
            let before = now.group_config();
            for subscription in manifest.group_config().subscriptions() {
                if !before.subscriptions().contains(subscription) {
                    info!(target: "mqlet", plugin = self.name(), topic = %subscription.topic, "plugin \"{}\": another filter for topic {}", self.name(), subscription.topic);
                    driver
                        .change_subscription(manifest.consumer_group(), subscription.clone())
                        .await?;
                }
            }
            *group = Some(manifest.clone());
            return Ok(());
        }
        info!(target: "mqlet", plugin = self.name(), "plugin \"{}\": its group consumes in another way, so it is left and joined again, which is a rebalance", self.name());
        match driver.unsubscribe(now.consumer_group()).await {
            Ok(_) | Err(DriverError::UnknownGroup { .. }) => *group = None,
            Err(error) => return Err(error).context("cannot leave the group"),
        }
        let joined = self.join(manifest).await;
        *group = match &joined {
            Ok(()) => Some(manifest.clone()),
            Err(_) if now.kind() != manifest.kind() => None,
            Err(_) => self.join(&now).await.is_ok().then_some(now),
        };
        joined
    }

    /// Waits while another plugin leaves the group.
    async fn join(&self, manifest: &Manifest) -> anyhow::Result<()> {
        let wait = self.tenant.drain_timeout() + LEAVING_SLACK;
        let deadline = tokio::time::Instant::now() + wait;
        loop {
            anyhow::ensure!(
                !self.leaves.load(Ordering::Acquire),
                "plugin \"{}\" was taken away meanwhile",
                self.name()
            );
            let joined = self.tenant.subscribe(
                manifest.group_config(),
                self.plugin.listener(),
                self.plugin.pull_task(),
            );
            match joined.await {
                Ok(()) => return Ok(()),
                Err(DriverError::Subscribe(SubscribeError::Duplicate { .. }))
                    if tokio::time::Instant::now() < deadline =>
                {
                    tokio::time::sleep(JOIN_PAUSE).await;
                }
                Err(error) => return Err(error).context("cannot join the group"),
            }
        }
    }

    async fn pin(&self, by: &str, is_removed: bool) -> Result<(), RefusedChange> {
        self.book().set_pin(Some(Pin {
            by: by.to_owned(),
            at_ms: now_ms(),
            is_removed,
        }));
        self.save().await;
        Ok(())
    }

    async fn save(&self) {
        self.book.save(self.tenant_name(), self.name()).await;
    }
}

/// The first, if its bytes are there, and those that are wanted.
async fn if_whole(kept: Manifest, otherwise: Manifest) -> anyhow::Result<Manifest> {
    let looked = tokio::task::spawn_blocking(move || match preflight::fetch(&kept) {
        Ok(_) => kept,
        Err(_) => otherwise,
    });
    looked.await.context("a look at a component ended early")
}

/// What would newly be reached, used and set, before it is.
fn tell_changes(book: &Book, tenant: &str, to: RevisionId, manifest: &Manifest, component: Digest) {
    let known = book.number_of(to);
    if let Some(Changes { revision, changes }) = Changes::against_serving(book, manifest, component)
        && known != Some(revision)
        && !changes.is_empty()
    {
        let (plugin, changes) = (manifest.name(), changes.join("; "));
        info!(target: "mqlet", tenant, %plugin, revision = %to, "plugin \"{plugin}\": what changes against revision {revision}: {changes}");
    }
}

/// All that a group's configuration says.
fn of_group(manifest: &Manifest) -> String {
    format!("{:?}", manifest.group_config())
}

/// The same topics, and everything else too.
fn only_filters_differ(one: &Manifest, other: &Manifest) -> bool {
    let split = |manifest: &Manifest| {
        let group = manifest.group_config();
        let subscriptions = format!("{:?}", group.subscriptions());
        let rest = format!("{group:?}").replacen(&subscriptions, "", 1);
        let topics = group.subscriptions().iter().map(|one| one.topic.clone());
        let mut topics: Vec<String> = topics.collect();
        topics.sort();
        (topics, rest)
    };
    split(one) == split(other)
}
