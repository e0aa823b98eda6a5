//! Members of a group that read something else than we do.

use super::*;
use crate::event::Event;
use crate::request::{RequestError, Response};
use crate::status::Cause;
use crate::testing::{CLIENT_ID, refused};

const NEXT: &str = "10.0.0.9@1#def";
const AFTER_THAT: &str = "10.0.0.9@1#ghi";
const QUESTION: &str = "GetConsumerRunningInfo";

/// We are the first of three members, and read `TagA || TagB`.
fn first_of_three() -> Harness {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 3)]);
    let members = [AFTER_THAT, CLIENT_ID, NEXT];
    t.cluster.members = members.map(str::to_owned).to_vec();
    pull_with(&mut t, tagged_group("T1", "TagA || TagB"));
    t
}

fn reads(all: &[(&str, &str)]) -> Result<Response, RequestError> {
    let subscriptions = all.iter().map(|(topic, expression)| {
        SubscriptionData::build(topic, expression, ExpressionType::Tag).expect("an expression")
    });
    Ok(Response::Subscriptions(subscriptions.collect()))
}

fn cause(t: &Harness) -> Option<Cause> {
    let status = t.client.status(t.now());
    status.groups[0].reasons.first().map(|reason| reason.cause)
}

/// Until the next question, everything else but pulls is answered.
fn pass(t: &mut Harness, time: Duration) {
    for _ in 0..time.as_secs() {
        t.wait(seconds(1));
        t.settle();
    }
}

fn questions(t: &Harness) -> usize {
    let open = t.open_requests();
    open.iter().filter(|line| line.contains(QUESTION)).count()
}

#[test]
fn a_member_that_reads_something_else_is_told_of_until_it_does_not() {
    let mut t = first_of_three();
    pass(&mut t, seconds(11));
    t.forget_transcript();
    t.comment("the next member in order is asked, and no other");
    assert_eq!(questions(&t), 1);
    t.answer(
        QUESTION,
        reads(&[("T1", "TagB"), ("T2", "*"), ("%RETRY%G1", "*")]),
    );
    assert_eq!(cause(&t), Some(Cause::SubscriptionsDiffer));
    check("compare_differs", &t);
    t.comment("it is asked again within a minute, and told of once");
    pass(&mut t, seconds(60));
    t.answer(QUESTION, reads(&[("T1", "TagB"), ("T2", "*")]));
    let told = t.transcript().matches("SubscriptionsDiffer").count();
    assert_eq!(told, 1, "{}", t.transcript());
    t.comment("mended, in another order");
    pass(&mut t, seconds(60));
    t.answer(QUESTION, reads(&[("T1", "TagB||TagA")]));
    assert_eq!(cause(&t), None);
    assert!(t.transcript().contains("SubscriptionsAgree"));
    t.comment("from then on it is asked from time to time");
    pass(&mut t, seconds(580));
    assert_eq!(questions(&t), 0);
    pass(&mut t, seconds(21));
    assert_eq!(questions(&t), 1);
}

#[test]
fn a_member_that_does_not_answer_says_nothing_of_its_broker() {
    for error in [RequestError::Timeout, refused(1, "no such client")] {
        let mut t = first_of_three();
        pass(&mut t, seconds(11));
        t.answer(QUESTION, Err(error));
        assert_eq!(cause(&t), None);
        let status = t.client.status(t.now());
        assert_eq!(status.brokers[0].last_error, None);
        pass(&mut t, seconds(60));
        assert_eq!(questions(&t), 0, "not before long");
    }
}

#[test]
fn who_is_alone_asks_nobody_and_what_was_told_is_over() {
    let mut t = first_of_three();
    pass(&mut t, seconds(11));
    t.answer(QUESTION, reads(&[]));
    assert_eq!(cause(&t), Some(Cause::SubscriptionsDiffer));
    t.cluster.members = vec![CLIENT_ID.to_owned()];
    t.notify_members_changed("G1");
    pass(&mut t, seconds(700));
    assert_eq!((cause(&t), questions(&t)), (None, 0));
    let told = Event::SubscriptionsAgree {
        consumer_group: "G1".into(),
    };
    assert!(t.transcript().contains(&format!("{told:?}")));
}
