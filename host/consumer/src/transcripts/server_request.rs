//! What brokers ask of us.

use super::*;
use crate::request::{ServerRequest, ServerRequestId};
use crate::testing::Cluster;
use protocol::header::{GetConsumerStatusRequestHeader, Header};
use protocol::{ExtFields, RemotingCommand};

#[test]
fn requests_of_brokers_are_served_or_refused() {
    let (mut t, _) = pulling(group("T1"));
    t.shows_bodies = true;
    let mut ask = |what: &str, command: RemotingCommand| {
        let request = ServerRequest {
            id: ServerRequestId(1),
            from: Cluster::address("broker-a"),
            command,
        };
        t.does(what, |client, now| {
            client.handle_server_request(request, now);
        });
    };
    let header = GetConsumerStatusRequestHeader {
        topic: "T1".to_owned(),
        group: "G1".to_owned(),
        client_addr: None,
    };
    ask(
        "offsets of T1?",
        RemotingCommand::request(221, header.encode()),
    );
    ask(
        "a question without its header",
        RemotingCommand::request(221, ExtFields::default()),
    );
    ask(
        "running info?",
        RemotingCommand::request(307, ExtFields::default()),
    );
    ask(
        "nonsense, one-way",
        RemotingCommand::request(9999, ExtFields::default()).oneway(),
    );
    check("server_request", &t);
}
