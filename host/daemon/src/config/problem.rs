//! Problems as a person or a program gets them.

use plugin_lifecycle::problem::{Place, Problem};
use serde::Serialize;

use crate::exit::Refused;

/// A problem as JSON.
#[derive(Serialize, Debug)]
pub(crate) struct ProblemView<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    variable: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flag: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a str>,
    what: &'a str,
    remedy: &'a str,
}

impl<'a> From<&'a Problem> for ProblemView<'a> {
    fn from(problem: &'a Problem) -> Self {
        let (variable, flag) = match &problem.place {
            Place::File { .. } => (None, None),
            Place::Environment { variable } => (Some(&**variable), None),
            Place::Flag { flag } => (None, Some(&**flag)),
        };
        Self {
            file: problem.file().map(|file| file.display().to_string()),
            line: problem.line(),
            variable,
            flag,
            key: problem.key.as_deref(),
            value: problem.value.as_deref(),
            what: &problem.what,
            remedy: &problem.remedy,
        }
    }
}

/// The error of a command that was refused before it opened anything.
pub(crate) fn refused(problems: &[Problem]) -> Refused {
    let lines: Vec<String> = problems
        .iter()
        .map(|problem| format!("  {problem}"))
        .collect();
    let count = match problems.len() {
        1 => "1 problem".to_owned(),
        count => format!("{count} problems"),
    };
    Refused(format!("{count}:\n{}", lines.join("\n")))
}
