//! What a guest returns is what becomes of its messages: every row of the outcome table
//! that is an answer, in every language.

use consumer::listener::{ConcurrentlyStatus, ConsumeResult, MessageOutcome};
use wasm::{AnswerProblem, Event};

use crate::support::{Plugin, Request, all_done, each, later, message_id};

#[tokio::test]
async fn success_of_a_batch_is_success() {
    let plugin = Plugin::load("succeed").await;

    assert_eq!(plugin.consume(&["a", "b"]).await, all_done());

    let [report] = plugin.events.reports().try_into().unwrap();
    assert_eq!((report.messages, report.error), (2, None));
    assert!(report.wall > report.computed / 2 && report.memory_bytes > 0);
    assert_eq!(plugin.events.failures(), []);
}

#[tokio::test]
async fn ack_index_comes_as_returned() {
    let plugin = Plugin::load("ack_first").await;
    assert_eq!(
        plugin.consume(&["a", "b", "c"]).await,
        ConsumeResult::Concurrently(ConcurrentlyStatus::ConsumeSuccess { ack_index: Some(0) })
    );
}

#[tokio::test]
async fn delay_level_of_a_batch_comes_as_returned() {
    let plugin = Plugin::load("reconsume_later").await;
    assert_eq!(
        plugin.consume(&["a", "b"]).await,
        ConsumeResult::Concurrently(ConcurrentlyStatus::ReconsumeLater {
            delay_level: Some(1)
        })
    );
}

#[tokio::test]
async fn every_message_has_the_outcome_it_got() {
    let plugin = Plugin::load("each_outcome").await;
    assert_eq!(
        plugin.consume(&["a", "b", "c", "d", "e"]).await,
        each(vec![
            MessageOutcome::Done,
            later(None),
            later(Some(2)),
            MessageOutcome::DeadLetter {
                reason: "the fourth".into()
            },
            MessageOutcome::Done,
        ])
    );
}

#[tokio::test]
async fn error_is_reconsume_later_with_its_text() {
    let plugin = Plugin::load("fail").await;

    assert_eq!(
        plugin.consume(&["a"]).await,
        ConsumeResult::Concurrently(ConcurrentlyStatus::ReconsumeLater { delay_level: None })
    );

    let [report] = plugin.events.reports().try_into().unwrap();
    assert_eq!(report.error.as_deref(), Some("always fails"));
    assert_eq!(plugin.events.failures(), [], "an error is an answer");
    assert_eq!(plugin.listener.idle_instances(), 1, "its instance stays");
}

#[tokio::test]
async fn nonsense_is_put_right_and_told() {
    let cases = [
        (
            "short",
            each(vec![MessageOutcome::Done, later(None)]),
            Some(AnswerProblem::WrongNumberOfOutcomes {
                outcomes: 1,
                messages: 2,
            }),
        ),
        (
            "long",
            each(vec![MessageOutcome::Done, MessageOutcome::Done]),
            Some(AnswerProblem::WrongNumberOfOutcomes {
                outcomes: 3,
                messages: 2,
            }),
        ),
        (
            "high",
            ConsumeResult::Concurrently(ConcurrentlyStatus::ConsumeSuccess { ack_index: Some(1) }),
            Some(AnswerProblem::AckIndexOutOfRange {
                ack_index: 1000,
                messages: 2,
            }),
        ),
        (
            "low",
            ConsumeResult::Concurrently(ConcurrentlyStatus::ConsumeSuccess {
                ack_index: Some(-1),
            }),
            Some(AnswerProblem::AckIndexOutOfRange {
                ack_index: -1000,
                messages: 2,
            }),
        ),
        (
            "level",
            ConsumeResult::Concurrently(ConcurrentlyStatus::ReconsumeLater {
                delay_level: Some(i32::MAX),
            }),
            None,
        ),
    ];
    let plugin = Plugin::load("return_nonsense").await;
    for (body, result, problem) in cases {
        let told = plugin.events.all().len();
        assert_eq!(plugin.consume(&[body, "b"]).await, result, "{body}");
        let problems: Vec<_> = plugin.events.all()[told..]
            .iter()
            .filter_map(|event| match event {
                Event::AnswerCorrected { problem, .. } => Some(problem.clone()),
                _ => None,
            })
            .collect();
        assert_eq!(problems, Vec::from_iter(problem), "{body}");
    }
    assert_eq!(plugin.listener.idle_instances(), 1, "its instance stays");
}

#[tokio::test]
async fn rust_guest_obeys_the_contract() {
    obeys_the_contract("respond").await;
}

#[tokio::test]
async fn c_guest_obeys_the_contract() {
    obeys_the_contract("respond_c").await;
}

#[tokio::test]
async fn javascript_guest_obeys_the_contract() {
    obeys_the_contract("respond_javascript").await;
}

async fn obeys_the_contract(guest: &str) {
    let plugin = Plugin::load(guest).await;

    let answered = plugin.consume(&["a", "!b", "?c", "", "e"]).await;
    let mut refused = Request::of(&["a"]);
    refused.topic = "refuse".into();
    let refused = plugin.consume_request(refused.build()).await;

    let reason = format!("{} is malformed", message_id(1));
    assert_eq!(
        answered,
        each(vec![
            MessageOutcome::Done,
            MessageOutcome::DeadLetter {
                reason: reason.as_str().into()
            },
            later(Some(3)),
            MessageOutcome::Done,
            MessageOutcome::Done,
        ])
    );
    assert_eq!(
        refused,
        ConsumeResult::Concurrently(ConcurrentlyStatus::ReconsumeLater { delay_level: None })
    );
    let errors: Vec<_> = plugin
        .events
        .reports()
        .into_iter()
        .filter_map(|report| report.error)
        .collect();
    assert_eq!(errors, ["refuse refused"]);
}
