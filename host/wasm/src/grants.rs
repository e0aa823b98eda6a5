//! What a plugin may reach outside its box, as plain data: read from a manifest, part of
//! the revision, asked by `imports/`. Nothing by default.

pub(crate) mod address;

pub use address::{HostPattern, Network, ParseGrantError, is_public};

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The holes in a box.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Grants {
    /// Sending. `None`: `not-granted`.
    pub producer: Option<ProducerGrant>,
    /// `wasi:http`. `None`: a component that imports it is refused.
    pub http: Option<HttpGrant>,
    /// `wasi:keyvalue`: the buckets that may be opened. Empty: a component that imports it
    /// is refused.
    pub buckets: Vec<String>,
    /// `wasi:config`: whether settings and secrets may be asked for. If not, a component
    /// that imports it is refused.
    pub config: bool,
    /// What the clocks show.
    pub clock: ClockGrant,
    /// A folder that may be read, at `/`.
    pub folder: Option<PathBuf>,
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

/// `[grants] http`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HttpGrant {
    /// Whom it may ask, by the name in the request.
    pub hosts: Vec<HostPattern>,
    /// How, in capitals; `CONNECT` never.
    pub methods: Vec<String>,
    /// Networks that are not the public internet and may be connected to all the same.
    pub private: Vec<Network>,
    /// Bytes of a request's body.
    pub request_bytes: u64,
    /// Bytes of an answer's body.
    pub response_bytes: u64,
}

impl HttpGrant {
    /// Methods of a grant that names none.
    pub const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];
    /// Bodies of a grant that says nothing about them.
    pub const BODY_BYTES: u64 = 4 << 20;

    /// These hosts, everything else by default.
    pub fn new(hosts: Vec<HostPattern>) -> Self {
        Self {
            hosts,
            methods: Self::METHODS.map(str::to_owned).to_vec(),
            private: Vec::new(),
            request_bytes: Self::BODY_BYTES,
            response_bytes: Self::BODY_BYTES,
        }
    }

    /// Whether a request may be tried.
    pub(crate) fn allows(&self, method: &str, host: &str, port: u16, default_port: u16) -> bool {
        let asked = |pattern: &HostPattern| pattern.matches(host, port, default_port);
        self.methods.iter().any(|granted| granted == method) && self.hosts.iter().any(asked)
    }
}

/// What the clocks of a guest show: `mqlet:listener/call` and those of WASI.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum ClockGrant {
    /// The time.
    #[default]
    Exact,
    /// The time, in steps of [`ClockGrant::COARSE_STEP_MS`]: too coarse to measure what
    /// else the machine does.
    Coarse,
    /// The time at which the call began.
    Frozen,
}

impl ClockGrant {
    /// A step of the coarse clock, in milliseconds.
    pub const COARSE_STEP_MS: u64 = 100;
}

impl Grants {
    /// One line for each, for people.
    pub fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        if let Some(producer) = &self.producer {
            let when = match producer.mode {
                ProducerMode::Outbox => "when its call has succeeded",
                ProducerMode::Immediate => "at once",
            };
            let topics = producer.topics.join(", ");
            words.push(format!("may send to {topics}, {when}"));
        }
        if let Some(http) = &self.http {
            let hosts: Vec<_> = http.hosts.iter().map(ToString::to_string).collect();
            let methods = http.methods.join(", ");
            let mut line = format!("may ask {} by {methods}", hosts.join(", "));
            if !http.private.is_empty() {
                let networks: Vec<_> = http.private.iter().map(ToString::to_string).collect();
                line.push_str(&format!(", in {} too", networks.join(", ")));
            }
            words.push(line);
        }
        if !self.buckets.is_empty() {
            words.push(format!("may use the buckets {}", self.buckets.join(", ")));
        }
        if self.config {
            words.push("may ask for its settings and secrets".to_owned());
        }
        match self.clock {
            ClockGrant::Exact => {}
            ClockGrant::Coarse => words.push("has a coarse clock".to_owned()),
            ClockGrant::Frozen => words.push("has a frozen clock".to_owned()),
        }
        if let Some(folder) = &self.folder {
            words.push(format!("may read {}", folder.display()));
        }
        words
    }
}
