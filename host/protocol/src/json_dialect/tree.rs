//! A document as a tree that borrows from its text.

use std::borrow::Cow;

use super::scanner::Scanner;
use super::{DEPTH_MAX, JsonError, VALUES_MAX};

/// One value. Numbers stay text: 64-bit ones must not pass through a float.
#[derive(Debug)]
pub(super) enum Tree<'a> {
    Null,
    Bool(bool),
    Number(&'a str),
    Text(Cow<'a, str>),
    Array(Vec<Tree<'a>>),
    /// Keys are text, numbers or objects.
    Object(Vec<(Tree<'a>, Tree<'a>)>),
}

/// Reads one value.
pub(super) fn read<'a>(scanner: &mut Scanner<'a>) -> Result<Tree<'a>, JsonError> {
    Reader {
        scanner,
        values_left: VALUES_MAX,
    }
    .value(0)
}

struct Reader<'r, 'a> {
    scanner: &'r mut Scanner<'a>,
    values_left: usize,
}

impl<'a> Reader<'_, 'a> {
    fn value(&mut self, depth: usize) -> Result<Tree<'a>, JsonError> {
        if depth > DEPTH_MAX {
            return Err(JsonError::TooDeep);
        }
        self.values_left = self
            .values_left
            .checked_sub(1)
            .ok_or(JsonError::TooManyValues)?;
        match self.scanner.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"' | b'\'') => self.scanner.string().map(Tree::Text),
            _ if self.scanner.eat_word("true") => Ok(Tree::Bool(true)),
            _ if self.scanner.eat_word("false") => Ok(Tree::Bool(false)),
            _ if self.scanner.eat_word("null") => Ok(Tree::Null),
            _ => self.scanner.number().map(Tree::Number),
        }
    }

    fn array(&mut self, depth: usize) -> Result<Tree<'a>, JsonError> {
        self.scanner.expect(b'[', "[")?;
        let mut elements = Vec::new();
        if self.scanner.eat(b']') {
            return Ok(Tree::Array(elements));
        }
        loop {
            elements.push(self.value(depth + 1)?);
            if !self.scanner.comma_or(b']', "a comma or ]")? {
                return Ok(Tree::Array(elements));
            }
        }
    }

    /// fastjson 1.2 may write `{"$ref":"$.path"}` for an object that occurs a second
    /// time; fastjson2 reads that as null, and so do we.
    fn object(&mut self, depth: usize) -> Result<Tree<'a>, JsonError> {
        self.scanner.expect(b'{', "{")?;
        let mut members = Vec::new();
        if self.scanner.eat(b'}') {
            return Ok(Tree::Object(members));
        }
        loop {
            let key = match self.scanner.peek() {
                Some(b'"' | b'\'' | b'{' | b'-' | b'0'..=b'9') => self.value(depth + 1)?,
                _ => return Err(self.scanner.error("a quoted name, a number or an object")),
            };
            self.scanner.expect(b':', "a colon")?;
            members.push((key, self.value(depth + 1)?));
            if !self.scanner.comma_or(b'}', "a comma or }")? {
                break;
            }
        }
        match &members[..] {
            [(Tree::Text(name), _)] if name == "$ref" => Ok(Tree::Null),
            _ => Ok(Tree::Object(members)),
        }
    }
}
