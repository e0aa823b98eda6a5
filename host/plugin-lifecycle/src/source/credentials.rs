//! Who we are at a registry, by the docker configuration: `auths`, `credHelpers` and
//! `credsStore` of `config.json`, as `docker login` writes them.
//!
//! Read for each fetch: whoever logs in need not restart the host. Nothing of it is kept,
//! shown or logged.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

use super::SourceError;

/// A larger file is none of docker's.
const CONFIG_BYTES_MAX: u64 = 1 << 20;
/// A helper that asks a person, or a service that is not there, is not waited for.
const HELPER_TIME_MAX: Duration = Duration::from_secs(10);
const HELPER_BYTES_MAX: u64 = 64 << 10;
/// As helpers name whoever has a token in place of a password.
const TOKEN_USER: &str = "<token>";

/// A user and a password.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Login {
    pub(super) user: String,
    pub(super) password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login")
    }
}

#[derive(Default, Deserialize)]
struct DockerConfig {
    #[serde(default)]
    auths: BTreeMap<String, Auth>,
    #[serde(default, rename = "credHelpers")]
    helpers: BTreeMap<String, String>,
    #[serde(default, rename = "credsStore")]
    store: Option<String>,
}

#[derive(Default, Deserialize)]
struct Auth {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
}

#[derive(Deserialize)]
struct FromHelper {
    #[serde(rename = "Username")]
    user: String,
    #[serde(rename = "Secret")]
    password: String,
}

/// What the configuration in this file has for a registry; `None`: nothing, we are
/// nobody.
pub(super) async fn login(
    config: Option<&Path>,
    registry: &str,
) -> Result<Option<Login>, SourceError> {
    let Some(config) = config else {
        return Ok(None);
    };
    let failed = |reason: String| SourceError::Credentials {
        registry: registry.to_owned(),
        reason,
    };
    let config = read(config.to_owned()).await.map_err(failed)?;
    let helper = config.helpers.get(registry).or(config.store.as_ref());
    if let Some(helper) = helper
        && let Some(login) = ask(helper, registry).await.map_err(failed)?
    {
        return Ok(Some(login));
    }
    let mut named = config.auths.iter();
    match named.find(|(key, _)| host_of(key) == registry) {
        Some((_, auth)) => of_file(auth).map_err(failed),
        None => Ok(None),
    }
}

async fn read(path: PathBuf) -> Result<DockerConfig, String> {
    let read = tokio::task::spawn_blocking(move || {
        let shown = path.display().to_string();
        let file = match std::fs::File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(DockerConfig::default());
            }
            Err(error) => {
                return Err(format!(
                    "{shown} cannot be read: {error}; let this user read it"
                ));
            }
        };
        let mut text = Vec::new();
        file.take(CONFIG_BYTES_MAX)
            .read_to_end(&mut text)
            .map_err(|error| format!("{shown} cannot be read: {error}; look at the disk"))?;
        // Where it is wrong, not what stands there.
        serde_json::from_slice(&text).map_err(|error| {
            format!(
                "{shown} is not understood (line {}); correct it, or log in again",
                error.line()
            )
        })
    });
    read.await
        .unwrap_or_else(|_| Err("reading it ended early; try again".to_owned()))
}

/// Docker writes addresses of old as URLs.
fn host_of(key: &str) -> &str {
    let rest = key
        .strip_prefix("https://")
        .or_else(|| key.strip_prefix("http://"))
        .unwrap_or(key);
    rest.split('/').next().unwrap_or(rest)
}

fn of_file(auth: &Auth) -> Result<Option<Login>, String> {
    if auth
        .identitytoken
        .as_ref()
        .is_some_and(|one| !one.is_empty())
    {
        return Err(identity_token());
    }
    if let (Some(user), Some(password)) = (&auth.username, &auth.password) {
        return Ok(Some(Login {
            user: user.clone(),
            password: password.clone(),
        }));
    }
    let Some(encoded) = auth.auth.as_deref().filter(|auth| !auth.is_empty()) else {
        return Ok(None);
    };
    let decoded = STANDARD.decode(encoded).ok();
    let text = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
    let login = text.as_deref().and_then(|text| text.split_once(':'));
    match login {
        Some((user, password)) => Ok(Some(Login {
            user: user.to_owned(),
            password: password.to_owned(),
        })),
        None => Err(
            "its entry in the docker configuration is not USER:PASSWORD in base64; log in again"
                .to_owned(),
        ),
    }
}

fn identity_token() -> String {
    "its entry is an identity token, which is not supported; log in with a user and a password or access token".to_owned()
}

/// Asks `docker-credential-NAME`; `None`: it has nothing for this registry.
async fn ask(name: &str, registry: &str) -> Result<Option<Login>, String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || !name.chars().all(is_name) {
        return Err(
            "the docker configuration names a helper that is no name; correct it".to_owned(),
        );
    }
    let program = format!("docker-credential-{name}");
    ask_program(&program, registry, HELPER_TIME_MAX).await
}

async fn ask_program(
    program: &str,
    registry: &str,
    time_max: Duration,
) -> Result<Option<Login>, String> {
    let asked = tokio::time::timeout(time_max, run(program, registry));
    let (is_done, output) = match asked.await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => {
            return Err(format!(
                "{program} cannot be run: {error}; install it, or log in without it"
            ));
        }
        Err(_) => {
            return Err(format!(
                "{program} does not answer within {time_max:?}; see what it waits for"
            ));
        }
    };
    if !is_done {
        // The one failure that is none; the rest of what it says may be anything.
        let text = String::from_utf8_lossy(&output);
        if text.contains("credentials not found") {
            return Ok(None);
        }
        return Err(format!(
            "{program} failed; run it by hand: echo {registry} | {program} get"
        ));
    }
    let found: FromHelper = serde_json::from_slice(&output)
        .map_err(|_| format!("what {program} says is not understood; install a newer one"))?;
    if found.user == TOKEN_USER {
        return Err(identity_token());
    }
    Ok(Some(Login {
        user: found.user,
        password: found.password,
    }))
}

async fn run(program: &str, registry: &str) -> std::io::Result<(bool, Vec<u8>)> {
    let mut child = Command::new(program)
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that does not read has its own reasons.
        let _ = stdin.write_all(registry.as_bytes()).await;
    }
    let mut output = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout
            .take(HELPER_BYTES_MAX)
            .read_to_end(&mut output)
            .await?;
    }
    Ok((child.wait().await?.success(), output))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn found(json: &str, registry: &str) -> String {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("config.json");
        std::fs::write(&file, json).expect("written");
        match login(Some(&file), registry).await {
            Ok(None) => "nobody".to_owned(),
            Ok(Some(Login { user, password })) => format!("{user} {password}"),
            Err(error) => error.to_string(),
        }
    }

    #[tokio::test]
    async fn login_is_found_as_docker_writes_it() {
        let config = r#"{"auths": {
            "registry.example:5000": {"auth": "bWU6cGFzczp3b3Jk"},
            "https://index.example/v1/": {"username": "you", "password": "pw"},
            "empty.example": {},
            "broken.example": {"auth": "secret!"},
            "token.example": {"identitytoken": "secret"}
        }}"#;
        assert_eq!(found(config, "registry.example:5000").await, "me pass:word");
        assert_eq!(found(config, "index.example").await, "you pw");
        assert_eq!(found(config, "registry.example").await, "nobody");
        assert_eq!(found(config, "empty.example").await, "nobody");
        for registry in ["broken.example", "token.example"] {
            let said = found(config, registry).await;
            assert!(said.contains("log in"), "{said}");
            assert!(!said.contains("secret"), "{said}");
        }
        assert_eq!(found("{}", "a.example").await, "nobody");
    }

    #[tokio::test]
    async fn what_cannot_be_used_is_said_without_what_it_holds() {
        let said = found("{\"auths\": secret", "a.example").await;
        assert!(said.contains("is not understood (line 1)"), "{said}");
        assert!(!said.contains("secret"), "{said}");
        let said = found(r#"{"credsStore": "../../bin/sh"}"#, "a.example").await;
        assert!(said.contains("no name"), "{said}");
        let said = found(r#"{"credsStore": "mqlet-has-no-such"}"#, "a.example").await;
        assert!(
            said.contains("docker-credential-mqlet-has-no-such cannot be run"),
            "{said}"
        );
        let nowhere = login(Some(Path::new("/nowhere/config.json")), "a.example").await;
        assert_eq!(nowhere.expect("no login"), None);
        assert_eq!(login(None, "a.example").await.expect("no login"), None);
    }

    #[tokio::test]
    async fn helper_is_asked_as_docker_asks_it_and_not_waited_for_without_end() {
        use std::os::unix::fs::PermissionsExt as _;

        let folder = tempfile::tempdir().expect("a folder");
        let said = async |script: &str| {
            let program = folder.path().join("helper");
            // Written elsewhere and renamed: nobody may run what is open for writing.
            let new = folder.path().join("new");
            std::fs::write(&new, format!("#!/bin/sh\n{script}\n")).expect("written");
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(&new, mode).expect("executable");
            std::fs::rename(new, &program).expect("renamed");
            let program = program.to_str().expect("UTF-8");
            let asked = ask_program(program, "r.example", Duration::from_secs(5));
            match asked.await {
                Ok(None) => "nobody".to_owned(),
                Ok(Some(Login { user, password })) => format!("{user} {password}"),
                Err(reason) => reason,
            }
        };
        let good = r#"read registry; [ "$1 $registry" = "get r.example" ] &&
            echo '{"ServerURL":"x","Username":"me","Secret":"pw"}'"#;
        assert_eq!(said(good).await, "me pw");
        let nothing = "echo credentials not found in native keychain; exit 1";
        assert_eq!(said(nothing).await, "nobody");
        for (script, expected) in [
            ("echo secret; exit 1", "run it by hand"),
            ("echo secret", "is not understood"),
            ("exec sleep 100", "does not answer within 5s"),
            ("exec cat /dev/zero", "run it by hand"),
            (
                r#"echo '{"Username":"<token>","Secret":"secret"}'"#,
                "an identity token",
            ),
        ] {
            let reason = said(script).await;
            assert!(reason.contains(expected), "{script}: {reason}");
            assert!(!reason.contains("secret"), "{reason}");
        }
    }
}
