//! Groups that a broker refuses to hear of, beside others of the same client.

use super::*;
use crate::request::{Request, Response};
use crate::status::Cause;
use crate::testing::refused;
use protocol::code::response_code::NO_PERMISSION;

/// The groups of the oldest heartbeat that awaits its answer.
fn named(t: &Harness) -> Option<Vec<String>> {
    let open = t.open_requests();
    open.iter().find(|line| line.contains("HeartBeat"))?;
    let Request::HeartBeat { body } = &t.request("HeartBeat").request else {
        return None;
    };
    let text = String::from_utf8_lossy(body);
    let names = text.split("\"groupName\":\"").skip(1);
    let names = names.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()));
    let groups = names.filter(|name| name.starts_with('G'));
    Some(groups.collect())
}

/// A broker that refuses heartbeats which name one of these; how many it refused.
fn answer_all(t: &mut Harness, without_rights: &[&str]) -> usize {
    let mut refusals = 0;
    loop {
        t.settle_but(&["HeartBeat", "PullMessage"]);
        let Some(groups) = named(t) else {
            return refusals;
        };
        let lacks = groups.iter().any(|g| without_rights.contains(&g.as_str()));
        refusals += usize::from(lacks);
        let answer = match lacks {
            true => Err(refused(NO_PERMISSION, "no right to SUB")),
            false => Ok(Response::Done),
        };
        t.answer("HeartBeat", answer);
    }
}

/// Each reads a topic of its own.
fn groups(count: u32) -> Harness {
    let mut t = Harness::default();
    for number in 1..=count {
        let (topic, queues) = (format!("T{number}"), vec![("broker-a".to_owned(), 1)]);
        let retry = (format!("%RETRY%G{number}"), queues.clone());
        t.cluster.topics.extend([(topic, queues), retry]);
    }
    for number in 1..=count {
        let topic = format!("T{number}");
        let subscription = SubscriptionData::build(&topic, "*", ExpressionType::Tag);
        let group = GroupConfig::builder(format!("G{number}"));
        t.subscribe(config(group.subscription(subscription.expect("valid"))));
    }
    t
}

fn pulled(t: &Harness) -> Vec<String> {
    let mut topics: Vec<String> = t
        .open_requests()
        .iter()
        .filter_map(|line| line.split_once("PullMessage T"))
        .map(|(_, rest)| format!("T{}", rest.split('@').next().unwrap_or_default()))
        .collect();
    topics.sort();
    topics
}

fn reason(t: &Harness, group: &str) -> Option<(Cause, String)> {
    let status = t.client.status(t.now());
    let group = status.groups.iter().find(|g| &*g.consumer_group == group)?;
    let reason = group.reasons.first()?;
    Some((reason.cause, reason.what.clone()))
}

#[test]
fn one_group_without_rights_keeps_no_other_out() {
    let mut t = groups(3);
    answer_all(&mut t, &["G2"]);
    t.wait(seconds(2));
    answer_all(&mut t, &["G2"]);
    assert_eq!(pulled(&t), ["T1", "T3"], "{}", t.transcript());
    let (cause, what) = reason(&t, "G2").expect("a reason");
    assert_eq!(cause, Cause::MembersUnknown);
    assert!(what.contains("no right to SUB"), "{what}");
    let told = t.transcript().matches("GroupRefused").count();
    assert_eq!(told, 1, "{}", t.transcript());
    assert!(!t.transcript().contains("AccessRefused"));
    t.comment("a heartbeat of the others and a question for the refused one, twice a minute");
    t.wait(seconds(60));
    answer_all(&mut t, &["G2"]);
    t.forget_transcript();
    let mut refusals = 0;
    for _ in 0..120 {
        t.wait(seconds(1));
        refusals += answer_all(&mut t, &["G2"]);
    }
    assert!((1..=8).contains(&refusals), "{refusals} within two minutes");
    assert_eq!(t.transcript().matches("GroupRefused").count(), 0);
    t.comment("it is given the right");
    for _ in 0..35 {
        t.wait(seconds(1));
        answer_all(&mut t, &[]);
    }
    assert_eq!(pulled(&t), ["T1", "T2", "T3"], "{}", t.transcript());
    assert!(t.transcript().contains("GroupAccepted"));
    assert_eq!(reason(&t, "G2"), None);
}

#[test]
fn many_groups_without_rights_are_found_among_more() {
    let mut t = groups(20);
    let without = ["G1", "G2", "G3", "G11", "G20"];
    let refusals = answer_all(&mut t, &without);
    t.wait(seconds(2));
    answer_all(&mut t, &without);
    assert_eq!(pulled(&t).len(), 15, "{}", t.transcript());
    assert!(refusals < 40, "{refusals}");
}

#[test]
fn a_key_that_is_refused_for_every_group_is_the_keys_fault() {
    let mut t = groups(100);
    let all: Vec<String> = (1..=100).map(|number| format!("G{number}")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let refusals = answer_all(&mut t, &all);
    assert!(refusals <= 40, "{refusals}");
    assert_eq!(t.transcript().matches("AccessRefused").count(), 1);
    assert_eq!(t.transcript().matches("GroupRefused").count(), 0);
}

#[test]
fn a_refused_group_that_leaves_is_forgotten() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 1)]);
    t.topic("T2", &[("broker-a", 1)]);
    let retry = vec![("broker-a".to_owned(), 1)];
    t.cluster.topics.insert("%RETRY%G2".to_owned(), retry);
    t.subscribe(config(group("T1")));
    let all = SubscriptionData::all("T2");
    let refused = t.subscribe(config(GroupConfig::builder("G2").subscription(all)));
    answer_all(&mut t, &["G2"]);
    t.does("unsubscribe", |client, now| {
        client.unsubscribe(refused, now);
    });
    answer_all(&mut t, &["G2"]);
    t.forget_transcript();
    t.wait(seconds(31));
    answer_all(&mut t, &["G2"]);
    assert!(t.transcript().contains("HeartBeat of 1 group(s)"));
    assert_eq!(pulled(&t), ["T1"]);
}
