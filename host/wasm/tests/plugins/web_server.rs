//! A small web server that does what the path says.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{ServerConfig, crypto};

/// A running server; it ends with the test's runtime.
pub struct WebServer {
    pub address: SocketAddr,
    /// Connections now, and at most at once.
    pub open: Arc<AtomicUsize>,
    pub most: Arc<AtomicUsize>,
    pub requests: Arc<AtomicUsize>,
    /// DER, when it speaks TLS.
    pub certificate: Option<Vec<u8>>,
}

impl WebServer {
    pub async fn start() -> Self {
        Self::start_with(None, None).await
    }

    /// With a certificate of its own for this name.
    pub async fn start_tls(name: &str) -> Self {
        let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
        let certificate = made.cert.der().to_vec();
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let config =
            ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![CertificateDer::from(certificate.clone())], key.into())
                .unwrap();
        Self::start_with(Some(TlsAcceptor::from(Arc::new(config))), Some(certificate)).await
    }

    async fn start_with(tls: Option<TlsAcceptor>, certificate: Option<Vec<u8>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            open: Arc::default(),
            most: Arc::default(),
            requests: Arc::default(),
            certificate,
        };
        let (open, most) = (Arc::clone(&server.open), Arc::clone(&server.most));
        let requests = Arc::clone(&server.requests);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let open = Arc::clone(&open);
                most.fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                let (tls, requests) = (tls.clone(), Arc::clone(&requests));
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, &requests).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, &requests).await;
                            }
                        }
                    }
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        server
    }

    /// With a port.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

/// One request; then the connection is closed.
async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, requests: &AtomicUsize) {
    let mut head = Vec::new();
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        match stream.read_buf(&mut head).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
    requests.fetch_add(1, Ordering::SeqCst);
    let text = String::from_utf8_lossy(&head).into_owned();
    let path = text.split(' ').nth(1).unwrap_or_default().to_owned();
    let header = |name: &str| {
        let lines = text.lines().filter_map(|line| line.split_once(": "));
        let mut found = lines.filter(|(key, _)| key.eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| value.to_owned())
    };
    let ok = |body: &str| {
        format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let answer = match path.split('/').nth(1).unwrap_or_default() {
        "hello" => ok("hi"),
        "host" => ok(&header("host").unwrap_or_default()),
        "slowly" => {
            tokio::time::sleep(Duration::from_millis(20)).await;
            ok("hi")
        }
        "redirect" => {
            "HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/latest/meta-data\r\ncontent-length: 0\r\n\r\n".to_owned()
        }
        "big" => {
            let bytes = path.rsplit('/').next().unwrap_or_default().parse().unwrap_or(0);
            ok(&"x".repeat(bytes))
        }
        "headers" => format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "x".repeat(100_000)),
        "hang" => {
            std::future::pending::<()>().await;
            String::new()
        }
        "drip" => {
            let _sent = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nx").await;
            std::future::pending::<()>().await;
            String::new()
        }
        "count" => {
            let length: usize = header("content-length").unwrap_or_default().parse().unwrap_or(0);
            let end = head.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
            let mut got = head.len() - end;
            let mut part = vec![0; 65_536];
            while got < length {
                match stream.read(&mut part).await {
                    Ok(0) | Err(_) => return,
                    Ok(bytes) => got += bytes,
                }
            }
            ok(&got.to_string())
        }
        _ => "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned(),
    };
    let _sent = stream.write_all(answer.as_bytes()).await;
    let _closed = stream.shutdown().await;
}
