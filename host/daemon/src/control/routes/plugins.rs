//! Plugins: which there are, and what is made of them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use plugin_lifecycle::manifest::folder;
use plugin_lifecycle::problem::Fault;
use plugin_lifecycle::source::Source;
use plugin_lifecycle::{CanaryPlan, Change, DeployOutcome, Manifest, Problems, ShadowPlan};

use super::{Refusal, body};
use crate::control::directory::Directory;
use crate::control::http::{Answer, Request};
use crate::control::plugin_answers::{
    CanaryAnswer, CanaryRequest, ChangeRequest, DeployRequest, PluginAnswer, PluginsAnswer,
    RevisionAnswer, RollbackRequest, ShadowRequest, StepAnswer,
};
use crate::host::{DeployHow, Host, Hosted, RefusedChange};

/// A canary is not tried longer.
const CANARY_LENGTH_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

impl From<RefusedChange> for Refusal {
    fn from(refused: RefusedChange) -> Self {
        let status = match refused {
            RefusedChange::Unknown(_) => 404,
            RefusedChange::Conflict(_) => 409,
            RefusedChange::Failed(_) => 422,
        };
        Self::new(status, refused.to_string())
    }
}

pub(super) fn plugins(directory: &Directory) -> Result<Answer, Refusal> {
    let host = host(directory)?;
    let plugins = host.plugins();
    let plugins = plugins.iter().map(|hosted| plugin(hosted)).collect();
    let problems = host.problems();
    Ok(Answer::json(200, &PluginsAnswer { plugins, problems }))
}

pub(super) async fn deploy(
    request: &Request,
    asker: &str,
    directory: &Directory,
) -> Result<Answer, Refusal> {
    let request: DeployRequest = body(request)?;
    let how = DeployHow {
        though_refused: request.again,
        canary: request.canary.map(plan).transpose()?,
        shadow: request.shadow.map(shadow_plan).transpose()?,
    };
    if how.canary.is_some() && how.shadow.is_some() {
        return Err(Refusal::new(400, "a canary or a shadow, not both at once"));
    }
    let host = host(directory)?;
    let (number, hosted) = host.plugin(&request.plugin, request.tenant.as_deref())?;
    let permit = hosted.expect(request.expect).await?;
    let manifest = match (&request.path, request.manifest) {
        (Some(path), None) => manifest(&hosted, path).await?,
        (None, Some(text)) => written(&hosted, &text)?,
        _ => {
            return Err(Refusal::new(
                400,
                "name a path or send a manifest, not both",
            ));
        }
    };
    let problems = host.group_problems(number, &manifest, |_, _| false);
    if !problems.is_empty() {
        return Err(Refusal::new(422, Problems(problems).to_string()));
    }
    // Of its own: whoever asked may go, and what was begun is still finished.
    let (by, task) = (asker.to_owned(), Arc::clone(&hosted));
    let deployed = tokio::spawn(async move {
        let _permit = permit;
        task.deploy(manifest, &by, how).await
    });
    let deployed = deployed
        .await
        .map_err(|error| Refusal::new(500, format!("the deployment ended early: {error}")))??;
    if deployed.outcome == DeployOutcome::OnTrial && how.canary.is_none() && how.shadow.is_none() {
        return Err(Refusal::new(
            409,
            "this revision is on trial already; mqlet promote or mqlet abort ends that",
        ));
    }
    Ok(Answer::json(200, &plugin(&hosted)))
}

pub(super) async fn rollback(
    request: &Request,
    asker: &str,
    directory: &Directory,
) -> Result<Answer, Refusal> {
    let request: RollbackRequest = body(request)?;
    let host = host(directory)?;
    let (_, hosted) = host.plugin(&request.plugin, request.tenant.as_deref())?;
    let permit = hosted.expect(request.expect).await?;
    let (by, task) = (asker.to_owned(), Arc::clone(&hosted));
    let rolled_back = tokio::spawn(async move {
        let _permit = permit;
        task.rollback(request.to, &by).await
    });
    rolled_back
        .await
        .map_err(|error| Refusal::new(500, format!("the rollback ended early: {error}")))??;
    Ok(Answer::json(200, &plugin(&hosted)))
}

pub(super) async fn change(
    request: &Request,
    asker: &str,
    directory: &Directory,
) -> Result<Answer, Refusal> {
    let request: ChangeRequest = body(request)?;
    let change = match request.change.as_deref() {
        Some("promote") => Change::Promote,
        Some("abort") => Change::Abort,
        Some("cancel") => Change::Cancel,
        _ => {
            return Err(Refusal::new(
                400,
                "change is \"promote\", \"abort\" or \"cancel\"",
            ));
        }
    };
    let host = host(directory)?;
    let (_, hosted) = host.plugin(&request.plugin, request.tenant.as_deref())?;
    let _permit = hosted.expect(request.expect).await?;
    hosted.change(change, asker).await?;
    Ok(Answer::json(200, &plugin(&hosted)))
}

pub(super) async fn remove(
    request: &Request,
    asker: &str,
    directory: &Directory,
) -> Result<Answer, Refusal> {
    let request: ChangeRequest = body(request)?;
    let host = host(directory)?;
    let (_, hosted) = host.plugin(&request.plugin, request.tenant.as_deref())?;
    let answer = plugin(&hosted);
    let tenant = request.tenant.as_deref();
    host.remove(&request.plugin, tenant, request.expect, asker)
        .await?;
    Ok(Answer::json(200, &answer))
}

pub(super) fn host(directory: &Directory) -> Result<Arc<Host>, Refusal> {
    directory.host().ok_or_else(|| {
        Refusal::new(
            409,
            "mqlet dev replaces its plugin when its files are saved; these commands are for mqlet run",
        )
    })
}

/// The plugin with the component at this path, or the manifest there.
async fn manifest(hosted: &Hosted, named: &str) -> Result<Manifest, Refusal> {
    let refused =
        |fault: Fault| Refusal::new(400, format!("{named}: {}; {}", fault.what, fault.remedy));
    let (source, digest) = Source::parse(named).map_err(refused)?;
    let path = match source {
        Source::File(path) => path,
        Source::Web(_) if digest.is_none() => {
            return Err(Refusal::new(
                400,
                format!("{named} has no digest; add #sha256= and what sha256sum prints for it"),
            ));
        }
        remote => return Ok(hosted.manifest().with_component(remote, digest)),
    };
    if !path.is_absolute() {
        return Err(Refusal::new(400, "the path is not absolute"));
    }
    let is_manifest = path.is_dir() || path.extension().is_some_and(|end| end == "toml");
    if !is_manifest {
        return Ok(hosted.manifest().with_component(Source::File(path), None));
    }
    let loaded = tokio::task::spawn_blocking(move || load(&path)).await;
    let manifest = loaded.map_err(|error| Refusal::new(500, error.to_string()))??;
    of_plugin(hosted, manifest)
}

/// A manifest that came with the request; its paths start at the folder of the plugin's
/// own.
fn written(hosted: &Hosted, text: &str) -> Result<Manifest, Refusal> {
    let file = hosted.manifest().file().to_owned();
    let manifest = Manifest::parse(&file, text)
        .map_err(|Problems(problems)| Refusal::new(422, Problems(problems).to_string()))?;
    of_plugin(hosted, manifest)
}

fn of_plugin(hosted: &Hosted, manifest: Manifest) -> Result<Manifest, Refusal> {
    if manifest.name().as_str() == hosted.name() {
        return Ok(manifest);
    }
    Err(Refusal::new(
        409,
        format!(
            "{} is of plugin \"{}\", not of \"{}\"",
            manifest.file().display(),
            manifest.name(),
            hosted.name()
        ),
    ))
}

fn load(path: &Path) -> Result<Manifest, Refusal> {
    let file = folder::find(path).map_err(|problem| Refusal::new(422, problem.to_string()))?;
    Manifest::load(&file)
        .map_err(|Problems(problems)| Refusal::new(422, Problems(problems).to_string()))
}

fn plan(request: CanaryRequest) -> Result<CanaryPlan, Refusal> {
    let length = Duration::from_millis(request.length_ms);
    let is_good = (1..1000).contains(&request.share_per_mille)
        && (Duration::from_secs(1)..=CANARY_LENGTH_MAX).contains(&length)
        && request.worse_per_mille_max <= 1000
        && request.dead_per_mille_max.is_none_or(|dead| dead <= 1000)
        && request
            .broken_per_mille_max
            .is_none_or(|broken| broken <= 1000);
    if !is_good {
        return Err(Refusal::new(
            400,
            "a canary has 1 to 999 thousandths, for 1 s to 7 days, and at most 1000 thousandths of failures, dead letters and broken calls",
        ));
    }
    let default = CanaryPlan::default();
    let or = |asked: Option<u16>, default: u16| asked.unwrap_or(default);
    Ok(CanaryPlan {
        per_mille: request.share_per_mille,
        length,
        sample_min: request.sample_min,
        worse_per_mille_max: request.worse_per_mille_max,
        dead_per_mille_max: or(request.dead_per_mille_max, default.dead_per_mille_max),
        broken_per_mille_max: or(request.broken_per_mille_max, default.broken_per_mille_max),
        slower_percent_max: request
            .slower_percent_max
            .unwrap_or(default.slower_percent_max),
    })
}

fn shadow_plan(request: ShadowRequest) -> Result<ShadowPlan, Refusal> {
    let length = Duration::from_millis(request.length_ms);
    let is_good = (1..=1000).contains(&request.share_per_mille)
        && (Duration::from_secs(1)..=CANARY_LENGTH_MAX).contains(&length);
    if !is_good {
        return Err(Refusal::new(
            400,
            "a shadow has 1 to 1000 thousandths, for 1 s to 7 days",
        ));
    }
    Ok(ShadowPlan {
        per_mille: request.share_per_mille,
        length,
    })
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn plugin(hosted: &Hosted) -> PluginAnswer {
    let status = hosted.plugin().status();
    let manifest = hosted.manifest();
    let book = hosted.book();
    let number = |revision| book.number_of(revision);
    let active = status.active.map(|(_, revision)| revision);
    let kept = active
        .and_then(number)
        .and_then(|number| book.numbered(number));
    let state = match (&status.active, &status.next) {
        (Some(_), _) => "serving",
        (None, Some(_)) => "loading",
        (None, None) => "failed",
    };
    let counts = hosted.plugin().trial().unwrap_or_default();
    let revisions = book.kept().iter().map(|kept| {
        let mut warm = status.warm.iter();
        let mut refused = book.refused().iter();
        RevisionAnswer {
            number: kept.number,
            revision: kept.revision.chars().take(12).collect(),
            component: kept.component.clone(),
            source: kept.source.clone(),
            by: kept.by.clone(),
            at_ms: kept.at_ms,
            warm: warm.any(|(_, one)| one.digest().to_string() == kept.revision),
            refused: refused
                .find(|one| one.revision == kept.revision)
                .map(|one| one.reason.clone()),
        }
    });
    PluginAnswer {
        tenant: hosted.tenant_name().to_string(),
        plugin: hosted.name().to_owned(),
        consumer_group: manifest.consumer_group().to_owned(),
        state: state.to_owned(),
        number: active.and_then(number),
        revision: active.map(|revision| revision.to_string()),
        component: kept.map(|kept| kept.component.clone()),
        calls: hosted.plugin().calls(),
        steps: status
            .steps
            .iter()
            .map(|(step, took)| StepAnswer {
                step: step.to_string(),
                ms: millis(*took),
            })
            .collect(),
        step: status.next.map(|(_, step)| step.to_string()),
        canary: status.canary.map(|(_, revision)| CanaryAnswer {
            number: number(revision),
            revision: revision.to_string(),
            sample: counts.sample,
            failed: counts.failed,
            worse: counts.worse,
            dead: counts.dead,
            broken: counts.broken,
            p99_ms: counts.p99.map(millis),
            p99_serving_ms: counts.p99_serving.map(millis),
        }),
        shadow: status.shadow.and_then(|(_, revision)| number(revision)),
        draining: status.draining.len(),
        failure: status
            .last_failure
            .map(|(_, step, reason)| format!("{step}: {reason}")),
        pinned_by: book.pin().map(|pin| pin.by.clone()),
        manifest: hosted.source().display().to_string(),
        revisions: revisions.collect(),
    }
}
