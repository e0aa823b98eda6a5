//! Every refusal, its words and its remedy.

use super::*;

#[test]
fn what_is_no_component_is_told_apart() {
    let cases: [(&[u8], &str, &str); 9] = [
        (
            b"",
            "the component is empty (0 bytes)",
            "build or copy it again",
        ),
        (b"\0asm\x0d", "cut off", "build or copy it again"),
        (b"(component)", "this is text", "wasm-tools parse"),
        (b"hello, world", "this is text", "name the .wasm component"),
        (b"\x7fELF\x02\x01\x01\0\0", "an ELF file", "name the .wasm"),
        (b"\x1f\x8b\x08\0\0\0\0\0\0", "gzip", "name the .wasm"),
        (b"PK\x03\x04\0\0\0\0\0", "a zip archive", "name the .wasm"),
        (
            b"\xff\0\xff\0\xff\0\xff\0\xff",
            "it begins with ff 00 ff",
            "name the .wasm",
        ),
        (
            b"\0asm\x07\0\x03\0",
            "unknown kind (version 7, layer 3)",
            "makes WebAssembly components",
        ),
    ];
    for (bytes, what, remedy) in cases {
        let [problem] = refused(bytes).try_into().unwrap();
        let text = problem.to_string();
        assert!(text.contains(what), "{text:?} should say {what:?}");
        let text = problem.remedy();
        assert!(text.contains(remedy), "{text:?} should say {remedy:?}");
    }
}

#[test]
fn core_module_is_refused_with_the_way_to_a_component() {
    let hints = [
        ("", "--target wasm32-wasip2"),
        (
            r#"(import "wasi_snapshot_preview1" "fd_write" (func))"#,
            "WASI preview 1 module",
        ),
        (
            r#"(import "gojs" "runtime.wasmExit" (func))"#,
            "GOOS=wasip1",
        ),
        (
            r#"(import "__wbindgen_placeholder__" "x" (func))"#,
            "without wasm-bindgen",
        ),
        (r#"(import "env" "emscripten_memcpy" (func))"#, "Emscripten"),
    ];
    for (import, remedy) in hints {
        let module = wat::parse_str(format!("(module {import})")).unwrap();
        let [problem] = refused(&module).try_into().unwrap();
        assert_eq!(
            problem.to_string(),
            "this is a core WebAssembly module, and mqlet runs components"
        );
        assert!(problem.remedy().contains(remedy), "{}", problem.remedy());
    }
}

#[test]
fn component_that_ends_early_is_truncated_wherever_it_ends() {
    let whole = concurrent("");
    assert!(CheckedComponent::check(whole.clone()).is_ok());
    let mut accepted = 0;
    for end in 8..whole.len() {
        match CheckedComponent::check(whole[..end].to_vec()) {
            // Cut between two sections it is a shorter component, which exports nothing…
            Err(problems) => assert!(
                matches!(
                    problems[0],
                    ComponentProblem::Truncated { .. } | ComponentProblem::NoListener { .. }
                ),
                "cut at {end}: {problems:?}"
            ),
            // … or, before the names for people that come last, everything.
            Ok(_) => accepted += 1,
        }
    }
    assert!(accepted <= 1);
}

#[test]
fn size_alone_refuses() {
    assert!(CheckedComponent::check_size(COMPONENT_BYTES_MAX).is_ok());
    let problem = CheckedComponent::check_size(COMPONENT_BYTES_MAX + 1).unwrap_err();
    assert_eq!(
        problem.to_string(),
        "the component has 67108865 bytes, more than the 67108864 allowed"
    );
    let zeroes = vec![0; usize::try_from(COMPONENT_BYTES_MAX).unwrap() + 1];
    assert_eq!(refused(&zeroes), [problem]);
}

#[test]
fn component_of_another_world_is_told_what_it_exports() {
    let bytes = component(r#"(instance $i) (export "wasi:cli/run@0.2.6" (instance $i))"#);
    let [problem] = refused(&bytes).try_into().unwrap();
    assert_eq!(
        problem.to_string(),
        "the component is of another world: it exports wasi:cli/run@0.2.6, and none of \
         mqlet:listener/concurrent, mqlet:listener/orderly, mqlet:listener/pull-task"
    );
}

#[test]
fn every_problem_is_reported_at_once() {
    let bytes = component(
        r#"(import "wasi:http/outgoing-handler@0.2.6" (instance))
           (import "example:weather/forecast@1.0.0" (instance))
           (import "wasi:cli/stdout@0.3.0" (instance))
           (import "mqlet:listener/call@0.2.0" (instance))"#,
    );
    let texts: Vec<_> = refused(&bytes).iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "the component imports wasi:http/outgoing-handler@0.2.6, which reaches outside and is not granted",
            "the component imports example:weather/forecast@1.0.0, which mqlet does not have",
            "the component imports wasi:cli/stdout@0.3.0, which mqlet does not have",
            "the component imports mqlet:listener/call, version 0.2.0 of the contract, and this mqlet has 0.1.0",
            "the component is of another world: it exports nothing, and none of \
             mqlet:listener/concurrent, mqlet:listener/orderly, mqlet:listener/pull-task",
        ]
    );
}

#[test]
fn contract_version_decides() {
    let export = |version: &str| {
        component(&format!(
            r#"(instance $i) (export "mqlet:listener/concurrent@{version}" (instance $i))"#
        ))
    };
    assert!(CheckedComponent::check(export("0.1.0")).is_ok());
    for (version, remedy) in [
        ("0.1.1", "update mqlet"),
        ("0.2.0", "update mqlet"),
        ("1.0.0", "update mqlet"),
        ("0.0.9", "newer SDK"),
    ] {
        let [problem] = refused(&export(version)).try_into().unwrap();
        assert!(problem.remedy().contains(remedy), "{version}: {problem}");
    }
}

#[test]
fn component_model_async_is_named() {
    let bytes = component("(core func $f (canon task.cancel))");
    assert_eq!(refused(&bytes), [ComponentProblem::ComponentModelAsync]);
}

#[test]
fn component_that_is_not_valid_says_where() {
    let mut bytes = concurrent("");
    bytes[9] ^= 0x40;
    let problems = refused(&bytes);
    assert!(
        matches!(
            problems[0],
            ComponentProblem::Invalid { .. } | ComponentProblem::Truncated { .. }
        ),
        "{problems:?}"
    );
}

#[test]
fn what_a_component_is_and_has_is_known() {
    let bytes = component(
        r#"(import "wasi:cli/stdout@0.2.12" (instance))
           (import "wasi:logging/logging@0.1.0-draft" (instance))
           (import "mqlet:listener/producer@0.1.0" (instance))
           (instance $i)
           (export "mqlet:listener/orderly@0.1.0" (instance $i))
           (export "mqlet:listener/concurrent@0.1.0" (instance $i))
           (export "mqlet:listener/lifecycle@0.1.0" (instance $i))
           (export "example:own/thing@1.0.0" (instance $i))"#,
    );
    let checked = CheckedComponent::check(bytes).unwrap();
    assert_eq!(
        checked.listeners(),
        [ListenerKind::Concurrent, ListenerKind::Orderly]
    );
    assert!(checked.has_lifecycle());
    assert_eq!(checked.imports().len(), 3);
}

fn refused(bytes: &[u8]) -> Vec<ComponentProblem> {
    CheckedComponent::check(bytes.to_vec()).expect_err("it is refused")
}

fn component(inside: &str) -> Vec<u8> {
    wat::parse_str(format!("(component {inside})")).unwrap()
}

fn concurrent(inside: &str) -> Vec<u8> {
    component(&format!(
        r#"{inside} (instance $i) (export "mqlet:listener/concurrent@0.1.0" (instance $i))"#
    ))
}
