//! How long a client is busy with its part of a rebalance, other groups waiting.
//!
//! Timed is the answer that names the members, up to the last request that it makes due.

use anyhow::Result;
use consumer::GroupConfig;
use consumer::config::AllocateMessageQueueStrategy;

use crate::cluster::{CLIENT_ID, SimulatedClient};
use crate::report::{Report, Sample, Target};
use crate::{Options, machine};

const TOPIC: &str = "Topic";
const QUEUES: usize = 4096;
const MEMBERS: usize = 100;
const MS_MAX: f64 = 5.0;

pub(crate) fn run(options: &Options) -> Result<()> {
    let title = format!("rules, rebalance of {QUEUES} queues among {MEMBERS} members");
    let mut report = Report::new(&title, "CPU ms of one member");
    let strategies = [
        AllocateMessageQueueStrategy::Averagely,
        AllocateMessageQueueStrategy::AveragelyByCircle,
        AllocateMessageQueueStrategy::ConsistentHash {
            virtual_node_count: 10,
        },
    ];
    let mut subjects = Vec::new();
    for strategy in strategies {
        let name = strategy.name().into_owned();
        for _ in 0..options.rounds() {
            let all = members(MEMBERS);
            let mut client = joined(&strategy, all.clone())?;
            let cases = [
                ("a member leaves", all[1..].to_vec()),
                ("a member joins", all),
                ("all others leave", vec![CLIENT_ID.to_owned()]),
                ("all others join", members(MEMBERS)),
            ];
            for (case, members) in cases {
                let subject = format!("{name}, {case}");
                report.add(&subject, rebalance(&mut client, members)?);
                if !subjects.contains(&subject) {
                    subjects.push(subject);
                }
            }
        }
    }
    for subject in subjects {
        let ms = report.median(&subject, "ms");
        report.judge(format!("{subject}, ms"), ms, Target::AtMost(MS_MAX));
    }
    report.print()?;
    Ok(())
}

/// We are in the middle of them.
fn members(count: usize) -> Vec<String> {
    let others = (1..count).map(|number| format!("127.0.0.{}@1#bench", number + 2));
    others.chain([CLIENT_ID.to_owned()]).collect()
}

fn joined(
    strategy: &AllocateMessageQueueStrategy,
    members: Vec<String>,
) -> Result<SimulatedClient> {
    let mut client = SimulatedClient::without_groups(32);
    client.add_topic(TOPIC, QUEUES);
    client.members = members;
    let group = GroupConfig::builder("Group").allocate_message_queue_strategy(strategy.clone());
    client.subscribe(group, TOPIC)?;
    client.settle()?;
    Ok(client)
}

fn rebalance(client: &mut SimulatedClient, members: Vec<String>) -> Result<Sample> {
    let query = client.next_members_query()?;
    client.members = members;
    let before = machine::thread_cpu();
    let requests = client.answer_members(query);
    let spent = machine::thread_cpu() - before;
    let sample = vec![
        ("ms", spent.as_secs_f64() * 1e3),
        ("requests", requests.len() as f64),
    ];
    for pending in requests {
        client.answer(&pending)?;
    }
    client.settle()?;
    Ok(sample)
}
