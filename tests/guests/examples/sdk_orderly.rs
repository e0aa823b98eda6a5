//! What `orderly_rust` does, written with the SDK.

use std::time::Duration;

use mqlet_guest::{Batch, Error, OrderlyBatchListener, OrderlyStatus};

#[derive(Default)]
struct Listener;

impl OrderlyBatchListener for Listener {
    fn consume_batch(&mut self, batch: &Batch) -> Result<OrderlyStatus, Error> {
        if batch.topic() == "refuse" {
            return Err(format!("{} refused", batch.topic()).into());
        }
        let first = batch.get(0).and_then(|message| message.body().first());
        Ok(match first {
            Some(b'!') => OrderlyStatus::suspend_for(Duration::from_millis(250)),
            Some(b'?') => OrderlyStatus::suspend(),
            Some(b'+') => OrderlyStatus::Commit,
            Some(b'-') => OrderlyStatus::Rollback,
            _ => OrderlyStatus::Success,
        })
    }
}

mqlet_guest::export_orderly!(Listener);
