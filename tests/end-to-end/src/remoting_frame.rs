//! Frames of RocketMQ's remoting protocol with JSON headers, as plainly as can be, for
//! peers that lie: `length | type and header length | header | body`.
//!
//! Written anew instead of taken from the host, whose reading is what is being tested.

use std::io::{self, Read};

/// Asks a name server for the route of a topic.
pub const GET_ROUTEINFO_BY_TOPIC: i32 = 105;
/// Asks a broker for messages.
pub const PULL_MESSAGE: i32 = 11;
/// Creates a topic at a broker.
pub const UPDATE_AND_CREATE_TOPIC: i32 = 17;
/// Stores a message.
pub const SEND_MESSAGE: i32 = 10;

/// Longest frame that these peers read.
const FRAME_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A whole frame, its length field included.
#[derive(Clone, Debug)]
pub struct Frame(Vec<u8>);

impl Frame {
    /// With this JSON header.
    pub fn new(header: &str, body: &[u8]) -> Self {
        let length = u32::try_from(4 + header.len() + body.len()).expect("a small frame");
        let mut bytes = length.to_be_bytes().to_vec();
        // The type in the highest byte is 0 for JSON.
        let header_length = u32::try_from(header.len()).expect("a small header");
        bytes.extend(header_length.to_be_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(body);
        Self(bytes)
    }

    /// A successful answer without header fields.
    pub fn answer(opaque: i32, body: &[u8]) -> Self {
        let header = format!(
            r#"{{"code":0,"flag":1,"language":"JAVA","opaque":{opaque},"serializeTypeCurrentRPC":"JSON","version":513}}"#
        );
        Self::new(&header, body)
    }

    /// A request with these header fields, given as JSON.
    pub fn request(code: i32, opaque: i32, ext_fields: &str, body: &[u8]) -> Self {
        let header = format!(
            r#"{{"code":{code},"flag":0,"language":"JAVA","opaque":{opaque},"serializeTypeCurrentRPC":"JSON","version":513,"extFields":{ext_fields}}}"#
        );
        Self::new(&header, body)
    }

    /// The next frame; `None` when the peer has gone.
    ///
    /// # Errors
    /// What the socket says, or nonsense instead of a length.
    pub fn read(source: &mut impl Read) -> io::Result<Option<Self>> {
        let mut field = [0; 4];
        match source.read_exact(&mut field) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        }
        let length = u32::from_be_bytes(field) as usize;
        if !(4..=FRAME_BYTES_MAX).contains(&length) {
            return Err(io::Error::other(format!("a frame of {length} bytes")));
        }
        let mut bytes = field.to_vec();
        bytes.resize(4 + length, 0);
        source.read_exact(&mut bytes[4..])?;
        Ok(Some(Self(bytes)))
    }

    /// As it goes over the wire.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The same, to be spoilt.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }

    /// What is asked for, or the result.
    pub fn code(&self) -> i32 {
        self.number("\"code\":")
    }

    /// Which request it belongs to.
    pub fn opaque(&self) -> i32 {
        self.number("\"opaque\":")
    }

    /// Bit 0 of the flag.
    pub fn is_response(&self) -> bool {
        self.number("\"flag\":") & 1 == 1
    }

    /// A header field, which is a text on the wire whatever it means.
    pub fn field(&self, name: &str) -> Option<String> {
        let header = self.header();
        let (_, rest) = header.split_once(&format!("\"{name}\":\""))?;
        Some(rest.split_once('"')?.0.to_owned())
    }

    /// The body.
    pub fn body(&self) -> &[u8] {
        &self.0[8 + self.header_length()..]
    }

    /// The same answer with another body.
    #[must_use]
    pub fn with_body(&self, body: &[u8]) -> Self {
        Self::new(&self.header(), body)
    }

    /// The same answer under another opaque.
    #[must_use]
    pub fn with_opaque(&self, opaque: i32) -> Self {
        let right = format!("\"opaque\":{}", self.opaque());
        let wrong = format!("\"opaque\":{opaque}");
        Self::new(&self.header().replace(&right, &wrong), self.body())
    }

    fn header_length(&self) -> usize {
        u32::from_be_bytes([0, self.0[5], self.0[6], self.0[7]]) as usize
    }

    fn header(&self) -> String {
        let header = &self.0[8..8 + self.header_length()];
        String::from_utf8_lossy(header).into_owned()
    }

    fn number(&self, key: &str) -> i32 {
        let header = self.header();
        let rest = header.split_once(key).map_or("", |(_, rest)| rest);
        let end = rest
            .find(|c: char| c != '-' && !c.is_ascii_digit())
            .unwrap_or(rest.len());
        rest[..end].parse().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_is_read_as_it_was_written() {
        let frame = Frame::answer(-7, b"body");
        let read = Frame::read(&mut frame.bytes())
            .expect("whole")
            .expect("one");
        assert_eq!((read.code(), read.opaque()), (0, -7));
        assert_eq!((read.is_response(), read.body()), (true, &b"body"[..]));
        let other = read.with_opaque(8).with_body(b"longer body");
        assert_eq!((other.opaque(), other.body()), (8, &b"longer body"[..]));
        assert!(Frame::read(&mut &[][..]).expect("an end").is_none());
    }
}
