//! What a benchmark prints: a table for people, and one JSON line a row for programs.
//!
//! A row is one subject (a listener, a client); its samples are the rounds. Rounds of all
//! subjects are interleaved, so that whatever else the machine does meets all of them,
//! and the middle of each is compared. Nothing here judges: a target stands beside the
//! figure, and whether it was met is written down.

use std::collections::BTreeMap;
use std::io::Write;

use serde_json::{Map, Value, json};

use crate::machine;

/// Figures of one round, by column.
pub(crate) type Sample = Vec<(&'static str, f64)>;

/// The samples of all subjects of one benchmark.
pub(crate) struct Report {
    benchmark: String,
    unit: String,
    /// In the order in which subjects first appeared.
    subjects: Vec<String>,
    samples: BTreeMap<String, Vec<Sample>>,
    /// The highest load (runnable processes, one-minute mean) seen.
    load: f64,
    judgements: Vec<Judgement>,
}

struct Judgement {
    what: String,
    value: f64,
    /// And whether it was met.
    target: Option<(f64, bool)>,
}

/// On which side of the target a figure should be.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    AtMost(f64),
    AtLeast(f64),
}

impl Report {
    /// `unit` says what the columns are counted for.
    pub(crate) fn new(benchmark: &str, unit: &str) -> Self {
        Self {
            benchmark: benchmark.to_owned(),
            unit: unit.to_owned(),
            subjects: Vec::new(),
            samples: BTreeMap::new(),
            load: machine::load(),
            judgements: Vec::new(),
        }
    }

    /// One round of one subject.
    pub(crate) fn add(&mut self, subject: &str, sample: Sample) {
        if !self.samples.contains_key(subject) {
            self.subjects.push(subject.to_owned());
        }
        self.samples
            .entry(subject.to_owned())
            .or_default()
            .push(sample);
        self.load = self.load.max(machine::load());
    }

    /// The middle of a column over the rounds; not a number without any.
    pub(crate) fn median(&self, subject: &str, column: &str) -> f64 {
        median(self.column(subject, column))
    }

    /// The middle over the rounds of a figure computed from two subjects within one
    /// round: what slows a whole round down falls out.
    pub(crate) fn paired(
        &self,
        (one, other): (&str, &str),
        column: &str,
        compute: impl Fn(f64, f64) -> f64,
    ) -> f64 {
        let one = self.column(one, column);
        let other = self.column(other, column);
        median(
            one.into_iter()
                .zip(other)
                .map(|(one, other)| compute(one, other))
                .collect(),
        )
    }

    /// Writes a figure beside its target.
    pub(crate) fn judge(&mut self, what: impl Into<String>, value: f64, target: Target) {
        let (target, is_met) = match target {
            Target::AtMost(target) => (target, value <= target),
            Target::AtLeast(target) => (target, value >= target),
        };
        self.judgements.push(Judgement {
            what: what.into(),
            value,
            target: Some((target, is_met)),
        });
    }

    /// Writes a figure that has no target.
    pub(crate) fn note(&mut self, what: impl Into<String>, value: f64) {
        self.judgements.push(Judgement {
            what: what.into(),
            value,
            target: None,
        });
    }

    /// Prints table, judgements and JSON lines.
    ///
    /// # Errors
    /// Standard output is closed.
    pub(crate) fn print(&self) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        writeln!(
            out,
            "\n{} ({}), load up to {:.1}",
            self.benchmark, self.unit, self.load
        )?;
        let columns = self.columns();
        write!(
            out,
            "  {:<32}{:>7}",
            "median (least) of the rounds", "rounds"
        )?;
        for column in &columns {
            write!(out, "{column:>21}")?;
        }
        writeln!(out)?;
        for subject in &self.subjects {
            write!(out, "  {subject:<32}{:>7}", self.samples[subject].len())?;
            for column in &columns {
                let values = self.column(subject, column);
                let least = values.iter().copied().fold(f64::INFINITY, f64::min);
                let text = match values.is_empty() {
                    true => "-".to_owned(),
                    false => format!("{} ({})", number(median(values)), number(least)),
                };
                write!(out, "{text:>21}")?;
            }
            writeln!(out)?;
        }
        for judgement in &self.judgements {
            write!(out, "  {}: {}", judgement.what, number(judgement.value))?;
            match judgement.target {
                Some((target, true)) => writeln!(out, " (target {}): met", number(target))?,
                Some((target, false)) => writeln!(out, " (target {}): MISSED", number(target))?,
                None => writeln!(out)?,
            }
        }
        for subject in &self.subjects {
            let medians: Map<String, Value> = columns
                .iter()
                .map(|column| ((*column).to_owned(), json!(self.median(subject, column))))
                .collect();
            let line = json!({
                "benchmark": self.benchmark, "subject": subject, "rounds": self.samples[subject].len(),
                "load": self.load, "median": medians,
            });
            writeln!(out, "{line}")?;
        }
        for judgement in &self.judgements {
            let line = json!({
                "benchmark": self.benchmark, "figure": judgement.what, "value": judgement.value,
                "target": judgement.target.map(|(target, _)| target),
                "met": judgement.target.map(|(_, is_met)| is_met), "load": self.load,
            });
            writeln!(out, "{line}")?;
        }
        Ok(())
    }

    fn column(&self, subject: &str, column: &str) -> Vec<f64> {
        self.samples
            .get(subject)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|(name, _)| *name == column)
            .map(|(_, value)| *value)
            .collect()
    }

    /// Every column of every subject, in the order of the first that has it.
    fn columns(&self) -> Vec<&'static str> {
        let mut columns = Vec::new();
        for subject in &self.subjects {
            for (name, _) in self.samples[subject].iter().flatten() {
                if !columns.contains(name) {
                    columns.push(*name);
                }
            }
        }
        columns
    }
}

/// The middle; not a number when there is none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[count / 2],
        count => f64::midpoint(values[count / 2 - 1], values[count / 2]),
    }
}

/// Three digits that matter.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle_of_any_order() {
        assert!(median(Vec::new()).is_nan());
        assert_eq!(median(vec![3.0, 1.0, 2.0]).to_bits(), 2f64.to_bits());
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]).to_bits(), 2.5f64.to_bits());
    }

    #[test]
    fn pairs_are_made_within_a_round() {
        let mut report = Report::new("b", "u");
        for (native, wasm) in [(1.0, 2.0), (10.0, 20.0), (5.0, 15.0)] {
            report.add("native", vec![("ns", native)]);
            report.add("wasm", vec![("ns", wasm)]);
        }
        let ratio = report.paired(("wasm", "native"), "ns", |wasm, native| wasm / native);
        assert_eq!(ratio.to_bits(), 2f64.to_bits());
    }
}
