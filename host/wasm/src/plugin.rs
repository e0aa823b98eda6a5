//! What all instances of one revision share: its name, limits and grants, who sends for
//! it, who hears of it.

use std::sync::Arc;
use std::time::Duration;

use consumer::publish::MessageProducer;

use crate::component::ListenerKind;
use crate::event::{Event, Observer};
use crate::limits::Limits;
use crate::rate::Rate;
use crate::tenant::{Tenant, TenantConfig};
use crate::usage::Usage;

/// What a plugin may reach outside its box.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Grants {
    /// Sending. `None`: `not-granted`.
    pub producer: Option<ProducerGrant>,
}

/// `[grants] producer`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProducerGrant {
    /// Topics it may send to.
    pub topics: Vec<String>,
    /// When its messages leave.
    pub mode: ProducerMode,
    /// `None`: no limit but the host's.
    pub messages_per_second: Option<u32>,
    /// Messages of one call.
    pub messages_per_call: u32,
    /// Bodies and properties of the messages of one call.
    pub bytes_per_call: u64,
}

impl ProducerGrant {
    /// What one call may send when nobody says otherwise.
    pub const MESSAGES_PER_CALL: u32 = 1_000;
    /// As [`ProducerGrant::MESSAGES_PER_CALL`]: four of RocketMQ's largest messages.
    pub const BYTES_PER_CALL: u64 = 16 << 20;

    /// These topics, everything else by default.
    pub fn new(topics: Vec<String>) -> Self {
        Self {
            topics,
            mode: ProducerMode::default(),
            messages_per_second: None,
            messages_per_call: Self::MESSAGES_PER_CALL,
            bytes_per_call: Self::BYTES_PER_CALL,
        }
    }
}

/// When a message that a guest sends in a call leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ProducerMode {
    /// When the call has succeeded, before what it consumed counts as done.
    #[default]
    Outbox,
    /// At once; what becomes of the call changes nothing.
    Immediate,
}

/// One revision of one plugin.
#[derive(Clone, Debug)]
pub struct PluginConfig {
    /// Its name.
    pub plugin: Arc<str>,
    /// Names code and configuration, for people.
    pub revision: Arc<str>,
    /// SHA-256 of its component, in hexadecimal, for people; may be empty.
    pub component: Arc<str>,
    /// Whose it is.
    pub tenant: Arc<Tenant>,
    /// Which of the component's listeners to call.
    pub listener: ListenerKind,
    /// Its box.
    pub limits: Limits,
    /// The holes in it.
    pub grants: Grants,
    /// For `init`.
    pub settings: Vec<(String, String)>,
    /// Calls, and so instances, at once.
    pub consume_thread_max: u32,
}

impl PluginConfig {
    /// A plugin of a tenant of its own, with default limits, no grants, no settings, 20
    /// calls at once.
    pub fn new(plugin: &str, revision: &str) -> Self {
        Self {
            plugin: plugin.into(),
            revision: revision.into(),
            component: "".into(),
            tenant: Tenant::new(TenantConfig::new("")),
            listener: ListenerKind::Concurrent,
            limits: Limits::default(),
            grants: Grants::default(),
            settings: Vec::new(),
            consume_thread_max: 20,
        }
    }
}

/// Shared by the instances of a revision.
pub(crate) struct Plugin {
    pub(crate) config: PluginConfig,
    /// Those of the configuration, for failure records.
    pub(crate) limits: Arc<Limits>,
    pub(crate) producer: Arc<dyn MessageProducer>,
    pub(crate) line_rate: Rate,
    pub(crate) send_rate: Option<Rate>,
    pub(crate) usage: Arc<Usage>,
    observer: Observer,
}

impl Plugin {
    pub(crate) fn new(
        config: PluginConfig,
        producer: Arc<dyn MessageProducer>,
        observer: Observer,
    ) -> Self {
        let send_rate = config
            .grants
            .producer
            .as_ref()
            .and_then(|grant| grant.messages_per_second);
        Self {
            line_rate: Rate::new(config.limits.log_lines_per_second),
            send_rate: send_rate.map(Rate::new),
            limits: Arc::new(config.limits.clone()),
            usage: config.tenant.usage_of(&config.plugin),
            config,
            producer,
            observer,
        }
    }

    pub(crate) fn name(&self) -> Arc<str> {
        Arc::clone(&self.config.plugin)
    }

    pub(crate) fn revision(&self) -> Arc<str> {
        Arc::clone(&self.config.revision)
    }

    pub(crate) fn emit(&self, event: &Event) {
        self.usage.hear(event);
        (self.observer)(event);
    }

    /// Bytes leave the host on behalf of the guest.
    pub(crate) fn add_bytes_out(&self, bytes: usize) {
        self.usage.add_bytes_out(bytes);
        self.config.tenant.spend_bytes_out(bytes);
    }

    pub(crate) fn init_time(&self) -> Duration {
        self.config.limits.init_time
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! A plugin whose events can be looked at.

    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use consumer::publish::{MessageProducer, OutgoingMessage, SendError, SendFuture};

    use super::{Plugin, PluginConfig};
    use crate::event::Event;

    #[derive(Clone, Default)]
    pub(crate) struct Events(Arc<Mutex<Vec<Event>>>);

    impl Events {
        pub(crate) fn log_texts(&self) -> Vec<String> {
            let events = self.0.lock().unwrap();
            events
                .iter()
                .filter_map(|event| match event {
                    Event::LogLine { line, .. } => Some(line.text.clone()),
                    _ => None,
                })
                .collect()
        }
    }

    struct NoProducer;

    impl MessageProducer for NoProducer {
        fn prepare(&self, _: &mut [OutgoingMessage]) -> Result<(), SendError> {
            Err(SendError::Stopped)
        }

        fn send(&self, _: Vec<OutgoingMessage>, _: Duration) -> SendFuture {
            Box::pin(async { Err(SendError::Stopped) })
        }

        fn send_oneway(&self, _: OutgoingMessage) -> SendFuture {
            Box::pin(async { Err(SendError::Stopped) })
        }
    }

    pub(crate) fn plugin_with_events(edit: impl FnOnce(&mut PluginConfig)) -> (Plugin, Events) {
        let mut config = PluginConfig::new("test", "r1");
        edit(&mut config);
        let events = Events::default();
        let seen = events.clone();
        let observer = Arc::new(move |event: &Event| seen.0.lock().unwrap().push(event.clone()));
        (Plugin::new(config, Arc::new(NoProducer), observer), events)
    }
}
