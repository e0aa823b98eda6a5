//! Reads the contract as a binding generator would and lists its worlds.

use anyhow::{Context, Result};
use wit_bindgen_core::wit_parser::Resolve;

use crate::repository;

pub(crate) fn run() -> Result<()> {
    let mut resolve = Resolve::default();
    let (package, _) = resolve
        .push_path(repository::wit())
        .context("wit/ is not a valid package")?;
    let package = &resolve.packages[package];
    println!("{}", package.name);
    for (name, world) in &package.worlds {
        let world = &resolve.worlds[*world];
        println!(
            "  {name}: {} imports, {} exports",
            world.imports.len(),
            world.exports.len()
        );
    }
    Ok(())
}
