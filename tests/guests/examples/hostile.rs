//! Misbehaves as its setting `misbehave` says, in its first call unless the word says
//! otherwise; a setting `argument` is a number for it. Without the setting it writes down
//! what it consumes, as `ledger` does, and everything is done.
//!
//! What each word does stands at its place in `misbehave`; which limit of the host ends it,
//! in `host/docs/security.md`.

wit_bindgen::generate!({ path: "../../wit", world: "concurrent-listener-with-lifecycle", generate_all });

use exports::mqlet::listener::concurrent::{BatchContext, ConsumeStatus, Guest, Message, Outcome};
use exports::mqlet::listener::lifecycle::Guest as Lifecycle;
use guests::bytes;
use mqlet::listener::{call, producer};
use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use wasi::logging::logging::{Level, log};

static WORD: OnceLock<(String, u32)> = OnceLock::new();

struct Listener;

impl Lifecycle for Listener {
    fn init(settings: Vec<(String, String)>) -> Result<(), String> {
        let setting = |wanted: &str| {
            let mut of_name = settings.iter().filter(|(name, _)| name == wanted);
            of_name.next().map(|(_, value)| value.clone())
        };
        let word = setting("misbehave").unwrap_or_default();
        let argument = setting("argument").and_then(|number| number.parse().ok());
        match &*word {
            "loop-in-init" => spin(),
            "wait-in-init" => std::thread::sleep(Duration::from_secs(1 << 20)),
            "trap-in-init" => guests::machine::unreachable(),
            "grow-in-init" => grow(),
            "exit-in-init" => std::process::exit(0),
            "loop-in-allocator" => ALLOCATOR.store(LOOPS, Ordering::Relaxed),
            "import-in-allocator" => ALLOCATOR.store(IMPORTS, Ordering::Relaxed),
            "pointer-from-allocator" => ALLOCATOR.store(LIES, Ordering::Relaxed),
            _ => {}
        }
        let _ = WORD.set((word, argument.unwrap_or(0)));
        Ok(())
    }

    fn shutdown() {
        match WORD.get().map_or("", |(word, _)| word) {
            "loop-in-shutdown" => spin(),
            "trap-in-shutdown" => guests::machine::unreachable(),
            "wait-in-shutdown" => std::thread::sleep(Duration::from_secs(1 << 20)),
            _ => {}
        }
    }
}

impl Guest for Listener {
    fn consume_message(
        messages: Vec<Message>,
        data: Vec<u8>,
        context: BatchContext,
    ) -> Result<ConsumeStatus, String> {
        let (word, argument) = WORD.get().ok_or("init was not called")?;
        // What others left in the properties.
        if word == "show-properties" {
            for message in &messages {
                let properties = guests::text(bytes!(data, message.properties));
                let line = properties.replace('\u{1}', "=").replace('\u{2}', ";");
                log(Level::Info, "properties", &format!("properties[{line}]"));
            }
            return Ok(ConsumeStatus::ConsumeSuccess(None));
        }
        if word.is_empty() {
            let entries: Vec<String> = messages
                .iter()
                .map(|message| {
                    let body = guests::text(bytes!(data, message.body));
                    format!("{}:{}:{body}", message.reconsume_times, context.queue_id)
                })
                .collect();
            let line = format!("ledger[{}]", entries.join(" "));
            log(Level::Info, "ledger", &line);
            return Ok(ConsumeStatus::ConsumeSuccess(None));
        }
        misbehave(word, *argument, messages.len())
    }
}

export!(Listener);

fn misbehave(word: &str, argument: u32, messages: usize) -> Result<ConsumeStatus, String> {
    let all = |outcome: fn() -> Outcome| (0..messages).map(|_| outcome()).collect();
    match word {
        // Never comes back, one way or another.
        "loop" => spin(),
        "loop-of-calls" => loop {
            black_box(call::remaining_ms());
        },
        "loop-of-clocks" => loop {
            black_box(std::time::Instant::now());
            black_box(call::now_ms());
        },
        "loop-of-naps" => loop {
            std::thread::sleep(Duration::from_micros(1));
        },
        "loop-of-yields" => loop {
            std::thread::yield_now();
        },
        "wait" => std::thread::sleep(Duration::from_secs(1 << 40)),
        "loop-in-drop" => drop(LoopsWhenDropped),
        // Its time comes before or after.
        "loop-in-allocator"
        | "import-in-allocator"
        | "pointer-from-allocator"
        | "loop-in-shutdown"
        | "trap-in-shutdown"
        | "wait-in-shutdown" => {}
        // Traps.
        "unreachable" => guests::machine::unreachable(),
        "panic" => panic!("told to"),
        "abort" => std::process::abort(),
        "exit" => std::process::exit(0),
        "exit-with-failure" => std::process::exit(1),
        "read-out-of-bounds" => {
            black_box(unsafe { black_box(0xffff_fff0 as *const u32).read_volatile() });
        }
        "write-out-of-bounds" => unsafe {
            black_box(0xffff_fff0 as *mut u32).write_volatile(1);
        },
        "call-nothing" => {
            let function: fn() = unsafe { std::mem::transmute(black_box(0x00ff_ffff_usize)) };
            function();
        }
        "call-another-type" => {
            let function: fn(f64, f64) -> f64 =
                unsafe { std::mem::transmute(black_box(spin as fn() -> !)) };
            black_box(function(1.0, 2.0));
        }
        "double-panic" => {
            let _guard = PanicsWhenDropped;
            panic!("told to");
        }
        // Too much of something.
        "recurse" => {
            black_box(deeper(0));
        }
        "recurse-through-the-host" => {
            black_box(deeper_through_the_host(0));
        }
        "grow-at-once" => {
            let _ = guests::machine::memory_grow::<0>(65_000);
            grow();
        }
        "grow-slowly" => grow(),
        "leak" => std::mem::forget(vec![1_u8; (argument as usize) << 20]),
        "long-error" => return Err("e".repeat((argument as usize) << 20)),
        "long-reason" => {
            let reason = "r".repeat((argument as usize) << 20);
            return Ok(ConsumeStatus::Each(vec![Outcome::DeadLetter(reason)]));
        }
        "many-outcomes" => {
            let outcomes = (0..argument).map(|_| Outcome::Done).collect();
            return Ok(ConsumeStatus::Each(outcomes));
        }
        "many-reasons" => {
            let outcomes = (0..argument).map(|_| Outcome::DeadLetter("r".repeat(100)));
            return Ok(ConsumeStatus::Each(outcomes.collect()));
        }
        "log-lines" => (0..argument).for_each(|number| {
            log(Level::Error, "flood", &format!("line {number}"));
        }),
        "log-long-lines" => {
            let line = "l".repeat(1 << 20);
            (0..argument).for_each(|_| log(Level::Critical, &line, &line));
        }
        "print-lines" => (0..argument).for_each(|number| println!("line {number}")),
        "print-without-end" => (0..argument).for_each(|_| print!("without an end ")),
        "print-binary" => {
            use std::io::Write as _;
            let binary: Vec<u8> = (0..=255).cycle().take(4096).collect();
            (0..argument).for_each(|_| {
                let _ = std::io::stderr().write_all(&binary);
            });
        }
        "log-terminal-codes" => log(
            Level::Info,
            "\u{1b}[31m\ncontext",
            "\u{1b}]0;title\u{7}\u{1b}[2J\r\n\u{202e}txet\u{9b}31m\0",
        ),
        "random" => (0..argument).for_each(|_| {
            assert!(call::random(u32::MAX).len() <= 4096);
        }),
        "send-without-grant" => (0..argument).for_each(|_| {
            let sent = producer::send_oneway(&outgoing());
            assert!(sent.is_err(), "it was sent");
        }),
        "ask-beyond-the-batch" => (0..argument).for_each(|number| {
            assert!(call::details(u32::MAX - number).is_none());
        }),
        "open-files" => {
            for path in [
                "/",
                "/etc/passwd",
                "../..",
                "/proc/self/mem",
                "/dev/zero",
                "a\nb\0",
            ] {
                assert!(std::fs::File::open(path).is_err(), "{path} was opened");
                assert!(std::fs::write(path, "x").is_err(), "{path} was written");
            }
        }
        "open-sockets" => {
            for address in ["127.0.0.1:9876", "169.254.169.254:80", "[::1]:80"] {
                assert!(std::net::TcpStream::connect(address).is_err(), "{address}");
            }
            assert!(std::net::TcpListener::bind("127.0.0.1:0").is_err());
            assert!(std::net::UdpSocket::bind("127.0.0.1:0").is_err());
        }
        "read-input" => {
            let mut line = String::new();
            let read = std::io::stdin().read_line(&mut line);
            assert!(matches!(read, Ok(0) | Err(_)), "{line}");
        }
        "look-around" => {
            assert_eq!(std::env::args().count(), 0, "arguments");
            assert_eq!(std::env::vars().count(), 0, "environment");
        }
        // Answers without meaning.
        "no-outcomes" => return Ok(ConsumeStatus::Each(Vec::new())),
        "one-outcome-more" => {
            let mut outcomes: Vec<Outcome> = all(|| Outcome::Done);
            outcomes.push(Outcome::DeadLetter("nobody's".to_owned()));
            return Ok(ConsumeStatus::Each(outcomes));
        }
        "ack-beyond" => return Ok(ConsumeStatus::ConsumeSuccess(Some(i32::MAX))),
        "ack-below" => return Ok(ConsumeStatus::ConsumeSuccess(Some(i32::MIN))),
        "delay-level" => return Ok(ConsumeStatus::ReconsumeLater(Some(u32::MAX))),
        "odd-reason" => {
            let odd = || Outcome::DeadLetter("\0\u{1}\u{2}a\u{10ffff}\u{feff}\n".to_owned());
            return Ok(ConsumeStatus::Each(all(odd)));
        }
        "reason-that-is-no-text" => {
            let bytes = vec![0xff, 0xc0, 0x80, 0xed, 0xa0, 0x80];
            return Err(unsafe { String::from_utf8_unchecked(bytes) });
        }
        "reason-out-of-bounds" => return Err(text_at(0xffff_fff0, 1024)),
        "reason-without-end" => return Err(text_at(1024, u32::MAX as usize)),
        "list-out-of-bounds" => return Ok(ConsumeStatus::Each(list_at(0xffff_fff0, 1024))),
        "list-without-end" => return Ok(ConsumeStatus::Each(list_at(1024, 1 << 28))),
        "list-that-is-not-aligned" => return Ok(ConsumeStatus::Each(list_at(1025, 2))),
        "overwrite-itself" => {
            // Its stack, statics and heap.
            let bytes = guests::machine::memory_size::<0>() << 16;
            for address in 1024..bytes {
                unsafe { black_box(address as *mut u8).write_volatile(0xff) };
            }
        }
        other => return Err(format!("\"{other}\" is no way to misbehave")),
    }
    Ok(ConsumeStatus::ConsumeSuccess(None))
}

fn outgoing() -> producer::OutgoingMessage {
    producer::OutgoingMessage {
        topic: "stolen".to_owned(),
        body: vec![1; 100],
        tags: None,
        keys: Vec::new(),
        properties: Vec::new(),
        sharding_key: None,
        delay: None,
        flag: 0,
    }
}

fn spin() -> ! {
    loop {
        black_box(());
    }
}

fn grow() {
    let mut hoard = Vec::new();
    loop {
        hoard.push(black_box(vec![1_u8; 1 << 20]));
    }
}

#[expect(unconditional_recursion, reason = "that is what the word asks for")]
fn deeper(depth: i32) -> i32 {
    let frame = black_box([depth; 64]);
    deeper(depth + 1) + frame[0]
}

#[expect(unconditional_recursion, reason = "that is what the word asks for")]
fn deeper_through_the_host(depth: u32) -> u32 {
    let frame = black_box([depth; 64]);
    let left = call::remaining_ms();
    deeper_through_the_host(depth + 1) + frame[0] + left
}

/// A text that is not there.
fn text_at(address: usize, length: usize) -> String {
    unsafe { String::from_raw_parts(address as *mut u8, length, length) }
}

fn list_at(address: usize, length: usize) -> Vec<Outcome> {
    unsafe { Vec::from_raw_parts(address as *mut Outcome, length, length) }
}

struct LoopsWhenDropped;

impl Drop for LoopsWhenDropped {
    fn drop(&mut self) {
        spin();
    }
}

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("told to, twice");
    }
}

/// What the allocator does from the end of `init` on; the host allocates through it before
/// each call.
static ALLOCATOR: AtomicU8 = AtomicU8::new(0);
const LOOPS: u8 = 1;
const IMPORTS: u8 = 2;
const LIES: u8 = 3;

struct Allocator;

#[global_allocator]
static GLOBAL: Allocator = Allocator;

unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match ALLOCATOR.load(Ordering::Relaxed) {
            LOOPS => spin(),
            IMPORTS => {
                black_box(call::remaining_ms());
            }
            LIES => return 0xffff_fff0 as *mut u8,
            _ => {}
        }
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }
}
