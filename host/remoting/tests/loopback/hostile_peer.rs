//! Peers that cut, lie, stall or flood: each costs one connection and nothing else.

use std::sync::Arc;
use std::time::Duration;

use crate::peer::{
    Echo, PATIENCE, RawPeer, Recorder, address_of, eventually, is_closed, read_command, request,
    write_command,
};
use bytes::BytesMut;
use protocol::code::response_code;
use protocol::{Address, ExtFields, RemotingCommand};
use remoting::{
    BackoffConfig, ConnectError, ConnectionError, InvokeError, RemotingClient, RemotingConfig,
    ServerConfig,
};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

fn client(config: RemotingConfig) -> (RemotingClient, Arc<Recorder>) {
    let recorder = Arc::new(Recorder::default());
    (
        RemotingClient::new(config, Arc::clone(&recorder) as _),
        recorder,
    )
}

/// Lets the peer answer a request with these bytes and hang up if asked to.
async fn answered_with(bytes: &[u8], hangs_up: bool) -> (InvokeError, Arc<Recorder>) {
    let peer = RawPeer::listen().await;
    let (client, recorder) = client(RemotingConfig::default());
    let address = peer.address();
    let call = tokio::spawn({
        let client = client.clone();
        async move { client.invoke(&address, request(b"x"), PATIENCE).await }
    });
    let mut stream = peer.accept().await;
    read_command(&mut stream).await;
    stream.write_all(bytes).await.unwrap();
    if hangs_up {
        drop(stream);
    } else {
        assert!(is_closed(&mut stream).await);
    }
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(client.stats().in_flight, 0);
    (error, recorder)
}

fn source(error: &InvokeError) -> &ConnectionError {
    match error {
        InvokeError::Disconnected { source, .. } => source,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_frame_cut_anywhere_fails_the_request_and_names_the_cut() {
    for bytes in [
        &[0][..],
        &[0, 0, 0],
        &[0, 0, 0, 9, 0, 0],
        &[0, 0, 1, 0, 0, 0, 0, 9, b'{'],
    ] {
        let (error, recorder) = answered_with(bytes, true).await;
        assert!(
            matches!(source(&error), ConnectionError::CutFrame),
            "{error:?}"
        );
        assert_eq!(recorder.count("disconnected"), 1);
    }
}

#[tokio::test]
async fn impossible_lengths_end_the_connection_at_once() {
    for bytes in [
        [0xff; 8],
        [0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0],
        [0x16, 3, 1, 2, 0, 1, 0, 1],
    ] {
        let (error, _) = answered_with(&bytes, false).await;
        assert!(
            matches!(source(&error), ConnectionError::Frame(_)),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn a_garbage_header_ends_the_connection_at_once() {
    for bytes in [
        &b"\0\0\0\x08\0\0\0\x04junk"[..],
        // Header longer than the frame, unknown serialize type, HTTP.
        &[0, 0, 0, 4, 0, 0, 0, 1],
        &[0, 0, 0, 4, 2, 0, 0, 0],
    ] {
        let (error, recorder) = answered_with(bytes, false).await;
        assert!(source(&error).is_protocol_violation(), "{error:?}");
        assert_eq!(recorder.count("disconnected"), 1);
    }
}

#[tokio::test]
async fn an_http_server_is_not_a_broker() {
    let (error, _) = answered_with(b"HTTP/1.1 400 Bad Request\r\n\r\n", false).await;
    assert!(
        matches!(source(&error), ConnectionError::Frame(_)),
        "{error:?}"
    );
}

#[tokio::test]
async fn answers_to_nobody_are_dropped_and_counted() {
    let peer = RawPeer::listen().await;
    let (client, recorder) = client(RemotingConfig::default());
    let address = peer.address();
    let call = tokio::spawn({
        let client = client.clone();
        async move { client.invoke(&address, request(b"x"), PATIENCE).await }
    });
    let mut stream = peer.accept().await;
    let asked = read_command(&mut stream).await;
    for wrong in 1..=5 {
        let mut answer = RemotingCommand::response_to(&asked, 0);
        answer.opaque = asked.opaque + wrong;
        write_command(&mut stream, &answer).await;
    }
    let answer = RemotingCommand::response_to(&asked, 0);
    write_command(&mut stream, &answer).await;
    // A second answer to the same request is one more.
    write_command(&mut stream, &answer).await;

    call.await.unwrap().unwrap();
    eventually("all are counted", || client.stats().unknown_opaques == 6).await;
    assert_eq!(recorder.events(), ["connected"]);
}

#[tokio::test]
async fn an_endless_answer_costs_no_more_than_its_deadline() {
    let peer = RawPeer::listen().await;
    let (client, _) = client(RemotingConfig {
        idle_timeout: Duration::from_millis(300),
        ..RemotingConfig::default()
    });
    let address = peer.address();
    let call = tokio::spawn({
        let client = client.clone();
        async move {
            client
                .invoke(&address, request(b"x"), Duration::from_millis(100))
                .await
        }
    });
    let mut stream = peer.accept().await;
    read_command(&mut stream).await;
    // Announces 15 MiB and drips them.
    let dripping = async {
        stream.write_all(&[0, 0xf0, 0, 0]).await?;
        loop {
            stream.write_all(&[0]).await?;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let dripped: Result<(), std::io::Error> = tokio::time::timeout(PATIENCE, dripping)
        .await
        .expect("a connection without a whole frame is closed");
    assert!(dripped.is_err());
    let error = call.await.unwrap().unwrap_err();
    assert!(matches!(error, InvokeError::Timeout { .. }), "{error:?}");
}

#[tokio::test]
async fn a_frame_over_the_configured_limit_is_refused() {
    let (_echo, server) = Echo::start(ServerConfig::default()).await;
    let (client, _) = client(RemotingConfig {
        frame_bytes_max: 10_000,
        ..RemotingConfig::default()
    });
    let address = address_of(server.local_addr());
    let small = RemotingCommand::request(1, ExtFields::default()).with_body(vec![0; 5_000]);
    client.invoke(&address, small, PATIENCE).await.unwrap();
    let large = RemotingCommand::request(1, ExtFields::default()).with_body(vec![0; 20_000]);

    let error = client.invoke(&address, large, PATIENCE).await.unwrap_err();

    assert!(
        matches!(source(&error), ConnectionError::Frame(_)),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_broker_that_does_not_read_fills_the_write_queue_and_no_more() {
    let peer = RawPeer::listen().await;
    let (client, _) = client(RemotingConfig {
        write_queue_bytes_max: 200_000,
        ..RemotingConfig::default()
    });
    let address = peer.address();
    let command = || RemotingCommand::request(1, ExtFields::default()).with_body(vec![0; 50_000]);
    client.invoke_oneway(&address, command()).unwrap();
    let _stream = peer.accept().await;

    let mut refused = None;
    // The sockets' own buffers take some megabytes.
    for _ in 0..2_000 {
        if let Err(error) = client.invoke_oneway(&address, command()) {
            refused = Some(error);
            break;
        }
        tokio::task::yield_now().await;
    }

    let refused = refused.expect("the bound holds");
    assert!(matches!(refused, InvokeError::WriteQueueFull { .. }));
    assert!(refused.is_unsent());
}

#[tokio::test]
async fn a_client_that_does_not_read_loses_its_connection_only() {
    let (echo, server) = Echo::start(ServerConfig {
        write_queue_bytes_max: 200_000,
        ..ServerConfig::default()
    })
    .await;
    let mut slow = TcpStream::connect(server.local_addr()).await.unwrap();
    write_command(&mut slow, &request(b"x")).await;
    eventually("it is connected", || {
        !echo.connections.lock().unwrap().is_empty()
    })
    .await;
    let connection = echo.connections.lock().unwrap()[0];
    let command = || RemotingCommand::request(1, ExtFields::default()).with_body(vec![0; 50_000]);

    let mut failed = false;
    for _ in 0..2_000 {
        failed |= server.send(connection, command()).is_err();
        tokio::task::yield_now().await;
    }

    assert!(failed);
    eventually("it is cut off", || echo.ends.lock().unwrap().len() == 1).await;
    assert!(matches!(
        echo.ends.lock().unwrap()[0],
        ConnectionError::SlowReader { bytes_max: 200_000 }
    ));
    let (other, _) = client(RemotingConfig::default());
    other
        .invoke(&address_of(server.local_addr()), request(b"y"), PATIENCE)
        .await
        .unwrap();
}

#[tokio::test]
async fn hostile_clients_cost_the_server_their_own_connections() {
    let (echo, server) = Echo::start(ServerConfig::default()).await;
    let garbage = [
        &[0xff; 4][..],
        &[0x16, 3, 1, 0],
        b"GET / HTTP/1.1\r\n\r\n",
        &[0, 0, 0, 4, 9, 0, 0, 0],
    ];
    for bytes in garbage {
        let mut stream = TcpStream::connect(server.local_addr()).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        assert!(is_closed(&mut stream).await);
    }
    eventually("all are told", || {
        echo.ends.lock().unwrap().len() == garbage.len()
    })
    .await;
    assert!(
        echo.ends
            .lock()
            .unwrap()
            .iter()
            .all(ConnectionError::is_protocol_violation)
    );
}

#[tokio::test]
async fn connections_beyond_the_bound_are_closed() {
    let (echo, server) = Echo::start(ServerConfig {
        connections_max: 2,
        ..ServerConfig::default()
    })
    .await;
    let _first = TcpStream::connect(server.local_addr()).await.unwrap();
    let _second = TcpStream::connect(server.local_addr()).await.unwrap();
    eventually("two are in", || echo.connections.lock().unwrap().len() == 2).await;

    let mut third = TcpStream::connect(server.local_addr()).await.unwrap();

    assert!(is_closed(&mut third).await);
}

#[tokio::test]
async fn a_peer_that_hangs_up_at_once_is_dialled_with_growing_waits() {
    let peer = RawPeer::listen().await;
    let (client, recorder) = client(RemotingConfig::default());
    let address = peer.address();
    let accepting = tokio::spawn(async move {
        let mut accepted = 0_u32;
        loop {
            drop(peer.accept().await);
            accepted += 1;
            if accepted == 4 {
                return;
            }
        }
    });

    let started = tokio::time::Instant::now();
    let mut refused = 0;
    while !accepting.is_finished() {
        match client.invoke(&address, request(b"x"), PATIENCE).await {
            Err(InvokeError::BackingOff {
                next_attempt_in, ..
            }) => {
                refused += 1;
                assert!(next_attempt_in <= Duration::from_millis(1_000));
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Err(InvokeError::Disconnected { .. }) => {}
            other => panic!("{other:?}"),
        }
    }

    // 100 + 200 + 400 ms less a fifth lie between four attempts.
    assert!(
        started.elapsed() >= Duration::from_millis(560),
        "{:?}",
        started.elapsed()
    );
    assert!(refused > 0);
    assert!(recorder.count("connected") <= 5);
}

#[tokio::test]
async fn a_refused_connection_fails_all_who_wait_for_it_and_then_says_when_it_is_tried_again() {
    let address = {
        let peer = RawPeer::listen().await;
        peer.address()
    };
    let (client, recorder) = client(RemotingConfig::default());
    let (first, second) = tokio::join!(
        client.invoke(&address, request(b"a"), PATIENCE),
        client.invoke(&address, request(b"b"), PATIENCE),
    );
    for error in [first.unwrap_err(), second.unwrap_err()] {
        assert!(
            matches!(error, InvokeError::Connect(ConnectError::Io { .. })),
            "{error:?}"
        );
        assert!(error.is_unsent());
    }

    let error = client
        .invoke(&address, request(b"c"), PATIENCE)
        .await
        .unwrap_err();

    assert!(
        matches!(error, InvokeError::BackingOff { last: Some(_), .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains("is tried again in"), "{error}");
    assert_eq!(recorder.count("connect failed"), 1);
}

#[tokio::test]
async fn host_names_are_resolved_and_unknown_ones_named() {
    let (_echo, server) = Echo::start(ServerConfig::default()).await;
    let (client, _) = client(RemotingConfig::default());
    // `localhost` may come as ::1 first, where nobody listens.
    let named = Address::new("localhost", server.local_addr().port());
    client
        .invoke(&named, request(b"x"), PATIENCE)
        .await
        .unwrap();

    let unknown = Address::new("no such host", 1);
    let error = client
        .invoke(&unknown, request(b"x"), PATIENCE)
        .await
        .unwrap_err();
    assert!(
        matches!(error, InvokeError::Connect(ConnectError::Resolve { .. })),
        "{error:?}"
    );
}

#[tokio::test]
async fn go_away_moves_new_requests_to_a_new_connection_and_lets_old_ones_end() {
    let peer = RawPeer::listen().await;
    let (client, recorder) = client(RemotingConfig {
        // Else the least time between two dials refuses the replacement.
        backoff: BackoffConfig {
            min: Duration::ZERO,
            ..BackoffConfig::default()
        },
        ..RemotingConfig::default()
    });
    let address = peer.address();
    let invoke = |body: &'static [u8]| {
        let (client, address) = (client.clone(), address.clone());
        tokio::spawn(async move { client.invoke(&address, request(body), PATIENCE).await })
    };
    let long_poll = invoke(b"long poll");
    let mut old = peer.accept().await;
    let polled = read_command(&mut old).await;
    let moved = invoke(b"moved");
    let sent_away = read_command(&mut old).await;

    write_command(
        &mut old,
        &RemotingCommand::response_to(&sent_away, response_code::GO_AWAY),
    )
    .await;

    let mut new = peer.accept().await;
    let again = read_command(&mut new).await;
    assert_eq!(&again.body[..], b"moved");
    assert_ne!(again.opaque, sent_away.opaque);
    write_command(&mut new, &RemotingCommand::response_to(&again, 0)).await;
    moved.await.unwrap().unwrap();

    assert!(!long_poll.is_finished());
    write_command(&mut old, &RemotingCommand::response_to(&polled, 0)).await;
    long_poll.await.unwrap().unwrap();
    assert!(is_closed(&mut old).await);
    assert_eq!(recorder.events(), ["connected", "connected"]);

    // Twice for one request is a failure.
    let refused = invoke(b"refused");
    let asked = read_command(&mut new).await;
    write_command(
        &mut new,
        &RemotingCommand::response_to(&asked, response_code::GO_AWAY),
    )
    .await;
    let mut newest = peer.accept().await;
    let asked = read_command(&mut newest).await;
    write_command(
        &mut newest,
        &RemotingCommand::response_to(&asked, response_code::GO_AWAY),
    )
    .await;
    assert!(matches!(
        refused.await.unwrap(),
        Err(InvokeError::GoAway { .. })
    ));
}

#[tokio::test]
async fn a_peer_that_only_talks_is_left_and_dialled_anew() {
    let peer = RawPeer::listen().await;
    let (client, recorder) = client(RemotingConfig::default());
    let asking = {
        let (client, address) = (client.clone(), peer.address());
        tokio::spawn(async move {
            let timeout = Duration::from_secs(3);
            client.invoke(&address, request(b""), timeout).await
        })
    };
    let mut stream = peer.accept().await;
    let talking = tokio::spawn(async move {
        let asked = read_command(&mut stream).await;
        let mut answer = RemotingCommand::response_to(&asked, 0);
        answer.opaque += 1;
        let mut frame = BytesMut::new();
        answer.encode(&mut frame).unwrap();
        while stream.write_all(&frame).await.is_ok() {}
    });

    let error = asking.await.unwrap().unwrap_err();

    assert!(matches!(error, InvokeError::Timeout { .. }), "{error}");
    eventually("the connection is left", || {
        recorder.count("disconnected: the peer answered nothing") == 1
    })
    .await;
    talking.await.unwrap();
    let address = peer.address();
    let again = client.invoke(&address, request(b""), PATIENCE);
    assert!(matches!(again.await, Err(InvokeError::BackingOff { .. })));
}

#[tokio::test]
async fn a_peer_that_asks_and_does_not_read_is_left() {
    let peer = RawPeer::listen().await;
    let (client, recorder) = client(RemotingConfig::default());
    let address = peer.address();
    client.invoke_oneway(&address, request(b"")).unwrap();
    let mut stream = peer.accept().await;
    let mut frame = BytesMut::new();
    request(b"asked again and again")
        .encode(&mut frame)
        .unwrap();
    let frames = frame.repeat(1_000);

    while stream.write_all(&frames).await.is_ok() {}

    eventually("the connection is left", || {
        recorder.count("disconnected: the peer reads nothing") == 1
    })
    .await;
}
