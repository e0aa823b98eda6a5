//! Switches under way: from the moment a revision takes the calls over to the end of the
//! last call of the one before, when there is a report to be made.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::task::{Deployment, Ending, Runner};
use crate::event::{EventKind, Generation, Step, SwitchReport};
use crate::revision::{Digest, RevisionId};
use crate::runner::load::Material;
use crate::slot::Serving;

/// A report waits so long for the new revision's first call.
const FIRST_CALL_WAIT: Duration = Duration::from_secs(1);

/// By the generation that drains.
pub(super) type Switches = BTreeMap<Generation, Switch>;

pub(super) struct Switch {
    generation: Generation,
    revision: RevisionId,
    component: Digest,
    by: Arc<str>,
    before: Option<RevisionId>,
    steps: Vec<(Step, Duration)>,
    in_flight: u64,
    at: tokio::time::Instant,
    drained_after: Option<Duration>,
    old: Option<Arc<Serving>>,
    new: Arc<Serving>,
}

impl Switch {
    fn report(self) -> SwitchReport {
        self.new.stop_comparing();
        SwitchReport {
            generation: self.generation,
            revision: self.revision,
            component: self.component,
            by: self.by,
            before: self.before,
            steps: self.steps,
            in_flight: self.in_flight,
            drained_after: self.drained_after.unwrap_or_else(|| self.at.elapsed()),
            first_call_after: self.new.first_call_after(),
            queues_before: self.old.map(|old| old.queues()).unwrap_or_default(),
            queues: self.new.queues(),
        }
    }
}

impl Runner {
    pub(super) fn switch(&mut self, to: Generation) {
        let serving = self.serving(to);
        debug_assert!(serving.is_some(), "{to} was not warmed up");
        let at = tokio::time::Instant::now();
        let old = self.slot.switch(serving.clone());
        let deployment = self.deployments.get(&to);
        let status = self.lifecycle.status();
        let (Some(new), Some(deployment), Some((_, revision))) =
            (serving, deployment, status.active)
        else {
            return;
        };
        let Some(component) = deployment.component else {
            return;
        };
        let before = old.as_ref().map(|old| old.generation());
        let of = |generation: &Generation| self.revision_of(*generation);
        let switch = Switch {
            generation: to,
            revision,
            component,
            by: Arc::clone(&deployment.by),
            before: before.as_ref().and_then(of),
            steps: match deployment.loaded_by == to {
                true => status.steps,
                false => Vec::new(),
            },
            in_flight: old.as_ref().map_or(0, |old| old.calls()),
            at,
            drained_after: None,
            old,
            new,
        };
        match before {
            Some(before) => {
                self.switches.insert(before, switch);
            }
            None => self.tell_switch(switch),
        }
    }

    /// The last call of a revision that was replaced has ended. Its successor's first call
    /// belongs to the report, if it comes soon.
    pub(super) fn switch_drained(&mut self, old: Generation) {
        let Some(switch) = self.switches.get_mut(&old) else {
            return;
        };
        switch.drained_after = Some(switch.at.elapsed());
        let new = Arc::clone(&switch.new);
        self.endings.spawn(async move {
            // Nobody sends anything: then there was no pause to be seen.
            let _ = tokio::time::timeout(FIRST_CALL_WAIT, new.first_call()).await;
            Ending::Switched(old)
        });
    }

    /// The plugin ends: nothing more is waited for.
    pub(super) fn report_switches(&mut self) {
        while let Some((_, switch)) = self.switches.pop_first() {
            self.tell_switch(switch);
        }
    }

    /// Everything that is waited for is known.
    pub(super) fn report_switch(&mut self, old: Generation) {
        if let Some(switch) = self.switches.remove(&old) {
            self.tell_switch(switch);
        }
    }

    fn tell_switch(&self, switch: Switch) {
        let report = Box::new(switch.report());
        super::tell(
            &self.config.observer,
            &self.name,
            EventKind::Switched(report),
        );
    }

    /// Makes a deployment of what another one left warm.
    pub(super) fn revive(&mut self, generation: Generation, from: Generation, by: &str) {
        let Some(warm) = self.deployments.get(&from) else {
            debug_assert!(false, "{from} is gone");
            return;
        };
        let Some((serving, listener)) = &warm.serving else {
            debug_assert!(false, "{from} was never warm");
            return;
        };
        let listener = Arc::new(listener.again());
        let port = Arc::<wasm::ComponentListener>::clone(&listener);
        let mut again = Serving::new(generation, port)
            .with_properties(serving.properties().to_vec())
            .with_record(Arc::clone(&warm.record));
        if let Some(breaker) = serving.breaker() {
            again = again.with_breaker(Arc::clone(breaker));
        }
        let revived = Deployment {
            manifest: Arc::clone(&warm.manifest),
            on_fetched: None,
            by: by.into(),
            canary: None,
            shadow: None,
            material: Material::default(),
            component: warm.component,
            loaded_by: warm.loaded_by,
            record: Arc::clone(&warm.record),
            serving: Some((Arc::new(again), listener)),
            load_permit: None,
        };
        match self.deployments.get_mut(&generation) {
            // It was deployed, and found to be warm.
            Some(deployed) => {
                let Deployment { by, canary, .. } = deployed;
                let (by, canary) = (Arc::clone(by), *canary);
                *deployed = Deployment {
                    by,
                    canary,
                    ..revived
                };
            }
            None => {
                self.deployments.insert(generation, revived);
            }
        }
    }

    fn revision_of(&self, generation: Generation) -> Option<RevisionId> {
        let deployment = self.deployments.get(&generation)?;
        Some(RevisionId::new(deployment.component?, &deployment.manifest))
    }
}
