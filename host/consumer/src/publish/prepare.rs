//! Messages that are sent later: checked now, with the ids they will have.

use std::net::IpAddr;

use protocol::message::message_id::UniqueIdGenerator;

use super::{OutgoingMessage, SendError, shape};

/// Checks messages as sending does, and gives them ids.
#[derive(Debug)]
pub struct Preparer {
    ids: UniqueIdGenerator,
    max_message_size: u32,
}

impl Preparer {
    /// Bodies over `max_message_size` bytes are refused. Every generator of ids in a
    /// process has another `discriminator`: take a random one.
    pub fn new(ip: IpAddr, pid: u32, discriminator: u32, max_message_size: u32) -> Self {
        Self {
            ids: UniqueIdGenerator::new(ip, pid, discriminator),
            max_message_size,
        }
    }

    /// Several messages are one batch, at this Unix time.
    ///
    /// # Errors
    /// The first rule that is broken; no message has an id then.
    pub fn prepare(
        &mut self,
        messages: &mut [OutgoingMessage],
        unix_ms: u64,
    ) -> Result<(), SendError> {
        shape::check_all(messages, self.max_message_size)?;
        for message in messages {
            message.message_id = Some(self.ids.next_id(unix_ms));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn message(body: &'static str) -> OutgoingMessage {
        OutgoingMessage {
            topic: "t".to_owned(),
            body: body.into(),
            ..OutgoingMessage::default()
        }
    }

    #[test]
    fn what_sending_would_refuse_is_refused_and_has_no_id() {
        let mut preparer = Preparer::new(Ipv4Addr::LOCALHOST.into(), 1, 2, 1_000);
        let mut fine = [message("one"), message("two")];
        preparer
            .prepare(&mut fine, 1_700_000_000_000)
            .expect("legal");
        assert_ne!(fine[0].message_id, fine[1].message_id);
        assert!(fine.iter().all(|one| one.message_id.is_some()));

        let mut long = [message("one"), message("three")];
        long[1].body = vec![1; 1_001].into();
        let refused = preparer.prepare(&mut long, 1_700_000_000_000);
        assert!(
            matches!(refused, Err(SendError::TooLarge { .. })),
            "{refused:?}"
        );
        assert_eq!(long[0].message_id, None);
    }
}
