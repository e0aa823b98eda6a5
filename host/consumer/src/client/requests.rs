//! Requests under way, and whom their answers concern.

use std::time::Duration;

use protocol::{Address, QueueOffset};

use super::Client;
use crate::epoch::Epoch;
use crate::offset::Seeking;
use crate::request::{Destination, PendingRequest, Request, RequestId};

/// A request whose answer is awaited.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) purpose: Purpose,
    pub(crate) peer: Option<Epoch>,
    /// Its place among all requests of this client: a connection carries them in order.
    pub(crate) number: u64,
}

/// Whom an answer concerns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// A topic; which name server was asked.
    Route(Epoch, Address),
    /// A peer.
    Heartbeat(Epoch),
    /// A group; which of its topics.
    Check(Epoch, usize),
    /// A group; which peer was asked.
    Members(Epoch, Epoch),
    /// A group; which of its members was asked what it reads.
    Compare(Epoch, String),
    /// A queue that begins.
    Start(Epoch),
    /// A queue.
    Pull(Epoch),
    /// A queue that is to go on somewhere else.
    Seek(Box<Seeking>),
    /// What a run of a pull task asked.
    Puller(Epoch),
    /// A queue, and what is committed.
    Commit(Epoch, QueueOffset),
    /// A queue that begins again once the commit of its last assignment is answered.
    CommitBefore(Epoch),
    /// A peer, of whose answer only that it comes is of interest.
    Order(Epoch),
    /// A queue that another member may have committed.
    SecondLook(Epoch),
    /// A release.
    FinalCommit(Epoch),
    /// A release that another member may have committed.
    LastLook(Epoch),
    /// A round of locks.
    Lock(Epoch),
    /// A release.
    Unlock(Epoch),
    /// A send-back.
    SendBack(Epoch),
    /// A send.
    Send(Epoch),
    /// A group that leaves; which peer was told, and how often before.
    Unregister(Epoch, Epoch, u32),
}

impl Client {
    /// Puts a request out; its answer comes back with the purpose.
    pub(crate) fn request(
        &mut self,
        purpose: Purpose,
        destination: Destination,
        peer: Option<Epoch>,
        request: Request,
        timeout: Duration,
    ) -> RequestId {
        self.requests_made += 1;
        let id = RequestId(self.in_flight.insert(InFlight {
            purpose,
            peer,
            number: self.requests_made,
        }));
        self.requests.push_back(PendingRequest {
            id,
            destination,
            request,
            timeout,
            oneway: false,
        });
        id
    }

    /// Puts a request out that nobody answers.
    pub(crate) fn request_oneway(
        &mut self,
        destination: Destination,
        request: Request,
        timeout: Duration,
    ) {
        // An id of its own, so that an answer nobody expects finds nothing.
        let id = self.in_flight.insert(InFlight {
            purpose: Purpose::Send(Epoch::from_u64(u64::MAX)),
            peer: None,
            number: 0,
        });
        self.in_flight.remove(id);
        self.requests.push_back(PendingRequest {
            id: RequestId(id),
            destination,
            request,
            timeout,
            oneway: true,
        });
    }
}
