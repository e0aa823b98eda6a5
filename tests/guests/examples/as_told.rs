//! Does with each message what the first word of its body says; the rest of the body is the
//! word's argument.
//!
//! `done` | `later [LEVEL]` | `dead REASON` | `fail TEXT` (the whole batch) | `trap` | `loop` |
//! `wait [MS]` (for ever without a number), then done | `spin MS` (computes), then done |
//! `grow [MIB]` (until refused without a number), then done | `recurse` | `exit` |
//! `log TEXT`, then done | `print TEXT`, then done. Anything else is done.

wit_bindgen::generate!({ path: "../../wit", world: "concurrent-listener", generate_all });

use exports::mqlet::listener::concurrent::{BatchContext, ConsumeStatus, Guest, Message, Outcome};
use guests::{bytes, text};
use std::time::{Duration, Instant};
use wasi::logging::logging::{Level, log};

struct Listener;

impl Guest for Listener {
    fn consume_message(
        messages: Vec<Message>,
        data: Vec<u8>,
        _context: BatchContext,
    ) -> Result<ConsumeStatus, String> {
        let outcomes = messages
            .iter()
            .map(|message| obey(&text(bytes!(data, message.body))));
        outcomes.collect::<Result<_, _>>().map(ConsumeStatus::Each)
    }
}

export!(Listener);

fn obey(body: &str) -> Result<Outcome, String> {
    let (word, argument) = body.split_once(' ').unwrap_or((body, ""));
    let number: Option<u32> = argument.trim().parse().ok();
    match word {
        "later" => return Ok(Outcome::ReconsumeLater(number)),
        "dead" => return Ok(Outcome::DeadLetter(argument.to_owned())),
        "fail" => return Err(argument.to_owned()),
        "trap" => panic!("told to trap"),
        "loop" => loop {
            std::hint::black_box(());
        },
        "wait" => {
            let wait = number.map_or(Duration::from_secs(1 << 20), |ms| {
                Duration::from_millis(ms.into())
            });
            std::thread::sleep(wait);
        }
        "spin" => {
            let spin = Duration::from_millis(number.unwrap_or(0).into());
            let start = Instant::now();
            while start.elapsed() < spin {
                std::hint::black_box(());
            }
        }
        "grow" => {
            let mebibytes = number.map_or(usize::MAX, |mebibytes| mebibytes as usize);
            let hoard = (0..mebibytes)
                .map(|_| vec![1_u8; 1 << 20])
                .collect::<Vec<_>>();
            std::hint::black_box(hoard);
        }
        "recurse" => {
            std::hint::black_box(deeper(0));
        }
        "exit" => std::process::exit(3),
        "log" => log(Level::Info, "as_told", argument),
        "print" => println!("{argument}"),
        _ => {}
    }
    Ok(Outcome::Done)
}

#[expect(unconditional_recursion, reason = "that is what the word asks for")]
fn deeper(depth: i32) -> i32 {
    let frame = std::hint::black_box([depth; 64]);
    deeper(depth + 1) + frame[0]
}
