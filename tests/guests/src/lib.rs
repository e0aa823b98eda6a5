//! What several test guests need to read a message.
//!
//! The guests use the contract's bindings bare, without the SDK: what is tested with
//! them is the host, and a guest that misbehaves needs what an SDK keeps away from
//! its users. Each guest is one file in `examples/`; what it does stands at its top.

/// Instructions that only a component has; elsewhere guests are compiled for nothing but
/// their lints.
pub mod machine {
    #[cfg(target_arch = "wasm32")]
    pub use core::arch::wasm32::{memory_grow, memory_size, unreachable};

    /// Traps.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn unreachable() -> ! {
        panic!("only in a component");
    }

    /// Asks for so many pages more.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn memory_grow<const MEMORY: u32>(_pages: usize) -> usize {
        panic!("only in a component");
    }

    /// Its pages.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn memory_size<const MEMORY: u32>() -> usize {
        panic!("only in a component");
    }
}

/// The bytes of a message that a `slice` of the contract names:
/// `bytes!(data, message.body)`.
#[macro_export]
macro_rules! bytes {
    ($data:expr, $slice:expr) => {
        $crate::part(&$data, $slice.offset, $slice.size)
    };
}

/// What [`bytes!`] takes out of the data of a batch.
pub fn part(data: &[u8], offset: u32, size: u32) -> &[u8] {
    &data[offset as usize..][..size as usize]
}

/// The body as text; what is not UTF-8 is replaced.
pub fn text(body: &[u8]) -> String {
    String::from_utf8_lossy(body).into_owned()
}

/// The value of a property of a message, from the broker's encoding.
pub fn property(properties: &[u8], name: &str) -> Option<String> {
    properties
        .split(|byte| *byte == 2)
        .filter_map(|pair| {
            let mut parts = pair.splitn(2, |byte| *byte == 1);
            Some((parts.next()?, parts.next()?))
        })
        .rfind(|(key, _)| *key == name.as_bytes())
        .map(|(_, value)| text(value))
}
