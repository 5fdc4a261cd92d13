//! The crash-outcome table: what may be seen after a cut, by operation and fsync mode.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::ace::{Change, Then};
use super::{Explored, Seen};
use vfs::kind::Technique;

/// One operation made durable in one way, in one mode on one drive.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// What was done.
    pub operation: String,
    /// What made it durable.
    pub then: String,
    /// Short name of the mode.
    pub mode: String,
    /// The drive's profile.
    pub drive: String,
    /// What was seen at cuts before that call returned, and how often.
    pub before: BTreeMap<String, usize>,
    /// Of cuts after.
    pub after: BTreeMap<String, usize>,
}

impl Row {
    pub(super) fn new(
        op: Change,
        then: Then,
        mode: &'static Technique,
        explored: &Explored,
    ) -> Self {
        Self {
            operation: op.about().into(),
            then: then.name().into(),
            mode: mode.name.into(),
            drive: explored.drive.clone(),
            before: outcomes(&explored.seen, false),
            after: outcomes(&explored.seen, true),
        }
    }
}

fn outcomes(seen: &Seen, after: bool) -> BTreeMap<String, usize> {
    let of = seen.iter().filter(|((when, _), _)| *when == after);
    of.map(|((_, outcome), &count)| (outcome.name().into(), count)).collect()
}

/// The order in which outcomes are named.
const WORDS: [&str; 7] = ["old", "new", "part", "torn", "lost", "garbage", "corrupt"];

fn words(outcomes: &BTreeMap<String, usize>) -> String {
    let seen: Vec<&str> = WORDS.into_iter().filter(|word| outcomes.contains_key(*word)).collect();
    if seen.is_empty() { "-".into() } else { seen.join(", ") }
}

/// The rows as a Markdown table, one for each drive; modes that agree share a line.
pub fn markdown(rows: &[Row]) -> String {
    let mut drives: Vec<&str> = rows.iter().map(|row| row.drive.as_str()).collect();
    drives.sort_unstable();
    drives.dedup();
    let mut out = String::new();
    for drive in drives {
        let _ = write!(
            out,
            "**{drive}**\n\n| operation | then | mode | before it returned | after |\n\
             |---|---|---|---|---|\n"
        );
        for op in Change::ALL.map(Change::about) {
            for then in Then::ALL.map(Then::name) {
                let of =
                    |row: &&Row| row.drive == drive && (row.operation == op && row.then == then);
                let mut lines: Vec<(String, Vec<&str>)> = Vec::new();
                for row in rows.iter().filter(of) {
                    let seen = format!("{} | {}", words(&row.before), words(&row.after));
                    match lines.iter_mut().find(|(same, _)| *same == seen) {
                        Some((_, modes)) => modes.push(&row.mode),
                        None => lines.push((seen, vec![&row.mode])),
                    }
                }
                for (seen, modes) in lines {
                    let _ = writeln!(out, "| {op} | {then} | {} | {seen} |", modes.join(", "));
                }
            }
        }
        out.push('\n');
    }
    out
}
