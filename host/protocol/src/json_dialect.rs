//! The JSON that Java speaks: more than JSON, and more forgiving.
//!
//! RocketMQ's library (fastjson, fastjson2) writes maps whose keys are numbers
//! (`{0:"…"}`) or whole objects (`{{"brokerName":"b",…}:5}`), reads single quotes and
//! trailing commas, turns text into numbers and back as needed, and takes the last
//! of equal members. `from_slice` reads all of that into any serde type;
//! `to_vec` writes what Java reads. The headers of frames have an encoder of their
//! own and share only the `scanner`.

mod deserialize;
pub(crate) mod scanner;
mod serialize;
mod tree;

pub(crate) use deserialize::integer;
pub(crate) use serialize::object_keys;

use serde::Serialize;
use serde::de::DeserializeOwned;

use scanner::Scanner;

/// Nesting beyond this is refused: bodies need 6.
pub(crate) const DEPTH_MAX: usize = 64;

/// Values in one document beyond this are refused: a value takes far more memory
/// than its text. The statistics of 100,000 queues need 700,000.
pub(crate) const VALUES_MAX: usize = 1_000_000;

/// Why a text could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// No text at all; Java makes a null of it.
    #[error("it is empty")]
    Empty,
    /// Not UTF-8.
    #[error("it is not UTF-8 from byte {offset} on")]
    NotUtf8 {
        /// Where the bad byte is.
        offset: usize,
    },
    /// Not JSON, in the widest sense.
    #[error("expected {expected} at byte {offset}")]
    Syntax {
        /// Where it went wrong.
        offset: usize,
        /// What would have been right there.
        expected: &'static str,
    },
    /// Nested deeper than any body.
    #[error("it is nested deeper than {DEPTH_MAX} levels")]
    TooDeep,
    /// More values than any body.
    #[error("it has more than {VALUES_MAX} values")]
    TooManyValues,
    /// Readable, but not the wanted type.
    #[error("{0}")]
    Shape(String),
}

/// Reads a whole text.
pub(crate) fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, JsonError> {
    let mut scanner = Scanner::new(scanner::utf8(bytes)?);
    if scanner.peek().is_none() {
        return Err(JsonError::Empty);
    }
    let tree = tree::read(&mut scanner)?;
    scanner.end()?;
    T::deserialize(&tree)
}

/// Writes a text. Members come in the order of declaration: keep it alphabetical, as
/// Java's.
pub(crate) fn to_vec(value: &impl Serialize) -> Vec<u8> {
    serialize::to_vec(value)
}
