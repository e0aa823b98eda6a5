//! Tries to get out of its box: arguments, environment, files, standard input. Fails with what
//! it found; done when there was nothing.

wit_bindgen::generate!({ path: "../../wit", world: "concurrent-listener", generate_all });

use exports::mqlet::listener::concurrent::{BatchContext, ConsumeStatus, Guest, Message};
use std::io::Read;

struct Listener;

impl Guest for Listener {
    fn consume_message(
        _messages: Vec<Message>,
        _data: Vec<u8>,
        _context: BatchContext,
    ) -> Result<ConsumeStatus, String> {
        let mut found = Vec::new();
        found.extend(
            std::env::args()
                .skip(1)
                .map(|argument| format!("argument {argument}")),
        );
        found.extend(std::env::vars().map(|(name, _)| format!("variable {name}")));
        for path in ["/", ".", "/etc/passwd", "/tmp"] {
            if std::fs::metadata(path).is_ok() {
                found.push(format!("path {path}"));
            }
        }
        if std::fs::write("/tmp/pried", "open").is_ok() {
            found.push("a file that can be written".to_owned());
        }
        let mut input = Vec::new();
        if std::io::stdin()
            .read_to_end(&mut input)
            .is_ok_and(|bytes| bytes > 0)
        {
            found.push("something on standard input".to_owned());
        }
        if found.is_empty() {
            Ok(ConsumeStatus::ConsumeSuccess(None))
        } else {
            Err(format!("found {}", found.join(", ")))
        }
    }
}

export!(Listener);
