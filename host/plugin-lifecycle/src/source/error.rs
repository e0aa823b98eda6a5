//! Why bytes did not come from where they should.

use crate::revision::Digest;
use crate::value::bytes_text;

/// Each says what to do. No variant holds a secret or a body.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// No connection, or it broke.
    #[error("{url} cannot be reached: {reason}; look whether the server is up and the name right")]
    Unreachable {
        /// What was asked for.
        url: String,
        /// For people.
        reason: String,
    },
    /// The whole took too long.
    #[error(
        "{what} did not come within {seconds} s; look at the server and the network, or raise fetch_timeout of [sources]"
    )]
    TooSlow {
        /// What was asked for.
        what: String,
        /// The limit.
        seconds: u64,
    },
    /// Not what was asked for.
    #[error("{url} answers with status {status}{}", hint(*.status))]
    Status {
        /// What was asked for.
        url: String,
        /// As the server has it.
        status: u16,
    },
    /// More than is taken in.
    #[error("{url} has more than the {} that are taken in; build the component with optimisation and without debug information", bytes_text(*.bytes_max))]
    TooLarge {
        /// What was asked for.
        url: String,
        /// The limit.
        bytes_max: u64,
    },
    /// Nothing in it.
    #[error("{url} is empty; name the component")]
    Empty {
        /// What was asked for.
        url: String,
    },
    /// Other bytes than were named.
    #[error(
        "{what} has the digest {found}, and {wanted} is wanted; it is not used: deploy the component that was meant, or correct the digest"
    )]
    OtherDigest {
        /// What was fetched.
        what: String,
        /// Of its bytes.
        found: Digest,
        /// As the manifest or the registry has it.
        wanted: Digest,
    },
    /// A way that is not gone.
    #[error("{url} leads to {to}, {reason}; name the address that has the bytes")]
    Redirect {
        /// What was asked for.
        url: String,
        /// Where it leads.
        to: String,
        /// Why not.
        reason: &'static str,
    },
    /// A registry's manifest of something else.
    #[error(
        "{what} is no component: {reason}; push it as a WebAssembly artifact (one layer of type application/wasm)"
    )]
    NoComponent {
        /// What was asked for.
        what: String,
        /// What it is.
        reason: String,
    },
    /// We are nobody there.
    #[error("registry {registry} refuses us{}; run docker login {registry} as this user, or set docker_config of [sources]", if *.had_credentials { " and the credentials we have" } else { ": there are no credentials for it" })]
    Denied {
        /// Host and port.
        registry: String,
        /// Some were sent.
        had_credentials: bool,
    },
    /// The docker configuration or a helper of it is of no use.
    #[error("no credentials for registry {registry}: {reason}")]
    Credentials {
        /// Host and port.
        registry: String,
        /// For people; with what to do.
        reason: String,
    },
    /// Certificates or settings cannot be used.
    #[error("nothing can be fetched: {reason}; correct [sources] of the configuration")]
    Settings {
        /// For people.
        reason: String,
    },
}

impl SourceError {
    /// It may well work in a moment.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Status { status, .. } => matches!(status, 408 | 429 | 500..=599),
            _ => false,
        }
    }
}

fn hint(status: u16) -> &'static str {
    match status {
        404 => "; look whether it is there under this name",
        401 | 403 => "; let the server allow it",
        429 => "; wait, or ask the server's operator for more",
        500..=599 => "; look at the server",
        _ => "; look at the address",
    }
}
