//! The two bit sets called `sysFlag`: of pull requests and of messages.
//!
//! Bits without a name are kept.

use std::fmt;

use crate::message::compression::Compression;

/// How a broker shall treat a pull request. RocketMQ: `PullSysFlag`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct PullSysFlag(pub i32);

impl PullSysFlag {
    /// No bit.
    pub const EMPTY: Self = Self(0);
    /// The request carries an offset to commit.
    pub const COMMIT_OFFSET: Self = Self(1);
    /// Wait at the broker when there is nothing new.
    pub const SUSPEND: Self = Self(1 << 1);
    /// The request carries the subscription.
    pub const SUBSCRIPTION: Self = Self(1 << 2);
    /// Legacy.
    pub const CLASS_FILTER: Self = Self(1 << 3);
    /// A lite pull.
    pub const LITE_PULL_MESSAGE: Self = Self(1 << 4);

    /// All bits of `other` are set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// With these bits set.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// With these bits cleared.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// What a stored message is. RocketMQ: `MessageSysFlag`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct MessageSysFlag(pub i32);

impl MessageSysFlag {
    /// No bit.
    pub const EMPTY: Self = Self(0);
    /// The body is compressed.
    pub const COMPRESSED: Self = Self(0x1);
    /// Legacy, means nothing to us.
    pub const MULTI_TAGS: Self = Self(0x2);
    /// A half message.
    pub const TRANSACTION_PREPARED: Self = Self(0x4);
    /// A committed one.
    pub const TRANSACTION_COMMIT: Self = Self(0x8);
    /// Rolled back; also the mask of the transaction state.
    pub const TRANSACTION_ROLLBACK: Self = Self(0xC);
    /// The producer's address has 16 bytes.
    pub const BORN_HOST_V6: Self = Self(0x10);
    /// The broker's address has 16 bytes.
    pub const STORE_HOST_V6: Self = Self(0x20);
    /// Clients must unwrap an inner batch.
    pub const NEED_UNWRAP: Self = Self(0x40);
    /// The body is a batch.
    pub const INNER_BATCH: Self = Self(0x80);
    /// Mask of the compression type.
    pub const COMPRESSION_TYPE: Self = Self(0x700);

    /// All bits of `other` are set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// With these bits set.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// With these bits cleared.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The two bits of the transaction state.
    pub fn transaction_value(self) -> Self {
        Self(self.0 & Self::TRANSACTION_ROLLBACK.0)
    }

    /// With another transaction state.
    #[must_use]
    pub fn with_transaction_value(self, value: Self) -> Self {
        self.without(Self::TRANSACTION_ROLLBACK)
            .with(value.transaction_value())
    }

    /// How the body is compressed, if the compressed bit is set; `None` for a type
    /// that RocketMQ does not know. Old clients leave the type 0 and mean zlib.
    pub fn compression(self) -> Option<Compression> {
        match (self.0 & Self::COMPRESSION_TYPE.0) >> 8 {
            0 | 3 => Some(Compression::Zlib),
            1 => Some(Compression::Lz4),
            2 => Some(Compression::Zstd),
            _ => None,
        }
    }

    /// With the compressed bit and this type.
    #[must_use]
    pub fn with_compression(self, compression: Compression) -> Self {
        let value = match compression {
            Compression::Lz4 => 1,
            Compression::Zstd => 2,
            Compression::Zlib => 3,
        };
        self.without(Self::COMPRESSION_TYPE)
            .with(Self(value << 8))
            .with(Self::COMPRESSED)
    }

    /// The body is a batch that must be unwrapped: both bits are set.
    pub fn is_inner_batch(self) -> bool {
        self.contains(Self::INNER_BATCH.with(Self::NEED_UNWRAP))
    }
}

impl fmt::Debug for MessageSysFlag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MessageSysFlag({:#x})", self.0)
    }
}
