//! A listener of a contract that is not written yet: `mqlet:listener/concurrent@7.0.0`.

wit_bindgen::generate!({
    inline: "
        package mqlet:listener@7.0.0;
        interface concurrent { consume-message: func(bodies: list<string>) -> u32; }
        world concurrent-listener { export concurrent; }
    ",
    world: "concurrent-listener",
});

struct Listener;

impl exports::mqlet::listener::concurrent::Guest for Listener {
    fn consume_message(bodies: Vec<String>) -> u32 {
        bodies.iter().map(|body| u32::from(!body.is_empty())).sum()
    }
}

export!(Listener);
