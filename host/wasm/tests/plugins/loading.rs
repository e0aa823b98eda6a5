//! What is not loaded, and in which words.

use wasm::{CheckedComponent, ListenerKind, LoadError};

use crate::support::{Plugin, compile, engine};

#[test]
fn guests_that_must_not_load_are_refused_before_they_are_compiled() {
    let cases = [
        (
            "wrong_import",
            "the component imports wasi:http/outgoing-handler@0.2.12, which reaches outside and is not granted",
        ),
        (
            "unknown_import",
            "the component imports example:weather/forecast@1.0.0, which mqlet does not have",
        ),
        (
            "newer_contract",
            "the component exports mqlet:listener/concurrent, version 7.0.0 of the contract, and this mqlet has 0.1.0",
        ),
        (
            "wrong_world",
            "the component is of another world: it exports example:greeter/greet@1.0.0,",
        ),
        (
            "core_module",
            "this is a core WebAssembly module, and mqlet runs components",
        ),
    ];
    for (guest, text) in cases {
        let problems = CheckedComponent::check(guest_artifacts::bytes(guest)).expect_err(guest);
        assert_eq!(problems.len(), 1, "{guest}: {problems:?}");
        let problem = problems[0].to_string();
        assert!(problem.starts_with(text), "{guest}: {problem}");
        assert!(!problems[0].remedy().is_empty());
    }
}

#[test]
fn guests_that_are_fine_pass_in_every_language() {
    for guest in [
        "succeed",
        "respond_c",
        "respond_javascript",
        "big_start",
        "orderly_succeed",
    ] {
        CheckedComponent::check(guest_artifacts::bytes(guest)).expect(guest);
    }
}

#[tokio::test]
async fn manifest_that_asks_for_another_listener_is_told() {
    for (guest, wanted) in [
        ("orderly_succeed", ListenerKind::Concurrent),
        ("succeed", ListenerKind::Orderly),
    ] {
        let loaded = Plugin::try_load(guest, |config| config.listener = wanted).await;
        let Err((error, _)) = loaded else {
            panic!("{guest} is of another kind")
        };
        assert!(
            matches!(error, LoadError::NoSuchListener(kind) if kind == wanted),
            "{guest}: {error}"
        );
    }
}

#[tokio::test]
async fn damaged_artefact_is_an_error_to_compile_again() {
    let artefact = compile(engine(), "succeed").await;
    let half = artefact.bytes().slice(..artefact.bytes().len() / 2);
    for bytes in [
        half,
        bytes::Bytes::new(),
        bytes::Bytes::from_static(b"\0asm\x0d\0\x01\0"),
    ] {
        let artefact = wasm::Artefact::trusted(bytes);
        let loaded = Plugin::load_in(engine(), &artefact, "succeed", |_| {}).await;
        let Err((error, _)) = loaded else {
            panic!("it is damaged")
        };
        assert!(matches!(error, LoadError::Artefact { .. }), "{error}");
    }
}

#[tokio::test]
async fn listener_with_another_signature_does_not_fit_the_contract() {
    let bytes = wat::parse_str(
        r#"(component
            (core module $m (func (export "f")))
            (core instance $m (instantiate $m))
            (func $f (canon lift (core func $m "f")))
            (instance $i (export "consume-message" (func $f)))
            (export "mqlet:listener/concurrent@0.1.0" (instance $i)))"#,
    )
    .unwrap();
    let component = CheckedComponent::check(bytes).unwrap();
    let artefact = engine().compile(&component).await.unwrap();
    let loaded = Plugin::load_in(engine(), &artefact, "odd", |_| {}).await;
    let Err((error, _)) = loaded else {
        panic!("it has another signature")
    };
    assert!(matches!(error, LoadError::Contract { .. }), "{error}");
}

#[tokio::test]
async fn import_with_another_signature_is_named_when_it_is_compiled() {
    let bytes = wat::parse_str(
        r#"(component
            (import "mqlet:listener/call@0.1.0" (instance (export "now-ms" (func (result string)))))
            (instance $i)
            (export "mqlet:listener/concurrent@0.1.0" (instance $i)))"#,
    )
    .unwrap();
    let component = CheckedComponent::check(bytes).unwrap();
    let error = engine().compile(&component).await.unwrap_err();
    assert!(matches!(error, LoadError::Link { .. }), "{error}");
    assert!(error.to_string().contains("now-ms"), "{error}");
}
