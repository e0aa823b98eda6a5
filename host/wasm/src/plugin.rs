//! What all instances of one revision share: its name, limits and grants, who sends for
//! it, who hears of it.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use consumer::publish::MessageProducer;

use crate::component::ListenerKind;
use crate::event::{Event, Observer};
use crate::failure;
use crate::grants::Grants;
use crate::http::{HttpClient, HttpConfig};
use crate::http_tap::HttpTap;
use crate::key_value::KeyValueStore;
use crate::limits::Limits;
use crate::rate::Rate;
use crate::secrets::Secrets;
use crate::tenant::{Tenant, TenantConfig};
use crate::usage::Usage;
use crate::worker::host_link::HostLink;

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
    /// For `init`, and for `wasi:config` where that is granted.
    pub settings: Vec<(String, String)>,
    /// For `wasi:config`.
    pub secrets: Secrets,
    /// Sends its requests; its tenant's.
    pub http: Arc<HttpClient>,
    /// Watches its requests; `None`: they are sent, and nobody looks.
    pub http_tap: Option<Arc<dyn HttpTap>>,
    /// Keeps its buckets; its tenant's. `None`: there are none.
    pub key_value: Option<Arc<dyn KeyValueStore>>,
    /// Calls, and so instances, at once.
    pub consume_thread_max: u32,
    /// Asked between two calls of one request.
    pub is_held: IsHeld,
}

/// Whether calls of a plugin are held back: then a request that has had one has no further,
/// and what it did not reach is not finished.
#[derive(Clone)]
pub struct IsHeld(Arc<dyn Fn() -> bool + Send + Sync>);

impl IsHeld {
    /// Asks this; it must not block.
    pub fn new(is_held: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(is_held))
    }

    /// Never.
    pub fn never() -> Self {
        Self::new(|| false)
    }

    pub(crate) fn now(&self) -> bool {
        (self.0)()
    }
}

impl fmt::Debug for IsHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IsHeld({})", self.now())
    }
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
            secrets: Secrets::default(),
            http: HttpClient::new(HttpConfig::default()),
            http_tap: None,
            key_value: None,
            consume_thread_max: 20,
            is_held: IsHeld::never(),
        }
    }
}

/// Shared by the instances of a revision.
pub(crate) struct Plugin {
    pub(crate) config: PluginConfig,
    /// Those of the configuration, for failure records.
    pub(crate) limits: Arc<Limits>,
    /// What its dead letters say of it.
    pub(crate) dead_letter_properties: Arc<[(String, String)]>,
    pub(crate) producer: Arc<dyn MessageProducer>,
    pub(crate) line_rate: Rate,
    pub(crate) send_rate: Option<Rate>,
    pub(crate) usage: Arc<Usage>,
    /// In a worker: whom it asks for what its guests want.
    pub(crate) host: Option<Arc<HostLink>>,
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
        let now = Instant::now();
        Self {
            line_rate: Rate::new(config.limits.log_lines_per_second, now),
            send_rate: send_rate.map(|rate| Rate::new(rate, now)),
            limits: Arc::new(config.limits.clone()),
            dead_letter_properties: failure::dead_letter_properties(&config).into(),
            usage: config.tenant.usage_of(&config.plugin),
            host: None,
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
