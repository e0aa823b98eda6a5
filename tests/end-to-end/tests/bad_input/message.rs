//! Messages that no listener can have: each is a dead letter or skipped, with its reason,
//! and its neighbours flow.

use std::io::Write as _;
use std::net::TcpStream;

use end_to_end::embedded_broker::{BOUND, EmbeddedBroker};
use end_to_end::eventually::eventually;
use end_to_end::host_folder::HostFolder;
use end_to_end::hostile_proxy::{HostileProxy, Treatment, broker_addr_in};
use end_to_end::ledger::counts;
use end_to_end::remoting_frame::{Frame, GET_ROUTEINFO_BY_TOPIC, PULL_MESSAGE, SEND_MESSAGE};
use guest_artifacts::path;

use crate::stop;

/// RocketMQ: `MessageSysFlag#COMPRESSED_FLAG`.
const COMPRESSED: u32 = 1;
/// RocketMQ: `MessageDecoder#MESSAGE_MAGIC_CODE`.
const MAGIC: [u8; 4] = [0xda, 0xa3, 0x20, 0xa7];

/// Where the broker of a topic is.
fn broker_addr(broker: &EmbeddedBroker, topic: &str) -> String {
    let ext_fields = format!(r#"{{"topic":"{topic}"}}"#);
    let request = Frame::request(GET_ROUTEINFO_BY_TOPIC, 1, &ext_fields, b"");
    let answer = ask(broker.namesrv_addr(), &request);
    let route = String::from_utf8_lossy(answer.body()).into_owned();
    broker_addr_in(&route).expect("a broker").to_owned()
}

fn ask(address: &str, request: &Frame) -> Frame {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(request.bytes()).expect("it reads");
    let answer = Frame::read(&mut stream).expect("it answers");
    answer.expect("it answers")
}

/// Stores a message with these marks, past everything that `mqlet send` checks.
fn send_raw(broker_addr: &str, topic: &str, sys_flag: u32, properties: &str, body: &[u8]) {
    let ext_fields = format!(
        r#"{{"producerGroup":"raw","topic":"{topic}","defaultTopic":"TBW102","defaultTopicQueueNums":"4","queueId":"0","sysFlag":"{sys_flag}","bornTimestamp":"1700000000000","flag":"0","properties":"{properties}","reconsumeTimes":"0","unitMode":"false","batch":"false"}}"#
    );
    let request = Frame::request(SEND_MESSAGE, 1, &ext_fields, body);
    let answer = ask(broker_addr, &request);
    assert_eq!(
        answer.code(),
        0,
        "{}",
        String::from_utf8_lossy(answer.bytes())
    );
}

#[test]
fn bodies_that_cannot_be_opened_are_dead_letters_and_neighbours_flow() {
    let broker = EmbeddedBroker::start();
    broker.send("ledger", ["before"]);
    let broker_addr = broker_addr(&broker, "ledger");
    let zstd = COMPRESSED | 2 << 8;
    let lz4 = COMPRESSED | 1 << 8;
    let unknown = COMPRESSED | 7 << 8;
    for sys_flag in [COMPRESSED, lz4, zstd, unknown] {
        send_raw(&broker_addr, "ledger", sys_flag, "", b"garbage");
    }
    broker.send("ledger", ["after"]);
    let folder =
        HostFolder::new(broker.namesrv_addr(), "").with_plugin("ledger", &path("ledger"), "");
    let host = folder.run(&[]);

    eventually("the neighbours", BOUND, || {
        (host.delivery_count() >= 2).then_some(())
    });
    eventually("four dead letters", BOUND, || {
        let lines = host.lines();
        let told = lines.iter().filter(|line| {
            line.contains("ERROR") && line.contains("cannot be consumed, made a dead letter")
        });
        (told.count() == 4).then_some(())
    });
    eventually("four messages in the dead letters", BOUND, || {
        let found = dead_letters(&broker, "ledger-group");
        (found == 4).then_some(())
    });
    assert_eq!(host.delivery_count(), 2, "{:?}", host.deliveries());
    stop(host);
}

/// How many messages a plugin consumes from the dead letters of a group.
fn dead_letters(broker: &EmbeddedBroker, group: &str) -> usize {
    let lines = broker.process.lines();
    let told = lines
        .iter()
        .filter(|line| line.contains("is a dead letter now") && line.contains(group));
    told.count()
}

#[test]
fn strange_properties_cost_nothing() {
    let broker = EmbeddedBroker::start();
    broker.send("ledger", ["before"]);
    let broker_addr = broker_addr(&broker, "ledger");
    let strange = [
        "no separators at all",
        "\\u0001\\u0002\\u0001\\u0002\\u0002\\u0001\\u0001",
        "KEYS\\u0001",
        "\\u0001value without a name\\u0002TAGS\\u0001twice\\u0002TAGS\\u0001twice",
        "RETRY_TOPIC\\u0001\\u0002RECONSUME_TIME\\u0001-99999999999999\\u0002MAX_RECONSUME_TIMES\\u0001many",
        "INNER_NUM\\u0001-1\\u0002BORN_TIMESTAMP\\u0001x\\u0002CONSUME_START_TIME\\u0001\\u0002UNIQ_KEY\\u0001\\u0002CLUSTER\\u0001",
    ];
    for (number, properties) in strange.iter().enumerate() {
        let body = format!("strange{number}");
        send_raw(&broker_addr, "ledger", 0, properties, body.as_bytes());
        let body = format!("fail{number}");
        send_raw(&broker_addr, "ledger", 0, properties, body.as_bytes());
    }
    broker.send("ledger", ["after"]);
    let folder = HostFolder::new(broker.namesrv_addr(), "").with_plugin(
        "ledger",
        &path("ledger"),
        "[consume]\nmax_reconsume_times = 1",
    );
    let host = folder.run(&[]);

    eventually("every message, and those that fail again", BOUND, || {
        let deliveries = host.deliveries();
        let counts = counts(&deliveries);
        let all = (0..strange.len()).all(|number| {
            counts.contains_key(format!("strange{number}").as_str())
                && counts
                    .get(format!("fail{number}").as_str())
                    .is_some_and(|count| *count >= 2)
        });
        (all && counts.contains_key("after")).then_some(())
    });
    stop(host);
}

#[test]
fn damaged_records_are_given_up_one_by_one_and_neighbours_flow() {
    let broker = EmbeddedBroker::start();
    broker.send("ledger", ["whole"]);
    let broker_addr = broker_addr(&broker, "ledger");
    let bodies: Vec<String> = (0..20).map(|number| format!("whole{number}")).collect();
    // One queue, so that all are in one answer.
    for body in bodies
        .iter()
        .map(String::as_str)
        .take(10)
        .chain(["spoilt-crc", "spoilt-magic"])
    {
        send_raw(&broker_addr, "ledger", 0, "", body.as_bytes());
    }
    for body in &bodies[10..] {
        send_raw(&broker_addr, "ledger", 0, "", body.as_bytes());
    }
    let proxy = HostileProxy::start(
        broker.namesrv_addr(),
        Box::new(|code, mut answer| {
            if code == PULL_MESSAGE {
                let bytes = answer.bytes_mut();
                if let Some(at) = find(bytes, b"spoilt-crc") {
                    bytes[at] ^= 1;
                }
                if let Some(at) = find(bytes, b"spoilt-magic") {
                    let magic = bytes[..at].windows(4).rposition(|window| window == MAGIC);
                    bytes[magic.expect("a record")] ^= 1;
                }
            }
            Treatment::Right(answer)
        }),
    );
    let folder =
        HostFolder::new(proxy.namesrv_addr(), "").with_plugin("ledger", &path("ledger"), "");
    let host = folder.run(&[]);

    eventually("all that are whole", BOUND, || {
        let deliveries = host.deliveries();
        let counts = counts(&deliveries);
        bodies
            .iter()
            .all(|body| counts.contains_key(body.as_str()))
            .then_some(())
    });

    let lines = host.lines();
    let told = |text: &str| {
        lines
            .iter()
            .filter(|line| line.contains("ERROR") && line.contains(text))
            .count()
    };
    assert_eq!(told("made a dead letter"), 1);
    assert_eq!(told("skipped for good"), 1);
    let deliveries = host.deliveries();
    let counts = counts(&deliveries);
    assert!(
        counts.keys().all(|body| body.starts_with("whole")),
        "{counts:?}"
    );
    assert!(counts.values().all(|count| *count == 1), "{counts:?}");
    stop(host);
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}
