//! What a shadow found.

use plugin_lifecycle::{Difference, DifferenceKind, ShadowReport};

use super::plugins::host;
use super::{Refusal, body};
use crate::control::directory::Directory;
use crate::control::http::{Answer, Request};
use crate::control::shadow_answers::{DifferenceAnswer, ShadowAnswer, ShadowOf};

pub(super) fn shadow(request: &Request, directory: &Directory) -> Result<Answer, Refusal> {
    let request: ShadowOf = body(request)?;
    let host = host(directory)?;
    let (_, hosted) = host.plugin(&request.plugin, request.tenant.as_deref())?;
    let Some((report, is_running)) = hosted.plugin().shadow() else {
        return Err(Refusal::new(
            404,
            format!(
                "plugin \"{}\" has had no shadow since this host was started; mqlet deploy --shadow gives it one",
                hosted.name()
            ),
        ));
    };
    let number = hosted.plugin().status().shadow;
    let number = number.and_then(|(_, revision)| hosted.number_of(revision));
    Ok(Answer::json(
        200,
        &answer(hosted.name(), number, is_running, report),
    ))
}

fn answer(
    plugin: &str,
    number: Option<u64>,
    is_running: bool,
    report: ShadowReport,
) -> ShadowAnswer {
    let ShadowReport {
        generation: _,
        per_mille,
        copied,
        left_out,
        compared,
        messages,
        other_outcomes,
        other_effects,
        not_performed,
        samples,
    } = report;
    ShadowAnswer {
        plugin: plugin.to_owned(),
        number,
        is_running,
        share_per_mille: per_mille,
        copied,
        left_out,
        compared,
        messages,
        other_outcomes,
        other_effects,
        not_performed,
        samples: samples.into_iter().map(sample).collect(),
    }
}

fn sample(difference: Difference) -> DifferenceAnswer {
    DifferenceAnswer {
        queue: difference.queue.to_string(),
        queue_offset: difference.queue_offset,
        message_id: difference.message_id,
        kind: match difference.kind {
            DifferenceKind::Outcome => "outcome",
            DifferenceKind::Effects => "effects",
        }
        .to_owned(),
        serving: difference.serving,
        shadow: difference.shadow,
    }
}
