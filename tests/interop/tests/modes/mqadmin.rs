//! RocketMQ's own tool beside a Java member: one group of mqlet and one of Java, alike in
//! everything; what the tool shows and does is the same for both, except where the words
//! name the client itself.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::Duration;

use end_to_end::eventually::eventually;
use end_to_end::host_process::HostProcess;
use interop::broker::Connection;
use interop::cluster::Cluster;
use interop::host::{self, HostSettings};
use interop::java;

/// Generous: the machine may be compiling beside us.
const BOUND: Duration = Duration::from_secs(180);
const TOPIC: &str = "Watched";
const QUEUES: u32 = 4;
/// Names of one length, so that tables look alike.
const MQLET: &str = "group-of-mqlet";
const JAVA: &str = "group-of-javas";

/// Both groups, with one member each.
struct Both {
    cluster: Cluster,
    mqlet: HostProcess,
    java: HostProcess,
    client_ids: [String; 2],
    folder: tempfile::TempDir,
}

impl Both {
    fn start() -> Self {
        let cluster = Cluster::start(&[]);
        cluster.create_topic(TOPIC, QUEUES);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let component = guest_artifacts::path("ledger");
        let settings = HostSettings {
            component: &component,
            namesrv_addr: cluster.namesrv_addr(),
            consumer_group: MQLET,
            topic: TOPIC,
            consume: "",
        };
        let mut mqlet = host::start(folder.path(), &settings);
        let arguments = [cluster.namesrv_addr(), JAVA, TOPIC, "AVG"];
        let mut java = HostProcess::spawn(&mut java::program("Member", &arguments));
        mqlet.wait_for_line("serving", BOUND);
        java.wait_for_line(&format!("{TOPIC} queues {QUEUES}"), BOUND);
        let client_ids = [MQLET, JAVA].map(|group| {
            eventually("the member's id", BOUND, || {
                let said = cluster.mqadmin(&["consumerConnection", "-g", group]);
                let line = said.lines().find(|line| line.contains('@'))?;
                Some(
                    line.split_whitespace()
                        .find(|word| word.contains('@'))?
                        .to_owned(),
                )
            })
        });
        Self {
            cluster,
            mqlet,
            java,
            client_ids,
            folder,
        }
    }

    fn members(&self) -> [&HostProcess; 2] {
        [&self.mqlet, &self.java]
    }

    /// What the tool says about each, with `GROUP` and `CLIENT` in the arguments as in what
    /// it says.
    fn ask(&self, arguments: &[&str]) -> [String; 2] {
        let groups = [MQLET, JAVA];
        let said = |index: usize| {
            let (group, client_id) = (groups[index], self.client_ids[index].as_str());
            let arguments: Vec<String> = arguments
                .iter()
                .map(|word| word.replace("GROUP", group).replace("CLIENT", client_id))
                .collect();
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let said = self.cluster.mqadmin(&arguments);
            normal(&said.replace(group, "GROUP").replace(client_id, "CLIENT"))
        };
        thread::scope(|scope| {
            let asked = [0, 1].map(|index| scope.spawn(move || said(index)));
            asked.map(|asked| asked.join().expect("the tool runs"))
        })
    }

    /// What it says of both, which is the same, once it says all of these words.
    fn ask_alike(&self, arguments: &[&str], words: &[&str]) -> String {
        let [mqlet, java] = eventually("the tool's words", BOUND, || {
            let said = self.ask(arguments);
            let has_all = |said: &String| words.iter().all(|word| said.contains(word));
            said.iter().all(has_all).then_some(said)
        });
        assert_eq!(mqlet, java, "{arguments:?}: mqlet left, Java right");
        mqlet
    }

    fn wait_for(&self, body: &str, times: usize) {
        for member in self.members() {
            eventually(&format!("{times} of {body}"), BOUND, || {
                (self.times(member, body) >= times).then_some(())
            });
            assert_eq!(self.times(member, body), times, "{body}");
        }
    }

    fn times(&self, member: &HostProcess, prefix: &str) -> usize {
        let deliveries = member.deliveries();
        let of = deliveries.iter().filter(|one| one.body.starts_with(prefix));
        of.count()
    }

    /// As many to each queue; waits until both groups have committed them.
    fn consume(&self, prefix: &str, each: u32) {
        let mut broker = Connection::open(&self.cluster.broker_addr());
        for number in 0..each * QUEUES {
            let body = format!("{prefix}-{number}");
            broker.send(TOPIC, number % QUEUES, body.as_bytes());
        }
        self.wait_for(prefix, (each * QUEUES) as usize);
        self.committed_everything();
    }

    fn committed_everything(&self) {
        let mut broker = Connection::open(&self.cluster.broker_addr());
        eventually("all offsets at the end", BOUND, || {
            let mut at_end = |group, queue| {
                broker.committed(group, TOPIC, queue) == Some(broker.max_offset(TOPIC, queue))
            };
            let mut groups = [MQLET, JAVA].into_iter();
            groups
                .all(|group| (0..QUEUES).all(|queue| at_end(group, queue)))
                .then_some(())
        });
    }
}

/// Without addresses, times, rates, names of files and what the client calls itself; and
/// without the retry topic's progress, which Java sees up to a minute later.
fn normal(said: &str) -> String {
    let lines = said.lines().map(|line| {
        let words: Vec<String> = line.split_whitespace().map(normal_word).collect();
        words.join(" ")
    });
    let kept = lines.filter(|line| !line.is_empty() && !line.starts_with("%RETRY%GROUP broker-a"));
    kept.collect::<Vec<_>>().join("\n")
}

fn normal_word(word: &str) -> String {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let is_address = |text: &str| {
        let (host, port) = text.split_once(':').unwrap_or((text, "0"));
        host.split('.').count() == 4 && host.split('.').all(is_number) && is_number(port)
    };
    let is_rate = |text: &str| {
        let parts = text.split_once('.');
        parts.is_some_and(|(whole, rest)| is_number(whole) && is_number(rest))
    };
    // "lastPullTimestamp=20261130201511830," and the like; locks are an orderly group's.
    let (name, _) = word.split_once('=').unwrap_or((word, ""));
    match name {
        "lastLockTimestamp"
        | "lastPullTimestamp"
        | "lastConsumeTimestamp"
        | "spentTimeMills"
        | "locked" => return format!("{name}=…"),
        _ => {}
    }
    if is_address(word.trim_start_matches('/')) {
        "ADDRESS".to_owned()
    } else if is_rate(word) {
        "RATE".to_owned()
    } else if word == "RUST" || word == "JAVA" {
        "LANGUAGE".to_owned()
    } else if word.starts_with("V5_") {
        "VERSION".to_owned()
    } else if word.ends_with("/CLIENT") {
        "FILE".to_owned()
    } else {
        word.to_owned()
    }
}

/// The lines of a `consumerStatus` below this heading.
fn section<'a>(status: &'a str, heading: &str) -> Vec<&'a str> {
    let from_heading = status.lines().skip_while(|line| *line != heading).skip(1);
    from_heading
        .take_while(|line| !line.ends_with('#'))
        .collect()
}

/// Settings that both show, with other values for a reason.
const OTHER_WORDS: [&str; 6] = [
    // A class of Java's with an address in memory; RocketMQ's name of it.
    "allocateMessageQueueStrategy",
    "language",
    // Java says −1 where it means 16.
    "maxReconsumeTimes",
    "PROP_CLIENT_VERSION",
    "PROP_CONSUMER_START_TIMESTAMP",
    // Where each was told that they are.
    "PROP_NAMESERVER_ADDR",
];

#[test]
fn the_tool_shows_with_mqlet_what_it_shows_with_java() {
    let both = Both::start();
    both.consume("a", 10);
    let progress = both.ask_alike(&["consumerProgress", "-g", "GROUP"], &[TOPIC]);
    for queue in 0..QUEUES {
        let line = format!("{TOPIC} broker-a {queue} 10 10 0 0 ");
        assert!(progress.contains(&line), "{line} in {progress}");
    }
    both.ask_alike(
        &["consumerConnection", "-g", "GROUP"],
        &["CONSUME_PASSIVELY", TOPIC],
    );
    both.ask_alike(&["consumerStatus", "-g", "GROUP"], &["Rebalance OK"]);
    let [of_mqlet, of_java] = both.ask(&["statsAll", "-t", TOPIC]);
    let row = |said: &str| {
        said.lines()
            .find(|line| line.contains(" GROUP "))
            .map(str::to_owned)
    };
    assert!(row(&of_mqlet).is_some(), "{of_mqlet}");
    assert_eq!(row(&of_mqlet), row(&of_java), "statsAll");

    let [of_mqlet, of_java] = eventually("a running info of both", BOUND, || {
        let said = both.ask(&["consumerStatus", "-g", "GROUP", "-i", "CLIENT"]);
        let is_whole = |said: &String| said.contains("#User Consume Info#");
        said.iter().all(is_whole).then_some(said)
    });
    for heading in [
        "#Consumer Subscription#",
        "#Consumer Offset#",
        "#Consumer MQ Detail#",
    ] {
        let of_mqlet = section(&of_mqlet, heading);
        assert!(of_mqlet.len() >= 2, "{heading} {of_mqlet:?}");
        assert_eq!(of_mqlet, section(&of_java, heading), "{heading}");
    }
    let settings = |said: &str| -> BTreeMap<String, String> {
        let lines = section(said, "#Consumer Properties#").into_iter();
        lines
            .filter_map(|line| line.split_once(" : "))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    };
    let (of_mqlet, of_java) = (settings(&of_mqlet), settings(&of_java));
    let shared = of_mqlet
        .iter()
        .filter(|(name, _)| of_java.contains_key(*name));
    let differ: BTreeSet<&str> = shared
        .clone()
        .filter(|(name, value)| of_java[*name] != **value)
        .map(|(name, _)| name.as_str())
        .collect();
    assert!(shared.count() >= 15, "{of_mqlet:?}");
    let unexplained: Vec<_> = differ
        .iter()
        .filter(|name| !OTHER_WORDS.contains(name))
        .collect();
    assert!(
        unexplained.is_empty(),
        "{unexplained:?}: {of_mqlet:?}, {of_java:?}"
    );

    // What members hold in memory (request 223; the tool has no command for it in 5.5).
    let mut broker = Connection::open(&both.cluster.broker_addr());
    for group in [MQLET, JAVA] {
        let status = broker.consumer_status(group, TOPIC);
        for queue in 0..QUEUES {
            let entry = format!(
                "{{\"brokerName\":\"broker-a\",\"queueId\":{queue},\"topic\":\"{TOPIC}\"}}:10"
            );
            assert!(status.contains(&entry), "{group}: {entry} in {status}");
        }
    }
}

#[test]
fn the_tool_does_with_mqlet_what_it_does_with_java() {
    let both = Both::start();
    both.consume("a", 10);
    // Everything again.
    let reset = ["resetOffsetByTime", "-g", "GROUP", "-t", TOPIC, "-s", "0"];
    let sorted = |said: &str| -> BTreeSet<String> { said.lines().map(str::to_owned).collect() };
    let [of_mqlet, of_java] = both.ask(&reset).map(|said| sorted(&said));
    assert!(of_mqlet.contains("broker-a 3 0"), "{of_mqlet:?}");
    assert_eq!(of_mqlet, of_java);
    both.wait_for("a", 80);
    both.committed_everything();

    // Another group takes over where it is.
    both.ask(&[
        "updateSubGroup",
        "-c",
        "DefaultCluster",
        "-g",
        "heir-of-GROUP",
    ]);
    let clone = [
        "cloneGroupOffset",
        "-s",
        "GROUP",
        "-d",
        "heir-of-GROUP",
        "-t",
        TOPIC,
        "-o",
        "true",
    ];
    both.ask_alike(&clone, &["success"]);
    let mut broker = Connection::open(&both.cluster.broker_addr());
    for group in [MQLET, JAVA] {
        for queue in 0..QUEUES {
            let heir = broker.committed(&format!("heir-of-{group}"), TOPIC, queue);
            assert_eq!(heir, Some(10), "{group}, queue {queue}");
        }
    }

    // One message is consumed now, and no offset moves.
    let namesrv_addr = both.cluster.namesrv_addr();
    let send = [
        "send",
        TOPIC,
        "once",
        "--namesrv-addr",
        namesrv_addr,
        "--output",
        "json",
    ];
    let sent = host::mqlet(both.folder.path(), &send);
    let id = sent
        .split("\"offset_message_id\":\"")
        .nth(1)
        .expect("an id");
    let id = id.split('"').next().expect("an id");
    both.wait_for("once", 1);
    both.committed_everything();
    let direct = [
        "queryMsgById",
        "-i",
        id,
        "-t",
        TOPIC,
        "-g",
        "GROUP",
        "-d",
        "CLIENT",
    ];
    // The tool gives up within half a second, which a busy machine may need.
    let said = eventually("the outcome of both", BOUND, || {
        let said = both.ask(&direct);
        let is_done = |said: &String| said.contains("CR_SUCCESS");
        said.iter().all(is_done).then_some(said)
    });
    let [of_mqlet, of_java] = said.map(|said| {
        let line = said.lines().find(|line| line.contains("CR_SUCCESS"));
        line.expect("found above").to_owned()
    });
    assert_eq!(of_mqlet, of_java);
    for member in both.members() {
        assert!(both.times(member, "once") >= 2, "consumed again");
    }
    both.committed_everything();

    // A group may be forbidden to consume, and allowed again: nothing is lost or repeated.
    let allow = |word| {
        let update = [
            "updateSubGroup",
            "-c",
            "DefaultCluster",
            "-g",
            "GROUP",
            "-s",
            word,
        ];
        both.ask_alike(&update, &["success", &format!("consumeEnable={word}")]);
    };
    allow("false");
    for queue in 0..QUEUES {
        broker.send(TOPIC, queue, b"held");
    }
    eventually("it is told why nothing comes", BOUND, || {
        let queues = host::mqlet(both.folder.path(), &["queues", MQLET, "--output", "json"]);
        let of_topic = queues
            .lines()
            .filter(|line| line.contains(&format!("\"{TOPIC}@")));
        let refused = of_topic.filter(|line| line.contains("\"cause\":\"pull-refused\""));
        (refused.count() == QUEUES as usize).then_some(())
    });
    for member in both.members() {
        assert_eq!(both.times(member, "held"), 0);
    }
    allow("true");
    both.wait_for("held", QUEUES as usize);
    both.committed_everything();
}
