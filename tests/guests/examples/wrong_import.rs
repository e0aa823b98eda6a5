//! A listener that also imports `wasi:http/outgoing-handler@0.2.12`, which no manifest of
//! the tests grants. Only the name is right; the host must not get as far as the type.

wit_bindgen::generate!({ path: "../../wit", world: "concurrent-listener", generate_all });

use exports::mqlet::listener::concurrent::{BatchContext, ConsumeStatus, Guest, Message};
mod http {
    wit_bindgen::generate!({
        inline: "
            package wasi:http@0.2.12;
            interface outgoing-handler { handle: func(request: string) -> string; }
            world client { import outgoing-handler; }
        ",
        world: "client",
    });
}

struct Listener;

impl Guest for Listener {
    fn consume_message(
        _messages: Vec<Message>,
        _data: Vec<u8>,
        _context: BatchContext,
    ) -> Result<ConsumeStatus, String> {
        Err(http::wasi::http::outgoing_handler::handle("GET /"))
    }
}

export!(Listener);
