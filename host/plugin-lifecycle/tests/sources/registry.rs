//! Components in a registry: a real one, and what a bad one may say.

use std::collections::BTreeMap;

use plugin_lifecycle::Digest;
use plugin_lifecycle::signature::{SignatureMode, SignaturePolicy};
use plugin_lifecycle::source::{Fetcher, Source, SourceError, SourcesConfig};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};

use super::registry_server::RegistryServer;
use super::web_server::{Answer, WebServer};
use super::{COMPONENT, fetch};

const CNCF: &str = "application/wasm";
const CNCF_CONFIG: &str = "application/vnd.wasm.config.v0+json";

fn layer<'a>(
    bytes: &'a [u8],
    media_type: &'a str,
) -> (&'a [u8], &'a str, BTreeMap<String, String>) {
    (bytes, media_type, BTreeMap::new())
}

#[tokio::test(flavor = "multi_thread")]
async fn component_is_read_in_every_layout_by_tag_and_by_digest() {
    let Some(registry) = RegistryServer::start() else {
        return;
    };
    let address = registry.address();
    let fetcher = Fetcher::default();
    for (tag, config, media_type) in [
        ("cncf", CNCF_CONFIG, CNCF),
        (
            "older",
            "application/vnd.wasm.config.v1+json",
            "application/vnd.wasm.content.layer.v1+wasm",
        ),
        (
            "oldest",
            "application/vnd.module.wasm.config.v1+json",
            "application/vnd.module.wasm.content.layer.v1+wasm",
        ),
    ] {
        let digest = registry
            .push(
                &format!("shop/orders:{tag}"),
                config,
                &[layer(COMPONENT, media_type)],
            )
            .await;
        for reference in [
            format!("oci://{address}/shop/orders:{tag}"),
            format!("oci://{address}/shop/orders@{digest}"),
            format!("oci://{address}/shop/orders:gone@{digest}"),
        ] {
            let fetched = fetch(&fetcher, &reference).await.expect(&reference);
            assert_eq!(&fetched.artifact.bytes[..], COMPONENT, "{reference}");
            let resolved = format!("{address}/shop/orders@{digest}");
            assert_eq!(fetched.resolved, Some(resolved));
        }
    }

    // A tag moves; a digest does not.
    let before = registry
        .push(
            "shop/orders:cncf",
            CNCF_CONFIG,
            &[layer(b"another one", CNCF)],
        )
        .await;
    let moved = fetch(&fetcher, &format!("oci://{address}/shop/orders:cncf")).await;
    let moved = moved.expect("fetched");
    assert_eq!(&moved.artifact.bytes[..], b"another one");
    assert!(moved.resolved.expect("resolved").ends_with(&before));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_component_or_not_there_is_said() {
    let Some(registry) = RegistryServer::start() else {
        return;
    };
    let tar = "application/vnd.oci.image.layer.v1.tar";
    for (tag, layers) in [
        ("image", vec![layer(b"tar", tar)]),
        ("two", vec![layer(b"one", CNCF), layer(b"two", CNCF)]),
        ("empty", vec![layer(b"", CNCF)]),
    ] {
        registry
            .push(&format!("a:{tag}"), CNCF_CONFIG, &layers)
            .await;
    }
    let other = Digest::of(b"other");
    let fetcher = Fetcher::default();
    for (reference, expected) in [
        (
            "a:image",
            "its layers are application/vnd.oci.image.layer.v1.tar".to_owned(),
        ),
        ("a:two", "several layers that are components".to_owned()),
        ("a:empty", "is empty".to_owned()),
        ("a:gone", "answers with status 404".to_owned()),
        ("gone:1", "answers with status 404".to_owned()),
        (
            &format!("a@sha256:{other}"),
            "answers with status 404".to_owned(),
        ),
    ] {
        let text = format!("oci://{}/{reference}", registry.address());
        let error = fetch(&fetcher, &text).await.expect_err(reference);
        let error = error.to_string();
        assert!(error.contains(&expected), "{reference}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn private_registry_wants_the_login_of_the_docker_configuration() {
    let Some(registry) = RegistryServer::start_private() else {
        return;
    };
    registry
        .push("a:1", CNCF_CONFIG, &[layer(COMPONENT, CNCF)])
        .await;
    let address = registry.address();
    let text = format!("oci://{address}/a:1");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("config.json");
    let with = |json: String| {
        std::fs::write(&file, json).expect("written");
        Fetcher::new(SourcesConfig {
            docker_config: Some(file.clone()),
            ..SourcesConfig::default()
        })
    };

    // user:secret
    let good = format!(r#"{{"auths":{{"{address}":{{"auth":"dXNlcjpzZWNyZXQ="}}}}}}"#);
    fetch(&with(good), &text).await.expect("we are somebody");
    // user:wrong
    let wrong = format!(r#"{{"auths":{{"{address}":{{"auth":"dXNlcjp3cm9uZw=="}}}}}}"#);
    let error = fetch(&with(wrong), &text).await.expect_err("wrong");
    assert!(
        error
            .to_string()
            .contains("refuses us and the credentials we have"),
        "{error}"
    );
    let error = fetch(&with("{}".to_owned()), &text)
        .await
        .expect_err("nobody");
    assert!(
        error
            .to_string()
            .contains("there are no credentials for it"),
        "{error}"
    );
}

#[tokio::test]
async fn helper_that_is_not_installed_is_named() {
    let server = token_server().await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("config.json");
    let registry = server.address();
    let config = format!(r#"{{"credHelpers":{{"{registry}":"mqlettest"}}}}"#);
    std::fs::write(&file, config).expect("written");
    let fetcher = Fetcher::new(SourcesConfig {
        docker_config: Some(file),
        ..SourcesConfig::default()
    });
    let text = format!("oci://{registry}/shop/orders:1");
    let error = fetch(&fetcher, &text).await.expect_err("it is not there");
    assert!(matches!(error, SourceError::Credentials { .. }));
    let error = error.to_string();
    assert!(
        error.contains("docker-credential-mqlettest cannot be run"),
        "{error}"
    );
}

/// A registry that gives tokens to whoever shows `user:secret`.
async fn token_server() -> WebServer {
    let server = WebServer::plain().await;
    let component = Digest::of(COMPONENT);
    let manifest = format!(
        r#"{{"schemaVersion":2,"layers":[{{"mediaType":"application/wasm","digest":"sha256:{component}","size":{}}}]}}"#,
        COMPONENT.len()
    );
    let challenge = format!("Bearer realm=\"{}\",service=\"test\"", server.url("/token"));
    let path = "/v2/shop/orders/manifests/1";
    server.answers(
        path,
        vec![
            Answer::Challenge(challenge),
            Answer::body(manifest.as_bytes()),
        ],
    );
    server.answer(
        &format!("/v2/shop/orders/blobs/sha256:{component}"),
        Answer::body(COMPONENT),
    );
    server.answer("/token", Answer::body(br#"{"token":"abc"}"#));
    server
}

#[tokio::test]
async fn token_is_got_with_the_login_and_shown_with_each_request() {
    let server = token_server().await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("config.json");
    let address = server.address();
    let config = format!(r#"{{"auths":{{"{address}":{{"auth":"dXNlcjpzZWNyZXQ="}}}}}}"#);
    std::fs::write(&file, config).expect("written");
    let fetcher = Fetcher::new(SourcesConfig {
        docker_config: Some(file),
        ..SourcesConfig::default()
    });
    let text = format!("oci://{address}/shop/orders:1");
    fetch(&fetcher, &text).await.expect("fetched");

    let basic = Some("Basic dXNlcjpzZWNyZXQ=".to_owned());
    assert_eq!(server.authorizations("/token"), [basic]);
    let bearer = Some("Bearer abc".to_owned());
    let blob = format!("/v2/shop/orders/blobs/sha256:{}", Digest::of(COMPONENT));
    assert_eq!(server.authorizations(&blob), *std::slice::from_ref(&bearer));
    let manifest = server.authorizations("/v2/shop/orders/manifests/1");
    assert_eq!(manifest, [None, bearer]);
}

#[tokio::test]
async fn login_is_shown_to_no_other_server() {
    let server = token_server().await;
    let elsewhere = WebServer::plain().await;
    elsewhere.answer("/blob", Answer::body(COMPONENT));
    let blob = format!("/v2/shop/orders/blobs/sha256:{}", Digest::of(COMPONENT));
    server.answer(&blob, Answer::Redirect(elsewhere.url("/blob")));
    let text = format!("oci://{}/shop/orders:1", server.address());
    fetch(&Fetcher::default(), &text).await.expect("fetched");
    assert_eq!(elsewhere.authorizations("/blob"), [None]);
}

#[tokio::test]
async fn registry_that_says_nonsense_is_not_believed() {
    let server = WebServer::plain().await;
    let component = Digest::of(COMPONENT);
    let manifest = |size: u64| {
        let text = format!(
            r#"{{"layers":[{{"mediaType":"application/wasm","digest":"sha256:{component}","size":{size}}}]}}"#
        );
        Answer::body(text.as_bytes())
    };
    let at = |tag: &str| format!("/v2/a/manifests/{tag}");
    server.answer(&at("junk"), Answer::body(b"<html>"));
    server.answer(&at("giant"), Answer::Announced(1 << 40));
    server.answer(&at("endless"), Answer::Endless);
    server.answer(&at("large-layer"), manifest(1 << 40));
    server.answer(&at("other-layer"), manifest(9));
    server.answer(
        &format!("/v2/a/blobs/sha256:{component}"),
        Answer::body(b"other"),
    );
    server.answer(
        &at("md5"),
        Answer::body(
            br#"{"layers":[{"mediaType":"application/wasm","digest":"md5:aa","size":1}]}"#,
        ),
    );
    let parts = vec![r#"{"mediaType":"x","digest":"sha256:00","size":1}"#; 65].join(",");
    server.answer(
        &at("parts"),
        Answer::body(format!("{{\"layers\":[{parts}]}}").as_bytes()),
    );
    server.answer(
        &at("index"),
        Answer::body(br#"{"manifests":[{"digest":"sha256:00","size":1}]}"#),
    );
    server.answer(
        &at("digest"),
        Answer::Challenge("Digest realm=\"x\"".to_owned()),
    );
    let plain = "Bearer realm=\"http://example.org/token\"".to_owned();
    server.answer(&at("plain"), Answer::Challenge(plain));
    let wanted = Digest::of(b"wanted");
    server.answer(&at(&format!("sha256:{wanted}")), manifest(9));
    let fetcher = Fetcher::default();
    for (reference, expected) in [
        ("a:junk", "is not understood"),
        ("a:giant", "has more than the 1MiB"),
        ("a:endless", "has more than the 1MiB"),
        ("a:large-layer", "has more than the 64MiB"),
        ("a:other-layer", "has the digest"),
        ("a:md5", "is not sha256"),
        ("a:parts", "more than 64 parts"),
        ("a:index", "without an entry for wasm"),
        ("a:digest", "a kind of login that is not known"),
        ("a:plain", "its server for tokens is not encrypted"),
        (&format!("a@sha256:{wanted}"), "the manifest of oci://"),
    ] {
        let text = format!("oci://{}/{reference}", server.address());
        let error = fetch(&fetcher, &text).await.expect_err(reference);
        let error = error.to_string();
        assert!(error.contains(expected), "{reference}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn signatures_are_found_as_cosign_keeps_them() {
    let Some(registry) = RegistryServer::start() else {
        return;
    };
    let pair = rcgen::KeyPair::generate().expect("a key");
    let random = SystemRandom::new();
    let key = EcdsaKeyPair::from_pkcs8(
        &ECDSA_P256_SHA256_ASN1_SIGNING,
        &pair.serialize_der(),
        &random,
    );
    let key = key.expect("its own key");
    let sign = |message: &[u8]| {
        let signature = key.sign(&random, message).expect("signed");
        base64(signature.as_ref())
    };
    let pem = pair.public_key_pem().into_bytes();
    let keys = [("cosign.pub".to_owned(), pem)];
    let policy = SignaturePolicy::new(SignatureMode::Require, &keys, Vec::new(), None);
    let policy = policy.expect("a policy");
    let fetcher = Fetcher::default();
    let signer = async |name: &str| {
        let text = format!("oci://{}/{name}", registry.address());
        let (source, digest) = Source::parse(&text).expect("a source");
        let fetched = fetcher.fetch(&source, digest, true).await.expect("fetched");
        policy.signer(&fetched.artifact)
    };

    let digest = registry
        .push("a:1", CNCF_CONFIG, &[layer(COMPONENT, CNCF)])
        .await;
    let unsigned = signer("a:1").await.expect_err("nobody signed it");
    assert!(unsigned.contains("it is not signed"), "{unsigned}");

    // cosign sign --key
    let payload = format!(
        r#"{{"critical":{{"identity":{{"docker-reference":"a"}},"image":{{"docker-manifest-digest":"{digest}"}},"type":"cosign container image signature"}},"optional":null}}"#
    );
    let annotations = BTreeMap::from([(
        "dev.cosignproject.cosign/signature".to_owned(),
        sign(payload.as_bytes()),
    )]);
    let signature = (
        payload.as_bytes(),
        "application/vnd.dev.cosign.simplesigning.v1+json",
        annotations,
    );
    let tag = format!("a:{}.sig", digest.replace(':', "-"));
    registry
        .push(
            &tag,
            "application/vnd.oci.image.config.v1+json",
            std::slice::from_ref(&signature),
        )
        .await;
    assert_eq!(signer("a:1").await, Ok("key cosign.pub".to_owned()));

    // The signature of one component at the place of another's.
    let other = registry
        .push("a:2", CNCF_CONFIG, &[layer(b"another one", CNCF)])
        .await;
    let tag = format!("a:{}.sig", other.replace(':', "-"));
    registry
        .push(
            &tag,
            "application/vnd.oci.image.config.v1+json",
            &[signature],
        )
        .await;
    let moved = signer("a:2").await.expect_err("of another");
    assert!(moved.contains("of another manifest"), "{moved}");

    // A bundle that refers to the manifest, where the registry has no list of those: under
    // the tag that stands in for it. What is signed is the manifest.
    let third = registry
        .push("a:3", CNCF_CONFIG, &[layer(b"a third one", CNCF)])
        .await;
    let text = format!("oci://{}/a:3", registry.address());
    let (source, _) = Source::parse(&text).expect("a source");
    let fetched = fetcher.fetch(&source, None, true).await.expect("fetched");
    let manifest = fetched.artifact.provenance.manifest.expect("of a registry");
    let bundle = format!(
        r#"{{"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json","verificationMaterial":{{"publicKey":{{"hint":""}},"tlogEntries":[]}},"messageSignature":{{"messageDigest":{{"algorithm":"SHA2_256","digest":"{}"}},"signature":"{}"}}}}"#,
        base64(Digest::of(&manifest).bytes()),
        sign(&manifest)
    );
    let kind = "application/vnd.dev.sigstore.bundle.v0.3+json";
    let empty = "application/vnd.oci.empty.v1+json";
    let bundle = registry
        .push("a:bundle", empty, &[layer(bundle.as_bytes(), kind)])
        .await;
    let index = serde_json::json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [{
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "artifactType": kind,
            "digest": bundle,
            "size": 1,
        }],
    });
    registry
        .push_index(&format!("a:{}", third.replace(':', "-")), index)
        .await;
    assert_eq!(signer("a:3").await, Ok("key cosign.pub".to_owned()));
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
