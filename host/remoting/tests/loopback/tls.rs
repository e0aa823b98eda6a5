//! TLS towards a server: whom a client trusts, what it says of those it does not, and
//! peers that answer its greeting with nonsense.

use std::error::Error as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use remoting::tls::TlsOptions;
use remoting::{
    ConnectError, ConnectionError, InvokeError, RemotingClient, RemotingConfig, ServerConfig,
    TlsConfig,
};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{self, RootCertStore};

use crate::peer::{Echo, PATIENCE, RawPeer, Recorder, address_of, eventually, request};
use protocol::{Address, ExtFields, RemotingCommand};

/// An authority that signs for these tests.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// Certificate and key, as PEM.
struct Identity {
    certificate: String,
    key: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Self { pem, issuer }
    }

    fn identity(&self, name: &str) -> Identity {
        self.sign(&CertificateParams::new(vec![name.to_owned()]).unwrap())
    }

    fn sign(&self, params: &CertificateParams) -> Identity {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        let key = key.serialize_pem();
        Identity { certificate, key }
    }

    fn trusted(&self) -> TlsOptions {
        TlsOptions {
            ca: Some(self.pem.clone().into_bytes()),
            ..TlsOptions::default()
        }
    }
}

/// Speaks TLS in front of a server that does not; asks for a client's certificate of
/// `clients` if given. Ends with the test.
async fn tls_in_front_of(
    server: SocketAddr,
    identity: &Identity,
    clients: Option<&Authority>,
) -> Address {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            let der = CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap();
            roots.add(der).unwrap();
            builder.with_client_cert_verifier(
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                    .build()
                    .unwrap(),
            )
        }
    };
    let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
    let config = builder.with_single_cert(vec![certificate], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = address_of(listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (client, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                // Clients that hang up in the handshake are what some tests are about.
                let Ok(mut client) = acceptor.accept(client).await else {
                    return;
                };
                let mut server = TcpStream::connect(server).await.unwrap();
                tokio::io::copy_bidirectional(&mut client, &mut server)
                    .await
                    .ok();
            });
        }
    });
    address
}

fn client(options: &TlsOptions) -> (RemotingClient, Arc<Recorder>) {
    let recorder = Arc::new(Recorder::default());
    let config = RemotingConfig {
        tls: Some(TlsConfig::new(options).unwrap()),
        connect_timeout: Duration::from_secs(2),
        ..RemotingConfig::default()
    };
    (
        RemotingClient::new(config, Arc::clone(&recorder) as _),
        recorder,
    )
}

/// What the first request of a client with these options comes to.
async fn first_error(options: &TlsOptions, address: &Address) -> String {
    let (client, _) = client(options);
    let error = client
        .invoke(address, request(b"x"), PATIENCE)
        .await
        .unwrap_err();
    let InvokeError::Connect(error) = error else {
        panic!("{error:?}");
    };
    assert!(matches!(error, ConnectError::Tls { .. }), "{error:?}");
    let cause = error.source().unwrap();
    format!("{error}: {cause}").replace(&address.to_string(), "ADDRESS")
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_all_sizes_go_over_one_verified_connection() {
    let (echo, server) = Echo::start(ServerConfig::default()).await;
    let authority = Authority::new();
    let address =
        tls_in_front_of(server.local_addr(), &authority.identity("127.0.0.1"), None).await;
    let (client, recorder) = client(&authority.trusted());

    let mut calls = JoinSet::new();
    for number in 0..500_u32 {
        let (client, address) = (client.clone(), address.clone());
        let bytes = if number % 100 == 0 { 3 << 20 } else { 10 };
        calls.spawn(async move {
            let mut body = number.to_be_bytes().to_vec();
            body.resize(bytes, b'.');
            let command =
                RemotingCommand::request(11, ExtFields::default()).with_body(body.clone());
            let answer = client.invoke(&address, command, PATIENCE).await.unwrap();
            assert!(answer.body == body);
        });
    }
    while let Some(call) = calls.join_next().await {
        call.unwrap();
    }
    assert_eq!(echo.connections.lock().unwrap().len(), 1);

    // What is queued when the client ends still arrives.
    client.invoke_oneway(&address, request(b"goodbye")).unwrap();
    client.close().await;
    eventually("the last word", || echo.oneways.lock().unwrap().len() == 1).await;
    assert_eq!(recorder.count("connected"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn whom_nobody_trusted_has_signed_is_refused_in_words_that_help() {
    let (_echo, server) = Echo::start(ServerConfig::default()).await;
    let authority = Authority::new();
    let identity = authority.identity("broker.test");
    let named = tls_in_front_of(server.local_addr(), &identity, None).await;
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2019, 1, 1);
    params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let expired = tls_in_front_of(server.local_addr(), &authority.sign(&params), None).await;

    let stranger = first_error(&Authority::new().trusted(), &named).await;
    assert!(
        stranger.starts_with(
            "no TLS connection to ADDRESS; nobody we trust has signed its certificate: name the authority's file (ca_file): "
        ),
        "{stranger}"
    );
    let system = first_error(&TlsOptions::default(), &named).await;
    assert!(system.contains("nobody we trust"), "{system}");
    let wrong_name = first_error(&authority.trusted(), &named).await;
    assert!(
        wrong_name.contains("is for another name: give the name in it (server_name)")
            && wrong_name.contains("broker.test"),
        "{wrong_name}"
    );
    let expired = first_error(&authority.trusted(), &expired).await;
    assert!(expired.contains("has expired: renew it"), "{expired}");

    // The two ways out: its own name, or no questions asked.
    for options in [
        TlsOptions {
            server_name: Some("broker.test".to_owned()),
            ..authority.trusted()
        },
        TlsOptions {
            insecure: true,
            ..TlsOptions::default()
        },
    ] {
        let (client, _) = client(&options);
        let answer = client.invoke(&named, request(b"x"), PATIENCE).await;
        assert_eq!(&answer.unwrap().body[..], b"x");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_asks_for_a_certificate_gets_it_or_nothing() {
    let (_echo, server) = Echo::start(ServerConfig::default()).await;
    let authority = Authority::new();
    let identity = authority.identity("127.0.0.1");
    let address = tls_in_front_of(server.local_addr(), &identity, Some(&authority)).await;

    let (nobody, recorder) = client(&authority.trusted());
    let refused = nobody.invoke(&address, request(b"x"), PATIENCE).await;
    let refused = refused.unwrap_err();
    // TLS 1.3 says so after the handshake.
    assert!(
        matches!(
            refused,
            InvokeError::Disconnected { .. } | InvokeError::Connect(_)
        ),
        "{refused:?}"
    );
    eventually("the reason", || recorder.count("disconnected") == 1).await;

    let us = authority.identity("us");
    let options = TlsOptions {
        client_certificate: Some((us.certificate.into_bytes(), us.key.into_bytes())),
        ..authority.trusted()
    };
    let (client, _) = client(&options);
    let answer = client.invoke(&address, request(b"x"), PATIENCE).await;
    assert_eq!(&answer.unwrap().body[..], b"x");
}

#[tokio::test]
async fn hostile_answers_to_the_greeting_cost_one_connection_each() {
    let authority = Authority::new();
    let nonsense: [&[u8]; 5] = [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        &[0x16, 3, 3, 0xff, 0xff],
        &[0x15, 3, 3, 0, 2, 2, 40],
        &[0; 20_000],
    ];
    for bytes in nonsense {
        let peer = RawPeer::listen().await;
        let (client, recorder) = client(&authority.trusted());
        let address = peer.address();
        let call = tokio::spawn({
            let (client, address) = (client.clone(), address.clone());
            async move { client.invoke(&address, request(b"x"), PATIENCE).await }
        });
        let mut stream = peer.accept().await;
        // The client may be gone before all of it is written.
        stream.write_all(bytes).await.ok();
        drop(stream);
        let error = call.await.unwrap().unwrap_err();
        assert!(
            matches!(error, InvokeError::Connect(ConnectError::Tls { .. })),
            "{error:?}"
        );
        assert_eq!(recorder.events().len(), 1, "{:?}", recorder.events());
        assert_eq!(client.stats().in_flight, 0);
    }
}

#[tokio::test]
async fn who_never_answers_the_greeting_is_given_up_in_time() {
    let peer = RawPeer::listen().await;
    let (client, _) = client(&Authority::new().trusted());
    let address = peer.address();
    let call = tokio::spawn(async move { client.invoke(&address, request(b"x"), PATIENCE).await });
    let _silent = peer.accept().await;
    let error = call.await.unwrap().unwrap_err();
    assert!(
        matches!(error, InvokeError::Connect(ConnectError::TlsTimeout { .. })),
        "{error:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_cut_within_tls_is_told_as_cut() {
    let (_echo, server) = Echo::start(ServerConfig::default()).await;
    let authority = Authority::new();
    let identity = authority.identity("127.0.0.1");
    let address = tls_in_front_of(server.local_addr(), &identity, None).await;
    let (client, recorder) = client(&authority.trusted());
    client
        .invoke(&address, request(b"x"), PATIENCE)
        .await
        .unwrap();
    let held = tokio::spawn({
        let (client, address) = (client.clone(), address.clone());
        async move { client.invoke(&address, request(b"hold"), PATIENCE).await }
    });
    eventually("it is held", || client.stats().in_flight == 1).await;
    server.shutdown().await;
    let error = held.await.unwrap().unwrap_err();
    assert!(
        matches!(
            error,
            InvokeError::Disconnected {
                source: ConnectionError::ClosedByPeer,
                ..
            }
        ),
        "{error:?}"
    );
    assert_eq!(recorder.count("disconnected"), 1);
}

#[test]
fn options_that_cannot_work_are_refused_in_clear_words() {
    let authority = Authority::new();
    let us = authority.identity("us");
    let error = |options: TlsOptions| TlsConfig::new(&options).unwrap_err().to_string();
    assert_eq!(
        error(TlsOptions {
            ca: Some(b"no PEM".to_vec()),
            ..TlsOptions::default()
        }),
        "the file of certificate authorities has no certificate in it"
    );
    assert_eq!(
        error(TlsOptions {
            client_certificate: Some((us.certificate.clone().into_bytes(), Vec::new())),
            ..authority.trusted()
        }),
        "the private key cannot be read"
    );
    let other = authority.identity("other");
    assert_eq!(
        error(TlsOptions {
            client_certificate: Some((us.certificate.into_bytes(), other.key.into_bytes())),
            ..authority.trusted()
        }),
        "client certificate and private key cannot be used together"
    );
    assert_eq!(
        error(TlsOptions {
            server_name: Some("no name".to_owned()),
            ..authority.trusted()
        }),
        "\"no name\" is no server name"
    );
}
