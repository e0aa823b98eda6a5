//! `ConnectionId`: who a request came from. Group members are connections.

/// One accepted connection, numbered by whoever owns the sockets; never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnectionId(pub u64);
