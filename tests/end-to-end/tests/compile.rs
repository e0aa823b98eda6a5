//! Components that are made to cost the compiler time or memory: they end at a limit of
//! `[compile]`, in a process of their own, and nobody else notices.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use end_to_end::embedded_broker::{BOUND, EmbeddedBroker};
use end_to_end::eventually::eventually;
use end_to_end::host_folder::HostFolder;
use end_to_end::host_process::HostProcess;
use guest_artifacts::path;

/// Code of the component that compiles for minutes where nobody waits for it: at the lowest
/// priority.
const SLOW_CODE: Code = Code {
    functions: 100,
    rounds: 8_000,
};
/// One function that the compiler holds as a whole.
const GREEDY_CODE: Code = Code {
    functions: 1,
    rounds: 800_000,
};

#[test]
fn component_that_compiles_for_minutes_is_stopped_and_its_neighbour_goes_on() {
    let broker = EmbeddedBroker::start();
    broker.send("ledger", ["a", "b"]);
    let folder = folder(&broker, "cpu_time = \"1s\"", &SLOW_CODE);
    let mut host = folder.run(&[]);

    let told = host.wait_for_line("compile.cpu_time = 1s", 3 * BOUND);

    assert!(told.contains("\"plugin\":\"attack\""), "{told}");
    wait_for_deliveries(&host, 2);
    broker.send("ledger", ["c"]);
    wait_for_deliveries(&host, 3);
    assert_eq!(workers(&host), [], "nothing of it is left");
    host.interrupt();
    assert_eq!(host.wait(BOUND).code(), Some(0));
}

#[test]
fn component_that_compiles_with_too_much_memory_is_stopped() {
    let broker = EmbeddedBroker::start();
    broker.send("ledger", ["a"]);
    let folder = folder(&broker, "memory = \"128MiB\"", &GREEDY_CODE);
    let mut host = folder.run(&[]);

    host.wait_for_line("compile.memory = 134217728 bytes", BOUND);

    wait_for_deliveries(&host, 1);
    host.interrupt();
    assert_eq!(host.wait(BOUND).code(), Some(0));
}

#[test]
fn worker_that_is_killed_is_one_plugin_that_did_not_load() {
    let broker = EmbeddedBroker::start();
    broker.send("ledger", ["a"]);
    let folder = folder(&broker, "at_once = 2", &SLOW_CODE);
    let mut host = folder.run(&[]);
    wait_for_deliveries(&host, 1);
    let worker = eventually("a worker that compiles", BOUND, || {
        workers(&host).first().copied()
    });

    let mut kill = Command::new("kill");
    let status = kill.args(["-9", &worker.to_string()]).status();
    assert!(status.is_ok_and(|status| status.success()));

    let told = host.wait_for_line("ended early", BOUND);
    assert!(
        told.contains("\"plugin\":\"attack\"") && told.contains("signal: 9"),
        "{told}"
    );
    broker.send("ledger", ["b"]);
    wait_for_deliveries(&host, 2);
    // What was not compiled then is compiled when somebody asks again.
    let manifest = folder.path().join("plugins/attack.toml");
    let text = fs::read_to_string(&manifest).expect("written above");
    let attack = attack(folder.path());
    let mended = text.replace(&format!("{attack:?}"), &format!("{:?}", path("succeed")));
    assert_ne!(text, mended);
    fs::write(&manifest, mended).expect("a folder of ours");
    host.wait_for_line("attack\\\": revision", BOUND);
    host.interrupt();
    assert_eq!(host.wait(BOUND).code(), Some(0));
}

fn wait_for_deliveries(host: &HostProcess, count: usize) {
    eventually(&format!("{count} deliveries"), BOUND, || {
        (host.delivery_count() >= count).then_some(())
    });
}

/// A healthy plugin, and one of that code.
fn folder(broker: &EmbeddedBroker, compile: &str, code: &Code) -> HostFolder {
    let folder = HostFolder::new(broker.namesrv_addr(), &format!("\n[compile]\n{compile}"));
    let component = attack(folder.path());
    fs::write(&component, code.component()).expect("a folder of ours");
    folder
        .with_plugin("ledger", &path("ledger"), "")
        .with_plugin("attack", &component, "")
}

fn attack(folder: &Path) -> PathBuf {
    folder.join("attack.wasm")
}

/// Processes that a host has started and that live.
fn workers(host: &HostProcess) -> Vec<u32> {
    let output = Command::new("ps")
        .args(["-o", "pid=,state=", "--ppid", &host.id().to_string()])
        .output()
        .expect("ps runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let living = text.lines().filter(|line| !line.contains('Z'));
    let ids = living.filter_map(|line| line.split_whitespace().next()?.parse().ok());
    ids.collect()
}

/// A core module of many long functions.
struct Code {
    functions: u32,
    rounds: u32,
}

impl Code {
    /// A component that does nothing, with this code in it.
    fn component(&self) -> Vec<u8> {
        let plain = wat::parse_str(
            r#"(component
                (core module $m (func (export "consume")))
                (core instance $m (instantiate $m))
                (func $f (canon lift (core func $m "consume")))
                (instance $i (export "consume-message" (func $f)))
                (export "mqlet:listener/concurrent@0.1.0" (instance $i)))"#,
        );
        let plain = plain.expect("a component");
        // Preamble, then the section of the core module: its number, its size, itself.
        let (head, rest) = plain.split_at(8);
        assert_eq!(rest[0], 1, "the module comes first");
        let (size, size_bytes) = read_number(&rest[1..]);
        let after = &rest[1 + size_bytes + size..];
        let mut component = head.to_vec();
        section(&mut component, 1, &self.module());
        component.extend_from_slice(after);
        component
    }

    fn module(&self) -> Vec<u8> {
        let mut module = b"\0asm\x01\0\0\0".to_vec();
        // () -> (), and (i32) -> i32.
        section(&mut module, 1, b"\x02\x60\0\0\x60\x01\x7f\x01\x7f");
        let mut functions = Vec::new();
        number(&mut functions, self.functions + 1);
        functions.push(0);
        functions.resize(functions.len() + self.functions as usize, 1);
        section(&mut module, 3, &functions);
        section(&mut module, 7, b"\x01\x07consume\0\0");
        let mut code = Vec::new();
        number(&mut code, self.functions + 1);
        code.extend_from_slice(b"\x02\0\x0b");
        let body = self.body();
        for _ in 0..self.functions {
            number(&mut code, u32::try_from(body.len()).expect("small"));
            code.extend_from_slice(&body);
        }
        section(&mut module, 10, &code);
        module
    }

    fn body(&self) -> Vec<u8> {
        let mut body = vec![0];
        for _ in 0..self.rounds {
            // if (x) x = x * 3 ^ x: blocks, so that there is something to allocate.
            body.extend_from_slice(b"\x20\0\x04\x40\x20\0\x41\x03\x6c\x20\0\x73\x21\0\x0b");
            if body.len() > 7_500_000 {
                break;
            }
        }
        body.extend_from_slice(b"\x20\0\x0b");
        body
    }
}

fn section(bytes: &mut Vec<u8>, id: u8, content: &[u8]) {
    bytes.push(id);
    number(bytes, u32::try_from(content.len()).expect("small"));
    bytes.extend_from_slice(content);
}

fn number(bytes: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn read_number(bytes: &[u8]) -> (usize, usize) {
    let mut value = 0;
    for (index, byte) in bytes.iter().enumerate() {
        value |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return (value, index + 1);
        }
    }
    panic!("a number without end");
}
