//! The smallest listener: greets every message, and shows what else it could answer.

#![forbid(unsafe_code)]

use mqlet_guest::{ConcurrentListener, Error, Lifecycle, Message, Outcome, Settings, info};

struct Hello {
    greeting: String,
}

impl Lifecycle for Hello {
    fn init(settings: &Settings) -> Result<Self, Error> {
        let greeting = settings.get("greeting").unwrap_or("hello").to_owned();
        Ok(Self { greeting })
    }
}

impl ConcurrentListener for Hello {
    fn consume_message(&mut self, message: Message<'_>) -> Result<Outcome, Error> {
        let name = message
            .property("name")
            .map_or_else(|| message.body_text(), Ok)?;
        if name.is_empty() {
            return Ok(Outcome::dead_letter("there is nobody to greet"));
        }
        info!("{}, {name}", self.greeting);
        Ok(Outcome::Done)
    }
}

mqlet_guest::export!(Hello);

#[cfg(test)]
mod tests {
    use super::*;
    use mqlet_guest::testing::{consume, message};

    fn hello(settings: &[(&str, &str)]) -> Hello {
        Hello::init(&Settings::new(settings.iter().copied())).expect("no setting is required")
    }

    #[test]
    fn message_is_greeted_by_its_body_or_its_name() {
        let messages = [
            message("hello").body("world"),
            message("hello").body("x").property("name", "Ada"),
        ];

        let run = consume(&mut hello(&[]), messages);

        assert_eq!(run.outcomes(), [Outcome::Done, Outcome::Done]);
        assert_eq!(run.log_texts(), ["hello, world", "hello, Ada"]);
    }

    #[test]
    fn greeting_is_a_setting() {
        let run = consume(
            &mut hello(&[("greeting", "good morning")]),
            [message("hello").body("world")],
        );

        assert_eq!(run.log_texts(), ["good morning, world"]);
    }

    #[test]
    fn empty_message_is_a_dead_letter_and_a_broken_one_comes_back() {
        let messages = [message("hello"), message("hello").body([0xff])];

        let run = consume(&mut hello(&[]), messages);

        let dead = Outcome::dead_letter("there is nobody to greet");
        assert_eq!(run.outcomes(), [dead, Outcome::reconsume_later()]);
    }
}
