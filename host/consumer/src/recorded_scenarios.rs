//! Recorded scenarios replayed against the rules: fed what the broker answered a Java
//! client, they ask what that client asked, or the difference is written down in
//! [`known_differences`] with its reason.
//!
//! The recordings are `host/protocol/testdata/frames`. What both sides ask is compared
//! without order, since Java's threads ask in any; what must come before what is checked
//! beside it.

mod callbacks;
mod known_differences;
mod recording;
mod replay;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::QueueOffset;
use protocol::code::request_code;
use protocol::subscription::SubscriptionData;

use crate::SeekTo;
use crate::assignment::QueueSelector;
use crate::config::{GroupConfig, GroupConfigBuilder};
use crate::listener::{ConsumeMode, MessageModel};
use known_differences::{DIFFERENCES, REWRITINGS, Side, is_as};
use recording::Recording;
use replay::{Asked, replay};

/// One client of one recording.
struct Scenario {
    /// File in `testdata/frames`, without ending.
    file: &'static str,
    client_id: &'static str,
    /// The client's connections in the recording.
    connections: &'static [&'static str],
    /// What a heartbeat does not say of the group.
    configure: fn(GroupConfigBuilder) -> GroupConfigBuilder,
    /// What its application does, and at which millisecond.
    acts: &'static [(u64, Act)],
    /// Milliseconds at which the client is stopped.
    stop_at: u64,
}

/// What an application asks of its client.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// To go on with a queue of the topic at a place.
    Seek {
        topic: &'static str,
        queue_id: u32,
        to: SeekTo,
    },
}

const SCENARIOS: &[Scenario] = &[
    Scenario {
        file: "push-concurrent",
        client_id: "192.0.2.10@push-1",
        connections: &["c1", "c2"],
        configure: |group| group,
        acts: &[],
        stop_at: 37_968,
    },
    Scenario {
        file: "push-concurrent",
        client_id: "192.0.2.10@push-2",
        connections: &["c5", "c6"],
        configure: |group| group,
        acts: &[],
        stop_at: 32_447,
    },
    Scenario {
        file: "push-retry-dlq",
        client_id: "192.0.2.10@retry-1",
        connections: &["c1", "c2"],
        configure: |group| group.max_reconsume_times(1),
        acts: &[],
        stop_at: 13_300,
    },
    Scenario {
        file: "push-orderly",
        client_id: "192.0.2.10@orderly-1",
        connections: &["c1", "c2"],
        configure: orderly,
        acts: &[],
        stop_at: 35_400,
    },
    Scenario {
        file: "push-orderly",
        client_id: "192.0.2.10@orderly-2",
        connections: &["c5", "c6"],
        configure: orderly,
        acts: &[],
        stop_at: 29_750,
    },
    Scenario {
        file: "push-tag-filter",
        client_id: "192.0.2.10@tags-1",
        connections: &["c3", "c4"],
        configure: |group| group,
        acts: &[],
        stop_at: 13_550,
    },
    Scenario {
        file: "push-subscription-not-latest",
        client_id: "192.0.2.10@trace-1",
        connections: &["c1", "c2"],
        configure: |group| group,
        acts: &[],
        stop_at: 15_000,
    },
    Scenario {
        file: "push-broadcasting",
        client_id: "192.0.2.10@broadcast-1",
        connections: &["c1", "c2"],
        configure: |group| group.message_model(MessageModel::Broadcasting),
        acts: &[],
        stop_at: 3_385,
    },
    Scenario {
        file: "push-broadcasting",
        client_id: "192.0.2.10@broadcast-2",
        connections: &["c3", "c4"],
        configure: |group| group.message_model(MessageModel::Broadcasting),
        acts: &[],
        stop_at: 6_395,
    },
    Scenario {
        file: "pull-consumer",
        client_id: "192.0.2.10@pull-1@STREAM",
        connections: &["c3", "c4"],
        configure: |group| group.pull_task_interval(GroupConfig::PULL_TASK_INTERVAL),
        acts: &[],
        stop_at: 30_150,
    },
    Scenario {
        file: "lite-pull",
        client_id: "192.0.2.10@lite-1@STREAM",
        connections: &["c3", "c5"],
        configure: |group| group.pull_batch_size(10),
        acts: &[(
            7_268,
            Act::Seek {
                topic: "T_lite",
                queue_id: 1,
                to: SeekTo::MinOffset,
            },
        )],
        stop_at: 16_720,
    },
    Scenario {
        file: "lite-pull",
        client_id: "192.0.2.10@lite-assign@STREAM",
        connections: &["c6", "c7"],
        configure: |group| {
            let topic = SubscriptionData::all("T_lite");
            let queues = vec![QueueSelector::topic("T_lite")];
            group.subscription(topic).assign(queues).pull_batch_size(10)
        },
        acts: &[(
            19_866,
            Act::Seek {
                topic: "T_lite",
                queue_id: 1,
                to: SeekTo::Offset(QueueOffset(1)),
            },
        )],
        stop_at: 20_470,
    },
];

/// Two retries here, 300 ms apart, as the recorded listener had it.
fn orderly(group: GroupConfigBuilder) -> GroupConfigBuilder {
    group
        .mode(ConsumeMode::Orderly { auto_commit: true })
        .consume_message_batch_max_size(1)
        .max_reconsume_times(2)
        .suspend_current_queue_time(Duration::from_millis(300))
}

/// What one side asked, compared.
#[derive(Debug)]
struct Comparison {
    place: String,
    only_java: BTreeSet<String>,
    only_ours: BTreeSet<String>,
}

#[test]
fn recorded_answers_make_the_rules_ask_what_java_asked() {
    let mut used = BTreeSet::new();
    let mut rewritten = BTreeSet::new();
    let mut unexplained = Vec::new();
    for scenario in SCENARIOS {
        let recording = Recording::load(scenario);
        let ours = replay(scenario, &recording);
        let comparison = compare(scenario, &recording, &ours, &mut rewritten);
        for (side, forms) in [
            (Side::Java, &comparison.only_java),
            (Side::Ours, &comparison.only_ours),
        ] {
            for form in forms {
                let reason = DIFFERENCES.iter().position(|difference| {
                    difference.side == side
                        && difference.scenario.is_none_or(|name| name == scenario.file)
                        && is_as(form, difference.form)
                });
                match reason {
                    Some(index) => drop(used.insert(index)),
                    None => unexplained.push(format!("{} {side:?} {form}", comparison.place)),
                }
            }
        }
        assert_order(&comparison.place, &recording, &ours);
    }
    assert!(
        unexplained.is_empty(),
        "asked by one side only, and no entry of known_differences says why:\n{}",
        unexplained.join("\n")
    );
    let differences = (0..DIFFERENCES.len()).filter(|index| !used.contains(index));
    let rewritings = (0..REWRITINGS.len()).filter(|index| !rewritten.contains(index));
    let unused: Vec<_> = differences
        .map(|index| DIFFERENCES[index].form)
        .chain(rewritings.map(|index| REWRITINGS[index].ours))
        .collect();
    assert!(unused.is_empty(), "explain nothing any more: {unused:?}");
}

fn compare(
    scenario: &Scenario,
    recording: &Recording,
    ours: &[Asked],
    rewritten: &mut BTreeSet<usize>,
) -> Comparison {
    let mut forms = |asked: &[Asked], side: Side| -> BTreeSet<String> {
        let mut forms: BTreeSet<String> = asked.iter().flat_map(Asked::forms).collect();
        if side == Side::Ours {
            forms = forms
                .into_iter()
                .map(|form| as_java_writes_it(scenario, form, rewritten))
                .collect();
        }
        // Each send-back is one attempt: how many there are matters.
        let mut times: BTreeMap<String, usize> = BTreeMap::new();
        for asked in asked {
            if asked.code() == request_code::CONSUMER_SEND_MSG_BACK {
                for form in asked.forms() {
                    *times.entry(form).or_default() += 1;
                }
            }
        }
        forms.extend(
            times
                .into_iter()
                .map(|(form, n)| format!("{n} times {form}")),
        );
        forms.extend(
            last_commits(asked)
                .into_iter()
                .map(|(queue, offset)| format!("last commit of {queue}: {offset}")),
        );
        forms
    };
    let java = forms(&recording.asked, Side::Java);
    let ours = forms(ours, Side::Ours);
    Comparison {
        place: format!("{} {}", scenario.file, scenario.client_id),
        only_java: java.difference(&ours).cloned().collect(),
        only_ours: ours.difference(&java).cloned().collect(),
    }
}

/// A form of ours with the parts that Java writes differently.
fn as_java_writes_it(
    scenario: &Scenario,
    mut form: String,
    rewritten: &mut BTreeSet<usize>,
) -> String {
    for (index, rewriting) in REWRITINGS.iter().enumerate() {
        let is_here = rewriting.scenario.is_none_or(|name| name == scenario.file);
        if is_here && form.starts_with(rewriting.request) && form.contains(rewriting.ours) {
            form = form.replacen(rewriting.ours, rewriting.java, 1);
            rewritten.insert(index);
        }
    }
    form
}

/// What the broker knew of each queue in the end.
fn last_commits(asked: &[Asked]) -> BTreeMap<String, String> {
    let mut commits = BTreeMap::new();
    for asked in asked {
        if let Some((queue, offset)) = asked.commit() {
            commits.insert(queue, offset);
        }
    }
    commits
}

/// Nobody pulls before the broker knows the group and the offset is known, and a group
/// leaves after its last commit.
fn assert_order(place: &str, recording: &Recording, ours: &[Asked]) {
    let first = |code: i32| ours.iter().position(|asked| asked.code() == code);
    let beginning = [
        request_code::GET_ROUTEINFO_BY_TOPIC,
        request_code::HEART_BEAT,
        request_code::GET_CONSUMER_LIST_BY_GROUP,
        request_code::QUERY_CONSUMER_OFFSET,
        request_code::PULL_MESSAGE,
    ]
    .into_iter()
    .filter(|&code| recording.asked.iter().any(|asked| asked.code() == code))
    .map(|code| first(code).unwrap_or_else(|| panic!("{place}: {code} was never asked")));
    let beginning: Vec<usize> = beginning.collect();
    assert!(beginning.is_sorted(), "{place}: {beginning:?}");
    let left = first(request_code::UNREGISTER_CLIENT).expect("the client left");
    let last_commit = ours.iter().rposition(|asked| asked.commit().is_some());
    assert!(
        last_commit < Some(left),
        "{place}: left before the last commit"
    );
}
