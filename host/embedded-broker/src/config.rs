//! What a broker is told when it starts: names, address, limits, delay levels.
//!
//! Defaults are RocketMQ 5.5.0's (`BrokerConfig`, `MessageStoreConfig`). Every table
//! that grows with what clients send has its bound here.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use protocol::Address;

use crate::delay::DelayLevels;

/// Settings of one embedded broker.
#[derive(Clone, Debug)]
pub struct BrokerConfig {
    /// Name of the cluster in routes and in the `CLUSTER` property.
    pub cluster_name: Arc<str>,
    /// Name of the broker in routes: one or more of `a-z A-Z 0-9 _ -`.
    pub broker_name: Arc<str>,
    /// The address stored in every message and hidden in every offset message id.
    pub store_host: SocketAddr,
    /// Where clients find the broker: what routes say.
    pub advertised: Address,
    /// Region that producers and consumers see in traces.
    pub region: Arc<str>,
    /// A send to an unknown topic creates it from the template `TBW102`.
    pub auto_create_topic: bool,
    /// A group that is not known is created when it first appears.
    pub auto_create_subscription_group: bool,
    /// Queues of the template topic; a producer asks for at most four of them.
    pub default_topic_queue_nums: u32,
    /// Attempts after which a message is a dead letter, when the request names none.
    pub retry_max_times: u32,
    /// What the levels 1, 2, … of the `DELAY` property wait.
    pub delay_levels: DelayLevels,
    /// Memory for messages and their index; beyond it the oldest segment is dropped.
    pub store_bytes_max: u64,
    /// Size of one segment of the store: the step in which old messages go.
    pub segment_bytes: usize,
    /// Largest body that a send may carry.
    pub message_bytes_max: usize,
    /// Most messages in one pull answer, whatever the request asks for.
    pub pull_messages_max: u32,
    /// Most bytes in one pull answer, except that one message always fits.
    pub pull_bytes_max: usize,
    /// Pulls waiting for a message; beyond it a pull is answered at once.
    pub held_pulls_max: usize,
    /// How often held pulls are looked at although nothing arrived that they want.
    pub held_pull_check_interval: Duration,
    /// Topics, system topics included.
    pub topics_max: usize,
    /// Consumer groups.
    pub groups_max: usize,
    /// Stored consumer offsets of all groups together.
    pub offsets_max: usize,
    /// Queue locks of all groups together.
    pub locks_max: usize,
    /// Silence after which a member is dropped and its connection closed.
    pub channel_expired_timeout: Duration,
    /// Life of a queue lock that is not renewed.
    pub lock_live_time: Duration,
}

impl Default for BrokerConfig {
    fn default() -> Self {
        Self::listening_on(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10_911))
    }
}

impl BrokerConfig {
    /// The defaults for a broker that clients reach at this address.
    pub fn listening_on(address: SocketAddr) -> Self {
        Self {
            cluster_name: "DefaultCluster".into(),
            broker_name: "mqlet".into(),
            store_host: address,
            advertised: Address::new(&address.ip().to_string(), address.port()),
            region: "DefaultRegion".into(),
            auto_create_topic: true,
            auto_create_subscription_group: true,
            default_topic_queue_nums: 8,
            retry_max_times: 16,
            delay_levels: DelayLevels::default(),
            store_bytes_max: 256 << 20,
            segment_bytes: 4 << 20,
            message_bytes_max: 4 << 20,
            pull_messages_max: 32,
            pull_bytes_max: 256 << 10,
            held_pulls_max: 65_536,
            held_pull_check_interval: Duration::from_secs(5),
            topics_max: 10_000,
            groups_max: 10_000,
            offsets_max: 1_000_000,
            locks_max: 100_000,
            channel_expired_timeout: Duration::from_secs(120),
            lock_live_time: Duration::from_secs(60),
        }
    }
}
