//! Who takes the calls of members: by default listeners that are always there, in a run of
//! [`run_with`](crate::run_with) plugins that are replaced all the while.
//!
//! Such a plugin decides whether a call begins, may end calls before their time, and says
//! itself what must hold of it; what listeners answer is decided here as ever.

use std::fmt;

use consumer::listener::ConsumeRequestId;
use protocol::{Instant, MessageQueue};

use crate::cluster::{Cluster, Due};

/// A call of a member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PluginCall {
    /// Whose.
    pub member: usize,
    /// Which, of this member.
    pub id: ConsumeRequestId,
}

/// What becomes of the answer to a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answered {
    /// The member gets it.
    Passed,
    /// It never does.
    Lost,
}

/// The plugins of all members.
pub trait Plugins: fmt::Debug {
    /// A call begins. False: nobody takes it, and it is not finished.
    fn begins(
        &mut self,
        call: PluginCall,
        group: &str,
        queue: &MessageQueue,
        in_order: bool,
        now: Instant,
    ) -> bool;

    /// A listener has answered.
    fn answers(&mut self, call: PluginCall, now: Instant) -> Answered;

    /// A process is no more.
    fn crashed(&mut self, member: usize);

    /// Nothing goes wrong any more.
    fn healed(&mut self);

    /// When to call [`Plugins::handle_timeout`].
    fn poll_timeout(&self) -> Option<Instant>;

    /// That time has come.
    fn handle_timeout(&mut self, now: Instant);

    /// A call that ends now and is not finished.
    fn poll_killed(&mut self) -> Option<PluginCall>;

    /// A rule that does not hold, and how.
    fn poll_violation(&mut self) -> Option<(&'static str, String)>;

    /// What is still to happen before all is settled.
    fn unsettled(&self) -> Vec<String>;
}

impl Cluster {
    /// A call has begun.
    pub(crate) fn plugin_begins(&mut self, call: PluginCall, group: &str, queue: &MessageQueue) {
        let in_order = self.auto_commit_of(group).is_some();
        let now = self.now;
        if let Some(plugins) = &mut self.plugins
            && !plugins.begins(call, group, queue, in_order, now)
        {
            self.killed.insert(call);
            let PluginCall { member, id } = call;
            self.agenda.at(now, Due::CallEnds { member, id });
        }
        self.hear_plugins();
    }

    /// Whether the member gets the answer.
    pub(crate) fn plugin_answers(&mut self, call: PluginCall) -> Answered {
        let now = self.now;
        let is_killed = self.killed.contains(&call);
        match &mut self.plugins {
            // Whoever killed it does not wait for it.
            Some(plugins) if !is_killed => {
                let answered = plugins.answers(call, now);
                self.hear_plugins();
                answered
            }
            _ => Answered::Passed,
        }
    }

    /// Timers of plugins; true when one has run.
    pub(crate) fn plugin_timers(&mut self) -> bool {
        let now = self.now;
        let Some(plugins) = &mut self.plugins else {
            return false;
        };
        if plugins.poll_timeout().is_none_or(|at| at > now) {
            return false;
        }
        plugins.handle_timeout(now);
        self.hear_plugins();
        true
    }

    fn hear_plugins(&mut self) {
        let now = self.now;
        while let Some(call) = self.plugins.as_mut().and_then(|one| one.poll_killed()) {
            self.killed.insert(call);
            let PluginCall { member, id } = call;
            self.agenda.at(now, Due::CallEnds { member, id });
        }
        while let Some((rule, what)) = self.plugins.as_mut().and_then(|one| one.poll_violation()) {
            self.violated(rule, what);
        }
    }
}
