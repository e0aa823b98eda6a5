//! A thousand starts and stops leave nothing behind.
//!
//! A program of its own: it counts what the whole process holds.

#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

#[path = "../consuming/cluster.rs"]
#[expect(dead_code, reason = "the other tests need more of it")]
mod cluster;
#[path = "../consuming/listeners.rs"]
#[expect(dead_code, reason = "the other tests need more of it")]
mod listeners;

use std::sync::Arc;

use cluster::{Cluster, PATIENCE, eventually};
use consumer::{ConsumeFromWhere, GroupConfig};
use driver::HostPermits;
use listeners::{Listener, Recorder};
use protocol::subscription::SubscriptionData;

const TOPIC: &str = "numbers";

/// What the process holds: tasks of the runtime, file handles, resident bytes.
#[derive(Debug)]
struct Held {
    tasks: usize,
    handles: usize,
    resident_bytes: u64,
}

fn held() -> Held {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
    Held {
        tasks: tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks(),
        handles: std::fs::read_dir("/proc/self/fd").unwrap().count(),
        resident_bytes: pages * 4096,
    }
}

/// Start, consume, stop in order. Every tenth is dropped instead.
async fn cycle(cluster: &Cluster, number: u32) {
    let (driver, _) = cluster.driver(&HostPermits::new(4), 4);
    let recorder = Recorder::succeeding();
    let group = GroupConfig::builder("counters")
        .consume_from_where(ConsumeFromWhere::FirstOffset)
        .subscription(SubscriptionData::all(TOPIC))
        .build()
        .unwrap();
    let listener = Arc::new(Listener(Arc::clone(&recorder)));
    driver.subscribe(group, listener).await.unwrap();
    if number.is_multiple_of(10) {
        drop(driver);
        return;
    }
    if number.is_multiple_of(25) {
        cluster.send(TOPIC, number..number + 1);
        eventually("a message is consumed", || recorder.messages() > 0).await;
    }
    let report = driver.stop(PATIENCE).await;
    assert!(report.is_complete, "cycle {number}: {report:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_starts_and_stops_leave_no_task_no_handle_and_no_memory() {
    const WARM_UP: u32 = 100;
    const CYCLES: u32 = 1_000;
    const GROWTH_BYTES_MAX: u64 = 16 << 20;
    let cluster = Cluster::start().await;
    for number in 1..=WARM_UP {
        cycle(&cluster, number).await;
    }
    let before = held();
    for number in 1..=CYCLES {
        cycle(&cluster, number).await;
    }
    // The broker's side of the last connections ends a moment later.
    eventually("tasks and handles are where they were", || {
        let now = held();
        now.tasks <= before.tasks && now.handles <= before.handles
    })
    .await;
    let after = held();
    assert!(
        after.resident_bytes <= before.resident_bytes + GROWTH_BYTES_MAX,
        "{before:?}, then {after:?}"
    );
}
