//! Consuming in order against consuming concurrently: the same topic of 64 queues on the
//! embedded broker, a native listener that does nothing, everything else alike.

use std::sync::Arc;

use anyhow::Result;
use consumer::GroupConfig;
use consumer::listener::{ConsumeMode, MessageListener};
use protocol::subscription::SubscriptionData;

use crate::Options;
use crate::broker::{Cluster, WIDE_QUEUES, WIDE_TOPIC};
use crate::end_to_end::{in_process, new_group};
use crate::listener::Native;
use crate::report::{Report, Target};

const SHARE_MIN: f64 = 0.7;

pub(crate) fn run(options: &Options) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(compare(options))
}

async fn compare(options: &Options) -> Result<()> {
    let cluster = Cluster::embedded()?;
    let count = options.messages.unwrap_or(options.pick(20_000, 400_000));
    cluster.fill(WIDE_TOPIC, count).await?;
    let orderly = ConsumeMode::Orderly { auto_commit: true };
    // Manifests have 32 messages a call, and one where order matters.
    let subjects = [
        ("concurrently, 32 a call", ConsumeMode::Concurrently, 32),
        ("orderly, 32 a call", orderly, 32),
        ("orderly, 1 a call", orderly, 1),
    ];
    let mut report = Report::new(
        &format!(
            "in order, {WIDE_QUEUES} queues of the embedded broker, {count} messages of 1 KiB"
        ),
        "messages a second, CPU s a million messages",
    );
    for _ in 0..options.rounds() {
        for (name, mode, per_call) in subjects {
            let group = GroupConfig::builder(new_group())
                .subscription(SubscriptionData::all(WIDE_TOPIC))
                .mode(mode)
                .consume_message_batch_max_size(per_call);
            let native: Arc<dyn MessageListener> = Arc::new(Native);
            report.add(name, in_process(&cluster, group, native, count).await?);
        }
    }
    let concurrently = subjects[0].0;
    for (name, ..) in &subjects[1..] {
        let share = report.paired((name, concurrently), "rate", |one, other| one / other);
        let what = format!("{name}: messages a second / concurrently");
        report.judge(what, share, Target::AtLeast(SHARE_MIN));
    }
    report.print()?;
    Ok(())
}
