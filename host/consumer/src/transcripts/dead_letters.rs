//! Dead letters as a topic like any other: whoever subscribes to it gets them all.

use super::*;
use crate::config::ConsumeFromWhere;

const DEAD: &str = "%DLQ%G9";
const DEAD_QUEUE: &str = "%DLQ%G9@broker-a:0";

#[test]
fn dead_letters_are_read_from_the_oldest_on_once_their_topic_may_be_read() {
    let mut t = Harness::default();
    t.topic(DEAD, &[("broker-a", 1)]);
    // Brokers make the topic without the right to read it.
    t.cluster.perms.insert(DEAD.to_owned(), 2);
    let place = queue(DEAD_QUEUE);
    t.cluster.offsets.insert(place.clone(), (3, 13));
    let builder = group(DEAD).consume_from_where(ConsumeFromWhere::FirstOffset);
    t.subscribe(config(builder));
    t.settle();
    let status = t.client.status(t.now());
    let reasons: Vec<String> = status.groups[0]
        .topics
        .iter()
        .filter_map(|topic| topic.reason.as_ref())
        .map(ToString::to_string)
        .collect();
    let says = |words| reasons.iter().any(|reason| reason.contains(words));
    assert!(
        says("topic \"%DLQ%G9\" has no queue that may be read")
            && says("look at the topic's permissions"),
        "{reasons:?}"
    );

    assert!(
        !t.transcript().contains(DEAD_QUEUE),
        "nothing is asked of it"
    );

    // An operator allows it.
    t.cluster.perms.clear();
    for _ in 0..31 {
        t.wait(seconds(1));
        t.settle_but(&["PullMessage"]);
    }
    let letters = (3..13).map(|offset| TestMessage::new(DEAD, offset));
    t.answer_found(
        "PullMessage %DLQ%G9@broker-a:0 from 3",
        &letters.collect::<Vec<_>>(),
    );
    let calls: Vec<usize> = t.numbered_calls().map(|(number, _)| number).collect();
    let messages: usize = t.calls().map(|call| call.len()).sum();
    assert_eq!(messages, 10);
    for call in calls {
        t.result(call, success());
    }
    for _ in 0..6 {
        t.wait(seconds(1));
        t.settle_but(&["PullMessage"]);
    }
    assert_eq!(t.take_commits().last(), Some(&(place, 13)));
}
