//! A component that does its worst, beside one that does its work: what ends each way to
//! misbehave, and that nobody else notices.
//!
//! One guest (`hostile`) is told by its settings how to misbehave; where the structure of
//! a component is the attack it is made here. `host/docs/security.md` lists all of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use consumer::listener::{ConsumeResult, MessageOutcome};
use tokio::sync::OnceCell;
use wasm::{Artefact, CheckedComponent, Event, FailureRecord, LoadError, Phase, PluginConfig};

use crate::support::{Events, Plugin, Request, SOON, all_done, compile, each, engine};

const SECURITY: &str = include_str!("../../../docs/security.md");

/// How a way to misbehave ends.
#[derive(Clone, Copy, Debug)]
enum End {
    /// The call fails with one of these kinds. Several: which guard sees it first depends on
    /// the machine, or on what lies in the guest's memory.
    Fails(&'static [&'static str]),
    /// The call comes back: what it did had no effect.
    Returns,
    /// The call comes back, and its answer is put right.
    Corrected,
    /// The plugin is not loaded.
    NotLoaded(&'static [&'static str]),
}

use End::{Corrected, Fails, NotLoaded, Returns};

const COMPUTES: End = Fails(&["compute_time"]);
const SPENDS: End = Fails(&["compute_time", "timeout"]);
const WAITS: End = Fails(&["timeout"]);
const TRAPS: End = Fails(&["trap"]);
const MEMORY: End = Fails(&["memory"]);
const TRANSFER: End = Fails(&["host_limit"]);
const NO_VALUE: End = Fails(&["malformed", "host_limit", "trap"]);
const BROKEN: End = Fails(&["trap", "memory", "malformed", "host_limit", "compute_time"]);

/// The word of the guest, the number it is given, and how it ends.
const WAYS: &[(&str, u32, End)] = &[
    ("loop", 0, COMPUTES),
    ("loop-of-calls", 0, COMPUTES),
    ("loop-of-clocks", 0, COMPUTES),
    ("loop-of-naps", 0, SPENDS),
    ("loop-of-yields", 0, SPENDS),
    ("loop-in-drop", 0, COMPUTES),
    ("loop-in-allocator", 0, COMPUTES),
    ("loop-in-init", 0, NotLoaded(&["compute_time", "timeout"])),
    ("wait", 0, WAITS),
    ("wait-in-init", 0, NotLoaded(&["timeout"])),
    ("trap-in-init", 0, NotLoaded(&["trap"])),
    ("grow-in-init", 0, NotLoaded(&["memory"])),
    ("exit-in-init", 0, NotLoaded(&["exit"])),
    ("import-in-allocator", 0, TRAPS),
    ("pointer-from-allocator", 0, NO_VALUE),
    ("unreachable", 0, TRAPS),
    ("panic", 0, TRAPS),
    ("double-panic", 0, TRAPS),
    ("abort", 0, TRAPS),
    ("read-out-of-bounds", 0, TRAPS),
    ("write-out-of-bounds", 0, TRAPS),
    ("call-nothing", 0, TRAPS),
    ("call-another-type", 0, TRAPS),
    ("exit", 0, Fails(&["exit"])),
    ("exit-with-failure", 0, Fails(&["exit"])),
    ("recurse", 0, Fails(&["trap", "stack_overflow"])),
    (
        "recurse-through-the-host",
        0,
        Fails(&["trap", "stack_overflow"]),
    ),
    ("grow-at-once", 0, MEMORY),
    ("grow-slowly", 0, MEMORY),
    ("long-error", 2, TRANSFER),
    ("long-reason", 2, TRANSFER),
    ("many-outcomes", 1_000_000, TRANSFER),
    ("many-reasons", 50_000, TRANSFER),
    ("log-lines", 2_000, Returns),
    ("log-long-lines", 1, TRANSFER),
    ("print-lines", 500, Returns),
    ("print-without-end", 500, Returns),
    ("print-binary", 20, Returns),
    ("log-terminal-codes", 0, Returns),
    ("random", 100, Returns),
    ("send-without-grant", 100, Returns),
    ("ask-beyond-the-batch", 100, Returns),
    ("open-files", 0, Returns),
    ("open-sockets", 0, Returns),
    ("read-input", 0, Returns),
    ("look-around", 0, Returns),
    ("no-outcomes", 0, Corrected),
    ("one-outcome-more", 0, Corrected),
    ("ack-beyond", 0, Corrected),
    ("ack-below", 0, Corrected),
    ("delay-level", 0, Returns),
    ("odd-reason", 0, Returns),
    ("reason-that-is-no-text", 0, NO_VALUE),
    ("reason-out-of-bounds", 0, NO_VALUE),
    ("reason-without-end", 0, NO_VALUE),
    ("list-out-of-bounds", 0, BROKEN),
    ("list-without-end", 0, BROKEN),
];

/// A small box: what is endless ends soon.
fn boxed(config: &mut PluginConfig, word: &str, argument: u32) {
    config.limits.memory = 32 << 20;
    config.limits.host_memory = 1 << 20;
    config.limits.compute_time = Duration::from_millis(200);
    config.limits.init_time = match word.ends_with("-in-init") {
        true => Duration::from_secs(2),
        false => SOON,
    };
    config.settings = vec![
        ("misbehave".into(), word.into()),
        ("argument".into(), argument.to_string()),
    ];
}

/// Compiled once for all tests.
async fn hostile() -> &'static Artefact {
    static HOSTILE: OnceCell<Artefact> = OnceCell::const_new();
    HOSTILE.get_or_init(|| compile(engine(), "hostile")).await
}

async fn load(
    artefact: &Artefact,
    word: &str,
    argument: u32,
) -> Result<Plugin, (LoadError, Events)> {
    let edit = |config: &mut PluginConfig| boxed(config, word, argument);
    Plugin::load_in(engine(), artefact, "hostile", edit).await
}

async fn call(plugin: &Plugin, word: &str) -> ConsumeResult {
    let mut request = Request::of(&["a"]);
    request.consume_timeout = match word {
        "wait" => Duration::from_millis(200),
        _ => Duration::from_secs(5),
    };
    plugin.consume_request(request.build()).await
}

fn first_failure(loaded: &Result<Plugin, (LoadError, Events)>) -> Option<FailureRecord> {
    match loaded {
        Err((LoadError::FirstInstance(record), events)) => {
            assert_eq!(
                events.failures(),
                [(**record).clone()],
                "exactly one record"
            );
            Some((**record).clone())
        }
        Err((error, _)) => panic!("{error}"),
        Ok(_) => None,
    }
}

/// Why it did not end as it should; `Ok` when it did.
async fn ends(artefact: &Artefact, word: &str, argument: u32, end: End) -> Result<(), String> {
    let loaded = load(artefact, word, argument).await;
    if let NotLoaded(kinds) = end {
        return match first_failure(&loaded) {
            Some(record) if kinds.contains(&record.kind.name()) => Ok(()),
            Some(record) => Err(record.to_string()),
            None => Err("it was loaded".to_owned()),
        };
    }
    let Ok(plugin) = loaded else {
        return Err("it was not loaded".to_owned());
    };
    let result = call(&plugin, word).await;
    let failures = plugin.events.failures();
    let corrected = plugin
        .events
        .pick(|event| matches!(event, Event::AnswerCorrected { .. }).then_some(()));
    let was_corrected = !corrected.is_empty();
    match (end, &*failures) {
        (Fails(kinds), [record]) => {
            if !kinds.contains(&record.kind.name()) {
                return Err(record.to_string());
            }
            if !matches!(result, ConsumeResult::Failed { .. }) {
                return Err(format!("the message was not failed: {result:?}"));
            }
            if plugin.listener.idle_instances() != 0 {
                return Err("the instance that failed is kept".to_owned());
            }
            // It serves on, in a fresh instance, and is as it was.
            call(&plugin, word).await;
            match plugin.events.failures().len() {
                2 => Ok(()),
                failures => Err(format!("{failures} records after two calls")),
            }
        }
        (Returns | Corrected, []) if was_corrected == matches!(end, Corrected) => {
            // Words that find something report it by a trap or an error.
            let reports = plugin.events.reports();
            match &reports[0].error {
                None => Ok(()),
                Some(error) => Err(format!("it returned an error: {error}")),
            }
        }
        _ => Err(format!("{result:?}, {was_corrected}, {failures:?}")),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn every_way_to_misbehave_ends_at_its_limit_and_a_neighbour_does_not_notice() {
    let artefact = hostile().await;
    let healthy = Arc::new(Plugin::load("succeed").await);
    let is_over = Arc::new(AtomicBool::new(false));
    let neighbour = {
        let (healthy, is_over) = (Arc::clone(&healthy), Arc::clone(&is_over));
        tokio::spawn(async move {
            let mut calls = 0;
            while !is_over.load(Ordering::Relaxed) {
                assert_eq!(healthy.consume(&["a"]).await, all_done());
                calls += 1;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            calls
        })
    };

    let mut wrong = Vec::new();
    for &(word, argument, end) in WAYS {
        if let Err(why) = ends(artefact, word, argument, end).await {
            wrong.push(format!("{word}: {why}"));
        }
    }

    is_over.store(true, Ordering::Relaxed);
    let calls = neighbour.await.unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(calls >= WAYS.len(), "the neighbour had {calls} calls");
    assert_eq!(healthy.events.failures(), []);
    assert_eq!(healthy.events.instances_created(), 1);
    assert!(WAYS.len() >= 40);
}

#[test]
fn every_way_to_misbehave_stands_in_the_manual() {
    for (word, _, _) in WAYS {
        assert!(SECURITY.contains(&format!("| `{word}` |")), "{word}");
    }
}

#[tokio::test]
async fn guest_that_leaks_is_replaced_before_it_fails() {
    let artefact = hostile().await;
    let plugin = load(artefact, "leak", 4).await.ok().expect("it is loaded");
    for _ in 0..20 {
        assert_eq!(call(&plugin, "leak").await, all_done());
    }
    assert_eq!(plugin.events.failures(), []);
    assert!(plugin.events.instances_created() >= 4);
}

#[tokio::test]
async fn guest_that_overwrites_itself_hurts_its_own_instance_alone() {
    let artefact = hostile().await;
    for word in ["overwrite-itself", "list-that-is-not-aligned"] {
        assert!(SECURITY.contains(&format!("| `{word}` |")), "{word}");
        let plugin = load(artefact, word, 0).await.ok().expect("it is loaded");
        for _ in 0..3 {
            // Whatever is read there, it is an outcome or a failure of its own message.
            let result = call(&plugin, word).await;
            assert_ne!(result, ConsumeResult::NotFinished, "{word}");
        }
    }
    let healthy = Plugin::load("succeed").await;
    assert_eq!(healthy.consume(&["a"]).await, all_done());
}

#[tokio::test]
async fn shutdown_has_its_own_bound() {
    let artefact = hostile().await;
    for word in ["loop-in-shutdown", "wait-in-shutdown", "trap-in-shutdown"] {
        assert!(SECURITY.contains(&format!("| `{word}` |")), "{word}");
        let plugin = load(artefact, word, 0).await.ok().expect("it is loaded");
        assert_eq!(call(&plugin, word).await, all_done());
        let closed = tokio::time::timeout(SOON, plugin.listener.close()).await;
        closed.expect("it ends without the guest's leave");
        let [record] = plugin.events.failures().try_into().expect("one record");
        assert_eq!(record.phase, Phase::Shutdown, "{word}");
    }
}

#[tokio::test]
async fn nothing_of_an_instance_is_left_to_the_next_one_in_its_place() {
    // The pool gives the place of the instance that wrote its memory full, and died, to
    // the next one.
    let artefact = hostile().await;
    let plugin = load(artefact, "overwrite-itself", 0)
        .await
        .ok()
        .expect("it is loaded");
    call(&plugin, "overwrite-itself").await;
    let count = Plugin::load_with("count_calls", |config| {
        config.limits.isolation = wasm::Isolation::Batch;
    })
    .await;
    let first = count.reasons(Request::of(&["a"])).await;
    for _ in 0..8 {
        assert_eq!(count.reasons(Request::of(&["a"])).await, first);
    }
}

#[tokio::test]
async fn odd_texts_cross_the_border_unchanged() {
    let artefact = hostile().await;
    let plugin = load(artefact, "odd-reason", 0)
        .await
        .ok()
        .expect("it is loaded");
    let reason = "\0\u{1}\u{2}a\u{10ffff}\u{feff}\n".into();
    let dead = each(vec![MessageOutcome::DeadLetter { reason }]);
    assert_eq!(call(&plugin, "odd-reason").await, dead);
}

/// A component around this, and one with this in its core module.
fn around(head: &str, module: &str) -> Vec<u8> {
    wat::parse_str(format!(
        r#"(component
            {head}
            (core module $m {module} (func (export "consume")))
            (core instance $m (instantiate $m))
            (func $f (canon lift (core func $m "consume")))
            (instance $i (export "consume-message" (func $f)))
            (export "mqlet:listener/concurrent@0.1.0" (instance $i)))"#
    ))
    .unwrap()
}

#[tokio::test]
async fn structures_that_are_attacks_end_before_the_first_message() {
    let thousand: String = (0..990)
        .map(|number| {
            format!("(core module $m{number}) (core instance (instantiate $m{number}))\n")
        })
        .collect();
    let growing = "(table $t 1 funcref) \
        (func $s (loop $l \
            (br_if $l (i32.ne (table.grow $t (ref.null func) (i32.const 1000)) (i32.const -1))) \
            unreachable)) (start $s)";
    for (name, component, kinds) in [
        (
            "thousand-core-modules",
            around(&thousand, ""),
            &["host_limit"][..],
        ),
        ("table-that-grows", around("", growing), &["tables"]),
        (
            "huge-table",
            around("", "(table 9000000 funcref)"),
            &["tables"],
        ),
        ("huge-memory", around("", "(memory 16000)"), &["memory"]),
        (
            "data-out-of-bounds",
            around("", "(memory 1) (data (i32.const 65536) \"x\")"),
            &["trap"],
        ),
        (
            "trap-in-start",
            around("", "(func $s unreachable) (start $s)"),
            &["trap"],
        ),
    ] {
        assert!(SECURITY.contains(&format!("| `{name}` |")), "{name}");
        let checked = CheckedComponent::check(component).unwrap();
        let artefact = engine().compile(&checked).await.unwrap();
        let edit = |config: &mut PluginConfig| boxed(config, name, 0);
        let loaded = Plugin::load_in(engine(), &artefact, name, edit).await;
        let record = first_failure(&loaded).expect(name);
        assert!(kinds.contains(&record.kind.name()), "{name}: {record}");
        assert_eq!(record.phase, Phase::Instantiate, "{name}");
    }
}

#[tokio::test]
async fn code_that_costs_the_compiler_too_much_is_refused() {
    let locals = "(func (local ".to_owned() + &"i64 ".repeat(60_000) + "))";
    let refused = CheckedComponent::check(around("", &locals));
    let is_refused = match refused {
        Err(_) => true,
        Ok(checked) => engine().compile(&checked).await.is_err(),
    };
    assert!(is_refused, "a function with 60,000 locals");
    let large = vec![0; usize::try_from(wasm::COMPONENT_BYTES_MAX).unwrap() + 1];
    assert!(CheckedComponent::check(large).is_err());
}

#[test]
fn engine_that_is_shown_is_the_engine_that_runs() {
    let lock = include_str!("../../../../Cargo.lock");
    let (_, rest) = lock
        .split_once("name = \"wasmtime\"\nversion = \"")
        .unwrap();
    let (version, _) = rest.split_once('"').unwrap();
    assert_eq!(wasm::ENGINE_VERSION, format!("wasmtime {version}"));
}
