//! Compressed bodies: zlib, LZ4 frames and zstd frames, with an end to how much may
//! come out.
//!
//! The announced size of the content is never believed: memory grows with what was
//! really unpacked. Sending compresses with zlib alone, which every client reads.

use std::io::{Read, Write};

use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;

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

/// RocketMQ: `DefaultMQProducer#compressMsgBodyOverHowmuch`: producers compress bodies
/// of at least this many bytes.
pub const COMPRESS_BODY_BYTES_MIN: usize = 4096;
/// RocketMQ's level.
pub const COMPRESS_LEVEL: u32 = 5;

/// A zstd frame may ask for this much memory at least; above it the limit of the
/// unpacked size counts. RFC 8878 recommends that readers accept 8 MiB.
const ZSTD_WINDOW_BYTES_MIN: u64 = 8 << 20;

/// Why a body does not open.
#[derive(Debug, thiserror::Error)]
pub enum DecompressError {
    /// Not what it says it is, or cut.
    #[error("the body is no whole {compression:?} stream")]
    Malformed {
        /// What it should be.
        compression: Compression,
        /// What the library says.
        #[source]
        source: std::io::Error,
    },
    /// More comes out than allowed.
    #[error("the body unpacks to more than {bytes_max} bytes")]
    TooLarge {
        /// The limit.
        bytes_max: usize,
    },
}

/// Unpacks a body to at most `bytes_max` bytes.
pub fn decompress(
    compression: Compression,
    packed: &[u8],
    bytes_max: usize,
) -> Result<Vec<u8>, DecompressError> {
    let malformed = |source| DecompressError::Malformed {
        compression,
        source,
    };
    if packed.is_empty() {
        // One of the readers takes nothing for an empty body.
        return Err(malformed(std::io::ErrorKind::UnexpectedEof.into()));
    }
    match compression {
        Compression::Zlib => read_all(ZlibDecoder::new(packed), packed.len(), bytes_max),
        Compression::Lz4 => read_all(
            lz4_flex::frame::FrameDecoder::new(packed),
            packed.len(),
            bytes_max,
        ),
        Compression::Zstd => {
            let window_bytes_max = ZSTD_WINDOW_BYTES_MIN.max(bytes_max as u64);
            match ruzstd::decoding::StreamingDecoder::new_with_max_window_size(
                packed,
                window_bytes_max,
            ) {
                Ok(reader) => read_all(reader, packed.len(), bytes_max),
                Err(error) => Err(ReadError::Io(std::io::Error::other(error))),
            }
        }
    }
    .map_err(|error| match error {
        ReadError::Io(source) => malformed(source),
        ReadError::TooLarge => DecompressError::TooLarge { bytes_max },
    })
}

/// Packs a body as RocketMQ's producers do by default.
pub fn compress_zlib(body: &[u8]) -> Vec<u8> {
    let level = flate2::Compression::new(COMPRESS_LEVEL);
    let mut encoder = ZlibEncoder::new(Vec::with_capacity(body.len() / 2), level);
    // Writing to memory cannot fail.
    let _ = encoder.write_all(body);
    encoder.finish().unwrap_or_default()
}

enum ReadError {
    Io(std::io::Error),
    TooLarge,
}

fn read_all(
    reader: impl Read,
    packed_bytes: usize,
    bytes_max: usize,
) -> Result<Vec<u8>, ReadError> {
    // A guess from what is really there; the vector grows from it.
    let mut body = Vec::with_capacity(packed_bytes.saturating_mul(4).min(bytes_max).min(1 << 20));
    let limit = (bytes_max as u64).saturating_add(1);
    reader
        .take(limit)
        .read_to_end(&mut body)
        .map_err(ReadError::Io)?;
    if body.len() > bytes_max {
        return Err(ReadError::TooLarge);
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(compression: Compression, body: &[u8]) -> Vec<u8> {
        match compression {
            Compression::Zlib => compress_zlib(body),
            Compression::Lz4 => {
                let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
                encoder.write_all(body).expect("memory");
                encoder.finish().expect("memory")
            }
            Compression::Zstd => {
                ruzstd::encoding::compress_to_vec(body, ruzstd::encoding::CompressionLevel::Fastest)
            }
        }
    }

    const ALL: [Compression; 3] = [Compression::Zlib, Compression::Lz4, Compression::Zstd];

    #[test]
    fn every_type_opens_again() {
        let body: Vec<u8> = (0..100_000_u32).map(|i| (i / 7) as u8).collect();
        for compression in ALL {
            let packed = packed(compression, &body);
            let opened = decompress(compression, &packed, body.len()).expect("whole");
            assert_eq!(opened, body, "{compression:?}");
        }
    }

    #[test]
    fn nothing_above_the_limit_comes_out() {
        let body = vec![0; 1 << 20];
        for compression in ALL {
            let packed = packed(compression, &body);
            assert!(packed.len() < 10_000, "{compression:?}: a bomb is small");
            let error = decompress(compression, &packed, body.len() - 1).expect_err("too large");
            assert!(matches!(error, DecompressError::TooLarge { .. }), "{error}");
        }
    }

    #[test]
    fn a_cut_stream_is_an_error() {
        let body: Vec<u8> = (0..50_000_u32).map(|i| (i * i % 251) as u8).collect();
        for compression in ALL {
            let packed = packed(compression, &body);
            for end in [0, 1, 5, packed.len() / 2, packed.len() - 5] {
                let result = decompress(compression, &packed[..end], 1 << 20);
                match result {
                    Err(DecompressError::Malformed { .. }) => {}
                    other => panic!("{compression:?} cut at {end}: {:?}", other.map(|b| b.len())),
                }
            }
        }
    }
}
