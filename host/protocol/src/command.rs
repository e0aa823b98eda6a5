//! `RemotingCommand`: the logical request or response that every frame carries.

use std::fmt;

use bytes::Bytes;

use crate::header::{Header, HeaderError};
use crate::serialize::SerializeType;

pub use crate::ext_fields::ExtFields;

/// Version that we send: 5.3.3's ordinal. At least 401 for route data in standard
/// JSON, at least 62 for the administrative callbacks; above 475 means that we
/// handle GO_AWAY.
pub const VERSION: i32 = 479;

/// One request or response, whichever header encoding it came in.
#[derive(Clone, PartialEq, Eq)]
pub struct RemotingCommand {
    /// Request code, or response code in a response (0 = success).
    pub code: i32,
    /// Who sent it.
    pub language: Language,
    /// The sender's version ordinal.
    pub version: i32,
    /// Matches a response to its request on one connection.
    pub opaque: i32,
    /// Bit set, see [`RemotingCommand::is_response`] and [`RemotingCommand::is_oneway`].
    pub flag: i32,
    /// Text for people, usually the reason of an error.
    pub remark: Option<String>,
    /// The typed header, flattened. `None` and empty differ on the wire.
    pub ext_fields: Option<ExtFields>,
    /// Empty when there is none: the wire cannot tell the two apart.
    pub body: Bytes,
    /// The header encoding this command came in, or goes out in.
    pub serialize_type: SerializeType,
}

const FLAG_RESPONSE: i32 = 1;
const FLAG_ONEWAY: i32 = 2;

impl RemotingCommand {
    /// A request from us; `remoting` gives it its opaque.
    pub fn request(code: i32, ext_fields: ExtFields) -> Self {
        Self {
            code,
            language: Language::RUST,
            version: VERSION,
            opaque: 0,
            flag: 0,
            remark: None,
            ext_fields: Some(ext_fields),
            body: Bytes::new(),
            serialize_type: SerializeType::Json,
        }
    }

    /// An answer to `request`, with its opaque.
    pub fn response_to(request: &Self, code: i32) -> Self {
        Self {
            opaque: request.opaque,
            flag: FLAG_RESPONSE,
            ext_fields: None,
            ..Self::request(code, ExtFields::default())
        }
    }

    /// The same with this remark.
    #[must_use]
    pub fn with_remark(mut self, remark: impl Into<String>) -> Self {
        self.remark = Some(remark.into());
        self
    }

    /// The same with this body.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// The same with these header fields.
    #[must_use]
    pub fn with_ext_fields(mut self, ext_fields: ExtFields) -> Self {
        self.ext_fields = Some(ext_fields);
        self
    }

    /// The same as a request that must not be answered.
    #[must_use]
    pub fn oneway(mut self) -> Self {
        self.flag |= FLAG_ONEWAY;
        self
    }

    /// A response (else a request).
    pub fn is_response(&self) -> bool {
        self.flag & FLAG_RESPONSE != 0
    }

    /// A request that must not be answered, whatever happens.
    pub fn is_oneway(&self) -> bool {
        self.flag & FLAG_ONEWAY != 0
    }

    /// The same with this typed header.
    #[must_use]
    pub fn with_header(self, header: &impl Header) -> Self {
        self.with_ext_fields(header.encode())
    }

    /// The typed header; no fields at all reads like an empty set of them.
    ///
    /// # Errors
    /// A required field is missing or unreadable.
    pub fn header<H: Header>(&self) -> Result<H, HeaderError> {
        match &self.ext_fields {
            Some(fields) => H::decode(fields),
            None => H::decode(&ExtFields::default()),
        }
    }

    /// The value of a header field.
    pub fn ext_field(&self, name: &str) -> Option<&str> {
        self.ext_fields.as_ref()?.get(name)
    }
}

/// Never prints the body: it is somebody's order.
impl fmt::Debug for RemotingCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemotingCommand")
            .field("code", &self.code)
            .field("opaque", &self.opaque)
            .field("flag", &self.flag)
            .field("remark", &self.remark)
            .field("ext_fields", &self.ext_fields)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// The sender's programming language, by its binary code. Unknown ones are kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Language(pub u8);

/// RocketMQ: `LanguageCode`; the index is the code.
const LANGUAGE_NAMES: [&str; 14] = [
    "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP",
    "OMS", "RUST", "NODE_JS",
];

impl Language {
    /// The reference implementation; also what a missing language means.
    pub const JAVA: Self = Self(0);
    /// A C++ client, which gets another body of callback 220.
    pub const CPP: Self = Self(1);
    /// What we send.
    pub const RUST: Self = Self(12);
    /// Null, or a name that nobody knows. Java reads both as null.
    pub const UNKNOWN: Self = Self(u8::MAX);

    /// Java's name of it; `None` for a code that has none.
    pub fn name(self) -> Option<&'static str> {
        LANGUAGE_NAMES.get(usize::from(self.0)).copied()
    }

    /// By name, without regard to case.
    pub fn from_name(name: &str) -> Option<Self> {
        let code = LANGUAGE_NAMES
            .iter()
            .position(|known| known.eq_ignore_ascii_case(name))?;
        u8::try_from(code).ok().map(Self)
    }
}
