//! Components that come over a network: from servers that are what they should be, and
//! from those that are slow, gone, cut, endless or lead elsewhere.

mod registry;
mod registry_server;
mod web_server;

use std::time::{Duration, Instant};

use plugin_lifecycle::Digest;
use plugin_lifecycle::source::{Fetched, Fetcher, Source, SourceError, SourcesConfig};

use web_server::{Answer, WebServer};

const COMPONENT: &[u8] = b"\0asm, as far as anybody looks here";

fn fetcher(config: SourcesConfig) -> Fetcher {
    Fetcher::new(config)
}

async fn fetch(fetcher: &Fetcher, text: &str) -> Result<Fetched, SourceError> {
    let (source, digest) = Source::parse(text).expect("a source");
    fetcher.fetch(&source, digest, false).await
}

fn with_digest(url: &str, bytes: &[u8]) -> String {
    format!("{url}#sha256={}", Digest::of(bytes))
}

#[tokio::test]
async fn component_comes_over_tls_by_our_own_authority_and_from_nobody_else() {
    let server = WebServer::tls("localhost").await;
    server.answer("/a.wasm", Answer::body(COMPONENT));
    let url = with_digest(&server.url("/a.wasm"), COMPONENT);
    let trusting = fetcher(SourcesConfig {
        authorities: Some(server.authority().to_vec()),
        ..SourcesConfig::default()
    });

    let fetched = fetch(&trusting, &url).await.expect("fetched");
    assert_eq!(&fetched.artifact.bytes[..], COMPONENT);
    assert_eq!(fetched.artifact.digest, Digest::of(COMPONENT));

    let error = fetch(&fetcher(SourcesConfig::default()), &url).await;
    let error = error.expect_err("an authority that nobody knows");
    assert!(matches!(error, SourceError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("ertificate"), "{error}");
}

#[tokio::test]
async fn other_bytes_none_and_too_many_are_refused() {
    let server = WebServer::plain().await;
    server.answer("/other", Answer::body(b"other bytes"));
    server.answer("/empty", Answer::body(b""));
    server.answer("/huge", Answer::Announced(100 << 20));
    server.answer("/endless", Answer::Endless);
    server.answer("/gone", Answer::Status(404));
    server.answer("/login", Answer::Status(401));
    let fetcher = fetcher(SourcesConfig::default());
    for (path, expected) in [
        ("/other", "has the digest"),
        ("/empty", "is empty"),
        ("/huge", "has more than the 64MiB"),
        ("/endless", "has more than the 64MiB"),
        ("/gone", "answers with status 404; look whether it is there"),
        ("/login", "answers with status 401; let the server allow it"),
    ] {
        let url = with_digest(&server.url(path), COMPONENT);
        let error = fetch(&fetcher, &url).await.expect_err(path).to_string();
        assert!(error.contains(expected), "{path}: {error}");
        assert_eq!(server.asked(path), 1, "{path}: asking again is of no use");
    }
}

#[tokio::test]
async fn what_may_get_better_is_asked_again() {
    let server = WebServer::plain().await;
    let good = || Answer::body(COMPONENT);
    server.answers(
        "/busy",
        vec![Answer::Status(503), Answer::Status(429), good()],
    );
    server.answers("/cut", vec![Answer::Cut(COMPONENT[..5].to_vec()), good()]);
    server.answers("/closed", vec![Answer::Closed, good()]);
    server.answer("/broken", Answer::Status(500));
    let fetcher = fetcher(SourcesConfig::default());
    for path in ["/busy", "/cut", "/closed"] {
        let url = with_digest(&server.url(path), COMPONENT);
        fetch(&fetcher, &url).await.expect(path);
    }
    let url = with_digest(&server.url("/broken"), COMPONENT);
    let error = fetch(&fetcher, &url).await.expect_err("for ever");
    assert!(error.to_string().contains("status 500; look at the server"));
    assert_eq!(server.asked("/broken"), 4);
}

#[tokio::test]
async fn server_that_says_nothing_is_not_waited_for() {
    let server = WebServer::plain().await;
    server.answer("/silent", Answer::Silent);
    let fetcher = fetcher(SourcesConfig {
        fetch_timeout: Duration::from_secs(1),
        ..SourcesConfig::default()
    });
    let url = with_digest(&server.url("/silent"), COMPONENT);
    let began = Instant::now();
    let error = fetch(&fetcher, &url).await.expect_err("silence");
    assert!(
        error.to_string().contains("did not come within 1 s"),
        "{error}"
    );
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn server_that_is_not_there_is_named() {
    let server = WebServer::plain().await;
    let url = with_digest(&server.url("/a"), COMPONENT);
    drop(server);
    let fetcher = fetcher(SourcesConfig::default());
    let error = fetch(&fetcher, &url).await.expect_err("nobody is there");
    assert!(matches!(error, SourceError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("refused"), "{error}");
}

#[tokio::test]
async fn redirects_are_followed_where_they_may_lead_and_five_at_most() {
    let server = WebServer::plain().await;
    server.answer("/good", Answer::body(COMPONENT));
    server.answer("/once", Answer::Redirect("/good".to_owned()));
    server.answer("/round", Answer::Redirect("/round".to_owned()));
    server.answer(
        "/plain",
        Answer::Redirect("http://example.org/a?sig=secret".to_owned()),
    );
    server.answer("/file", Answer::Redirect("file:///etc/passwd".to_owned()));
    let fetcher = fetcher(SourcesConfig::default());
    let url = with_digest(&server.url("/once"), COMPONENT);
    fetch(&fetcher, &url).await.expect("led to the bytes");
    for (path, expected) in [
        ("/round", "which has no end"),
        ("/plain", "which is not encrypted"),
        ("/file", "which is not encrypted"),
    ] {
        let url = with_digest(&server.url(path), COMPONENT);
        let error = fetch(&fetcher, &url).await.expect_err(path).to_string();
        assert!(error.contains(expected), "{path}: {error}");
        assert!(!error.contains("secret"), "{error}");
    }
    assert_eq!(server.asked("/round"), 6);
}

#[tokio::test]
async fn signature_beside_an_address_is_brought_with_it() {
    let server = WebServer::plain().await;
    server.answer("/a.wasm", Answer::body(COMPONENT));
    server.answer("/a.wasm.sig", Answer::body(b"c2ln\n"));
    let fetcher = fetcher(SourcesConfig::default());
    let url = with_digest(&server.url("/a.wasm"), COMPONENT);
    let (source, digest) = Source::parse(&url).expect("a source");
    let fetched = fetcher.fetch(&source, digest, true).await.expect("fetched");
    assert_eq!(fetched.artifact.provenance.signatures.len(), 1);
    assert_eq!(server.asked("/a.wasm.sigstore.json"), 1);
}
