//! Request signing: who we are, proven with each request.
//!
//! The same for ACL 1.0 (RocketMQ 4) and for remoting clients of ACL 2.0 (RocketMQ 5).
//! The signature covers the values of all ext fields, in the order of their names, and
//! the body; opaque, code and flags are not covered, so a request may be sent again
//! under another opaque. RocketMQ: `AclClientRPCHook`, `AclSigner`.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

use crate::command::RemotingCommand;

const ACCESS_KEY: &str = "AccessKey";
const SECURITY_TOKEN: &str = "SecurityToken";
const SIGNATURE: &str = "Signature";

/// What a client signs its requests with. `Debug` shows the access key alone.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    access_key: String,
    secret_key: String,
    security_token: Option<String>,
}

/// Why credentials cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CredentialsError {
    /// Nothing to prove or to prove it with.
    #[error("the {0} is empty")]
    Empty(&'static str),
    /// It would not arrive as it is, or a line end of a file came with it.
    #[error("the {0} contains white space or a control character")]
    Character(&'static str),
}

impl Credentials {
    /// From the parts as the cluster's administrator gave them.
    ///
    /// # Errors
    /// A part is empty or has white space or control characters in it.
    pub fn new(
        access_key: impl Into<String>,
        secret_key: impl Into<String>,
        security_token: Option<String>,
    ) -> Result<Self, CredentialsError> {
        let credentials = Self {
            access_key: access_key.into(),
            secret_key: secret_key.into(),
            security_token,
        };
        let parts = [
            ("access key", Some(&credentials.access_key)),
            ("secret key", Some(&credentials.secret_key)),
            ("security token", credentials.security_token.as_ref()),
        ];
        for (what, text) in parts {
            let Some(text) = text else { continue };
            if text.is_empty() {
                return Err(CredentialsError::Empty(what));
            }
            if text.contains(|c: char| c.is_whitespace() || c.is_control()) {
                return Err(CredentialsError::Character(what));
            }
        }
        Ok(credentials)
    }

    /// Who we say we are.
    pub fn access_key(&self) -> &str {
        &self.access_key
    }

    /// Adds the fields that prove it. The last thing that happens to a request: a field
    /// added later would make the signature wrong.
    pub fn sign(&self, command: &mut RemotingCommand) {
        let fields = command.ext_fields.get_or_insert_default();
        fields.set(ACCESS_KEY, Some(&self.access_key));
        if let Some(token) = &self.security_token {
            fields.set(SECURITY_TOKEN, Some(token));
        }
        let signature = signature(&self.secret_key, command);
        let fields = command.ext_fields.get_or_insert_default();
        fields.set(SIGNATURE, Some(signature));
    }
}

/// Base64 of the HMAC-SHA1 of the values by name, an earlier signature left out, and the
/// body.
fn signature(secret_key: &str, command: &RemotingCommand) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret_key.as_bytes());
    let mut mac = hmac::Context::with_key(&key);
    let fields = command.ext_fields.iter().flat_map(|fields| fields.iter());
    let mut fields: Vec<_> = fields.filter(|(name, _)| *name != SIGNATURE).collect();
    // Names are ASCII: bytes and Java's UTF-16 sort alike.
    fields.sort_unstable_by_key(|(name, _)| *name);
    for (_, value) in fields {
        mac.update(value.unwrap_or_default().as_bytes());
    }
    mac.update(&command.body);
    STANDARD.encode(mac.sign())
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("access_key", &self.access_key)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_is_ever_printed() {
        let token = Some("a-token".to_owned());
        let credentials = Credentials::new("an-ak", "a-secret", token).expect("valid");
        assert_eq!(
            format!("{credentials:?}"),
            "Credentials { access_key: \"an-ak\", .. }"
        );
    }

    #[test]
    fn what_cannot_arrive_is_refused_and_not_repeated() {
        let error = |access_key, secret_key| {
            Credentials::new(access_key, secret_key, None)
                .expect_err("refused")
                .to_string()
        };
        assert_eq!(error("", "sk"), "the access key is empty");
        assert_eq!(
            error("ak", "sk\n"),
            "the secret key contains white space or a control character"
        );
    }
}
