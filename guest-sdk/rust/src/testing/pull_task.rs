//! Pull tasks under test: a queue in memory, and one run of the task.

use super::host::PulledQueue;
use super::{SentMessage, TestMessage, context, host};
use crate::log::Level;
use crate::pull_task::{NextRun, PullQueue, PullTask};

/// A queue for a pull task.
#[derive(Clone, Debug)]
pub struct TestQueue {
    topic: String,
    queue: PulledQueue,
}

/// An empty queue of a topic, from offset 0, without a committed offset.
pub fn queue(topic: &str) -> TestQueue {
    TestQueue {
        topic: topic.to_owned(),
        queue: PulledQueue {
            min_offset: 0,
            messages: Vec::new(),
            consume_offset: None,
            failure: None,
        },
    }
}

impl TestQueue {
    /// The first offset that the queue still has.
    pub fn min_offset(mut self, offset: u64) -> Self {
        self.queue.min_offset = offset;
        self
    }

    /// The offset committed for the group.
    pub fn consume_offset(mut self, offset: u64) -> Self {
        self.queue.consume_offset = Some(offset);
        self
    }

    /// Adds messages at its end.
    pub fn messages(mut self, messages: impl IntoIterator<Item = TestMessage>) -> Self {
        self.queue.messages.extend(messages);
        self
    }

    /// Everything the task asks for fails with this text.
    pub fn failing(mut self, text: &str) -> Self {
        self.queue.failure = Some(text.to_owned());
        self
    }
}

/// What came of a run.
#[derive(Debug)]
pub struct PullRun {
    /// The task's answer; an error as its text.
    pub next: Result<NextRun, String>,
    /// The committed offset after the run.
    pub consume_offset: Option<u64>,
    /// What it logged: level, context, text.
    pub log: Vec<(Level, String, String)>,
    /// What it sent.
    pub sent: Vec<SentMessage>,
}

impl PullRun {
    /// The texts of the log lines.
    pub fn log_texts(&self) -> Vec<&str> {
        self.log.iter().map(|(_, _, text)| text.as_str()).collect()
    }
}

/// Runs a pull task once for this queue, as the host would.
pub fn do_pull_task(task: &mut impl PullTask, queue: TestQueue) -> PullRun {
    let TestQueue { topic, queue } = queue;
    host::begin_pull_task(queue);
    let next = task
        .do_pull_task(&PullQueue::new(context(topic)))
        .map_err(|error| error.to_string());
    let consume_offset = host::end_pull_task().and_then(|queue| queue.consume_offset);
    let (log, sent) = host::end();
    PullRun {
        next,
        consume_offset,
        log,
        sent,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::message;
    use crate::{Error, PullStatus, info};

    /// Pulls once, tells what it saw, and moves the offset.
    struct Once {
        expression: &'static str,
        offset: u64,
        messages_max: u32,
    }

    impl PullTask for Once {
        fn do_pull_task(&mut self, queue: &PullQueue) -> Result<NextRun, Error> {
            let pulled = queue.pull(self.expression, self.offset, self.messages_max)?;
            let ids: Vec<_> = pulled.iter().map(|message| message.message_id()).collect();
            info!(
                "{:?} {} next {}",
                pulled.status,
                ids.join(","),
                pulled.next_begin_offset
            );
            assert_eq!(pulled.is_empty(), pulled.status != PullStatus::Found);
            queue.update_consume_offset(pulled.next_begin_offset)?;
            Ok(NextRun::After(Duration::from_millis(5)))
        }
    }

    fn tagged(tag: &str) -> TestMessage {
        message("t").body(tag).tag(tag)
    }

    #[test]
    fn queue_answers_as_a_broker_does() {
        for (expression, offset, messages_max, expected) in [
            ("*", 10, 2, "PullStatus::Found ID-10,ID-11 next 12"),
            ("*", 12, 32, "PullStatus::Found ID-12 next 13"),
            ("*", 13, 32, "PullStatus::NoNewMessage  next 13"),
            ("*", 9, 32, "PullStatus::OffsetIllegal  next 10"),
            ("*", 99, 32, "PullStatus::OffsetIllegal  next 13"),
            ("A || C", 10, 32, "PullStatus::Found ID-10,ID-12 next 13"),
            ("D", 10, 32, "PullStatus::NoMatchedMessage  next 13"),
        ] {
            let queue = queue("t")
                .min_offset(10)
                .messages(["A", "B", "C"].map(tagged));
            let mut task = Once {
                expression,
                offset,
                messages_max,
            };

            let run = do_pull_task(&mut task, queue);

            assert_eq!(run.log_texts(), [expected]);
            assert_eq!(run.next, Ok(NextRun::After(Duration::from_millis(5))));
            let moved_to: u64 = expected.rsplit(' ').next().unwrap().parse().unwrap();
            assert_eq!(run.consume_offset, Some(moved_to));
        }
    }

    /// Pulls twice and asks for more about what it got.
    struct Twice;

    impl PullTask for Twice {
        fn do_pull_task(&mut self, queue: &PullQueue) -> Result<NextRun, Error> {
            let details = |pulled: &crate::Pulled| {
                let id = |message: crate::Message<'_>| Some(message.details()?.offset_message_id);
                pulled.iter().map(id).collect::<Vec<_>>()
            };
            let first = queue.pull("*", 0, 1)?;
            info!("{}", details(&first)[0].is_some());
            let second = queue.pull("*", 1, 1)?;
            info!("{:?} {}", details(&first), details(&second)[0].is_some());
            assert!(queue.pull("*", 1, 0).is_err());
            info!("{}", details(&second)[0].is_some());
            Ok(NextRun::AsConfigured)
        }
    }

    #[test]
    fn details_are_of_the_last_pull_and_never_of_another_message() {
        let run = do_pull_task(&mut Twice, queue("t").messages(["A", "B"].map(tagged)));
        assert_eq!(run.log_texts(), ["true", "[None] true", "true"]);
    }

    #[test]
    fn what_fails_is_an_error_and_moves_nothing() {
        let mut task = Once {
            expression: "*",
            offset: 0,
            messages_max: 0,
        };
        let run = do_pull_task(&mut task, queue("t").consume_offset(7));
        let expected = "max-messages is 0; it must be 1 to 1024";
        assert_eq!(run.next, Err(expected.to_owned()));
        task.messages_max = 1;
        let run = do_pull_task(
            &mut task,
            queue("t").consume_offset(7).failing("it is down"),
        );
        assert_eq!(run.next, Err("it is down".to_owned()));
        assert_eq!(run.consume_offset, Some(7));
    }
}
