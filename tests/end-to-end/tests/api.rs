//! The API as programs meet it: its description held against what it answers, misuse, what
//! comes with a request, and other machines.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use end_to_end::embedded_broker::{BOUND, EmbeddedBroker, free_address};
use end_to_end::eventually::eventually;
use end_to_end::host_folder::HostFolder;
use end_to_end::host_process::HostProcess;
use guest_artifacts::path;
use serde_json::{Value, json};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

const ALL_LINES: &str = "[limits]\nlog_lines_per_second = 1000000\nlog_bytes_per_call = \"1MiB\"";
const TOKEN: &str = "0123456789abcdef0123";

struct Api {
    broker: EmbeddedBroker,
    folder: HostFolder,
    host: HostProcess,
    address: String,
}

impl Api {
    fn start() -> Self {
        let address = free_address();
        let control = format!("[control]\napi = {address:?}\napi_token = {{ file = \"token\" }}\n");
        Self::start_with(address, &control, |_| {})
    }

    fn start_with(address: String, control: &str, prepare: impl Fn(&HostFolder)) -> Self {
        let broker = EmbeddedBroker::start();
        let folder = HostFolder::new(broker.namesrv_addr(), "");
        let folder = folder.with_plugin("ledger", &path("ledger"), ALL_LINES);
        fs::write(folder.path().join("token"), TOKEN).expect("written");
        let file = folder.path().join("mqlet.toml");
        let config = fs::read_to_string(&file).expect("written");
        fs::write(&file, format!("{control}{config}")).expect("written");
        prepare(&folder);
        let mut host = folder.run(&[]);
        host.wait_for_line("serving 1 plugin", BOUND);
        Self {
            broker,
            folder,
            host,
            address,
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(BOUND)).expect("a bound");
        stream
    }

    fn ask(&self, method: &str, path: &str, body: &[u8]) -> (u16, Value) {
        ask(self.connect(), Some(TOKEN), method, path, body)
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.ask("POST", path, body.to_string().as_bytes())
    }
}

fn ask(
    mut stream: impl Read + Write,
    token: Option<&str>,
    method: &str,
    path: &str,
    body: &[u8],
) -> (u16, Value) {
    let token = token.map_or(String::new(), |token| {
        format!("authorization: Bearer {token}\r\n")
    });
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\n{token}content-length: {}\r\n\r\n",
        body.len()
    );
    // Whoever is refused is not listened to: the answer may come before all was sent.
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(body);
    answer(stream).expect("an answer")
}

fn answer(mut stream: impl Read) -> Option<(u16, Value)> {
    let mut text = Vec::new();
    // What came counts, though the other side may not have read everything.
    let _ = stream.read_to_end(&mut text);
    let text = String::from_utf8(text).expect("text");
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1).expect("a status");
    let body = serde_json::from_str(body).expect("JSON");
    Some((status.parse().expect("a number"), body))
}

/// Holds a value against a schema; what does not fit, by its place.
fn misfit(value: &Value, schema: &Value, all: &Value, place: &str) -> Option<String> {
    if schema.as_object().is_none_or(serde_json::Map::is_empty) {
        // Anything.
        return None;
    }
    if let Some(reference) = schema["$ref"].as_str() {
        let found = all.pointer(&reference[1..]).expect("it is there");
        return misfit(value, found, all, place);
    }
    let any = |key: &str| schema[key].as_array();
    if let Some(choices) = any("anyOf").or(any("oneOf")) {
        let fits = |one: &&Value| misfit(value, one, all, place).is_none();
        return match choices.iter().find(fits) {
            Some(_) => None,
            None => Some(format!("{place}: none of {choices:?}")),
        };
    }
    if let Some(constant) = schema.get("const") {
        return (constant != value).then(|| format!("{place}: not {constant}"));
    }
    if let Some(words) = any("enum") {
        return (!words.contains(value)).then(|| format!("{place}: {value} is none of {words:?}"));
    }
    let is_of = |kind: &str| match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        other => panic!("{place}: kind {other}"),
    };
    let fits = match &schema["type"] {
        Value::String(kind) => is_of(kind),
        Value::Array(kinds) => kinds
            .iter()
            .any(|kind| is_of(kind.as_str().expect("a kind"))),
        _ => true,
    };
    if !fits {
        return Some(format!("{place}: {value} is no {}", schema["type"]));
    }
    if let Value::Array(items) = value {
        let mut misfits = items.iter().enumerate();
        return misfits.find_map(|(number, item)| {
            misfit(item, &schema["items"], all, &format!("{place}[{number}]"))
        });
    }
    let Value::Object(fields) = value else {
        return None;
    };
    for name in any("required").into_iter().flatten() {
        let name = name.as_str().expect("a name");
        if !fields.contains_key(name) {
            return Some(format!("{place}.{name} is missing"));
        }
    }
    fields.iter().find_map(|(name, field)| {
        let place = format!("{place}.{name}");
        match (
            schema["properties"].get(name),
            &schema["additionalProperties"],
        ) {
            (Some(of_field), _) => misfit(field, of_field, all, &place),
            (None, Value::Object(of_others)) => {
                misfit(field, &Value::Object(of_others.clone()), all, &place)
            }
            (None, _) => Some(format!("{place} is not described")),
        }
    })
}

#[test]
fn every_route_answers_as_it_is_described() {
    let api = Api::start();
    api.broker.send("ledger", ["one", "two"]);
    eventually("two deliveries", BOUND, || {
        (api.host.delivery_count() >= 2).then_some(())
    });
    let (status, all) = api.ask("GET", "/openapi.json", b"");
    assert_eq!(status, 200);
    let group = json!({ "consumer_group": "ledger-group" });
    let plugin = json!({ "plugin": "ledger" });
    let queues = api.ask("GET", "/v1/queues", b"").1;
    let queue = queues[0]["queue"].as_str().expect("a queue");
    let copy = path("ledger").display().to_string();
    let setting = manifest("ledger", &copy, "a");
    // In an order in which each finds what it needs.
    let requests = [
        ("/openapi.json", "get", Value::Null),
        ("/v1/groups", "get", Value::Null),
        ("/v1/queues", "get", Value::Null),
        ("/v1/usage", "get", Value::Null),
        ("/v1/plugins", "get", Value::Null),
        ("/v1/explain", "post", json!({ "target": "ledger-group" })),
        ("/v1/pause", "post", group.clone()),
        ("/v1/resume", "post", group.clone()),
        ("/v1/drain", "post", group.clone()),
        ("/v1/resume", "post", group),
        (
            "/v1/seek",
            "post",
            json!({ "consumer_group": "ledger-group", "queue": queue, "to": "min_offset" }),
        ),
        ("/v1/failures", "post", json!({ "newest": 3 })),
        (
            "/v1/deploy",
            "post",
            json!({ "plugin": "ledger", "manifest": setting }),
        ),
        ("/v1/rollback", "post", plugin.clone()),
        (
            "/v1/deploy",
            "post",
            json!({ "plugin": "ledger", "manifest": manifest("ledger", &copy, "b"), "canary": {
                "share_per_mille": 500, "length_ms": 60_000, "sample_min": 1_000_000,
                "worse_per_mille_max": 0 } }),
        ),
        (
            "/v1/change",
            "post",
            json!({ "plugin": "ledger", "change": "abort" }),
        ),
        ("/v1/history", "post", json!({ "newest": 100 })),
        ("/v1/upload", "post", json!("bytes")),
        ("/v1/remove", "post", plugin),
    ];
    let paths = all["paths"].as_object().expect("paths");
    let mut not_asked: Vec<&str> = paths.keys().map(String::as_str).collect();
    for (path, method, body) in &requests {
        not_asked.retain(|one| one != path);
        let described = &all["paths"][path][method];
        assert!(described.is_object(), "{method} {path}");
        let (status, answer) = match (*path, *method) {
            ("/v1/upload", _) => {
                let bytes = fs::read(guest_artifacts::path("succeed")).expect("built");
                api.ask("POST", path, &bytes)
            }
            (_, "get") => api.ask("GET", path, b""),
            _ => {
                let of_body = &described["requestBody"]["content"]["application/json"]["schema"];
                assert_eq!(misfit(body, of_body, &all, path), None);
                api.post(path, body)
            }
        };
        assert_eq!(status, 200, "{method} {path}: {answer}");
        let schema = &described["responses"]["200"]["content"]["application/json"]["schema"];
        assert_eq!(misfit(&answer, schema, &all, path), None);
    }
    // What others add is asked by their own tests; nothing is described that is not there.
    for path in not_asked {
        let (status, answer) = api.post(path, &json!({}));
        assert!(![404, 405].contains(&status), "{path}: {answer}");
    }
}

fn manifest(name: &str, component: &str, setting: &str) -> String {
    format!(
        "name = {name:?}\ncomponent = {component:?}\nconsumer_group = \"{name}-group\"\n\
         consume_from_where = \"first_offset\"\n[[subscription]]\ntopic = {name:?}\n\
         [settings]\na = {setting:?}\n{ALL_LINES}\n"
    )
}

#[test]
fn misuse_has_its_answer_and_stops_nobody() {
    let api = Api::start();
    for (method, path, body, expected) in [
        ("POST", "/v1/pause", "{", 400),
        ("POST", "/v1/pause", "", 400),
        ("POST", "/v1/pause", "[]", 400),
        (
            "POST",
            "/v1/pause",
            r#"{"consumer_group":"ledger-group","x":1}"#,
            400,
        ),
        ("POST", "/v1/pause", r#"{"consumer_group":"nobody"}"#, 404),
        ("POST", "/v1/deploy", r#"{"plugin":"ledger"}"#, 400),
        (
            "POST",
            "/v1/deploy",
            r#"{"plugin":"ledger","path":"a","manifest":"b"}"#,
            400,
        ),
        (
            "POST",
            "/v1/deploy",
            r#"{"plugin":"ledger","path":"relative"}"#,
            400,
        ),
        (
            "POST",
            "/v1/deploy",
            r#"{"plugin":"ledger","path":"oci://x"}"#,
            400,
        ),
        (
            "POST",
            "/v1/deploy",
            r#"{"plugin":"nobody","path":"/x"}"#,
            404,
        ),
        (
            "POST",
            "/v1/deploy",
            r#"{"plugin":"ledger","path":"/nowhere.wasm"}"#,
            422,
        ),
        (
            "POST",
            "/v1/deploy",
            r#"{"plugin":"ledger","manifest":"name = 1"}"#,
            422,
        ),
        (
            "POST",
            "/v1/deploy",
            r#"{"plugin":"ledger","path":"/x","expect":99}"#,
            409,
        ),
        (
            "POST",
            "/v1/rollback",
            r#"{"plugin":"ledger","to":99}"#,
            404,
        ),
        (
            "POST",
            "/v1/change",
            r#"{"plugin":"ledger","change":"no"}"#,
            400,
        ),
        (
            "POST",
            "/v1/change",
            r#"{"plugin":"ledger","change":"abort"}"#,
            409,
        ),
        ("POST", "/v1/upload", "no component", 400),
        ("GET", "/v1/pause", "", 405),
        ("DELETE", "/v1/plugins", "", 405),
        ("GET", "/v2/plugins", "", 404),
        ("GET", "/", "", 404),
    ] {
        let (status, answer) = api.ask(method, path, body.as_bytes());
        assert_eq!(status, expected, "{method} {path} {body}: {answer}");
        assert!(answer["error"].is_string(), "{answer}");
    }
    let of_another = manifest("other", "/x.wasm", "a");
    let (status, _) = api.post(
        "/v1/deploy",
        &json!({ "plugin": "ledger", "manifest": of_another }),
    );
    assert_eq!(status, 409);

    // Nobody, a wrong one, and one that is nearly right; their bodies are not read.
    let nearly = format!("{}x", &TOKEN[..TOKEN.len() - 1]);
    for token in [None, Some("wrong"), Some(nearly.as_str()), Some("")] {
        for (method, path) in [
            ("GET", "/v1/plugins"),
            ("POST", "/v1/upload"),
            ("GET", "/x"),
        ] {
            let (status, _) = ask(api.connect(), token, method, path, b"");
            assert_eq!(status, 401, "{token:?} {path}");
        }
    }
    let mut stream = api.connect();
    let head = "POST /v1/upload HTTP/1.1\r\ncontent-length: 60000000\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("written");
    assert_eq!(answer(stream).expect("before the body").0, 401);

    // Too much, announced and sent.
    for (path, length) in [("/v1/pause", 64 * 1024 + 1), ("/v1/upload", (64 << 20) + 1)] {
        let mut stream = api.connect();
        let head = format!(
            "POST {path} HTTP/1.1\r\nauthorization: Bearer {TOKEN}\r\ncontent-length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).expect("written");
        assert_eq!(answer(stream).expect("an answer").0, 413, "{path}");
    }
    let mut stream = api.connect();
    // It may be refused before all was sent.
    let _ = stream.write_all(&[b'a'; 9000]);
    assert_eq!(answer(stream).map_or(413, |(status, _)| status), 413);

    // Slow ones, more than are served at once less one: others are still answered.
    let slow: Vec<TcpStream> = (0..15)
        .map(|_| {
            let mut stream = api.connect();
            stream.write_all(b"GET /v1/plugins HT").expect("written");
            stream
        })
        .collect();
    assert_eq!(api.ask("GET", "/v1/plugins", b"").0, 200);
    for stream in slow {
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .expect("a bound");
        assert_eq!(answer(stream), None, "it is closed without an answer");
    }
    assert_eq!(api.ask("GET", "/v1/plugins", b"").0, 200);
}

#[test]
fn component_and_manifest_that_come_with_requests_are_deployed() {
    let api = Api::start();
    let bytes = fs::read(path("succeed")).expect("built");
    let (status, uploaded) = api.ask("POST", "/v1/upload", &bytes);
    assert_eq!(status, 200, "{uploaded}");
    let component = uploaded["path"].as_str().expect("a path");
    let text = manifest("ledger", component, "new");
    let request = json!({ "plugin": "ledger", "manifest": text, "expect": 1 });
    let (status, plugin) = api.post("/v1/deploy", &request);
    assert_eq!((status, &plugin["number"]), (200, &json!(2)), "{plugin}");
    assert_eq!(plugin["component"], uploaded["sha256"]);
    let (status, answer) = api.post("/v1/deploy", &request);
    assert_eq!(status, 409, "{answer}");
    // Written when the old revision has ended.
    eventually("an entry of the ledger", BOUND, || {
        let history = api.post("/v1/history", &json!({ "plugin": "ledger" })).1;
        let entries = history["entries"].as_array().expect("entries");
        let mut by_api = entries.iter().filter(|entry| entry["by"] == "the API");
        by_api.next().map(|_| ())
    });
    assert_eq!(
        api.folder.mqlet(&["history", "--verify"]).status.code(),
        Some(0)
    );
}

struct Certified {
    certificate: String,
    key: String,
}

fn certified(issuer: &rcgen::CertifiedIssuer<'_, rcgen::KeyPair>, name: &str) -> Certified {
    let key = rcgen::KeyPair::generate().expect("a key");
    let of_name = rcgen::CertificateParams::new([name.to_owned()]).expect("a name");
    let certificate = of_name.signed_by(&key, issuer).expect("signed");
    Certified {
        certificate: certificate.pem(),
        key: key.serialize_pem(),
    }
}

fn authority() -> rcgen::CertifiedIssuer<'static, rcgen::KeyPair> {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut of_authority = rcgen::CertificateParams::new([]).expect("no name");
    of_authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    rcgen::CertifiedIssuer::self_signed(of_authority, key).expect("signed")
}

#[test]
fn other_machines_are_asked_for_a_certificate_and_plain_text_is_not_answered() {
    use tokio_rustls::rustls::pki_types::pem::PemObject as _;

    let (ours, theirs) = (authority(), authority());
    let server = certified(&ours, "localhost");
    // Every address, so that other machines could ask.
    let address = free_address();
    let (_, port) = address.rsplit_once(':').expect("a port");
    let control = format!(
        "[control]\napi = \"0.0.0.0:{port}\"\n[control.tls]\ncertificate_file = \"server.pem\"\n\
         private_key_file = \"server.key\"\nclient_ca_file = \"clients.pem\"\n"
    );
    let api = Api::start_with(address.clone(), &control, |folder| {
        let write = |name: &str, text: &str| {
            fs::write(folder.path().join(name), text).expect("written");
        };
        write("server.pem", &server.certificate);
        write("server.key", &server.key);
        write("clients.pem", &ours.pem());
    });
    let connect = |client: Option<&Certified>| {
        let mut roots = RootCertStore::empty();
        roots.add(ours.der().clone()).expect("an authority");
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        let config = match client {
            None => builder.with_no_client_auth(),
            Some(one) => {
                let chain = CertificateDer::from_pem_slice(one.certificate.as_bytes());
                let key = PrivateKeyDer::from_pem_slice(one.key.as_bytes());
                let (chain, key) = (vec![chain.expect("PEM")], key.expect("PEM"));
                builder.with_client_auth_cert(chain, key).expect("they fit")
            }
        };
        let name = ServerName::try_from("localhost").expect("a name");
        let connection = ClientConnection::new(Arc::new(config), name).expect("a connection");
        StreamOwned::new(connection, api.connect())
    };
    let client = certified(&ours, "client");
    let (status, plugins) = ask(connect(Some(&client)), None, "GET", "/v1/plugins", b"");
    assert_eq!(status, 200, "{plugins}");

    let stranger = certified(&theirs, "client");
    for refused in [None, Some(&stranger)] {
        let mut stream = connect(refused);
        let request = b"GET /v1/plugins HTTP/1.1\r\nhost: x\r\n\r\n";
        let written = stream.write_all(request).and_then(|()| stream.flush());
        let mut text = Vec::new();
        let read = stream.read_to_end(&mut text);
        assert!(written.is_err() || read.is_err(), "{written:?} {read:?}");
        assert_eq!(text, b"");
    }
    let mut plain = api.connect();
    plain
        .write_all(b"GET /v1/plugins HTTP/1.1\r\n\r\n")
        .expect("written");
    let mut text = Vec::new();
    let _ = plain.read_to_end(&mut text);
    assert!(!text.starts_with(b"HTTP/1.1 200"));
}
