//! serde over a [`Tree`], as forgiving as Java: text, numbers and booleans turn into
//! each other, members that are null count as missing, the last of equal members wins.

use std::collections::BTreeMap;
use std::fmt::Display;

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{self, Deserializer, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;

use super::JsonError;
use super::tree::Tree;

impl de::Error for JsonError {
    fn custom<T: Display>(message: T) -> Self {
        Self::Shape(message.to_string())
    }
}

impl Tree<'_> {
    fn unexpected(&self) -> Unexpected<'_> {
        match self {
            Self::Null => Unexpected::Unit,
            Self::Bool(value) => Unexpected::Bool(*value),
            Self::Number(text) => Unexpected::Other(text),
            Self::Text(text) => Unexpected::Str(text),
            Self::Array(_) => Unexpected::Seq,
            Self::Object(_) => Unexpected::Map,
        }
    }

    fn mismatch<'de, V: Visitor<'de>>(&self, visitor: &V) -> JsonError {
        de::Error::invalid_type(self.unexpected(), visitor)
    }

    fn to_integer(&self) -> Option<i64> {
        match self {
            Self::Number(text) => integer(text),
            Self::Text(text) => integer(text.trim()),
            Self::Bool(value) => Some(i64::from(*value)),
            Self::Null | Self::Array(_) | Self::Object(_) => None,
        }
    }

    fn to_float(&self) -> Option<f64> {
        match self {
            Self::Number(text) => text.parse().ok(),
            Self::Text(text) => text.trim().parse().ok(),
            Self::Null | Self::Bool(_) | Self::Array(_) | Self::Object(_) => None,
        }
    }

    fn to_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            Self::Number(_) => self.to_integer().map(|value| value != 0),
            Self::Text(text) if text.eq_ignore_ascii_case("true") => Some(true),
            Self::Text(text) if text.eq_ignore_ascii_case("false") => Some(false),
            Self::Null | Self::Text(_) | Self::Array(_) | Self::Object(_) => None,
        }
    }
}

/// A whole number, also when it is written `1.0`.
pub(crate) fn integer(text: &str) -> Option<i64> {
    /// 2^53: floats beyond it have gaps between whole numbers.
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    if let Ok(value) = text.parse() {
        return Some(value);
    }
    let value: f64 = text.parse().ok()?;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "it is whole and small enough to be exact"
    )]
    (value.fract() == 0.0 && value.abs() <= EXACT_MAX).then_some(value as i64)
}

macro_rules! integers {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
            match self.to_integer() {
                Some(value) => visitor.visit_i64(value),
                None => Err(self.mismatch(&visitor)),
            }
        }
    )*};
}

macro_rules! strings {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
            match self {
                Tree::Text(text) => visitor.visit_str(text),
                Tree::Number(text) => visitor.visit_str(text),
                Tree::Bool(true) => visitor.visit_str("true"),
                Tree::Bool(false) => visitor.visit_str("false"),
                Tree::Null | Tree::Array(_) | Tree::Object(_) => Err(self.mismatch(&visitor)),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for &Tree<'_> {
    type Error = JsonError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        match self {
            Tree::Null => visitor.visit_unit(),
            Tree::Bool(value) => visitor.visit_bool(*value),
            Tree::Number(text) => match integer(text) {
                Some(value) => visitor.visit_i64(value),
                None => match self.to_float() {
                    Some(value) => visitor.visit_f64(value),
                    None => Err(self.mismatch(&visitor)),
                },
            },
            Tree::Text(text) => visitor.visit_str(text),
            Tree::Array(_) => self.deserialize_seq(visitor),
            Tree::Object(_) => self.deserialize_map(visitor),
        }
    }

    integers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
    }

    strings! { deserialize_str deserialize_string deserialize_identifier }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        match self.to_bool() {
            Some(value) => visitor.visit_bool(value),
            None => Err(self.mismatch(&visitor)),
        }
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        match self.to_float() {
            Some(value) => visitor.visit_f64(value),
            None => Err(self.mismatch(&visitor)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        match self {
            Tree::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, JsonError> {
        visitor.visit_newtype_struct(self)
    }

    /// Elements that are null say nothing and are left out.
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        match self {
            Tree::Array(elements) => visitor.visit_seq(SeqDeserializer::new(
                elements
                    .iter()
                    .filter(|element| !matches!(element, Tree::Null)),
            )),
            _ => Err(self.mismatch(&visitor)),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        match self {
            Tree::Object(members) => visitor.visit_map(MapDeserializer::new(
                members
                    .iter()
                    .filter(|(_, value)| !matches!(value, Tree::Null))
                    .map(|(key, value)| (key, value)),
            )),
            _ => Err(self.mismatch(&visitor)),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, JsonError> {
        let Tree::Object(members) = self else {
            return Err(self.mismatch(&visitor));
        };
        let mut last = BTreeMap::new();
        for (key, value) in members {
            if let Tree::Text(name) = key {
                last.insert(name.as_ref(), value);
            }
        }
        last.retain(|_, value| !matches!(value, Tree::Null));
        visitor.visit_map(MapDeserializer::new(last.into_iter()))
    }

    forward_to_deserialize_any! {
        i128 u128 f32 char bytes byte_buf unit unit_struct tuple tuple_struct enum ignored_any
    }
}

impl<'de> IntoDeserializer<'de, JsonError> for &Tree<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}
