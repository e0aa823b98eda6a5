//! Reads every body forty times, byte by byte, as a parser would: about a millisecond
//! for 32 bodies of 1 KiB. Every message is done.

wit_bindgen::generate!({ path: "../../wit", world: "concurrent-listener", generate_all });

use exports::mqlet::listener::concurrent::{BatchContext, ConsumeStatus, Guest, Message};
use guests::bytes;

const TIMES: u32 = 40;

struct Listener;

impl Guest for Listener {
    fn consume_message(
        messages: Vec<Message>,
        data: Vec<u8>,
        _context: BatchContext,
    ) -> Result<ConsumeStatus, String> {
        let mut found = 0;
        for _ in 0..TIMES {
            for message in &messages {
                found += words_and_digits(std::hint::black_box(bytes!(data, message.body)));
            }
        }
        std::hint::black_box(found);
        Ok(ConsumeStatus::ConsumeSuccess(None))
    }
}

fn words_and_digits(body: &[u8]) -> u64 {
    let (mut words, mut digits, mut hash, mut in_word) = (0, 0u64, 17u64, false);
    for byte in body {
        match byte {
            b' ' | b',' | b'.' => in_word = false,
            b'0'..=b'9' => digits = digits * 10 % 1_000_003 + u64::from(byte - b'0'),
            _ => {
                words += u64::from(!in_word);
                in_word = true;
                hash = hash.rotate_left(5) ^ u64::from(*byte);
            }
        }
    }
    words ^ digits ^ hash
}

export!(Listener);
