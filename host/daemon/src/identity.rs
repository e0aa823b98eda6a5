//! Who a client of this process is in a cluster: `IP@PID#random`, and the address that
//! ids of messages are made of.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use consumer::ClientConfig;
use protocol::Address;

/// The client of these name servers; everything else has its default.
pub(crate) fn client_config(namesrv_addr: Vec<Address>) -> ClientConfig {
    let ip = local_ip(&namesrv_addr);
    let pid = std::process::id();
    // The hasher's keys are the operating system's random numbers.
    let random = RandomState::new().build_hasher().finish();
    let client_id = format!("{ip}@{pid}#{random:016x}");
    let mut config = ClientConfig::new(client_id, namesrv_addr);
    config.ip = ip;
    config.pid = pid;
    config
}

/// The address that this machine has on the way to the name server. Nothing is sent and
/// no name is looked up: a name stands for any place outside.
fn local_ip(namesrv_addr: &[Address]) -> IpAddr {
    const OUTSIDE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 9);
    let target = namesrv_addr
        .iter()
        .find_map(|address| address.to_string().parse::<SocketAddr>().ok())
        .unwrap_or(OUTSIDE);
    let any = match target {
        SocketAddr::V4(_) => "0.0.0.0:0",
        SocketAddr::V6(_) => "[::]:0",
    };
    let ip = || {
        let socket = UdpSocket::bind(any)?;
        socket.connect(target)?;
        Ok::<_, std::io::Error>(socket.local_addr()?.ip())
    };
    ip().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_clients_of_one_process_have_two_ids() {
        let namesrv_addr = vec!["127.0.0.1:9876".parse().expect("an address")];
        let one = client_config(namesrv_addr.clone());
        let two = client_config(namesrv_addr);
        assert_eq!(one.ip, IpAddr::V4(Ipv4Addr::LOCALHOST));
        let start = format!("127.0.0.1@{}#", std::process::id());
        assert!(one.client_id.starts_with(&start), "{}", one.client_id);
        assert_ne!(one.client_id, two.client_id);
    }
}
