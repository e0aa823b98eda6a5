//! The lexical part: strings, numbers and punctuation, one after the other.
//!
//! Nothing is allocated except for strings with escapes, and every size is bounded
//! by the text itself.

use std::borrow::Cow;

use super::{DEPTH_MAX, JsonError};

/// A position in a text. Every method first skips white space.
pub(crate) struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

/// The text of some bytes.
pub(crate) fn utf8(bytes: &[u8]) -> Result<&str, JsonError> {
    std::str::from_utf8(bytes).map_err(|error| JsonError::NotUtf8 {
        offset: error.valid_up_to(),
    })
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// The next byte that is not white space, without taking it.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while let Some(byte) = bytes.get(self.at) {
            if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return Some(*byte);
            }
            self.at += 1;
        }
        None
    }

    /// Takes this byte if it is next.
    pub(crate) fn eat(&mut self, byte: u8) -> bool {
        let next = self.peek() == Some(byte);
        if next {
            self.at += 1;
        }
        next
    }

    /// Takes this byte, which must be next.
    pub(crate) fn expect(&mut self, byte: u8, expected: &'static str) -> Result<(), JsonError> {
        if self.eat(byte) {
            Ok(())
        } else {
            Err(self.error(expected))
        }
    }

    /// Nothing but white space is left.
    pub(crate) fn end(&mut self) -> Result<(), JsonError> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.error("the end")),
        }
    }

    /// After an element: takes the comma before the next one, if there is a next one.
    /// A comma before the closing bracket is accepted.
    pub(crate) fn comma_or(
        &mut self,
        close: u8,
        expected: &'static str,
    ) -> Result<bool, JsonError> {
        if self.eat(b',') {
            return Ok(!self.eat(close));
        }
        self.expect(close, expected)?;
        Ok(false)
    }

    /// A string in double or single quotes.
    pub(crate) fn string(&mut self) -> Result<Cow<'a, str>, JsonError> {
        let quote = match self.peek() {
            Some(quote @ (b'"' | b'\'')) => quote,
            _ => return Err(self.error("a string")),
        };
        self.at += 1;
        let start = self.at;
        let bytes = self.text.as_bytes();
        while let Some(&byte) = bytes.get(self.at) {
            if byte == quote {
                let text = &self.text[start..self.at];
                self.at += 1;
                return Ok(Cow::Borrowed(text));
            }
            if byte == b'\\' {
                return self.escaped_string(quote, start);
            }
            self.at += 1;
        }
        Err(self.error("the closing quote"))
    }

    fn escaped_string(&mut self, quote: u8, start: usize) -> Result<Cow<'a, str>, JsonError> {
        let bytes = self.text.as_bytes();
        let mut string = self.text[start..self.at].to_owned();
        let mut plain = self.at;
        while let Some(&byte) = bytes.get(self.at) {
            if byte == quote {
                string.push_str(&self.text[plain..self.at]);
                self.at += 1;
                return Ok(Cow::Owned(string));
            }
            if byte == b'\\' {
                string.push_str(&self.text[plain..self.at]);
                self.at += 1;
                string.push(self.escape()?);
                plain = self.at;
            } else {
                self.at += 1;
            }
        }
        Err(self.error("the closing quote"))
    }

    /// What follows a backslash.
    fn escape(&mut self) -> Result<char, JsonError> {
        let byte = self.text.as_bytes().get(self.at).copied();
        let char = match byte {
            Some(byte @ (b'"' | b'\'' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'v') => '\u{b}',
            Some(b'u') => {
                self.at += 1;
                return self.unicode_escape();
            }
            _ => return Err(self.error("an escape")),
        };
        self.at += 1;
        Ok(char)
    }

    /// Half a surrogate pair becomes U+FFFD: a Rust string cannot hold it.
    fn unicode_escape(&mut self) -> Result<char, JsonError> {
        let first = self.four_hex_digits()?;
        if !(0xd800..0xdc00).contains(&first) {
            return Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        let bytes = self.text.as_bytes();
        if bytes.get(self.at) != Some(&b'\\') || bytes.get(self.at + 1) != Some(&b'u') {
            return Ok(char::REPLACEMENT_CHARACTER);
        }
        let rewind = self.at;
        self.at += 2;
        let second = self.four_hex_digits()?;
        if (0xdc00..0xe000).contains(&second) {
            let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
            return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        self.at = rewind;
        Ok(char::REPLACEMENT_CHARACTER)
    }

    fn four_hex_digits(&mut self) -> Result<u32, JsonError> {
        let digits = self
            .text
            .as_bytes()
            .get(self.at..self.at + 4)
            .ok_or_else(|| self.error("four hexadecimal digits"))?;
        let mut code = 0;
        for digit in digits {
            let value = char::from(*digit)
                .to_digit(16)
                .ok_or_else(|| self.error("four hexadecimal digits"))?;
            code = code * 16 + value;
        }
        self.at += 4;
        Ok(code)
    }

    /// A number as it is written.
    pub(crate) fn number(&mut self) -> Result<&'a str, JsonError> {
        self.peek();
        let start = self.at;
        let bytes = self.text.as_bytes();
        while let Some(b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E') = bytes.get(self.at) {
            self.at += 1;
        }
        let number = &self.text[start..self.at];
        if number.parse::<f64>().is_err() {
            self.at = start;
            return Err(self.error("a number"));
        }
        Ok(number)
    }

    /// Takes this word if it is next.
    pub(crate) fn eat_word(&mut self, word: &str) -> bool {
        self.peek();
        let next = self.text[self.at..].starts_with(word);
        if next {
            self.at += word.len();
        }
        next
    }

    /// Takes one value of any kind and gives its text.
    pub(crate) fn raw_value(&mut self) -> Result<&'a str, JsonError> {
        self.peek();
        let start = self.at;
        self.skip_value(0)?;
        Ok(&self.text[start..self.at])
    }

    fn skip_value(&mut self, depth: usize) -> Result<(), JsonError> {
        if depth > DEPTH_MAX {
            return Err(JsonError::TooDeep);
        }
        match self.peek() {
            Some(b'{') => {
                self.at += 1;
                if self.eat(b'}') {
                    return Ok(());
                }
                loop {
                    self.skip_value(depth + 1)?;
                    self.expect(b':', "a colon")?;
                    self.skip_value(depth + 1)?;
                    if !self.comma_or(b'}', "a comma or }")? {
                        return Ok(());
                    }
                }
            }
            Some(b'[') => {
                self.at += 1;
                if self.eat(b']') {
                    return Ok(());
                }
                loop {
                    self.skip_value(depth + 1)?;
                    if !self.comma_or(b']', "a comma or ]")? {
                        return Ok(());
                    }
                }
            }
            Some(b'"' | b'\'') => self.string().map(drop),
            _ if self.eat_word("true") || self.eat_word("false") || self.eat_word("null") => Ok(()),
            _ => self.number().map(drop),
        }
    }

    pub(crate) fn error(&self, expected: &'static str) -> JsonError {
        JsonError::Syntax {
            offset: self.at,
            expected,
        }
    }
}
