//! Components from a server, and signed ones: served, kept over restarts without the
//! server, and whatever is wrong with them changes nothing.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine as _;
use end_to_end::embedded_broker::{BOUND, EmbeddedBroker};
use end_to_end::eventually::eventually;
use end_to_end::host_folder::HostFolder;
use end_to_end::host_process::HostProcess;
use guest_artifacts::path;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};

const ALL_LINES: &str = "[limits]\nlog_lines_per_second = 1000000\nlog_bytes_per_call = \"1MiB\"";

type Bodies = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

/// Serves bodies by path; what it does not know it leaves without an answer.
struct Server {
    address: SocketAddr,
    bodies: Bodies,
    is_gone: Arc<Mutex<bool>>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (bodies, is_gone) = (Bodies::default(), Arc::new(Mutex::new(false)));
        let (of_thread, gone) = (Arc::clone(&bodies), Arc::clone(&is_gone));
        std::thread::spawn(move || {
            let mut silent = Vec::new();
            for stream in listener.incoming() {
                if *gone.lock().expect("no panic") {
                    return;
                }
                let stream = stream.expect("accepted");
                silent.extend(answer(stream, &of_thread));
            }
        });
        Self {
            address,
            bodies,
            is_gone,
        }
    }

    fn put(&self, path: &str, body: Vec<u8>) {
        let mut bodies = self.bodies.lock().expect("no panic");
        bodies.insert(path.to_owned(), body);
    }

    /// The address of a path, with the digest of these bytes.
    fn url(&self, path: &str, bytes: &[u8]) -> String {
        let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
        let digits: String = digest.as_ref().iter().map(|b| format!("{b:02x}")).collect();
        format!("http://{}{path}#sha256={digits}", self.address)
    }

    fn stop(&self) {
        *self.is_gone.lock().expect("no panic") = true;
        // Wakes it, so that it closes its port.
        let _ = TcpStream::connect(self.address);
        eventually("a closed port", BOUND, || {
            TcpStream::connect(self.address).is_err().then_some(())
        });
    }
}

/// The connection, when nothing is said on it.
fn answer(mut stream: TcpStream, bodies: &Bodies) -> Option<TcpStream> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return None,
        }
    }
    let head = String::from_utf8(head).expect("text");
    let path = head.split(' ').nth(1).expect("a path");
    let body = bodies.lock().expect("no panic").get(path).cloned();
    let Some(body) = body else {
        return Some(stream);
    };
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    // Whoever asked may have gone.
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(&body);
    None
}

fn component() -> Vec<u8> {
    fs::read(path("ledger")).expect("cargo xtask guests builds it")
}

fn folder(broker: &EmbeddedBroker, component: &str, policy: &str) -> HostFolder {
    let folder = HostFolder::new(broker.namesrv_addr(), "");
    let folder = folder.with_plugin("ledger", Path::new(component), ALL_LINES);
    let file = folder.path().join("mqlet.toml");
    let mut config = fs::read_to_string(&file).expect("written");
    config.push_str(policy);
    fs::write(file, config).expect("written");
    folder
}

fn start(folder: &HostFolder) -> HostProcess {
    let mut host = folder.run(&[]);
    host.wait_for_line("serving 1 plugin", BOUND);
    host
}

fn deliver(broker: &EmbeddedBroker, host: &HostProcess, count: usize) {
    broker.send("ledger", [count.to_string()]);
    eventually(&format!("{count} deliveries"), BOUND, || {
        (host.delivery_count() >= count).then_some(())
    });
}

/// What the command says when it fails.
fn refused(folder: &HostFolder, arguments: &[&str]) -> String {
    let output = folder.mqlet(arguments);
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8(output.stderr).expect("UTF-8")
}

#[test]
fn component_of_a_server_is_served_and_serves_again_without_it() {
    let broker = EmbeddedBroker::start();
    let server = Server::start();
    let bytes = component();
    server.put("/ledger.wasm", bytes.clone());
    server.put("/other.wasm", b"other bytes".to_vec());
    let folder = folder(&broker, &server.url("/ledger.wasm", &bytes), "");
    let mut host = start(&folder);
    deliver(&broker, &host, 1);
    let text = folder.printed(&["plugins", "ledger", "--output", "json"]);
    for step in ["fetch", "verify", "check"] {
        assert!(text.contains(&format!("\"step\":\"{step}\"")), "{text}");
    }

    // Other bytes than were named: nothing looks at them.
    let other = server.url("/other.wasm", b"bytes that nobody has");
    let error = refused(&folder, &["deploy", "ledger", &other]);
    assert!(error.contains("has the digest"), "{error}");
    let no_digest = format!("http://{}/ledger.wasm", server.address);
    let error = refused(&folder, &["deploy", "ledger", &no_digest]);
    assert!(error.contains("has no digest"), "{error}");
    deliver(&broker, &host, 2);

    // The server is gone: a new component cannot come, the one that was served serves.
    server.stop();
    let gone = server.url("/new.wasm", b"new");
    let error = refused(&folder, &["deploy", "ledger", &gone]);
    assert!(error.contains("cannot be reached"), "{error}");
    deliver(&broker, &host, 3);
    host.kill();
    let host = start(&folder);
    deliver(&broker, &host, 1);
}

#[test]
fn fetch_from_a_silent_server_is_cancelled_and_superseded_at_once() {
    let broker = EmbeddedBroker::start();
    let server = Server::start();
    let bytes = component();
    server.put("/ledger.wasm", bytes.clone());
    let folder = folder(&broker, &server.url("/ledger.wasm", &bytes), "");
    let host = start(&folder);
    let silent = server.url("/silent.wasm", b"x");
    let deploy = || {
        let mut command = std::process::Command::new(end_to_end::workspace::mqlet());
        command
            .args(["deploy", "ledger", &silent])
            .current_dir(folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = command.spawn().expect("mqlet starts");
        eventually("a fetch", BOUND, || {
            let text = folder.printed(&["plugins", "ledger", "--output", "json"]);
            text.contains("\"step\":\"fetch\",\"canary\"").then_some(())
        });
        child
    };
    let began = Instant::now();
    let cancelled = deploy();
    folder.printed(&["cancel", "ledger"]);
    let output = cancelled.wait_with_output().expect("it ends");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("it was cancelled"), "{error}");

    let superseded = deploy();
    let url = server.url("/ledger.wasm", &bytes);
    folder.printed(&["deploy", "ledger", &url]);
    let output = superseded.wait_with_output().expect("it ends");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("a newer deployment"), "{error}");
    // Nobody waited for the server, which has a minute.
    assert!(began.elapsed() < Duration::from_secs(45));
    deliver(&broker, &host, 1);
}

#[test]
fn manifest_whose_server_is_not_there_yet_is_tried_again() {
    let broker = EmbeddedBroker::start();
    let server = Server::start();
    let bytes = component();
    server.put("/ledger.wasm", bytes.clone());
    let folder = folder(&broker, &server.url("/ledger.wasm", &bytes), "");
    let mut host = start(&folder);
    // The manifest names what is not there yet.
    let file = folder.path().join("plugins/ledger.toml");
    let text = fs::read_to_string(&file).expect("written");
    let succeed = fs::read(path("succeed")).expect("built");
    server.put("/new.wasm", b"not there yet".to_vec());
    let before = server.url("/ledger.wasm", &bytes);
    let text = text.replace(&before, &server.url("/new.wasm", &succeed));
    let new = file.with_extension("new");
    fs::write(&new, text).expect("written");
    fs::rename(new, &file).expect("renamed");
    host.wait_for_line("changes nothing", BOUND);
    deliver(&broker, &host, 1);

    server.put("/new.wasm", succeed);
    eventually("revision 2", BOUND, || {
        let text = folder.printed(&["plugins", "ledger", "--output", "json"]);
        text.contains("\"number\":2,\"revision\"").then_some(())
    });
}

#[test]
fn tenant_that_requires_signatures_serves_what_is_signed_alone() {
    let broker = EmbeddedBroker::start();
    let pair = rcgen::KeyPair::generate().expect("a key");
    let random = SystemRandom::new();
    let pkcs8 = pair.serialize_der();
    let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &pkcs8, &random);
    let key = key.expect("its own key");
    let sign = |bytes: &[u8]| {
        let signature = key.sign(&random, bytes).expect("signed");
        base64::engine::general_purpose::STANDARD.encode(signature)
    };
    let policy = "[tenants.test.signatures]\npolicy = \"require\"\nkeys = [\"cosign.pub\"]\n";
    let folder = folder(&broker, "ledger.wasm", policy);
    let plugins = folder.path().join("plugins");
    let bytes = component();
    fs::write(folder.path().join("cosign.pub"), pair.public_key_pem()).expect("written");
    fs::write(plugins.join("ledger.wasm"), &bytes).expect("written");

    // Not signed, and then by another's signature: nothing serves.
    let mut host = folder.run(&[]);
    host.wait_for_line("it is not signed", BOUND);
    host.wait(BOUND);
    fs::write(plugins.join("ledger.wasm.sig"), sign(b"other bytes")).expect("written");
    let mut host = folder.run(&[]);
    host.wait_for_line("none of its signatures counts", BOUND);
    host.wait(BOUND);

    fs::write(plugins.join("ledger.wasm.sig"), sign(&bytes)).expect("written");
    let mut host = start(&folder);
    deliver(&broker, &host, 1);
    // A signature that is gone does not matter to what serves, but to what is deployed.
    fs::remove_file(plugins.join("ledger.wasm.sig")).expect("removed");
    let unsigned = folder.path().join("unsigned.wasm");
    fs::copy(path("succeed"), &unsigned).expect("copied");
    let unsigned = unsigned.to_str().expect("UTF-8");
    let error = refused(&folder, &["deploy", "ledger", unsigned]);
    assert!(error.contains("it is not signed"), "{error}");
    deliver(&broker, &host, 2);
    host.kill();

    // What was verified is kept with its signature, and verified again.
    let mut host = start(&folder);
    deliver(&broker, &host, 1);
    host.kill();
    // By a key that is not named any more it does not serve.
    let other = rcgen::KeyPair::generate().expect("a key");
    fs::write(folder.path().join("cosign.pub"), other.public_key_pem()).expect("written");
    let mut host = folder.run(&[]);
    host.wait_for_line("none of its signatures counts", BOUND);
    host.wait(BOUND);

    // A tenant that only warns serves it, and says so.
    let file = folder.path().join("mqlet.toml");
    let config = fs::read_to_string(&file).expect("written");
    fs::write(&file, config.replace("\"require\"", "\"warn\"")).expect("written");
    let mut host = folder.run(&[]);
    host.wait_for_line("is used though", BOUND);
    host.wait_for_line("serving 1 plugin", BOUND);
}
