//! A web server that answers as it is told, well or badly.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// What a path is answered with.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Body(Vec<u8>),
    Status(u16),
    /// Status 401 with this `www-authenticate`.
    Challenge(String),
    Redirect(String),
    /// This length, and no body.
    Announced(u64),
    /// One byte more is announced.
    Cut(Vec<u8>),
    /// A body that goes on.
    Endless,
    /// Nothing.
    Closed,
    /// Nothing, and the connection stays.
    Silent,
}

impl Answer {
    pub(super) fn body(bytes: &[u8]) -> Self {
        Self::Body(bytes.to_vec())
    }
}

#[derive(Default)]
struct Script {
    answers: BTreeMap<String, Vec<Answer>>,
    /// Path and `authorization` of each request.
    asked: Vec<(String, Option<String>)>,
}

pub(super) struct WebServer {
    address: SocketAddr,
    name: String,
    authority: Option<Vec<u8>>,
    script: Arc<Mutex<Script>>,
    _tasks: JoinSet<()>,
}

impl WebServer {
    pub(super) async fn plain() -> Self {
        Self::start("127.0.0.1", None).await
    }

    pub(super) async fn tls(name: &str) -> Self {
        let certified = rcgen::generate_simple_self_signed([name.to_owned()]).expect("signed");
        let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).expect("a key");
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certified.cert.der().clone()], key)
            .expect("a certificate and its key");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let mut server = Self::start(name, Some(acceptor)).await;
        server.authority = Some(certified.cert.pem().into_bytes());
        server
    }

    async fn start(name: &str, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let script = Arc::new(Mutex::new(Script::default()));
        let (seen, mut tasks) = (Arc::clone(&script), JoinSet::new());
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (script, tls) = (Arc::clone(&seen), tls.clone());
                connections.spawn(async move {
                    match tls {
                        None => serve(stream, &script).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, &script).await;
                            }
                        }
                    }
                });
            }
        });
        Self {
            address,
            name: name.to_owned(),
            authority: None,
            script,
            _tasks: tasks,
        }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn url(&self, path: &str) -> String {
        let scheme = match self.authority {
            Some(_) => "https",
            None => "http",
        };
        format!("{scheme}://{}:{}{path}", self.name, self.address.port())
    }

    pub(super) fn authority(&self) -> &[u8] {
        self.authority.as_deref().expect("it speaks TLS")
    }

    /// The same each time.
    pub(super) fn answer(&self, path: &str, answer: Answer) {
        self.answers(path, vec![answer]);
    }

    /// One after the other; the last one stays.
    pub(super) fn answers(&self, path: &str, answers: Vec<Answer>) {
        let mut script = self.script.lock().expect("no panic");
        script.answers.insert(path.to_owned(), answers);
    }

    pub(super) fn asked(&self, path: &str) -> usize {
        let script = self.script.lock().expect("no panic");
        script.asked.iter().filter(|(one, _)| one == path).count()
    }

    /// What came with requests of a path.
    pub(super) fn authorizations(&self, path: &str) -> Vec<Option<String>> {
        let script = self.script.lock().expect("no panic");
        let asked = script.asked.iter().filter(|(one, _)| one == path);
        asked
            .map(|(_, authorization)| authorization.clone())
            .collect()
    }
}

async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, script: &Mutex<Script>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8(head).expect("text");
    let target = head.split(' ').nth(1).expect("a path").to_owned();
    let path = target.split('?').next().expect("a path").to_owned();
    let authorization = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        (name == "authorization").then(|| value.to_owned())
    });
    let answer = {
        let mut script = script.lock().expect("no panic");
        script.asked.push((path.clone(), authorization));
        match script.answers.get_mut(&path) {
            None => Answer::Status(404),
            Some(answers) if answers.len() > 1 => answers.remove(0),
            Some(answers) => answers[0].clone(),
        }
    };
    let with_length = |status: u16, length: u64, header: &str| {
        format!(
            "HTTP/1.1 {status} X\r\ncontent-length: {length}\r\nconnection: close\r\n{header}\r\n"
        )
    };
    let (head, body) = match answer {
        Answer::Body(bytes) => (with_length(200, bytes.len() as u64, ""), bytes),
        Answer::Status(status) => (with_length(status, 0, ""), Vec::new()),
        Answer::Challenge(text) => {
            let header = format!("www-authenticate: {text}\r\n");
            (with_length(401, 0, &header), Vec::new())
        }
        Answer::Redirect(to) => (
            with_length(302, 0, &format!("location: {to}\r\n")),
            Vec::new(),
        ),
        Answer::Announced(length) => (with_length(200, length, ""), Vec::new()),
        Answer::Cut(bytes) => (with_length(200, bytes.len() as u64 + 1, ""), bytes),
        Answer::Endless => {
            let head = "HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n";
            let mut chunk = b"100000\r\n".to_vec();
            chunk.resize(chunk.len() + (1 << 20), 0);
            chunk.extend_from_slice(b"\r\n");
            let mut written = stream.write_all(head.as_bytes()).await;
            while written.is_ok() {
                written = stream.write_all(&chunk).await;
            }
            return;
        }
        Answer::Closed => return,
        Answer::Silent => std::future::pending().await,
    };
    // Whoever asked may have gone.
    let _ = stream.write_all(head.as_bytes()).await;
    let _ = stream.write_all(&body).await;
    let _ = stream.shutdown().await;
}
