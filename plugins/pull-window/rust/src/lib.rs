//! Looks at a topic window by window: each run pulls some messages of a queue, logs how
//! many there were of each tag, and moves the offset past them.
//!
//! A pull task has its own pace: it says how much it takes and when it comes again, and
//! nothing is done before it says so. Here a run that failed half-way counts its window
//! again.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::time::Duration;

use mqlet_guest::{Error, Lifecycle, NextRun, PullQueue, PullTask, Settings, info};

struct PullWindow {
    messages: u32,
}

impl Lifecycle for PullWindow {
    fn init(settings: &Settings) -> Result<Self, Error> {
        let messages = settings.get("messages").unwrap_or("32").parse()?;
        Ok(Self { messages })
    }
}

impl PullTask for PullWindow {
    fn do_pull_task(&mut self, queue: &PullQueue) -> Result<NextRun, Error> {
        let offset = match queue.fetch_consume_offset()? {
            Some(offset) => offset,
            None => queue.min_offset()?,
        };
        let window = queue.pull("*", offset, self.messages)?;
        if !window.is_empty() {
            let mut tags = BTreeMap::new();
            for message in window.iter() {
                *tags.entry(message.tag().unwrap_or("none")).or_insert(0) += 1;
            }
            let to_go = window.max_offset.saturating_sub(window.next_begin_offset);
            info!("queue {}: {tags:?}, {to_go} to go", queue.queue_id());
        }
        queue.update_consume_offset(window.next_begin_offset)?;
        Ok(if window.next_begin_offset < window.max_offset {
            NextRun::After(Duration::ZERO)
        } else {
            NextRun::AsConfigured
        })
    }
}

mqlet_guest::export_pull_task!(PullWindow);

#[cfg(test)]
mod tests {
    use super::*;
    use mqlet_guest::testing::{PullRun, TestMessage, TestQueue, do_pull_task, message, queue};

    fn run(queue: TestQueue) -> PullRun {
        let settings = Settings::new([("messages", "2")]);
        let mut window = PullWindow::init(&settings).expect("a number");
        do_pull_task(&mut window, queue)
    }

    fn tagged(tag: &str) -> TestMessage {
        message("visits").tag(tag)
    }

    #[test]
    fn window_begins_at_the_offset_and_more_comes_at_once() {
        let visits = queue("visits").consume_offset(11).min_offset(10);

        let run = run(visits.messages(["a", "b", "b", "a"].map(tagged)));

        assert_eq!(run.log_texts(), [r#"queue 0: {"b": 2}, 1 to go"#]);
        assert_eq!(run.consume_offset, Some(13));
        assert_eq!(run.next, Ok(NextRun::After(Duration::ZERO)));
    }

    #[test]
    fn first_run_begins_at_the_oldest_message() {
        let run = run(queue("visits").min_offset(7).messages([message("visits")]));

        assert_eq!(run.log_texts(), [r#"queue 0: {"none": 1}, 0 to go"#]);
        assert_eq!(run.consume_offset, Some(8));
        assert_eq!(run.next, Ok(NextRun::AsConfigured));
    }

    #[test]
    fn nothing_new_is_no_news() {
        let run = run(queue("visits").consume_offset(0));
        assert!(run.log_texts().is_empty());
        assert_eq!(run.next, Ok(NextRun::AsConfigured));
    }

    #[test]
    fn offset_outside_the_queue_goes_where_the_broker_says() {
        let run = run(queue("visits").min_offset(5).consume_offset(2));
        assert_eq!(run.consume_offset, Some(5));
    }

    #[test]
    fn broker_that_does_not_answer_moves_nothing() {
        let run = run(queue("visits").consume_offset(3).failing("it is down"));
        assert_eq!(run.next, Err("it is down".to_owned()));
        assert_eq!(run.consume_offset, Some(3));
    }
}
