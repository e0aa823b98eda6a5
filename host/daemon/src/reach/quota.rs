//! What a tenant may keep in its buckets, wherever they are.

/// Of all buckets of a tenant together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Quota {
    pub(crate) keys: u64,
    /// Keys, each with its bucket's name and one byte between them, and values.
    pub(crate) bytes: u64,
}

impl Default for Quota {
    fn default() -> Self {
        Self {
            keys: 1_000_000,
            bytes: 1 << 30,
        }
    }
}
