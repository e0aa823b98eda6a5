//! `[build]` and `[dev]`: for `mqlet dev` alone; a host that runs a plugin takes no
//! notice of them.

use std::path::{Path, PathBuf};

use crate::document::Section;
use crate::problem::{Fault, beside};

/// How `component` is made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Build {
    /// By a language's own tool, or a command.
    pub how: BuildKind,
    /// Files and folders whose change asks for another build.
    pub watch: Vec<PathBuf>,
}

/// Who builds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BuildKind {
    /// `language = "rust"`: cargo, in the manifest's folder.
    Rust,
    /// `command = ["make", "hello.wasm"]`: run in the manifest's folder; writes
    /// `component` itself. Not empty.
    Command(Vec<String>),
}

/// What `mqlet dev` sends.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Dev {
    /// File of sample messages; `None`: ten texts with the expression's first tag.
    pub messages: Option<PathBuf>,
}

/// Reads `[build]`; `None` when the manifest has none.
pub(super) fn read(file: &Path, section: Section<'_, '_>) -> Option<Build> {
    const HOW: &str = "write language = \"rust\", or command = [\"make\", \"hello.wasm\"]";
    let language = section.optional("language", |value| {
        let command = "write command = […] with the command that writes the component";
        value.choice(
            &[("rust", ())],
            &["go", "javascript", "python", "c"].map(|language| (language, command)),
        )
    });
    let command = section.optional("command", |value| {
        let words = value.texts()?;
        if words.first().is_none_or(|program| program.is_empty()) {
            return Err(Fault::new("names no program", HOW));
        }
        Ok(words.into_iter().map(str::to_owned).collect::<Vec<_>>())
    });
    if section.has("language") && section.has("command") {
        section.fault(
            "command",
            Fault::new("stands beside language", "keep one of the two"),
        );
    }
    if section.is_present() && !section.has("language") && !section.has("command") {
        section.missing("language", HOW);
    }
    let watch = section.optional("watch", |value| {
        Ok(value
            .texts()?
            .into_iter()
            .map(|path| beside(file, Path::new(path)))
            .collect())
    });
    section.refuse_unknown();

    let how = match (language, command) {
        (Some(()), _) => BuildKind::Rust,
        (None, Some(command)) => BuildKind::Command(command),
        (None, None) => return None,
    };
    let watch = watch.unwrap_or_else(|| match how {
        BuildKind::Rust => ["src", "Cargo.toml"]
            .map(|path| beside(file, Path::new(path)))
            .to_vec(),
        BuildKind::Command(_) => Vec::new(),
    });
    Some(Build { how, watch })
}

/// Reads `[dev]`.
pub(super) fn read_dev(file: &Path, section: Section<'_, '_>) -> Dev {
    let messages = section.optional("messages", |value| {
        Ok(beside(file, Path::new(value.text()?)))
    });
    section.refuse_unknown();
    Dev { messages }
}
