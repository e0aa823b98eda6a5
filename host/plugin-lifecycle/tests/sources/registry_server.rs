//! A registry of its own for a test: Debian's docker-registry on this machine.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use oci_client::Reference;
use oci_client::client::{Client, ClientConfig, ClientProtocol, Config, ImageLayer};
use oci_client::manifest::{OciImageIndex, OciImageManifest};
use oci_client::secrets::RegistryAuth;
use tokio_rustls::rustls::crypto::ring;

const BOUND: Duration = Duration::from_secs(30);
/// `user` and `secret`, as htpasswd -B writes them.
const PASSWORD_FILE: &str = "user:$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a\n";

pub(super) struct RegistryServer {
    address: SocketAddr,
    auth: RegistryAuth,
    process: Child,
    _folder: tempfile::TempDir,
}

impl Drop for RegistryServer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl RegistryServer {
    /// `None` where it is not installed, which CI does not take.
    pub(super) fn start() -> Option<Self> {
        Self::start_with("", RegistryAuth::Anonymous)
    }

    /// One that wants to know who asks.
    pub(super) fn start_private() -> Option<Self> {
        let auth = "auth:\n  htpasswd:\n    realm: test\n    path: PASSWORDS\n";
        let user = RegistryAuth::Basic("user".to_owned(), "secret".to_owned());
        Self::start_with(auth, user)
    }

    fn start_with(auth_config: &str, auth: RegistryAuth) -> Option<Self> {
        // What pushes needs it.
        let _ = ring::default_provider().install_default();
        let folder = tempfile::tempdir().expect("a folder");
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = free.local_addr().expect("an address");
        drop(free);
        let passwords = folder.path().join("passwords");
        std::fs::write(&passwords, PASSWORD_FILE).expect("written");
        let text = format!(
            "version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    rootdirectory: {}\n\
             http:\n  addr: {address}\n{}",
            folder.path().join("data").display(),
            auth_config.replace("PASSWORDS", &passwords.display().to_string()),
        );
        let config = folder.path().join("config.yml");
        std::fs::write(&config, text).expect("written");
        let mut command = Command::new("docker-registry");
        command.arg("serve").arg(&config).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let process = match command.spawn() {
            Ok(process) => process,
            Err(error) => {
                assert!(
                    std::env::var_os("CI").is_none(),
                    "docker-registry does not start: {error}; run tests/toolchain/install.sh"
                );
                #[expect(clippy::print_stderr, reason = "who runs the tests is to know")]
                {
                    eprintln!(
                        "NOT TESTED: docker-registry is not installed ({error}); run tests/toolchain/install.sh registry"
                    );
                }
                return None;
            }
        };
        let server = Self {
            address,
            auth,
            process,
            _folder: folder,
        };
        let began = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(began.elapsed() < BOUND, "the registry does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(server)
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Pushes layers with their types; returns the digest of the manifest.
    pub(super) async fn push(
        &self,
        name: &str,
        config_type: &str,
        layers: &[(&[u8], &str, BTreeMap<String, String>)],
    ) -> String {
        let layers: Vec<_> = layers
            .iter()
            .map(|(bytes, media_type, annotations)| {
                let annotations = (!annotations.is_empty()).then(|| annotations.clone());
                ImageLayer::new(bytes.to_vec(), (*media_type).to_owned(), annotations)
            })
            .collect();
        let config = Config::new(b"{}".to_vec(), config_type.to_owned(), None);
        let manifest = OciImageManifest::build(&layers, &config, None);
        let reference = self.reference(name);
        let client = client();
        let pushed = client.push(&reference, &layers, config, &self.auth, Some(manifest));
        pushed.await.expect("pushed");
        let digest = client.fetch_manifest_digest(&reference, &self.auth);
        digest.await.expect("it has a digest")
    }

    /// Pushes an index under a tag.
    pub(super) async fn push_index(&self, name: &str, json: serde_json::Value) {
        let index: OciImageIndex = serde_json::from_value(json).expect("an index");
        let reference = self.reference(name);
        let client = client();
        let pushed = client.push_manifest_list(&reference, &self.auth, index);
        pushed.await.expect("pushed");
    }

    fn reference(&self, name: &str) -> Reference {
        format!("{}/{name}", self.address)
            .parse()
            .expect("a reference")
    }
}

fn client() -> Client {
    Client::new(ClientConfig {
        protocol: ClientProtocol::Http,
        ..ClientConfig::default()
    })
}
