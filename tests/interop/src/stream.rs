//! A steady stream of messages, each to a chosen queue, with the offset it got.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::broker::Connection;

/// A stored message.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Its body, unique in the stream.
    pub body: String,
    /// Where it is.
    pub queue_id: u32,
    /// Where in the queue.
    pub queue_offset: u64,
}

/// A thread that sends until it is told to stop.
#[derive(Debug)]
pub struct Stream {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
    sender: Option<JoinHandle<Vec<Sent>>>,
}

impl Stream {
    /// Sends to the queues of a topic in turn: bodies `prefix-0`, `prefix-1`, …
    pub fn start(
        broker_addr: &str,
        topic: &str,
        queues: u32,
        prefix: &str,
        per_second: u32,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let count = Arc::new(AtomicUsize::new(0));
        let (is_over, counter) = (Arc::clone(&stop), Arc::clone(&count));
        let (topic, prefix) = (topic.to_owned(), prefix.to_owned());
        let mut connection = Connection::open(broker_addr);
        let interval = Duration::from_secs(1) / per_second;
        let sender = thread::spawn(move || {
            let mut sent = Vec::new();
            let mut next = Instant::now();
            let mut queue_ids = (0..queues).cycle();
            while !is_over.load(Ordering::Relaxed) {
                let body = format!("{prefix}-{}", sent.len());
                let queue_id = queue_ids.next().expect("a topic has queues");
                let queue_offset = connection.send(&topic, queue_id, body.as_bytes());
                sent.push(Sent {
                    body,
                    queue_id,
                    queue_offset,
                });
                counter.store(sent.len(), Ordering::Relaxed);
                next += interval;
                thread::sleep(next.saturating_duration_since(Instant::now()));
            }
            sent
        });
        Self {
            stop,
            count,
            sender: Some(sender),
        }
    }

    /// How many messages are stored: the next one has this number.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Ends it; everything that was stored.
    ///
    /// # Panics
    /// When a send failed.
    pub fn stop(mut self) -> Vec<Sent> {
        self.stop.store(true, Ordering::Relaxed);
        let sender = self.sender.take().expect("stopped once");
        sender.join().expect("every send was taken")
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
