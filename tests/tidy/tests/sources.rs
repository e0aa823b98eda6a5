//! What every source file and every page keeps to.

use std::path::{Component, Path, PathBuf};

use tidy::{assert_none, files, root, text};

#[test]
fn every_rust_file_says_what_it_is_for() {
    let violations: Vec<_> = files(&["rs"])
        .iter()
        .filter(|file| !text(file).trim_start().starts_with("//!"))
        .map(|file| format!("{} does not open with //!", file.display()))
        .collect();
    assert_none(
        &violations,
        "Say what the file is responsible for, and what not, in 2 to 10 lines.",
    );
}

#[test]
fn no_file_is_a_drawer() {
    let drawers = [
        "utils", "util", "common", "helpers", "helper", "misc", "types", "impl",
    ];
    let violations: Vec<_> = files(&["rs"])
        .iter()
        .filter(|file| {
            let name = file.file_stem().and_then(|name| name.to_str());
            name.is_some_and(|name| drawers.contains(&name))
        })
        .map(|file| file.display().to_string())
        .collect();
    assert_none(
        &violations,
        "A thing without a home has no name yet: find it.",
    );
}

#[test]
fn the_contract_is_written_once() {
    let violations: Vec<_> = files(&["wit"])
        .iter()
        .filter(|file| !file.starts_with("wit"))
        .map(|file| file.display().to_string())
        .collect();
    assert_none(
        &violations,
        "Binding generators read wit/ by path; take the copy away.",
    );
}

#[test]
fn links_of_pages_lead_somewhere() {
    let mut violations = Vec::new();
    for page in files(&["md"]) {
        for link in links(&text(&page)) {
            let path = link.split('#').next().unwrap_or_default();
            if path.is_empty() || path.contains("://") || path.starts_with("mailto:") {
                continue;
            }
            let target = page.parent().unwrap_or(Path::new("")).join(path);
            if !root().join(&target).exists() || leaves_the_repository(&target) {
                violations.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert_none(
        &violations,
        "Relative links start at the page's own folder.",
    );
}

#[test]
fn nothing_names_a_place_on_somebodys_machine() {
    // Written so that this file does not name them either.
    let places = ["root", "Users", "work"].map(|folder| format!("/{folder}/"));
    let extensions = [
        "rs", "md", "toml", "sh", "wit", "c", "js", "java", "json", "yml", "xml",
    ];
    let mut violations = Vec::new();
    for file in files(&extensions) {
        for (number, line) in text(&file).lines().enumerate() {
            let named = places.iter().any(|place| {
                line.match_indices(place.as_str()).any(|(at, _)| {
                    let before = line[..at].chars().next_back();
                    before.is_none_or(|before| {
                        !before.is_alphanumeric() && !"._-~*}$)".contains(before)
                    })
                })
            });
            if named {
                violations.push(format!(
                    "{}:{}: {}",
                    file.display(),
                    number + 1,
                    line.trim()
                ));
            }
        }
    }
    assert_none(
        &violations,
        "Use a path relative to the repository, or to $HOME.",
    );
}

#[test]
fn every_rust_guest_is_declared() {
    let manifest = text(Path::new("tests/guests/Cargo.toml"));
    let violations: Vec<_> = files(&["rs"])
        .iter()
        .filter(|file| file.starts_with("tests/guests/examples"))
        .filter_map(|file| file.file_stem()?.to_str().map(str::to_owned))
        .filter(|name| !manifest.contains(&format!("name = \"{name}\"\ncrate-type = [\"cdylib\"]")))
        .collect();
    assert_none(
        &violations,
        "Add its [[example]] to tests/guests/Cargo.toml; else it is no component.",
    );
}

/// Targets of Markdown's inline links, outside of code blocks.
fn links(page: &str) -> Vec<String> {
    let mut links = Vec::new();
    let mut in_code = false;
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        let starts = line.match_indices("](").map(|(at, found)| at + found.len());
        links.extend(starts.filter_map(|start| Some(line[start..].split_once(')')?.0.to_owned())));
    }
    links
}

/// Whether a path goes up beyond the top folder.
fn leaves_the_repository(path: &Path) -> bool {
    let mut depth = 0_i32;
    for component in PathBuf::from(path).components() {
        match component {
            Component::ParentDir => depth -= 1,
            Component::Normal(_) => depth += 1,
            _ => {}
        }
        if depth < 0 {
            return true;
        }
    }
    false
}
