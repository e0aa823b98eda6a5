//! Builds the test guests: every file of `tests/guests/{examples,c,javascript}` becomes
//! `target/guests/NAME.wasm`. What is up to date stays.
//!
//! Never done by a build script: that would wait for the lock of the very cargo that
//! runs it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Instant, SystemTime};

use anyhow::{Context, Result, bail};
use plugin_build::{CargoBuild, RustToolchain, write_component};
use wit_bindgen_core::Files;
use wit_bindgen_core::wit_parser::Resolve;

use crate::{process, repository};

/// World of a guest that is not of Rust, by its name. Rust names it in its source.
fn world_of(guest: &str) -> &'static str {
    if guest.starts_with("orderly_") {
        "orderly-listener"
    } else {
        "concurrent-listener"
    }
}

/// Which guests.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Names as in tests/guests; all when there is none.
    names: Vec<String>,
}

/// A language: where its guests are and what their files end in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Language {
    Rust,
    C,
    JavaScript,
}

impl Language {
    const ALL: [Self; 3] = [Self::Rust, Self::C, Self::JavaScript];

    fn folder(self) -> PathBuf {
        repository::guest_sources().join(match self {
            Self::Rust => "examples",
            Self::C => "c",
            Self::JavaScript => "javascript",
        })
    }

    fn extension(self) -> &'static str {
        match self {
            Self::Rust => "rs",
            Self::C => "c",
            Self::JavaScript => "js",
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let started = Instant::now();
    let mut guests = all()?;
    if let Some(name) = arguments
        .names
        .iter()
        .find(|name| !guests.iter().any(|(_, guest)| guest == *name))
    {
        let names: Vec<_> = guests.iter().map(|(_, guest)| guest.as_str()).collect();
        bail!("there is no guest \"{name}\"; one of: {}", names.join(" "));
    }
    if !arguments.names.is_empty() {
        guests.retain(|(_, guest)| arguments.names.contains(guest));
    }
    let of = |language| {
        let names = guests.iter().filter(move |(of, _)| *of == language);
        names.map(|(_, name)| name.as_str()).collect::<Vec<_>>()
    };
    let mut built = build_rust(&of(Language::Rust))?;
    for name in of(Language::C) {
        built += usize::from(build_c(name).with_context(|| format!("cannot build guest {name}"))?);
    }
    for name in of(Language::JavaScript) {
        let made = build_javascript(name).with_context(|| format!("cannot build guest {name}"))?;
        built += usize::from(made);
    }
    println!(
        "guests: {} in {}, {built} of them new, {:.1} s",
        guests.len(),
        repository::guest_artifacts().display(),
        started.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Builds every guest.
pub(crate) fn build_all() -> Result<()> {
    run(&Arguments { names: Vec::new() })
}

/// Every guest that has a source.
fn all() -> Result<Vec<(Language, String)>> {
    let mut guests = Vec::new();
    for language in Language::ALL {
        let folder = language.folder();
        let entries = folder
            .read_dir()
            .with_context(|| format!("cannot list {}", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path
                .extension()
                .is_some_and(|extension| extension == language.extension())
                && let Some(name) = path.file_stem().and_then(|name| name.to_str())
            {
                guests.push((language, name.to_owned()));
            }
        }
    }
    guests.sort_by(|(_, a), (_, b)| a.cmp(b));
    Ok(guests)
}

fn component(name: &str) -> PathBuf {
    repository::guest_artifacts()
        .join(name)
        .with_extension("wasm")
}

/// All Rust guests are examples of one package, built by one cargo.
fn build_rust(names: &[&str]) -> Result<usize> {
    if names.is_empty() {
        return Ok(0);
    }
    let folder = repository::guest_sources();
    let toolchain = match RustToolchain::find(&folder) {
        Ok(toolchain) => toolchain,
        Err(error) => {
            eprintln!("{error}");
            process::install("rust")?;
            RustToolchain::find(&folder)?
        }
    };
    println!(
        "guests: {} of Rust with {}",
        names.len(),
        toolchain.describe()
    );
    let mut arguments = vec!["--locked".into()];
    for name in names {
        arguments.extend(["--example".into(), name.into()]);
    }
    let artifacts = CargoBuild { folder, arguments }.run(&toolchain)?;
    let mut built = 0;
    for (name, module) in artifacts {
        let component = component(&name);
        if is_older(&component, std::slice::from_ref(&module))? {
            write_component(&module, &component)
                .with_context(|| format!("cannot build guest {name}"))?;
            built += 1;
        }
        if name == "print" {
            built += usize::from(copy_core_module(&module)?);
        }
    }
    Ok(built)
}

/// A guest that is no component: the module of `print`, which needs WASI, before it became one. Only
/// where the toolchain makes modules; elsewhere the smallest module there is.
fn copy_core_module(module: &Path) -> Result<bool> {
    const EMPTY_MODULE: &[u8] = b"\0asm\x01\0\0\0";
    let target = component("core_module");
    if !is_older(&target, &[module.to_owned()])? {
        return Ok(false);
    }
    let bytes = fs::read(module)?;
    let bytes = if bytes.starts_with(EMPTY_MODULE) {
        &bytes
    } else {
        EMPTY_MODULE
    };
    fs::write(&target, bytes).with_context(|| format!("cannot write {}", target.display()))?;
    Ok(true)
}

fn build_c(name: &str) -> Result<bool> {
    let source = Language::C.folder().join(name).with_extension("c");
    let component = component(name);
    if !is_older(&component, &inputs(&source)?)? {
        return Ok(false);
    }
    process::install("c")?;
    let bindings = repository::guest_artifacts().join("c");
    fs::create_dir_all(&bindings)?;
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_path(repository::wit())?;
    let world = resolve.select_world(&[package], Some(world_of(name)))?;
    let mut files = Files::default();
    wit_bindgen_c::Opts::default()
        .build()
        .generate(&mut resolve, world, &mut files)?;
    for (file, contents) in files.iter() {
        fs::write(bindings.join(file), contents)?;
    }
    let module = bindings.join(name).with_extension("wasm");
    let mut compiler = Command::new(repository::toolchain_commands()?.join("wasm-cc"));
    compiler
        .arg("-I")
        .arg(&bindings)
        .arg("-o")
        .arg(&module)
        .arg(&source);
    let generated = world_of(name).replace('-', "_");
    compiler.arg(bindings.join(format!("{generated}.c")));
    compiler.arg(bindings.join(format!("{generated}_component_type.o")));
    process::run(&mut compiler)?;
    write_component(&module, &component)?;
    Ok(true)
}

fn build_javascript(name: &str) -> Result<bool> {
    let source = Language::JavaScript
        .folder()
        .join(name)
        .with_extension("js");
    let component = component(name);
    if !is_older(&component, &inputs(&source)?)? {
        return Ok(false);
    }
    process::install("javascript")?;
    fs::create_dir_all(repository::guest_artifacts())?;
    let new = component.with_extension("wasm.new");
    let mut componentize = Command::new(repository::toolchain_commands()?.join("componentize-js"));
    // --sync: no component-model async, which the host refuses.
    componentize
        .args(["--sync", "--stub-wasi", "--world", world_of(name), "--wit"])
        .arg(repository::wit());
    componentize
        .arg("--js")
        .arg(&source)
        .arg("--output")
        .arg(&new);
    process::run(&mut componentize)?;
    fs::rename(&new, &component)?;
    Ok(true)
}

/// What a guest outside cargo is made from.
fn inputs(source: &Path) -> Result<Vec<PathBuf>> {
    let mut inputs = vec![source.to_owned(), repository::install_script()];
    let mut folders = vec![repository::wit()];
    while let Some(folder) = folders.pop() {
        for entry in folder.read_dir()? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "wit") {
                inputs.push(path);
            }
        }
    }
    Ok(inputs)
}

/// Whether a file is missing or was made before one of its inputs.
fn is_older(file: &Path, inputs: &[PathBuf]) -> Result<bool> {
    let time = |path: &Path| -> Result<SystemTime> {
        let modified = path.metadata().and_then(|metadata| metadata.modified());
        modified.with_context(|| format!("cannot look at {}", path.display()))
    };
    if !file.exists() {
        return Ok(true);
    }
    let made = time(file)?;
    for input in inputs {
        if time(input)? > made {
            return Ok(true);
        }
    }
    Ok(false)
}
