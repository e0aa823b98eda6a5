//! Typed headers: what the `extFields` of each request and answer mean.
//!
//! Structs carry Java's class names, fields Java's field names; on the wire every
//! value is text. Missing optional fields are `None`, unreadable optional fields too
//! (Java logs and skips them); unknown fields are ignored. A missing required field
//! is an error that names it. All request headers of 5.x may carry `bname`; only
//! those that clients send with it have it here.

mod administration;
mod consumer_offset;
mod consumer_send_msg_back;
mod group;
mod pull_message;
mod query_message;
mod queue_offset;
mod route;
mod send_message;
mod transaction;

#[cfg(test)]
mod tests;

pub use administration::*;
pub use consumer_offset::*;
pub use consumer_send_msg_back::*;
pub use group::*;
pub use pull_message::*;
pub use query_message::*;
pub use queue_offset::*;
pub use route::*;
pub use send_message::*;
pub use transaction::*;

use crate::ext_fields::ExtFields;

/// A typed header.
pub trait Header: Sized {
    /// Flattens it; fields that are `None` are left out.
    fn encode(&self) -> ExtFields;

    /// Reads it from the fields of a command.
    ///
    /// # Errors
    /// A required field is missing or unreadable.
    fn decode(fields: &ExtFields) -> Result<Self, HeaderError>;
}

/// Why fields are not the header they should be. Refuse the request, or treat the
/// answer as malformed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// A required field is absent or null.
    #[error("the header {header} lacks its required field {field}")]
    Missing {
        /// Java's class name of the header.
        header: &'static str,
        /// The field's name on the wire.
        field: &'static str,
    },
    /// A required field is no value of its type.
    #[error("the field {field} of the header {header} is not {expected}")]
    Unreadable {
        /// Java's class name of the header.
        header: &'static str,
        /// The field's name on the wire.
        field: &'static str,
        /// What it should be.
        expected: &'static str,
    },
}

/// Declares a header struct and how it is flattened. `Option` makes a field optional.
macro_rules! header {
    ($(#[$doc:meta])* $name:ident {
        $($(#[$field_doc:meta])* $field:ident: $type:ty = $wire:literal,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl $crate::header::Header for $name {
            fn encode(&self) -> $crate::ExtFields {
                // Names, and a guess of 12 bytes for each value.
                const TEXT_BYTES: usize = 0 $(+ $wire.len() + 12)*;
                const FIELDS: usize = <[&str]>::len(&[$($wire),*]);
                #[allow(unused_mut)]
                let mut fields = $crate::ExtFields::with_capacity(FIELDS, TEXT_BYTES);
                $($crate::header::Field::write(&self.$field, &mut fields, $wire);)*
                fields
            }

            fn decode(fields: &$crate::ExtFields) -> Result<Self, $crate::header::HeaderError> {
                const HEADER: &str = stringify!($name);
                let _ = (fields, HEADER);
                Ok(Self {
                    $($field: $crate::header::Field::read(fields, HEADER, $wire)?,)*
                })
            }
        }
    };
}
pub(crate) use header;

/// A field's type together with whether it is required.
pub(crate) trait Field: Sized {
    fn read(
        fields: &ExtFields,
        header: &'static str,
        field: &'static str,
    ) -> Result<Self, HeaderError>;
    fn write(&self, fields: &mut ExtFields, field: &'static str);
}

/// A value as the text it is on the wire.
pub(crate) trait FieldValue: Sized {
    const EXPECTED: &'static str;
    fn from_text(text: &str) -> Option<Self>;
    fn write_text(&self, fields: &mut ExtFields, field: &'static str);
}

impl<T: FieldValue> Field for Option<T> {
    fn read(
        fields: &ExtFields,
        _header: &'static str,
        field: &'static str,
    ) -> Result<Self, HeaderError> {
        Ok(fields.get(field).and_then(T::from_text))
    }

    fn write(&self, fields: &mut ExtFields, field: &'static str) {
        if let Some(value) = self {
            value.write_text(fields, field);
        }
    }
}

macro_rules! required_field {
    ($($type:ty),*) => {$(
        impl Field for $type {
            fn read(
                fields: &ExtFields,
                header: &'static str,
                field: &'static str,
            ) -> Result<Self, HeaderError> {
                let text = fields
                    .get(field)
                    .ok_or(HeaderError::Missing { header, field })?;
                Self::from_text(text).ok_or(HeaderError::Unreadable {
                    header,
                    field,
                    expected: Self::EXPECTED,
                })
            }

            fn write(&self, fields: &mut ExtFields, field: &'static str) {
                self.write_text(fields, field);
            }
        }
    )*};
}
required_field!(String, i32, i64, bool);

impl FieldValue for String {
    const EXPECTED: &'static str = "text";

    fn from_text(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }

    fn write_text(&self, fields: &mut ExtFields, field: &'static str) {
        fields.set(field, Some(self));
    }
}

impl FieldValue for i32 {
    const EXPECTED: &'static str = "a 32-bit number";

    fn from_text(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn write_text(&self, fields: &mut ExtFields, field: &'static str) {
        fields.set_display(field, self);
    }
}

impl FieldValue for i64 {
    const EXPECTED: &'static str = "a 64-bit number";

    fn from_text(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn write_text(&self, fields: &mut ExtFields, field: &'static str) {
        fields.set_display(field, self);
    }
}

/// Java's `Boolean.parseBoolean`: everything but "true" is false.
impl FieldValue for bool {
    const EXPECTED: &'static str = "true or false";

    fn from_text(text: &str) -> Option<Self> {
        Some(text.eq_ignore_ascii_case("true"))
    }

    fn write_text(&self, fields: &mut ExtFields, field: &'static str) {
        fields.set_display(field, self);
    }
}
