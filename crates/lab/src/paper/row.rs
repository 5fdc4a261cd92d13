//! One published figure and ours, and what their agreement means.

use std::fmt;

use serde::Serialize;

use crate::paper::sensitivity::Figure;
use crate::report::{columns, micro};

/// What our figure can say about the paper's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// It was given to the model: a cost from this very table, or one measured beforehand.
    /// Agreement says only that it arrived.
    Input,
    /// Follows from inputs by arithmetic; says that the model adds up as the paper's machine does.
    Consequence,
    /// Found by running the code; nothing that was put in decides it.
    Outcome,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Input => "input",
            Self::Consequence => "consequence",
            Self::Outcome => "outcome",
        })
    }
}

/// Further decimals that may be needed to tell a figure from the end of a range.
const DECIMALS_MORE: usize = 8;

/// One figure, theirs and ours.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What is measured.
    pub what: String,
    /// What agreement would mean.
    pub kind: Kind,
    /// As published; empty if it was not.
    pub paper: String,
    /// As measured here.
    pub ours: f64,
    /// Of ours.
    pub unit: &'static str,
    /// The least and the most of several runs, if there were several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<(f64, f64)>,
    /// The range in which ours agrees; none if the paper gives no figure to compare with.
    pub band: Option<(f64, f64)>,
    /// Whether ours is within.
    pub agrees: Option<bool>,
}

impl Row {
    pub(super) fn new(
        kind: Kind,
        what: impl Into<String>,
        paper: impl Into<String>,
        ours: f64,
        unit: &'static str,
    ) -> Self {
        let (what, paper) = (what.into(), paper.into());
        Self { what, kind, paper, ours, unit, range: None, band: None, agrees: None }
    }

    /// Agrees from `low` to `high`.
    pub(super) fn within(self, low: f64, high: f64) -> Self {
        let agrees = Some((low..=high).contains(&self.ours));
        Self { band: Some((low, high)), agrees, ..self }
    }

    /// Agrees with anything within `share` of `figure`.
    pub(super) fn near(self, figure: f64, share: f64) -> Self {
        self.within(figure * (1.0 - share), figure * (1.0 + share))
    }

    fn cells(&self) -> Vec<String> {
        let least = if self.ours >= 1000.0 { 0 } else { 2 };
        // A figure that does not agree must not look as if it did.
        let looks_so = |decimals: usize| {
            let shown = |value: f64| format!("{value:.decimals$}").parse().unwrap_or(value);
            let ours = shown(self.ours);
            self.band.is_some_and(|(low, high)| (shown(low)..=shown(high)).contains(&ours))
        };
        let enough = |decimals: &usize| self.agrees != Some(false) || !looks_so(*decimals);
        let decimals = (least..least + DECIMALS_MORE).find(enough).unwrap_or(least);
        let number = |value: f64| format!("{value:.decimals$}");
        let pair = |(low, high)| format!("{} to {}", number(low), number(high));
        vec![
            self.what.clone(),
            self.kind.to_string(),
            micro(&self.paper),
            self.band.map(pair).unwrap_or_default(),
            micro(format!("{} {}", number(self.ours), self.unit).trim_end()),
            self.range.map(pair).unwrap_or_default(),
            match self.agrees {
                Some(true) => "agrees".into(),
                Some(false) => "does not agree".into(),
                None => String::new(),
            },
        ]
    }
}

/// An experiment's outcome.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The experiment.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    /// The command line that repeats it.
    pub command: String,
    /// Time is the model's.
    pub simulated: bool,
    /// The figures.
    pub rows: Vec<Row>,
}

impl Comparison {
    /// Its rows, as figures whose order may rest on estimates.
    pub fn figures(&self) -> Vec<Figure> {
        let figure = |row: &Row| Figure { what: row.what.clone(), unit: row.unit, value: row.ours };
        self.rows.iter().map(figure).collect()
    }

    /// A table for the terminal.
    pub fn text(&self) -> String {
        let Self { name, about, command, simulated, rows } = self;
        let time = if *simulated { "simulated" } else { "measured" };
        let head = ["", "kind", "paper", "agrees from", "ours", "least to most", ""];
        let table = columns(&head, rows.iter().map(Row::cells).collect(), 2);
        format!("{name}: {about} ({time})\n{table}\nrepeat: {command}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_band_has_two_sides() {
        let row = |ours| Row::new(Kind::Outcome, "x", "1.18 to 1.42", ours, "x");
        for (ours, agrees) in [(1.17, false), (1.18, true), (1.42, true), (1.51, false)] {
            assert_eq!(row(ours).within(1.18, 1.42).agrees, Some(agrees), "{ours}");
        }
        assert_eq!(row(1.51).agrees, None);
        assert_eq!(row(1.05).near(1.0, 0.1).band, Some((0.9, 1.1)));
    }

    #[test]
    fn a_figure_just_outside_is_seen_to_be_outside() {
        let cells = |ours| Row::new(Kind::Outcome, "x", "", ours, "x").within(1.0, 1.33).cells();
        assert_eq!(cells(0.996)[4], "0.996 x");
        assert_eq!(cells(1.004)[4], "1.00 x");
        assert_eq!(cells(0.9)[4], "0.90 x");
        assert_eq!(cells(0.999_96)[4], "0.99996 x");
        let band = Row::new(Kind::Outcome, "x", "", 1.001, "x").within(1.004, 1.33).cells();
        assert_eq!((&*band[4], &*band[3]), ("1.001 x", "1.004 to 1.330"));
    }

    #[test]
    fn the_table_and_the_json_name_the_kind() {
        let row = Row::new(Kind::Input, "flush", "2.12 us", 2.5, "us").near(2.12, 0.1);
        let rows = vec![row];
        let name = "table-3.1";
        let command = "strandline lab run table-3.1".to_owned();
        let it = Comparison { name, about: "", command, simulated: true, rows };
        let (text, json) = (it.text(), serde_json::to_string(&it).expect("it is plain"));
        assert!(text.contains("input") && text.contains("does not agree"), "{text}");
        assert!(text.contains("2.12 µs") && text.contains("2.50 µs"), "{text}");
        assert!(text.ends_with("\nrepeat: strandline lab run table-3.1\n"), "{text}");
        assert!(json.contains(r#""kind":"input""#), "{json}");
        assert!(json.contains(r#""paper":"2.12 us""#), "{json}");
        assert!(json.contains(r#""agrees":false"#), "{json}");
    }
}
