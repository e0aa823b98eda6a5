//! What each step of a deployment does, from the manifest to a warm listener.

use std::sync::Arc;

use consumer::publish::MessageProducer;
use tokio::sync::OwnedSemaphorePermit;
use wasm::{
    Artefact, CheckedComponent, ComponentListener, HttpTap, IsHeld, KeyValueStore, ListenerKind,
    LoadError, PluginConfig,
};

use crate::artifact::Artifact;
use crate::breaker::BreakerEvent;
use crate::breaker::watch::WatchedBreaker;
use crate::compile_cache::{CacheKey, CacheMiss};
use crate::event::{EventKind, Step};
use crate::manifest::Manifest;
use crate::preflight;
use crate::problem::{Problem, Problems};
use crate::revision::RevisionId;
use crate::runner::{OnFetched, RunnerConfig, tell};
use crate::shadow::ports::{self, Doing};
use crate::signature::SignatureMode;
use crate::source::{Fetched, beside_file};

/// What a step brought.
pub(super) enum Loaded {
    Fetched {
        artifact: Artifact,
        revision: RevisionId,
        permit: OwnedSemaphorePermit,
    },
    Verified,
    Checked {
        component: CheckedComponent,
        listener: ListenerKind,
    },
    Compiled(Compiled),
    WarmedUp(ComponentListener, Arc<WatchedBreaker>),
}

/// What a step needs beside what the one before brought.
pub(super) struct Loading {
    pub(super) manifest: Arc<Manifest>,
    /// Hears of the bytes.
    pub(super) on_fetched: Option<OnFetched>,
    /// Whether what it does outside is done.
    pub(super) doing: Doing,
    /// Hears what happens in the calls of this deployment.
    pub(super) wasm_observer: wasm::Observer,
    /// Hears that its breaker tripped.
    pub(super) trouble: Box<dyn Fn(String) + Send + Sync>,
}

/// Code, and whether the engine made it just now.
#[derive(Clone)]
pub(super) struct Compiled {
    code: Artefact,
    key: CacheKey,
    is_cached: bool,
}

/// What a plugin reaches the outside by.
struct Ports {
    producer: Arc<dyn MessageProducer>,
    key_value: Option<Arc<dyn KeyValueStore>>,
    http: Arc<dyn HttpTap>,
}

impl Ports {
    fn new(doing: Doing, config: &RunnerConfig) -> Self {
        let key_value = config.reach.key_value.clone();
        Self {
            producer: ports::producer(doing, Arc::clone(&config.producer)),
            key_value: key_value.map(|real| ports::store(doing, real)),
            http: ports::http(doing),
        }
    }
}

/// What the steps before brought, for the next one.
#[derive(Clone, Default)]
pub(super) struct Material {
    pub(super) artifact: Option<Artifact>,
    pub(super) revision: Option<RevisionId>,
    pub(super) component: Option<CheckedComponent>,
    pub(super) listener: Option<ListenerKind>,
    pub(super) compiled: Option<Compiled>,
}

/// Performs a step. The error is all problems, one a line.
pub(super) async fn perform(
    step: Step,
    loading: Loading,
    material: Material,
    config: &RunnerConfig,
) -> Result<Loaded, String> {
    let Loading {
        manifest,
        on_fetched,
        doing,
        wasm_observer,
        trouble,
    } = loading;
    match step {
        Step::Fetch => fetch(manifest, on_fetched, config).await,
        Step::Verify => verify(&manifest, wanted(material.artifact)?, config).await,
        Step::Check => check(manifest, wanted(material.artifact)?, doing, config).await,
        Step::Compile => {
            let revision = wanted(material.artifact)?.digest;
            let component = wanted(material.component)?;
            let key = cache_key(config, revision);
            let compiled = compile(&manifest, &component, key, config).await?;
            Ok(Loaded::Compiled(compiled))
        }
        Step::WarmUp => {
            let ports = Ports::new(doing, config);
            warm_up(&manifest, material, wasm_observer, trouble, ports, config).await
        }
    }
}

async fn fetch(
    manifest: Arc<Manifest>,
    on_fetched: Option<OnFetched>,
    config: &RunnerConfig,
) -> Result<Loaded, String> {
    let with_signatures = config.signatures.mode() != SignatureMode::None;
    // A slow server keeps nobody else from loading: its bytes have a bound of their own.
    let fetched = match manifest.component_bytes_at() {
        Some(_) => None,
        None => Some(bring(&manifest, with_signatures, config).await?),
    };
    let permit = Arc::clone(&config.loads)
        .acquire_owned()
        .await
        .map_err(|_| "the host is stopping".to_owned())?;
    blocking(move || {
        let artifact = match (fetched, manifest.component_bytes_at()) {
            (Some(fetched), _) => fetched.artifact,
            (None, Some(path)) if with_signatures => Artifact {
                provenance: beside_file(path),
                ..preflight::fetch(&manifest).map_err(lines)?
            },
            (None, _) => preflight::fetch(&manifest).map_err(lines)?,
        };
        let revision = RevisionId::new(artifact.digest, &manifest);
        if let Some(on_fetched) = on_fetched {
            on_fetched(&artifact, revision);
        }
        Ok(Loaded::Fetched {
            artifact,
            revision,
            permit,
        })
    })
    .await
}

/// From a server or a registry.
async fn bring(
    manifest: &Manifest,
    with_signatures: bool,
    config: &RunnerConfig,
) -> Result<Fetched, String> {
    let source = manifest.component();
    let fetched = config
        .fetcher
        .fetch(source, manifest.sha256(), with_signatures)
        .await
        .map_err(|error| error.to_string())?;
    let kind = EventKind::Fetched {
        source: source.to_string(),
        resolved: fetched.resolved.clone(),
        component: fetched.artifact.digest,
    };
    tell(&config.observer, &manifest.name().to_arc(), kind);
    Ok(fetched)
}

async fn verify(
    manifest: &Manifest,
    artifact: Artifact,
    config: &RunnerConfig,
) -> Result<Loaded, String> {
    let mode = config.signatures.mode();
    if mode == SignatureMode::None {
        return Ok(Loaded::Verified);
    }
    let (policy, component) = (Arc::clone(&config.signatures), artifact.digest);
    let signer = blocking(move || Ok(policy.signer(&artifact))).await?;
    let kind = match (signer, mode) {
        (Ok(by), _) => EventKind::Signed { component, by },
        (Err(reason), SignatureMode::Warn) => EventKind::NotSigned { component, reason },
        (Err(reason), _) => {
            return Err(format!(
                "component {} is not used: {reason}",
                component.short()
            ));
        }
    };
    tell(&config.observer, &manifest.name().to_arc(), kind);
    Ok(Loaded::Verified)
}

async fn check(
    manifest: Arc<Manifest>,
    artifact: Artifact,
    doing: Doing,
    config: &RunnerConfig,
) -> Result<Loaded, String> {
    let ceiling = config.reach.ceiling.clone();
    blocking(move || {
        let beyond = ceiling.map(|ceiling| ceiling.exceeded_by(&manifest));
        if let Some(problems) = beyond.filter(|problems| !problems.is_empty()) {
            return Err(lines(problems));
        }
        let checked = preflight::check_component(&manifest, artifact).map_err(lines)?;
        let (component, listener) = checked;
        if doing == Doing::Sealed && listener == ListenerKind::ScheduledPull {
            return Err("a pull task decides by itself what it pulls, so there is nothing that its shadow could get a copy of; try it as a canary".to_owned());
        }
        Ok(Loaded::Checked {
            component,
            listener,
        })
    })
    .await
}

/// From the cache, or compiled and put there.
async fn compile(
    manifest: &Manifest,
    component: &CheckedComponent,
    key: CacheKey,
    config: &RunnerConfig,
) -> Result<Compiled, String> {
    let cache = Arc::clone(&config.cache);
    let found = blocking(move || Ok(cache.get(key))).await?;
    match found {
        Ok(code) => {
            let name = manifest.name().to_arc();
            tell(&config.observer, &name, EventKind::CacheUsed);
            return Ok(Compiled {
                code: Artefact::trusted(code),
                key,
                is_cached: true,
            });
        }
        Err(CacheMiss::Absent | CacheMiss::Off) => {}
        Err(miss) => entry_refused(manifest, &miss, config),
    }
    compile_anew(manifest, component, key, config).await
}

async fn compile_anew(
    manifest: &Manifest,
    component: &CheckedComponent,
    key: CacheKey,
    config: &RunnerConfig,
) -> Result<Compiled, String> {
    let compiled = config.engine.compile(component).await;
    let code = compiled.map_err(|error| load_failed(manifest, &error))?;
    let (cache, bytes) = (Arc::clone(&config.cache), code.bytes().clone());
    let written = blocking(move || Ok(cache.put(key, &bytes))).await?;
    if let Err(error) = written {
        let reason = with_cause(&error);
        let name = manifest.name().to_arc();
        tell(
            &config.observer,
            &name,
            EventKind::CacheNotWritten { reason },
        );
    }
    Ok(Compiled {
        code,
        key,
        is_cached: false,
    })
}

async fn warm_up(
    manifest: &Manifest,
    material: Material,
    wasm_observer: wasm::Observer,
    trouble: Box<dyn Fn(String) + Send + Sync>,
    ports: Ports,
    config: &RunnerConfig,
) -> Result<Loaded, String> {
    let compiled = wanted(material.compiled)?;
    let component = wanted(material.component)?;
    let secrets = {
        let (reach, manifest) = (config.reach.clone(), manifest.clone());
        blocking(move || reach.secrets(&manifest)).await?
    };
    let breaker = breaker(manifest, wanted(material.revision)?, trouble, config);
    let digest = *wanted(material.artifact.clone())?.digest.bytes();
    let plugin = PluginConfig {
        plugin: manifest.name().to_arc(),
        revision: wanted(material.revision)?.to_string().into(),
        component: wanted(material.artifact)?.digest.to_string().into(),
        tenant: Arc::clone(&config.tenant),
        listener: wanted(material.listener)?,
        limits: manifest.limits().clone(),
        grants: manifest.grants().clone(),
        settings: manifest.settings().to_vec(),
        secrets,
        http: Arc::clone(&config.reach.http),
        http_tap: Some(ports.http),
        key_value: ports.key_value,
        consume_thread_max: manifest.group_config().consume_thread_max(),
        is_held: {
            let breaker = Arc::clone(&breaker);
            IsHeld::new(move || breaker.is_tripped())
        },
    };
    let load = |code: Artefact| {
        let (plugin, producer) = (plugin.clone(), Arc::clone(&ports.producer));
        let observer = breaker.watching(Arc::clone(&wasm_observer));
        // Loaded once, however many plugins name the component.
        let code = code.of_component(digest);
        async move { ComponentListener::load(&config.engine, &code, plugin, producer, observer).await }
    };
    let mut loaded = load(compiled.code).await;
    if compiled.is_cached && matches!(loaded, Err(LoadError::Artefact { .. })) {
        // An entry that the engine cannot read is a miss.
        if let Err(error) = &loaded {
            entry_refused(manifest, error, config);
        }
        let compiled = compile_anew(manifest, &component, compiled.key, config).await?;
        loaded = load(compiled.code).await;
    }
    loaded
        .map(|listener| Loaded::WarmedUp(listener, breaker))
        .map_err(|error| load_failed(manifest, &error))
}

/// Tells what becomes of it as an event of the plugin.
fn breaker(
    manifest: &Manifest,
    revision: RevisionId,
    trouble: Box<dyn Fn(String) + Send + Sync>,
    config: &RunnerConfig,
) -> Arc<WatchedBreaker> {
    let observer = Arc::clone(&config.observer);
    let name = manifest.name().to_arc();
    let tell = Box::new(move |event: &BreakerEvent| {
        let event = event.clone();
        if let BreakerEvent::Tripped {
            failures, reason, ..
        } = &event
        {
            trouble(format!(
                "{failures} calls in a row failed, the last one: {reason}"
            ));
        }
        tell(&observer, &name, EventKind::Breaker { revision, event });
    });
    Arc::new(WatchedBreaker::new(manifest.breaker().clone(), tell))
}

fn cache_key(config: &RunnerConfig, component: crate::Digest) -> CacheKey {
    let target = format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS);
    CacheKey::new(
        component,
        config.engine.compatibility_key().as_bytes(),
        &target,
    )
}

fn entry_refused(manifest: &Manifest, why: &dyn std::error::Error, config: &RunnerConfig) {
    let reason = with_cause(why);
    let name = manifest.name().to_arc();
    tell(
        &config.observer,
        &name,
        EventKind::CacheEntryRefused { reason },
    );
}

fn load_failed(manifest: &Manifest, error: &LoadError) -> String {
    format!("{}: {error}", manifest.component())
}

fn lines(problems: Vec<Problem>) -> String {
    Problems(problems).to_string()
}

fn with_cause(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// What the step before left. The machine asks for steps in order, so it is there.
fn wanted<T>(material: Option<T>) -> Result<T, String> {
    material.ok_or_else(|| "a step was asked for before the one it needs".to_owned())
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|panic| Err(format!("it ended early: {panic}")))
}
