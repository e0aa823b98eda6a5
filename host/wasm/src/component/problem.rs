//! What can be wrong with a component, in words for the person who built it: what was
//! found, why that cannot be used, what to do.

use std::fmt::Write as _;

use crate::CONTRACT_VERSION;

/// Names quoted in a message are cut here: they come from the component.
const NAMES_SHOWN_MAX: usize = 8;

/// One reason to refuse a component. `Display` says what is wrong and why;
/// [`ComponentProblem::remedy`] what to do.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ComponentProblem {
    /// Nothing in the file.
    #[error("the component is empty (0 bytes)")]
    Empty,
    /// Over [`COMPONENT_BYTES_MAX`](super::COMPONENT_BYTES_MAX).
    #[error("the component has {bytes} bytes, more than the {bytes_max} allowed")]
    TooLarge {
        /// Size of the file.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// It ends in the middle.
    #[error("the component is cut off: it ends in the middle of a section, after {bytes} bytes")]
    Truncated {
        /// What there is.
        bytes: u64,
    },
    /// WAT, or text at all.
    #[error("this is text, not a WebAssembly binary")]
    Text {
        /// It looks like WebAssembly's own text format.
        is_wat: bool,
    },
    /// Some other file.
    #[error("this is not WebAssembly: {what}")]
    NotWasm {
        /// What it looks like.
        what: String,
    },
    /// A module where a component is wanted.
    #[error("this is a core WebAssembly module, and mqlet runs components")]
    CoreModule {
        /// How to make a component with the toolchain that made it.
        hint: &'static str,
    },
    /// A header nobody has heard of.
    #[error("this is WebAssembly of an unknown kind (version {version}, layer {layer})")]
    UnknownEncoding {
        /// From the header.
        version: u16,
        /// From the header.
        layer: u16,
    },
    /// The validator refuses it.
    #[error("the component is not valid: {reason} (at byte {offset})")]
    Invalid {
        /// The validator's words.
        reason: String,
        /// Where.
        offset: u64,
    },
    /// Needs an engine of its own.
    #[error("the component uses component-model async, which mqlet does not run")]
    ComponentModelAsync,
    /// It exports nothing that mqlet could call.
    #[error(
        "the component is of another world: it exports {}, and none of mqlet:listener/concurrent, \
         mqlet:listener/orderly, mqlet:listener/pull-task",
        list(exports)
    )]
    NoListener {
        /// What it exports.
        exports: Vec<String>,
    },
    /// Built against a contract this host does not have.
    #[error(
        "the component {} {name}, version {version} of the contract, and this mqlet has {CONTRACT_VERSION}",
        if *exported { "exports" } else { "imports" }
    )]
    Version {
        /// The interface without its version.
        name: String,
        /// What the component was built against.
        version: String,
        /// Export or import.
        exported: bool,
        /// Whether the component's version is the later one.
        newer: bool,
    },
    /// Needs a grant.
    #[error("the component imports {import}, which reaches outside and is not granted")]
    NotGranted {
        /// Full name.
        import: String,
        /// What this host could grant.
        remedy: &'static str,
    },
    /// Nothing we know.
    #[error("the component imports {import}, which mqlet does not have")]
    UnknownImport {
        /// Full name.
        import: String,
        /// Where it probably comes from and what to do.
        hint: &'static str,
    },
}

impl ComponentProblem {
    /// What the person can do about it.
    pub fn remedy(&self) -> String {
        match self {
            Self::Empty | Self::Truncated { .. } => {
                "build or copy it again; the file was not written completely".into()
            }
            Self::TooLarge { .. } => {
                "build it optimised and without debug information, and keep data out of the code".into()
            }
            Self::Text { is_wat: true } => "turn it into a binary: wasm-tools parse".into(),
            Self::Text { is_wat: false } | Self::NotWasm { .. } => {
                "name the .wasm component that your build writes".into()
            }
            Self::CoreModule { hint } => (*hint).into(),
            Self::UnknownEncoding { .. } => {
                "build it with a toolchain that makes WebAssembly components".into()
            }
            Self::Invalid { .. } => {
                "build it again; if it stays, the toolchain uses a WebAssembly feature that this mqlet does not have".into()
            }
            Self::ComponentModelAsync => {
                "build it for WASI 0.2 with synchronous exports (componentize-qjs: --sync)".into()
            }
            Self::NoListener { .. } => {
                "build it for one of the worlds concurrent-listener, orderly-listener and scheduled-pull of mqlet:listener".into()
            }
            Self::Version { newer: true, .. } => {
                "update mqlet, or build the plugin with an older SDK".into()
            }
            Self::Version { newer: false, .. } => "build the plugin with a newer SDK".into(),
            Self::NotGranted { remedy, .. } => (*remedy).into(),
            Self::UnknownImport { hint, .. } => (*hint).into(),
        }
    }

    pub(super) fn not_wasm(bytes: &[u8]) -> Self {
        let start = &bytes[..bytes.len().min(1024)];
        let text = match std::str::from_utf8(start) {
            Ok(text) => Some(text),
            // A character may be cut at the end.
            Err(error) if start.len() - error.valid_up_to() < 4 => {
                std::str::from_utf8(&start[..error.valid_up_to()]).ok()
            }
            Err(_) => None,
        };
        if let Some(text) = text.filter(|text| !text.contains('\0')) {
            let is_wat = text
                .lines()
                .map(str::trim_start)
                .any(|line| line.starts_with("(module") || line.starts_with("(component"));
            return Self::Text { is_wat };
        }
        let what = match bytes {
            [0x7f, b'E', b'L', b'F', ..] => {
                "an ELF file, a program or library for this machine, or code that wasmtime compiled"
                    .into()
            }
            [0x1f, 0x8b, ..] => "gzip; unpack it first".into(),
            [b'P', b'K', 3, 4, ..] => "a zip archive; unpack it first".into(),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => "zstd; unpack it first".into(),
            _ => {
                let mut what = String::from("it begins with");
                for byte in start.iter().take(8) {
                    let _infallible = write!(what, " {byte:02x}");
                }
                what
            }
        };
        Self::NotWasm { what }
    }
}

fn list(names: &[String]) -> String {
    if names.is_empty() {
        return "nothing".into();
    }
    let mut text = names
        .iter()
        .take(NAMES_SHOWN_MAX)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    if names.len() > NAMES_SHOWN_MAX {
        let _infallible = write!(text, " and {} more", names.len() - NAMES_SHOWN_MAX);
    }
    text
}
