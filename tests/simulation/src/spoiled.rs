//! Answers to pulls that are damaged on their way, or too large for whoever asked.
//!
//! A body or a record that is damaged is asked for again, and mostly whole then; a body
//! that is damaged twice in a row makes a dead letter, of the broker's own copy. Nothing
//! is passed over.

use consumer::request::PullStatus;
use consumer::{Request, Response};
use embedded_broker::ConnectionId;
use protocol::RemotingCommand;

use crate::broadcast::BROADCAST;
use crate::cluster::{Cluster, Due};
use crate::faults::Weather;
use crate::ledger::{Place, id_of};
use crate::pull_tasks::TASKS;

/// Where a stored message has its magic number, and its body when its hosts are IPv4.
const MAGIC_AT: usize = 4;
const BODY_AT: usize = 88;

/// How often one place was damaged in each way.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Damage {
    bodies: u32,
    records: u32,
}

impl Cluster {
    /// The answer to a pull may be damaged; `None`: it was too much, and its connection is
    /// closed.
    pub(crate) fn spoil(
        &mut self,
        id: ConnectionId,
        request: &Request,
        answer: RemotingCommand,
    ) -> Option<RemotingCommand> {
        let Request::PullMessage(pull) = request else {
            return Some(answer);
        };
        if self.is(Weather::HugeAnswers) && answer.body.len() > 600 && self.random.u32(0..3) == 0 {
            self.history
                .add(self.now, || "an answer is too large".to_owned());
            self.kinds.answers_too_large += 1;
            self.agenda.at(self.now, Due::Closes { connection: id });
            return None;
        }
        if !self.is(Weather::DamagedAnswers) || self.random.u32(0..3) > 0 {
            return Some(answer);
        }
        let Ok(Response::Pull(read)) = request.expect().decode(answer.clone()) else {
            return Some(answer);
        };
        let (PullStatus::Found, Some(batch)) = (read.status, read.batch) else {
            return Some(answer);
        };
        let messages = u32::try_from(batch.len()).unwrap_or(0);
        if messages == 0 {
            return Some(answer);
        }
        let index = self.random.u32(..messages);
        let message = batch.message(index);
        let place: Place = (pull.queue.clone(), message.queue_offset().0);
        let group = &*pull.consumer_group;
        let key = (group.to_owned(), place.clone());
        let mut body = answer.body.to_vec();
        let Some(start) = start_of(&body, index) else {
            return Some(answer);
        };
        let damage = self.damaged.entry(key).or_default();
        // A second time in a row is too much for whoever gives up at it for good.
        let gives_up = group == BROADCAST || group == TASKS;
        if self.random.u32(0..4) == 0 {
            if damage.records > 0 || (damage.bodies > 0 && gives_up) {
                return Some(answer);
            }
            damage.records += 1;
            body[start + MAGIC_AT] ^= 0x55;
        } else {
            let before = damage.bodies + damage.records;
            if before > 1 || (before > 0 && gives_up) {
                return Some(answer);
            }
            damage.bodies += 1;
            let twice = before > 0;
            body[start + BODY_AT] ^= 0x55;
            if let Some(ledger) = self.ledger.group(group) {
                let logged = (place.0.broker_name.to_string(), message.commit_log_offset());
                ledger.logged.insert(logged, place.clone());
                if twice {
                    ledger.said_dead.extend(id_of(message.body()));
                }
            }
        }
        self.kinds.answers_damaged += 1;
        self.history.add(self.now, || {
            format!("{} {} is damaged for {group}", place.0, place.1)
        });
        Some(answer.with_body(body))
    }
}

/// Where the message with this index begins.
fn start_of(body: &[u8], index: u32) -> Option<usize> {
    let mut start = 0;
    for _ in 0..index {
        let size = body.get(start..start + 4)?;
        start += usize::try_from(u32::from_be_bytes(size.try_into().ok()?)).ok()?;
    }
    (start + BODY_AT < body.len()).then_some(start)
}
