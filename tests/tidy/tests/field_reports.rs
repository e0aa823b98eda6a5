//! Pages that name tests name tests that exist, and no field report is forgotten.

use std::path::Path;

use tidy::{assert_none, root, text};

/// Every situation that the table has to answer for.
const REPORTS: [u32; 56] = [
    1, 2, 4, 6, 7, 9, 11, 12, 14, 16, 17, 19, 21, 22, 24, 26, 27, 29, 31, 32, 34, 36, 37, 39, 41,
    42, 44, 46, 47, 49, 51, 52, 54, 56, 57, 59, 61, 62, 64, 66, 67, 69, 71, 72, 74, 76, 77, 79, 81,
    82, 84, 86, 87, 89, 91, 92,
];
const TABLE: &str = "host/docs/field-reports.md";
const PAGES: [&str; 4] = [
    TABLE,
    "host/docs/delivery.md",
    "host/docs/swapping.md",
    "host/docs/security.md",
];

#[test]
fn every_field_report_has_a_row_with_tests_or_a_reason() {
    let table = text(Path::new(TABLE));
    let mut violations = Vec::new();
    let rows: Vec<&str> = table.lines().filter(|l| l.starts_with("| A-")).collect();
    for report in REPORTS {
        let id = format!("| A-{report:02} |");
        let of_id: Vec<_> = rows.iter().filter(|row| row.starts_with(&id)).collect();
        let [row] = of_id[..] else {
            violations.push(format!("A-{report:02} has {} rows", of_id.len()));
            continue;
        };
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        match cells[..] {
            [_, _, claim, tests, remark, _] => {
                if claim.is_empty() || tests.is_empty() && remark.is_empty() {
                    violations.push(format!("A-{report:02} says too little"));
                }
            }
            _ => violations.push(format!("A-{report:02} has {} cells", cells.len() - 2)),
        }
    }
    if rows.len() != REPORTS.len() {
        violations.push(format!("{} rows for {} ids", rows.len(), REPORTS.len()));
    }
    assert_none(
        &violations,
        "Each row of host/docs/field-reports.md has an id, a claim, tests, and a remark where there is no test.",
    );
}

#[test]
fn tests_that_pages_name_exist() {
    let mut violations = Vec::new();
    let mut named = 0;
    for page in PAGES {
        let page_text = text(Path::new(page));
        let code = page_text.split('`').skip(1).step_by(2);
        for (file, name) in code.filter_map(|code| code.split_once("::")) {
            named += 1;
            let is_there = root().join(file).is_file() && has_test(&text(Path::new(file)), name);
            if !is_there {
                violations.push(format!("{page}: {file}::{name}"));
            }
        }
    }
    assert!(named > REPORTS.len(), "only {named} tests are named");
    assert_none(
        &violations,
        "Name the test that shows the claim now, as path::name, or say why there is none.",
    );
}

/// Whether the file has a function of this name that the test runner calls.
fn has_test(source: &str, name: &str) -> bool {
    let Some((before, _)) = source.split_once(&format!("fn {name}(")) else {
        return false;
    };
    let (above, _) = before.rsplit_once('\n').unwrap_or_default();
    // Attributes and comments stand right above it; whatever came before ends with one
    // of these, or with an empty line.
    let mut above = above.lines().rev().take_while(|line| {
        let line = line.trim();
        !line.is_empty() && !line.ends_with(['}', ';', '{'])
    });
    above.any(|line| {
        let line = line.trim();
        line.starts_with("#[") && (line.contains("test]") || line.contains("test("))
    })
}

#[test]
fn a_function_that_nobody_runs_is_no_test() {
    let source = "#[test]\nfn one() {}\nfn two() {}\n\n#[tokio::test(flavor = \"x\")]\n\
                  #[expect(\n    clippy::a,\n)]\nasync fn three() {\n}\n";
    let has = |name| has_test(source, name);
    assert_eq!(
        ["one", "two", "three", "on", "four"].map(has),
        [true, false, true, false, false]
    );
}
