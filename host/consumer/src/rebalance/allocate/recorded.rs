//! Every case recorded from RocketMQ's own classes, strategy by strategy.

use std::sync::Arc;

use protocol::MessageQueue;
use serde_json::Value;

use super::{AllocateMessageQueueStrategy, MachineRoomResolver};

#[test]
fn averagely_agrees_with_java() {
    check(
        include_str!("../../../testdata/allocation/averagely.jsonl"),
        28,
    );
}

#[test]
fn averagely_by_circle_agrees_with_java() {
    check(
        include_str!("../../../testdata/allocation/averagely-by-circle.jsonl"),
        35,
    );
}

#[test]
fn by_config_agrees_with_java() {
    check(
        include_str!("../../../testdata/allocation/by-config.jsonl"),
        0,
    );
}

#[test]
fn consistent_hash_agrees_with_java() {
    check(
        include_str!("../../../testdata/allocation/consistent-hash.jsonl"),
        25,
    );
}

#[test]
fn consistent_hash_with_other_numbers_of_virtual_nodes_agrees_with_java() {
    check(
        include_str!("../../../testdata/allocation/consistent-hash-custom.jsonl"),
        32,
    );
}

#[test]
fn machine_room_agrees_with_java() {
    check(
        include_str!("../../../testdata/allocation/machine-room.jsonl"),
        25,
    );
}

#[test]
fn machine_room_nearby_agrees_with_java() {
    check(
        include_str!("../../../testdata/allocation/machine-room-nearby.jsonl"),
        74,
    );
}

/// All 300 cases of a file, so many of them refused.
fn check(file: &str, refused: usize) {
    let (mut cases, mut errors) = (0, 0);
    for line in file.lines() {
        let case: Value = serde_json::from_str(line).expect("JSON");
        let name = text(&case["strategy"]);
        let topic = text(&case["topic"]);
        let strategy = strategy(name, topic, &case["parameters"]);
        assert_eq!(strategy.name(), name);
        let members: Vec<String> = list(&case["consumers"])
            .iter()
            .map(|id| text(id).to_owned())
            .collect();
        let current = text(&case["current"]);
        let share = strategy.allocate(current, &queues(topic, &case["queues"]), &members);
        if case.get("error").is_some() {
            assert!(share.is_err(), "{line}");
            errors += 1;
        } else {
            assert_eq!(share, Ok(queues(topic, &case["result"])), "{line}");
        }
        cases += 1;
    }
    assert_eq!((cases, errors), (300, refused));
}

fn strategy(name: &str, topic: &str, parameters: &Value) -> AllocateMessageQueueStrategy {
    match name {
        "AVG" => AllocateMessageQueueStrategy::Averagely,
        "AVG_BY_CIRCLE" => AllocateMessageQueueStrategy::AveragelyByCircle,
        "CONSISTENT_HASH" => match parameters["virtualNodes"].as_u64() {
            None => AllocateMessageQueueStrategy::consistent_hash(),
            Some(count) => AllocateMessageQueueStrategy::ConsistentHash {
                virtual_node_count: u32::try_from(count).expect("a small number"),
            },
        },
        "MACHINE_ROOM" => AllocateMessageQueueStrategy::MachineRoom {
            rooms: list(&parameters["rooms"])
                .iter()
                .map(|room| text(room).to_owned())
                .collect(),
        },
        "CONFIG" => AllocateMessageQueueStrategy::Config {
            message_queues: queues(topic, &parameters["configured"]),
        },
        _ => {
            let inner = name.strip_prefix("MACHINE_ROOM_NEARBY-");
            let inner = inner.unwrap_or_else(|| panic!("strategy {name}"));
            AllocateMessageQueueStrategy::MachineRoomNearby {
                inner: Arc::new(self::strategy(inner, topic, &Value::Null)),
                resolver: Arc::new(ByPrefix),
            }
        }
    }
}

/// The recordings' resolver: text before the first `.` of names that begin with `room-`.
#[derive(Debug)]
struct ByPrefix;

impl MachineRoomResolver for ByPrefix {
    fn broker_deploy_in(&self, queue: &MessageQueue) -> Option<String> {
        self.consumer_deploy_in(&queue.broker_name)
    }

    fn consumer_deploy_in(&self, client_id: &str) -> Option<String> {
        let room = client_id.split('.').next()?;
        room.starts_with("room-").then(|| room.to_owned())
    }
}

fn queues(topic: &str, value: &Value) -> Vec<MessageQueue> {
    list(value)
        .iter()
        .map(|queue| {
            let id = queue[1].as_u64().expect("a queue id");
            MessageQueue::new(topic, text(&queue[0]), u32::try_from(id).expect("small"))
        })
        .collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
