//! A component of another world: it exports `example:greeter/greet@1.0.0` and no listener.

wit_bindgen::generate!({
    inline: "
        package example:greeter@1.0.0;
        interface greet { greet: func(name: string) -> string; }
        world greeter { export greet; }
    ",
    world: "greeter",
});

struct Greeter;

impl exports::example::greeter::greet::Guest for Greeter {
    fn greet(name: String) -> String {
        format!("hello {name}")
    }
}

export!(Greeter);
