//! What a run begins with: brokers with their topics, and what members are told of their
//! groups.

use std::time::Duration;

use consumer::GroupConfig;
use consumer::config::{AllocateMessageQueueStrategy, ConsumeFromWhere};
use consumer::listener::ConsumeMode;
use embedded_broker::{Broker, BrokerConfig};
use fastrand::Rng;
use protocol::Instant;
use protocol::subscription::{ExpressionType, SubscriptionData};

use crate::cluster::{BrokerNode, GROUPS, MAX_RECONSUME_TIMES, TOPICS};
use crate::in_order::{self, ORDERLY_GROUP};
use crate::network::Server;
use crate::swaps::{SWAPPED_GROUP, SWAPPED_TOPIC, Swaps};

pub(crate) fn broker(index: usize, now: Instant) -> BrokerNode {
    let address = Server::Broker(index).address();
    let name = format!("broker-{}", ["a", "b", "c"][index]);
    let host = format!("10.1.0.{}:10911", index + 1);
    let mut config = BrokerConfig::default();
    if let Ok(host) = host.parse() {
        config.store_host = host;
    }
    config.advertised = address;
    config.broker_name = name.as_str().into();
    config.auto_create_topic = false;
    if let Ok(levels) = "100ms 1s 2s 3s 5s 8s".parse() {
        config.delay_levels = levels;
    }
    let mut broker = Broker::new(config, now, Duration::from_secs(1_700_000_000));
    for (topic, queues) in TOPICS {
        let added = broker.add_topic(topic, *queues);
        assert!(added.is_ok(), "{added:?}");
    }
    BrokerNode {
        name,
        broker,
        away_until: now,
    }
}

/// All members of a group are told the same.
pub(crate) fn group_configs(seed: u64, swaps: &Swaps) -> Vec<GroupConfig> {
    let random = &mut Rng::with_seed(seed);
    let strategy = match random.u32(0..3) {
        0 => AllocateMessageQueueStrategy::Averagely,
        1 => AllocateMessageQueueStrategy::AveragelyByCircle,
        _ => AllocateMessageQueueStrategy::consistent_hash(),
    };
    let configs = GROUPS.iter().map(|(group, subscriptions)| {
        let mut builder = GroupConfig::builder(*group)
            .consume_from_where(ConsumeFromWhere::FirstOffset)
            .allocate_message_queue_strategy(strategy.clone())
            .max_reconsume_times(MAX_RECONSUME_TIMES)
            .consume_thread_max(random.u32(2..6))
            .consume_message_batch_max_size([1, 4, 32][random.usize(..3)])
            .pull_batch_size([2, 8, 32][random.usize(..3)])
            .pull_threshold_for_queue([2, 10, 1000][random.usize(..3)])
            .consume_concurrently_max_span([5, 50, 2000][random.usize(..3)]);
        let mode = match *group {
            ORDERLY_GROUP => in_order::mode(random),
            _ => ConsumeMode::Concurrently,
        };
        builder = builder.mode(mode);
        if mode == (ConsumeMode::Orderly { auto_commit: false }) {
            // What waits for a commit must not keep the messages away that bring it.
            builder = builder.pull_threshold_for_queue(1000);
        }
        for (topic, expression) in *subscriptions {
            if swaps.lacks_topic && (*group, *topic) == (SWAPPED_GROUP, SWAPPED_TOPIC) {
                continue;
            }
            let subscription = if (*group, *topic) == (SWAPPED_GROUP, SWAPPED_TOPIC) {
                swaps.subscription()
            } else {
                SubscriptionData::build(topic, expression, ExpressionType::Tag)
                    .expect("a valid expression")
            };
            builder = builder.subscription(subscription);
        }
        builder.build().expect("a valid group")
    });
    configs.collect()
}
