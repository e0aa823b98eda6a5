//! The plugins of every process, as the simulated cluster sees them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use fastrand::Rng;
use plugin_lifecycle::lifecycle::PlantedBug;
use protocol::{Instant, MessageQueue};
use simulation::{Answered, PluginCall, Plugins};

use crate::Counts;
use crate::plugin::{Call, Plugin};

/// By process and group.
type All = BTreeMap<(usize, String), Plugin>;

/// See the module.
#[derive(Debug)]
pub(crate) struct Hosts {
    random: Rng,
    bug: Option<PlantedBug>,
    plugins: All,
    /// Whose call it is.
    groups: BTreeMap<PluginCall, String>,
    is_healed: bool,
    killed: VecDeque<PluginCall>,
    violations: VecDeque<(&'static str, String)>,
    counts: Arc<Mutex<Counts>>,
}

impl Hosts {
    pub(crate) fn new(seed: u64, bug: Option<PlantedBug>, counts: Arc<Mutex<Counts>>) -> Self {
        Self {
            random: Rng::with_seed(seed ^ 0x5a5a),
            bug,
            plugins: BTreeMap::new(),
            groups: BTreeMap::new(),
            is_healed: false,
            killed: VecDeque::new(),
            violations: VecDeque::new(),
            counts,
        }
    }

    /// Does something with a plugin, and takes out what comes of it.
    fn with<T>(
        &mut self,
        key: &(usize, String),
        now: Instant,
        act: impl FnOnce(&mut Plugin, Instant) -> T,
    ) -> T {
        let plugin = self.plugins.entry(key.clone()).or_insert_with(|| {
            // It was loaded before its group was joined.
            Plugin::serving(self.random.u64(..), self.bug, now)
        });
        let value = act(plugin, now);
        for id in plugin.take_killed() {
            let call = PluginCall { member: key.0, id };
            self.groups.remove(&call);
            self.killed.push_back(call);
        }
        let name = |what: String| format!("{} at member {}: {what}", key.1, key.0);
        let violations = plugin.take_violations();
        self.violations
            .extend(violations.map(|(rule, what)| (rule, name(what))));
        let mut counts = self
            .counts
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        plugin.take_counts(&mut counts);
        value
    }
}

impl Plugins for Hosts {
    fn begins(
        &mut self,
        call: PluginCall,
        group: &str,
        queue: &MessageQueue,
        in_order: bool,
        now: Instant,
    ) -> bool {
        self.groups.insert(call, group.to_owned());
        let begun = Call {
            id: call.id,
            queue: queue.clone(),
            in_order,
        };
        let key = (call.member, group.to_owned());
        self.with(&key, now, |plugin, now| plugin.begins(begun, now))
    }

    fn answers(&mut self, call: PluginCall, now: Instant) -> Answered {
        let Some(group) = self.groups.remove(&call) else {
            // Given up when it began.
            return Answered::Passed;
        };
        let key = (call.member, group);
        self.with(&key, now, |plugin, now| plugin.answers(call.id, now))
    }

    fn crashed(&mut self, member: usize) {
        self.plugins.retain(|(of, _), _| *of != member);
        self.groups.retain(|call, _| call.member != member);
        self.killed.retain(|call| call.member != member);
    }

    fn healed(&mut self) {
        self.is_healed = true;
        self.plugins.values_mut().for_each(Plugin::leave_alone);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.plugins.values().filter_map(Plugin::due).min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        let due = self.plugins.iter();
        let due: Vec<_> = due
            .filter(|(_, plugin)| plugin.due().is_some_and(|at| at <= now))
            .map(|(key, _)| key.clone())
            .collect();
        let is_healed = self.is_healed;
        for key in due {
            self.with(&key, now, |plugin, now| {
                plugin.happens(now);
                if is_healed {
                    plugin.leave_alone();
                }
            });
        }
    }

    fn poll_killed(&mut self) -> Option<PluginCall> {
        self.killed.pop_front()
    }

    fn poll_violation(&mut self) -> Option<(&'static str, String)> {
        self.violations.pop_front()
    }

    fn unsettled(&self) -> Vec<String> {
        let plugins = self.plugins.iter();
        let reasons = plugins.filter_map(|((member, group), plugin)| {
            let reason = plugin.unsettled()?;
            Some(format!(
                "the plugin of {group} at member {member}: {reason}"
            ))
        });
        reasons.collect()
    }
}
