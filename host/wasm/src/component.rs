//! Bytes → checked component: says in plain words what is wrong with them, all of it at
//! once, before anything is compiled.
//!
//! The header tells text, core modules and truncated files apart; the validator of the
//! engine's own parser does the rest. Only names of imports and exports are looked at
//! here: whether their types fit is decided when the compiled component is linked
//! (`engine.rs`).

mod names;
mod problem;

pub use problem::ComponentProblem;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use wasmparser::{Chunk, Parser, Payload, ValidPayload, Validator, WasmFeatures};

use crate::grants::Grants;
use names::{Contract, Import};

/// Larger components are refused, before they are read where the size is known.
pub const COMPONENT_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// At most so many problems of one kind are listed; the rest is counted by nobody.
const PROBLEMS_MAX: usize = 50;

/// What a component is, by what it exports.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub enum ListenerKind {
    /// Exports `mqlet:listener/concurrent`.
    #[default]
    Concurrent,
    /// Exports `mqlet:listener/orderly`.
    Orderly,
    /// Exports `mqlet:listener/pull-task`.
    ScheduledPull,
}

impl ListenerKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Concurrent, Self::Orderly, Self::ScheduledPull];

    /// The word of the manifest's `listener`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Concurrent => "concurrent",
            Self::Orderly => "orderly",
            Self::ScheduledPull => "scheduled-pull",
        }
    }
}

/// A component that this host can link.
#[derive(Clone, Debug)]
pub struct CheckedComponent {
    bytes: Bytes,
    listeners: Vec<ListenerKind>,
    has_lifecycle: bool,
    imports: Vec<String>,
}

impl CheckedComponent {
    /// Refuses a file by its size alone, so that it need not be read.
    pub fn check_size(bytes: u64) -> Result<(), ComponentProblem> {
        if bytes > COMPONENT_BYTES_MAX {
            return Err(ComponentProblem::TooLarge {
                bytes,
                bytes_max: COMPONENT_BYTES_MAX,
            });
        }
        Ok(())
    }

    /// Checks the bytes of a component without grants. Takes time in proportion to their number (a
    /// few milliseconds a megabyte): call it where blocking is allowed.
    ///
    /// # Errors
    /// Everything that is wrong, in the order of the component.
    pub fn check(bytes: impl Into<Bytes>) -> Result<Self, Vec<ComponentProblem>> {
        Self::check_granted(bytes, &Grants::default())
    }

    /// As [`CheckedComponent::check`], of a component that has these grants.
    ///
    /// # Errors
    /// Everything that is wrong, in the order of the component.
    pub fn check_granted(
        bytes: impl Into<Bytes>,
        grants: &Grants,
    ) -> Result<Self, Vec<ComponentProblem>> {
        let bytes = bytes.into();
        Self::check_size(bytes.len() as u64).map_err(|problem| vec![problem])?;
        header(&bytes).map_err(|problem| vec![problem])?;
        let outline = Outline::read(&bytes).map_err(|problem| vec![problem])?;

        let mut problems = Vec::new();
        for name in &outline.imports {
            if let Some(problem) = Import::of(name).problem(grants) {
                problems.push(problem);
            }
        }
        let mut listeners = Vec::new();
        let mut has_lifecycle = false;
        for name in &outline.exports {
            match Contract::of_export(name) {
                Some(Contract::Listener(kind)) => listeners.push(kind),
                Some(Contract::Lifecycle) => has_lifecycle = true,
                Some(Contract::OtherVersion(problem)) => problems.push(problem),
                None => {}
            }
        }
        let another_version = problems
            .iter()
            .any(|problem| matches!(problem, ComponentProblem::Version { exported: true, .. }));
        if listeners.is_empty() && !another_version {
            problems.push(ComponentProblem::NoListener {
                exports: outline.exports,
            });
        }
        if problems.is_empty() {
            listeners.sort_unstable();
            listeners.dedup();
            Ok(Self {
                bytes,
                listeners,
                has_lifecycle,
                imports: outline.imports,
            })
        } else {
            problems.truncate(PROBLEMS_MAX);
            Err(problems)
        }
    }

    /// The component itself.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Every kind of listener it exports; never empty.
    pub fn listeners(&self) -> &[ListenerKind] {
        &self.listeners
    }

    /// Whether it has `init` and `shutdown`.
    pub fn has_lifecycle(&self) -> bool {
        self.has_lifecycle
    }

    /// Those of its imports that reach outside, and so need a grant.
    pub fn reaches(&self) -> impl Iterator<Item = &str> {
        let imports = self.imports.iter().map(String::as_str);
        imports.filter(|import| names::needs_grant(import))
    }

    /// Full names of what it imports, for people.
    pub fn imports(&self) -> &[String] {
        &self.imports
    }
}

/// Tells apart what people take for a component.
fn header(bytes: &[u8]) -> Result<(), ComponentProblem> {
    const MAGIC: &[u8] = b"\0asm";
    if bytes.is_empty() {
        return Err(ComponentProblem::Empty);
    }
    if bytes.len() < 8 {
        return Err(if MAGIC.starts_with(&bytes[..bytes.len().min(4)]) {
            ComponentProblem::Truncated {
                bytes: bytes.len() as u64,
            }
        } else {
            ComponentProblem::not_wasm(bytes)
        });
    }
    if !bytes.starts_with(MAGIC) {
        return Err(ComponentProblem::not_wasm(bytes));
    }
    match (
        u16::from_le_bytes([bytes[4], bytes[5]]),
        u16::from_le_bytes([bytes[6], bytes[7]]),
    ) {
        (0x0d, 1) => Ok(()),
        (1, 0) => Err(ComponentProblem::CoreModule {
            hint: names::core_module_hint(bytes),
        }),
        (version, layer) => Err(ComponentProblem::UnknownEncoding { version, layer }),
    }
}

/// Names of imports and exports of a valid component.
struct Outline {
    imports: Vec<String>,
    exports: Vec<String>,
}

impl Outline {
    fn read(bytes: &[u8]) -> Result<Self, ComponentProblem> {
        let features = engine_features();
        match Self::validate(bytes, features) {
            Ok(outline) => Ok(outline),
            Err(problem) if matches!(problem, ComponentProblem::Invalid { .. }) => {
                let concurrent = features
                    | WasmFeatures::CM_ASYNC
                    | WasmFeatures::CM_ASYNC_STACKFUL
                    | WasmFeatures::CM_MORE_ASYNC_BUILTINS
                    | WasmFeatures::CM_ERROR_CONTEXT
                    | WasmFeatures::CM_THREADING;
                Err(match Self::validate(bytes, concurrent) {
                    Ok(_) => ComponentProblem::ComponentModelAsync,
                    Err(_) => problem,
                })
            }
            Err(problem) => Err(problem),
        }
    }

    fn validate(bytes: &[u8], features: WasmFeatures) -> Result<Self, ComponentProblem> {
        let invalid = |error: &wasmparser::Error| ComponentProblem::Invalid {
            reason: error.message().to_string(),
            offset: error.offset() as u64,
        };
        let mut outline = Self {
            imports: Vec::new(),
            exports: Vec::new(),
        };
        let mut validator = Validator::new_with_features(features);
        let mut functions = wasmparser::FuncValidatorAllocations::default();
        let mut parser = Parser::new(0);
        parser.set_features(features);
        let mut outer = Vec::new();
        let mut at = 0;
        loop {
            // Between two sections of the outermost component it may end; nowhere else.
            let may_end = outer.is_empty() && at == bytes.len();
            let payload = match parser
                .parse(&bytes[at..], may_end)
                .map_err(|e| invalid(&e))?
            {
                Chunk::NeedMoreData(_) => {
                    return Err(ComponentProblem::Truncated {
                        bytes: bytes.len() as u64,
                    });
                }
                Chunk::Parsed { consumed, payload } => {
                    at += consumed;
                    payload
                }
            };
            match &payload {
                Payload::ComponentImportSection(section) if outer.is_empty() => {
                    for import in section.clone() {
                        let import = import.map_err(|e| invalid(&e))?;
                        outline.imports.push(import.name.name.to_string());
                    }
                }
                Payload::ComponentExportSection(section) if outer.is_empty() => {
                    for export in section.clone() {
                        let export = export.map_err(|e| invalid(&e))?;
                        outline.exports.push(export.name.name.to_string());
                    }
                }
                _ => {}
            }
            match validator.payload(&payload).map_err(|e| invalid(&e))? {
                ValidPayload::Ok => {}
                ValidPayload::Parser(inner) => {
                    outer.push(std::mem::replace(&mut parser, inner));
                }
                ValidPayload::Func(function, body) => {
                    let mut function = function.into_validator(functions);
                    function.validate(&body).map_err(|e| invalid(&e))?;
                    functions = function.into_allocations();
                }
                ValidPayload::End(_) => match outer.pop() {
                    Some(parent) => parser = parent,
                    None => return Ok(outline),
                },
            }
        }
    }
}

/// What the engine is built to accept; `engine.rs` leaves wasmtime's defaults alone.
fn engine_features() -> WasmFeatures {
    let not_compiled_in = WasmFeatures::GC
        | WasmFeatures::GC_TYPES
        | WasmFeatures::EXCEPTIONS
        | WasmFeatures::THREADS;
    (WasmFeatures::WASM3 | WasmFeatures::COMPONENT_MODEL) & !not_compiled_in
}

#[cfg(test)]
mod tests;
