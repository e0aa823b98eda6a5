//! Typed bodies: the JSON that some requests and answers carry.
//!
//! Structs carry Java's class names, fields Java's member names. Missing members
//! have their default, unknown ones are ignored, elements that are null are left
//! out. Members are declared in alphabetical order, the order Java writes.

mod administration;
mod client_request;
mod cluster;
mod consumer_connection;
mod consumer_list;
mod heartbeat;
mod lock_batch;
mod message_queue;
mod reset_offset;
mod running_info;
mod statistics;
mod subscription;
mod topic_route;

#[cfg(test)]
mod tests;

pub use administration::*;
pub use client_request::*;
pub use cluster::*;
pub use consumer_connection::*;
pub use consumer_list::*;
pub use heartbeat::*;
pub use lock_batch::*;
pub use reset_offset::*;
pub use running_info::*;
pub use statistics::*;
pub use topic_route::*;

use crate::json_dialect::JsonError;

/// Why a body is not what it should be. Refuse the request, or treat the answer as
/// malformed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the body is no {body}")]
pub struct BodyError {
    /// Java's class name of the body.
    pub body: &'static str,
    /// What is wrong with it.
    #[source]
    pub reason: JsonError,
}

/// Gives a serde type the two directions.
macro_rules! body {
    ($($name:ident),*) => {$(
        impl $name {
            /// As JSON that Java reads.
            pub fn encode(&self) -> Vec<u8> {
                $crate::json_dialect::to_vec(self)
            }

            /// From the JSON that Java and others write.
            ///
            /// # Errors
            /// It is empty, no JSON, or of another shape.
            pub fn decode(body: &[u8]) -> Result<Self, $crate::body::BodyError> {
                $crate::json_dialect::from_slice(body).map_err(|reason| {
                    $crate::body::BodyError {
                        body: stringify!($name),
                        reason,
                    }
                })
            }
        }
    )*};
}
pub(crate) use body;

/// Declares an enum that travels as Java's constant name.
macro_rules! named {
    ($(#[$doc:meta])* $name:ident {
        $($(#[$variant_doc:meta])* $variant:ident = $wire:literal,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// Java's name of it.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $wire,)*
                }
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl $crate::body::Named for $name {
            fn from_name(name: &str) -> Option<Self> {
                $(if name.eq_ignore_ascii_case($wire) {
                    return Some(Self::$variant);
                })*
                None
            }
        }
    };
}
pub(crate) use named;

pub(crate) trait Named: Sized {
    fn from_name(name: &str) -> Option<Self>;
}

/// For `deserialize_with`: a name that nobody knows reads as `None`, as in Java.
pub(crate) fn known_name<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Named,
{
    let name = <String as serde::Deserialize>::deserialize(deserializer)?;
    Ok(T::from_name(&name))
}
