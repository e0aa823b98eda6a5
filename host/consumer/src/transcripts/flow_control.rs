//! What holds pulls back, and who is pulled first when it ends.

use super::*;
use crate::status::Cause;
use crate::testing::{CLIENT_ID, batch};

/// Queues of `T1` that are being pulled.
fn pulled(t: &Harness) -> Vec<String> {
    let lines = t.open_requests();
    let queues = lines.iter().filter_map(|line| {
        let (_, rest) = line.split_once("PullMessage T1@broker-a:")?;
        rest.split_whitespace().next().map(str::to_owned)
    });
    queues.collect()
}

#[test]
fn the_threshold_of_a_topic_is_divided_among_our_queues() {
    // Given four queues that may hold two messages each.
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 4)]);
    pull_with(&mut t, group("T1").pull_threshold_for_topic(8));
    // When one is at its share and one over it, which is far below the queue's threshold.
    t.answer_found("PullMessage T1@broker-a:0", &messages(0..2));
    t.answer_found("PullMessage T1@broker-a:1", &messages(0..3));
    // Then only that one is held back.
    assert_eq!(pulled(&t), ["2", "3", "0"], "{}", t.transcript());

    // When another member takes two of the queues, each of the others may hold four.
    t.cluster.members = vec![CLIENT_ID.to_owned(), "10.0.0.9@2#zzz".to_owned()];
    t.notify_members_changed("G1");
    t.wait(seconds(1));
    t.settle();
    // Then it is pulled again at once, though nothing was finished.
    let pulled = pulled(&t);
    assert!(pulled.contains(&"1".to_owned()), "{}", t.transcript());
}

#[test]
fn a_queue_has_at_least_a_message_of_the_threshold_of_its_topic() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 4)]);
    pull_with(&mut t, group("T1").pull_threshold_for_topic(2));
    t.answer_found("PullMessage T1@broker-a:0", &messages(0..1));
    t.answer_found("PullMessage T1@broker-a:1", &messages(0..2));
    assert_eq!(pulled(&t), ["2", "3", "0"], "{}", t.transcript());
}

/// Two groups, each with a topic of one queue; room for eight answers of one message.
fn two_groups(first: GroupConfigBuilder) -> Harness {
    let one = batch(&messages(0..1)).bytes() as u64;
    let mut t = Harness::new(|config| config.buffer_bytes = 8 * one);
    t.topic("T1", &[("broker-a", 1)]);
    t.topic("T2", &[("broker-a", 1)]);
    pull_with(&mut t, first.pull_batch_size_in_bytes(1));
    let second = tagged_group_named("G2", "T2").pull_batch_size_in_bytes(1);
    pull_with(&mut t, second);
    t
}

fn tagged_group_named(group: &str, topic: &str) -> GroupConfigBuilder {
    GroupConfig::builder(group).subscription(SubscriptionData::all(topic))
}

/// Answers pulls of a topic with one message each until it is not pulled any more.
fn fill(t: &mut Harness, topic: &str) -> u64 {
    let pull = format!("PullMessage {topic}@");
    let mut count = 0;
    let next = |t: &Harness| {
        let status = t.client.status(t.now());
        let topics = status.groups.iter().flat_map(|group| &group.topics);
        let queue = topics
            .flat_map(|topic| &topic.queues)
            .find(|queue| &*queue.queue.topic == topic);
        queue.and_then(|queue| queue.next_offset).map_or(0, |o| o.0)
    };
    while t.open_requests().iter().any(|line| line.contains(&pull)) {
        let offset = next(t);
        t.answer_found(&pull, &[TestMessage::new(topic, offset)]);
        if next(t) > offset {
            count += 1;
        }
        assert!(count < 100, "nothing holds it back");
    }
    count
}

fn cause(t: &Harness, group: usize, topic: &str) -> Cause {
    let status = t.client.status(t.now());
    let mut topics = status.groups[group].topics.iter();
    let found = topics.find(|status| &*status.topic == topic);
    found.expect("a topic").queues[0].reason.cause
}

/// Ends the oldest call of a topic.
fn end_call(t: &mut Harness, topic: &str) {
    let mut calls = t.numbered_calls();
    let call = calls.find(|(_, request)| &*request.topic == topic);
    let (number, _) = call.expect("a call");
    drop(calls);
    t.result(number, success());
}

#[test]
fn a_group_that_hoards_leaves_its_neighbours_their_shares() {
    let mut t = two_groups(group("T1"));
    // Given a group whose calls never end: it has its share, a quarter, and the common half.
    assert_eq!(fill(&mut t, "T1"), 6);
    assert_eq!(cause(&t, 0, "T1"), Cause::BufferBytes);
    // Then the other still has its own share,
    assert_eq!(fill(&mut t, "T2"), 2);
    assert_eq!(cause(&t, 1, "T2"), Cause::BufferBytes);
    // and goes on with it, whatever the first does.
    for _ in 0..5 {
        end_call(&mut t, "T2");
        assert_eq!(fill(&mut t, "T2"), 1, "{}", t.transcript());
    }
    // When the first gives back what is common, the other may have that too.
    for _ in 0..3 {
        end_call(&mut t, "T1");
    }
    t.wait(seconds(1));
    assert!(fill(&mut t, "T2") > 0, "{}", t.transcript());
}

#[test]
fn a_group_has_a_bound_of_its_own() {
    let one = batch(&messages(0..1)).bytes() as u64;
    let mut t = two_groups(group("T1").buffer_bytes(3 * one));
    assert_eq!(fill(&mut t, "T1"), 3);
    assert_eq!(cause(&t, 0, "T1"), Cause::GroupBufferBytes);
    assert_eq!(fill(&mut t, "T2"), 5, "all but the share of the first");
    end_call(&mut t, "T1");
    assert_eq!(fill(&mut t, "T1"), 1, "{}", t.transcript());
}

#[test]
fn a_message_larger_than_every_bound_is_consumed_when_nothing_else_is_held() {
    let mut t = two_groups(group("T1").buffer_bytes(1));
    let large = |topic, offset| {
        let mut message = TestMessage::new(topic, offset);
        message.body = vec![b'x'; 10_000];
        [message]
    };
    t.answer_found("PullMessage T1", &large("T1", 0));
    assert_eq!(t.calls().count(), 1, "{}", t.transcript());
    // One at a time.
    t.answer_found("PullMessage T2", &large("T2", 0));
    assert_eq!(t.calls().count(), 1, "{}", t.transcript());
    assert_eq!(cause(&t, 1, "T2"), Cause::BufferBytes);
    t.wait(seconds(60));
    let pulled_meanwhile = t.transcript().matches("PullMessage T2").count();
    assert!(pulled_meanwhile < 3, "{}", t.transcript());
    end_call(&mut t, "T1");
    t.answer_found("PullMessage T2", &large("T2", 0));
    assert_eq!(t.calls().count(), 1, "{}", t.transcript());
    // The first goes on, too.
    end_call(&mut t, "T2");
    t.answer_found("PullMessage T1", &large("T1", 1));
    assert_eq!(t.calls().count(), 1, "{}", t.transcript());
}

#[test]
fn queues_that_wait_for_memory_take_turns() {
    // Given four queues and room for one answer.
    let one = batch(&messages(0..1)).bytes() as u64;
    let mut t = Harness::new(|config| config.buffer_bytes = one);
    t.topic("T1", &[("broker-a", 4)]);
    let bytes = u32::try_from(one).expect("small");
    pull_with(&mut t, group("T1").pull_batch_size_in_bytes(bytes));
    let mut consumed = std::collections::BTreeMap::<String, u32>::new();
    for _ in 0..40 {
        // When all that are pulled are answered, whoever comes first is kept.
        for queue in pulled(&t) {
            let pull = format!("PullMessage T1@broker-a:{queue} ");
            let status = t.client.status(t.now());
            let queues = &status.groups[0].topics[1].queues;
            let index: usize = queue.parse().expect("a number");
            let offset = queues[index].next_offset.map_or(0, |offset| offset.0);
            t.answer_found(&pull, &messages(offset..offset + 1));
        }
        loop {
            let call = t.numbered_calls().next();
            let Some((number, request)) = call else { break };
            let queue = request.message_queue.to_string();
            *consumed.entry(queue).or_default() += 1;
            t.result(number, success());
        }
        t.wait(Duration::from_millis(50));
    }
    // Then all have had about as many turns.
    assert_eq!(consumed.len(), 4, "{consumed:?}\n{}", t.transcript());
    let (least, most) = (consumed.values().min(), consumed.values().max());
    let least = least.copied().unwrap_or_default();
    assert!(most.is_some_and(|&most| most <= least + 3), "{consumed:?}");
}

/// Groups with random bounds that get answers of random sizes.
struct Crowd {
    t: Harness,
    random: fastrand::Rng,
    largest: u64,
    consumed: std::collections::BTreeMap<String, u32>,
}

impl Crowd {
    fn new(seed: u64) -> (Self, u64) {
        let mut random = fastrand::Rng::with_seed(seed);
        let groups = random.u64(1..5);
        let one = batch(&messages(0..1)).bytes() as u64;
        let bound = 2 * groups * (one + random.u64(0..1000));
        let mut t = Harness::new(|config| config.buffer_bytes = bound);
        for number in 0..groups {
            let topic = format!("T{number}");
            t.topic(&topic, &[("broker-a", 2)]);
            let mut group = tagged_group_named(&format!("G{number}"), &topic)
                .pull_batch_size_in_bytes(random.u32(1..2000));
            if random.bool() {
                group = group.buffer_bytes(random.u64(1..3000));
            }
            pull_with(&mut t, group);
        }
        let crowd = Self {
            t,
            random,
            largest: 0,
            consumed: std::collections::BTreeMap::new(),
        };
        (crowd, bound)
    }

    /// Answers one of the pulls.
    fn answer(&mut self, body_bytes_max: usize) {
        let lines = self.t.open_requests();
        let pulls = lines.iter().filter(|line| line.contains("PullMessage T"));
        let pulls: Vec<&String> = pulls.collect();
        if pulls.is_empty() {
            return;
        }
        let line = pulls[self.random.usize(..pulls.len())];
        let (topic, rest) = line
            .split_once("PullMessage ")
            .expect("a pull")
            .1
            .split_at(2);
        let (_, from) = rest.split_once("from ").expect("its offset");
        let from: u64 = from
            .split(',')
            .next()
            .expect("a number")
            .parse()
            .expect("one");
        let message = |offset| {
            let mut message = TestMessage::new(topic, offset);
            message.body = vec![b'x'; body_bytes_max];
            message
        };
        let count = if body_bytes_max == 0 {
            1
        } else {
            self.random.u64(1..4)
        };
        let answer: Vec<_> = (from..from + count).map(message).collect();
        self.largest = self.largest.max(batch(&answer).bytes() as u64);
        let number = line.split_whitespace().next().expect("its number");
        self.t.answer_found(&format!("{number} "), &answer);
    }

    /// Ends one of the calls but those of this topic.
    fn end_call(&mut self, but: &str) {
        let calls = self.t.numbered_calls();
        let calls: Vec<_> = calls.filter(|(_, call)| &*call.topic != but).collect();
        if calls.is_empty() {
            return;
        }
        let (number, request) = &calls[self.random.usize(..calls.len())];
        *self.consumed.entry(request.topic.to_string()).or_default() += 1;
        self.t.result(*number, success());
    }
}

#[test]
fn whatever_the_sizes_memory_is_bounded_and_nobody_starves() {
    for seed in 0..200 {
        let (mut crowd, bound) = Crowd::new(seed);
        for _ in 0..150 {
            match crowd.random.u32(0..10) {
                0..=5 => {
                    let body_bytes = crowd.random.usize(..800);
                    crowd.answer(body_bytes);
                }
                6..=8 => crowd.end_call(""),
                _ => crowd.t.wait(Duration::from_millis(60)),
            }
            let held = crowd.t.client.status(crowd.t.now()).held_bytes;
            assert!(
                held <= bound + crowd.largest,
                "seed {seed}: {held} of {bound} bytes\n{}",
                crowd.t.transcript()
            );
        }
        // When all is finished, and then the first group hangs for ever,
        while crowd.t.calls().next().is_some() {
            crowd.end_call("");
        }
        crowd.consumed.clear();
        for _ in 0..400 {
            crowd.answer(0);
            crowd.end_call("T0");
            crowd.t.wait(Duration::from_millis(60));
        }
        // then every other goes on.
        let groups = crowd.t.client.status(crowd.t.now()).groups.len();
        for number in 1..groups {
            let consumed = crowd.consumed.get(&format!("T{number}"));
            assert!(
                consumed.is_some_and(|&count| count > 10),
                "seed {seed}: {consumed:?} calls of T{number}\n{}",
                crowd.t.transcript()
            );
        }
    }
}

#[test]
fn a_group_that_holds_nothing_asks_for_no_more_than_its_bound() {
    // Given a group that may hold one answer, and eight queues that have one each.
    let one = batch(&messages(0..1)).bytes() as u64;
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 8)]);
    pull_with(&mut t, group("T1").buffer_bytes(one));
    for id in 0..8 {
        t.answer_found(&format!("PullMessage T1@broker-a:{id}"), &messages(0..1));
    }
    assert_eq!(pulled(&t), [] as [String; 0], "{}", t.transcript());
    // When the one is consumed, then one is pulled, not eight of which seven are in vain.
    end_call(&mut t, "T1");
    assert_eq!(pulled(&t).len(), 1, "{}", t.transcript());
}

#[test]
fn a_group_that_waits_goes_on_when_another_group_leaves() {
    // Given a group whose call hangs with more than the common half, as the first may,
    let one = batch(&messages(0..1)).bytes() as u64;
    let mut t = Harness::new(|config| config.buffer_bytes = 8 * one);
    for topic in ["T1", "T2", "T3"] {
        t.topic(topic, &[("broker-a", 1)]);
    }
    pull_with(&mut t, group("T1"));
    pull_with(&mut t, tagged_group_named("G2", "T2"));
    let third = pull_with(&mut t, tagged_group_named("G3", "T3"));
    t.answer_found("PullMessage T1", &messages(0..6));
    // and one that holds nothing, whose answer is more than its share.
    let two = [TestMessage::new("T2", 0), TestMessage::new("T2", 1)];
    t.answer_found("PullMessage T2", &two);
    let is_pulled = |t: &Harness| {
        let mut lines = t.open_requests().into_iter();
        lines.any(|line| line.contains("PullMessage T2"))
    };
    assert!(!is_pulled(&t), "{}", t.transcript());
    // When the third leaves, its share is divided, and the hanging one is over no bound.
    t.does("unsubscribe", |client, now| client.unsubscribe(third, now));
    t.settle_but(&["PullMessage"]);
    // Then the second is pulled again.
    assert!(is_pulled(&t), "{}", t.transcript());
}
