//! A pull task written with the SDK: logs each message of a pull and moves its offset past
//! all of them; the setting `next_ms` says when it wants to run again. A body "fail" is an
//! error.

use std::time::Duration;

use mqlet_guest::{Error, Lifecycle, NextRun, PullQueue, PullTask, Settings, info};

struct Task {
    next: NextRun,
}

impl Lifecycle for Task {
    fn init(settings: &Settings) -> Result<Self, Error> {
        let next = match settings.get("next_ms") {
            Some(next) => NextRun::After(Duration::from_millis(next.parse()?)),
            None => NextRun::AsConfigured,
        };
        Ok(Self { next })
    }

    fn shutdown(&mut self) {
        info!("goodbye");
    }
}

impl PullTask for Task {
    fn do_pull_task(&mut self, queue: &PullQueue) -> Result<NextRun, Error> {
        let offset = match queue.fetch_consume_offset()? {
            Some(offset) => offset,
            None => queue.min_offset()?,
        };
        let pulled = queue.pull("*", offset, 32)?;
        for message in pulled.iter() {
            let body = message.body_text()?;
            if body == "fail" {
                return Err("told to fail".into());
            }
            info!("{body} of {}", queue.topic());
        }
        queue.update_consume_offset(pulled.next_begin_offset)?;
        Ok(self.next)
    }
}

mqlet_guest::export_pull_task!(Task);
