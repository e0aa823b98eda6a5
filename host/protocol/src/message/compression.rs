//! Compressed bodies: zlib, LZ4 frames and zstd frames, with an end to how much may
//! come out.
//!
//! The announced size of the content is never believed: memory grows with what was
//! really unpacked. Sending compresses with zlib alone, which every client reads.

/// How a body is compressed. RocketMQ: `CompressionType`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Compression {
    /// RFC 1950, RocketMQ's default.
    Zlib,
    /// LZ4 frame format.
    Lz4,
    /// Zstandard frame.
    Zstd,
}
