//! A plugin that misbehaves hurts nobody but itself: one runtime as the host has it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use consumer::listener::{CancelSignal, MessageListener};

use crate::support::{Plugin, Request, SOON, all_done};

/// Cores + 1, as the host's runtime.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn healthy_plugin_is_served_while_others_spin() {
    let spinning = Plugin::load_with("never_return", |config| {
        config.limits.compute_time = SOON;
        config.consume_thread_max = 8;
    })
    .await;
    let healthy = Plugin::load("succeed").await;
    let spinners: Vec<_> = (0..8).map(|_| spawn(&spinning)).collect();
    crate::support::eventually("a spinning call begins", || {
        spinning.events.instances_created() >= 3
    })
    .await;

    let started = Instant::now();
    for _ in 0..20 {
        assert_eq!(healthy.consume(&["a"]).await, all_done());
    }
    let mean = started.elapsed() / 20;

    // Eight spinning calls share two slots: a turn comes after at most eight ticks.
    assert!(mean < Duration::from_millis(500), "a call took {mean:?}");
    for spinner in spinners {
        spinner.abort();
        assert!(spinner.await.unwrap_err().is_cancelled());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn time_in_the_queue_is_not_billed() {
    let plugin = Plugin::load_with("as_told", |config| config.consume_thread_max = 16).await;
    let calls: Vec<_> = (0..16)
        .map(|_| {
            let mut request = Request::of(&["spin 40"]);
            // Sixteen calls on two slots need 320 ms and more by the wall clock.
            request.consume_timeout = Duration::from_millis(300);
            tokio::spawn(
                plugin
                    .listener
                    .consume_message(Arc::new(request.build()), CancelSignal::default()),
            )
        })
        .collect();
    for call in calls {
        call.await.unwrap();
    }
    assert_eq!(plugin.events.failures(), []);
    let reports = plugin.events.reports();
    assert_eq!(reports.len(), 16);
    for report in reports {
        assert!(report.computed < Duration::from_millis(150), "{report:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn trap_storm_and_memory_hogs_leave_the_others_alone() {
    let trapping = Plugin::load("as_told").await;
    let hog = Plugin::load_with("grow_memory", |config| config.limits.memory = 32 << 20).await;
    let healthy = Plugin::load("succeed").await;
    let storm: Vec<_> = (0..20)
        .flat_map(|_| {
            let request = Arc::new(Request::of(&["trap", "done", "exit"]).build());
            let call = trapping
                .listener
                .consume_message(request, CancelSignal::default());
            [tokio::spawn(call), spawn(&hog)]
        })
        .collect();

    for _ in 0..50 {
        assert_eq!(healthy.consume(&["a"]).await, all_done());
    }

    for call in storm {
        call.await.unwrap();
    }
    assert_eq!(healthy.events.failures(), []);
    assert_eq!(healthy.events.instances_created(), 1);
    assert_eq!(hog.events.failures().len(), 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn runtime_goes_on_while_guests_compute() {
    let plugin =
        Plugin::load_with("never_return", |config| config.limits.compute_time = SOON).await;
    let spinners: Vec<_> = (0..4).map(|_| spawn(&plugin)).collect();
    let started = Instant::now();
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_millis(1)).await;
        tokio::spawn(async {}).await.unwrap();
    }
    assert!(started.elapsed() < SOON / 3, "{:?}", started.elapsed());
    for spinner in &spinners {
        spinner.abort();
    }
}

fn spawn(plugin: &Plugin) -> tokio::task::JoinHandle<consumer::listener::ConsumeResult> {
    let mut request = Request::of(&["a"]);
    request.consume_timeout = SOON;
    let request = Arc::new(request.build());
    tokio::spawn(
        plugin
            .listener
            .consume_message(request, CancelSignal::default()),
    )
}
