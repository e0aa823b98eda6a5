//! A listener that also imports `example:weather/forecast@1.0.0`, which no host has.

wit_bindgen::generate!({ path: "../../wit", world: "concurrent-listener", generate_all });

use exports::mqlet::listener::concurrent::{BatchContext, ConsumeStatus, Guest, Message};
mod weather {
    wit_bindgen::generate!({
        inline: "
            package example:weather@1.0.0;
            interface forecast { tomorrow: func() -> string; }
            world user { import forecast; }
        ",
        world: "user",
    });
}

struct Listener;

impl Guest for Listener {
    fn consume_message(
        _messages: Vec<Message>,
        _data: Vec<u8>,
        _context: BatchContext,
    ) -> Result<ConsumeStatus, String> {
        Err(weather::example::weather::forecast::tomorrow())
    }
}

export!(Listener);
