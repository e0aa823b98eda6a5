//! An expensive start: `init` fills a table of 16 MiB, several times over (setting "rounds",
//! default 20), before the first message. Then everything is done.

wit_bindgen::generate!({ path: "../../wit", world: "concurrent-listener-with-lifecycle", generate_all });

use exports::mqlet::listener::concurrent::{BatchContext, ConsumeStatus, Guest, Message};
use exports::mqlet::listener::lifecycle::Guest as Lifecycle;
use std::sync::OnceLock;

static TABLE: OnceLock<Vec<u64>> = OnceLock::new();

struct Listener;

impl Lifecycle for Listener {
    fn init(settings: Vec<(String, String)>) -> Result<(), String> {
        let rounds = settings
            .iter()
            .find(|(name, _)| name == "rounds")
            .and_then(|(_, value)| value.parse().ok())
            .unwrap_or(20_u32);
        let mut table = vec![1_u64; (16 << 20) / size_of::<u64>()];
        for round in 0..rounds {
            let mut previous = u64::from(round);
            for entry in &mut table {
                previous = previous
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(*entry);
                *entry = previous;
            }
        }
        TABLE
            .set(table)
            .map_err(|_| "init was called twice".to_owned())
    }

    fn shutdown() {}
}

impl Guest for Listener {
    fn consume_message(
        _messages: Vec<Message>,
        _data: Vec<u8>,
        _context: BatchContext,
    ) -> Result<ConsumeStatus, String> {
        match TABLE.get() {
            Some(table) => {
                std::hint::black_box(table.last());
                Ok(ConsumeStatus::ConsumeSuccess(None))
            }
            None => Err("init was not called".to_owned()),
        }
    }
}

export!(Listener);
