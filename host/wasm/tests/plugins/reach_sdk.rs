//! The helpers of the Rust SDK reach what is granted; and a store that does not answer.

use std::sync::Arc;
use std::time::Duration;

use wasm::{BucketKey, CheckedComponent, Event, HttpGrant, KeyValueFuture, KeyValueStore, Secrets};

use crate::reach::{Memory, grant_everything, load};
use crate::support::{Plugin, Request, SOON, engine};
use crate::web_server::WebServer;

#[tokio::test]
async fn helpers_reach_settings_secrets_buckets_and_servers() {
    let server = WebServer::start().await;
    let mut config = wasm::PluginConfig::new("sdk_reach", "r1");
    grant_everything(&mut config);
    let bytes = guest_artifacts::bytes("sdk_reach");
    let component = CheckedComponent::check_granted(bytes, &config.grants).unwrap();
    let artefact = engine().compile(&component).await.unwrap();
    let loaded = Plugin::load_in(engine(), &artefact, "sdk_reach", |config| {
        grant_everything(config);
        let host = server.address.to_string().parse().unwrap();
        let mut http = HttpGrant::new(vec![host]);
        http.private = vec!["127.0.0.1".parse().unwrap()];
        config.grants.http = Some(http);
        config.key_value = Some(Arc::new(Memory::default()));
        config.settings = vec![("region".into(), "eu".into())];
        config.secrets = Secrets::new(vec![("api-key".into(), "s3cret".into())]);
    });
    let Ok(plugin) = loaded.await else {
        panic!("it is not loaded")
    };
    let url = |path: &str| format!("GET {}", server.url(path));
    let post = format!("POST {} hello", server.url("/count"));
    let bodies = [
        "config region",
        "secret api-key",
        "secret none",
        "get orders a",
        "set orders a 1",
        "set orders b 2",
        "get orders a",
        "keys orders",
        "add orders n 2",
        "get payments a",
        &url("/hello"),
        &post,
        &url("/none"),
        "GET http://example.com/",
        "GET ftp://example.com/",
    ];
    assert_eq!(
        plugin.reasons(Request::of(&bodies)).await,
        [
            "Some(\"eu\")",
            "s3cret",
            "error: secret \"none\" is missing; add it to [secrets]",
            "none",
            "set",
            "set",
            "1",
            "a,b",
            "42",
            "error: the bucket is not granted; add it to keyvalue of [grants]",
            "200 hi",
            "200 5",
            "404 ",
            "error: this request is not granted; see http of [grants]",
            "error: this is no request: its URL begins with neither http:// nor https://",
        ]
    );
}

#[test]
fn component_imports_only_the_helpers_that_it_calls() {
    let component = CheckedComponent::check(guest_artifacts::bytes("sdk_succeed")).unwrap();
    assert_eq!(component.reaches().next(), None);
}

/// Answers nothing.
#[derive(Debug)]
struct Silent;

impl KeyValueStore for Silent {
    fn get(&self, _: BucketKey) -> KeyValueFuture<Option<Vec<u8>>> {
        Box::pin(std::future::pending())
    }

    fn set(&self, _: BucketKey, _: Vec<u8>) -> KeyValueFuture<()> {
        Box::pin(std::future::pending())
    }

    fn delete(&self, _: BucketKey) -> KeyValueFuture<()> {
        Box::pin(std::future::pending())
    }

    fn keys(&self, _: Arc<str>, _: Option<String>) -> KeyValueFuture<(Vec<String>, bool)> {
        Box::pin(std::future::pending())
    }

    fn increment(&self, _: BucketKey, _: u64) -> KeyValueFuture<u64> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn store_that_hangs_is_an_error_before_the_deadline_and_an_event() {
    let plugin = load(|config| {
        grant_everything(config);
        config.key_value = Some(Arc::new(Silent));
    })
    .await;
    for body in [
        "get orders a",
        "set orders a 1",
        "keys orders",
        "add orders n 1",
    ] {
        let mut request = Request::of(&[body]);
        request.consume_timeout = Duration::from_secs(1);
        let answer = tokio::time::timeout(SOON, plugin.reasons(request));
        let answer = answer.await.unwrap();
        assert!(
            answer[0].contains("does not answer in the time"),
            "{answer:?}"
        );
    }
    let told = plugin.events.pick(|event| match event {
        Event::KeyValueFailed { bucket, .. } => Some(bucket.to_string()),
        _ => None,
    });
    assert_eq!(told, ["orders"; 4]);
    assert_eq!(plugin.events.failures().len(), 0);
}
