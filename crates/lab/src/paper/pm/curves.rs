//! Figures 13a to 13d: NOVA and pNOVA by the number of cores.

use super::load::{Load, Point, Reads, measure};
use super::{NODES, NOVA, ONE_CORE, ONE_NODE, PNOVA, Setting};
use crate::Result;
use crate::paper::{Kind, Row};
use crate::report::counted;

/// Points of the curves: around the end of the first node, and at the end of each second one.
const STEPS: [usize; 9] = [1, 5, 10, 13, 15, 30, 60, 90, 120];
const LAST: usize = STEPS[STEPS.len() - 1];
/// Cores of a node.
const NODE: usize = 15;

/// A setting's points at [`STEPS`].
struct Curve(Vec<Point>);

impl Curve {
    fn run(load: Load, setting: Setting, seed: u64) -> Result<Self> {
        let points = STEPS.iter().map(|&cores| measure(load, setting, cores, seed));
        points.collect::<Result<_>>().map(Self)
    }

    fn total(&self, cores: usize) -> f64 {
        self.of(cores, Point::total)
    }

    fn of(&self, cores: usize, figure: impl Fn(&Point) -> f64) -> f64 {
        STEPS.iter().position(|&step| step == cores).map_or(f64::NAN, |at| figure(&self.0[at]))
    }

    fn all(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        STEPS.iter().zip(&self.0).map(|(&cores, point)| (cores as f64, point.total()))
    }

    /// Cores at the highest point, and what they do.
    fn peak(&self) -> (f64, f64) {
        self.all().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or_default()
    }

    /// The line through the points that comes closest to them: its slope, and R².
    fn line(&self) -> (f64, f64) {
        let count = self.0.len() as f64;
        let mean = |of: &dyn Fn((f64, f64)) -> f64| self.all().map(of).sum::<f64>() / count;
        let (x, y) = (mean(&|at| at.0), mean(&|at| at.1));
        let both = mean(&|at| (at.0 - x) * (at.1 - y));
        let (across, along) = (mean(&|at| (at.1 - y).powi(2)), mean(&|at| (at.0 - x).powi(2)));
        (both / along, both * both / (across * along))
    }

    fn rows(&self, name: &str) -> Vec<Row> {
        let row = |(cores, total): (f64, f64)| {
            let cores = counted(cores as u64, "core");
            outcome(format!("{cores}, {name}"), "", total, "GB/s")
        };
        self.all().map(row).collect()
    }
}

fn outcome(what: impl Into<String>, paper: &str, ours: f64, unit: &'static str) -> Row {
    Row::new(Kind::Outcome, what, paper, ours, unit)
}

/// NOVA's curve and pNOVA's, with their rows.
fn both(load: Load, seed: u64) -> Result<(Vec<Row>, Curve, Curve)> {
    let (nova, pnova) = (Curve::run(load, NOVA, seed)?, Curve::run(load, PNOVA, seed)?);
    let mut rows = nova.rows(NOVA.name);
    rows.extend(pnova.rows(PNOVA.name));
    Ok((rows, nova, pnova))
}

fn linear(name: &str, curve: &Curve) -> Row {
    outcome(format!("{name}, R² of a line"), "linear", curve.line().1, "").within(0.98, 1.0)
}

pub(super) fn own_files(seed: u64) -> Result<Vec<Row>> {
    let (mut rows, nova, pnova) = both(Load::OwnFiles, seed)?;
    let (cores, peak) = nova.peak();
    let input = |what: &str, paper: f64, ours| {
        Row::new(Kind::Input, what, paper.to_string(), ours, "GB/s").near(paper, 0.05)
    };
    let ceiling = f64::from(NODES) * ONE_NODE;
    let most = Row::new(
        Kind::Consequence,
        "pNOVA, 120 cores / eight nodes",
        "",
        pnova.total(LAST) / ceiling,
        "x",
    );
    rows.extend([
        input("NOVA, one core", ONE_CORE, nova.total(1)),
        input("NOVA, most", ONE_NODE, peak),
        outcome("NOVA, most at", "15 cores", cores, "cores").within(13.0, 15.0),
        outcome("NOVA, 120 cores / most", "falls", nova.total(LAST) / peak, "x").within(0.0, 0.95),
        linear("pNOVA", &pnova),
        most.within(0.8, 1.0),
    ]);
    Ok(rows)
}

pub(super) fn one_file(seed: u64) -> Result<Vec<Row>> {
    let (mut rows, nova, pnova) = both(Load::OneFile, seed)?;
    let one = nova.total(1);
    rows.extend([
        Row::new(Kind::Input, "NOVA, one core", ONE_CORE.to_string(), one, "GB/s")
            .near(ONE_CORE, 0.05),
        outcome("NOVA, most / one core", "1", nova.peak().1 / one, "x").within(0.0, 1.0),
        outcome("NOVA, 120 cores / one core", "falls", nova.total(LAST) / one, "x")
            .within(0.0, 0.99),
        linear("pNOVA", &pnova),
    ]);
    Ok(rows)
}

/// Points of the readers and the writers, and of readers of what was overwritten.
fn mixed(writers: u64, seed: u64) -> Result<(Vec<Row>, Curve, Curve)> {
    let (mut rows, _, pnova) = both(Load::Mixed(writers, Reads::Own), seed)?;
    for cores in [NODE, LAST] {
        for (what, ours) in [
            ("writes", pnova.of(cores, |point| point.written)),
            ("reads", pnova.of(cores, |point| point.read)),
        ] {
            rows.push(outcome(format!("{cores} cores, pNOVA, {what} alone"), "", ours, "GB/s"));
        }
    }
    let beside = Curve::run(Load::Mixed(writers, Reads::Overwritten), PNOVA, seed)?;
    rows.extend(beside.rows("pNOVA, reads of what is overwritten"));
    Ok((rows, pnova, beside))
}

pub(super) fn mostly_writers(seed: u64) -> Result<Vec<Row>> {
    let (mut rows, pnova, beside) = mixed(3, seed)?;
    let writers = Curve::run(Load::OneFile, PNOVA, seed)?;
    for (name, curve) in [("pNOVA", &pnova), ("pNOVA, reads of what is overwritten", &beside)] {
        let slope = curve.line().0 / writers.line().0;
        rows.push(linear(name, curve));
        rows.push(
            outcome(format!("{name}, slope / DWOM's"), "below 1", slope, "x").within(0.0, 0.99),
        );
    }
    Ok(rows)
}

pub(super) fn mostly_readers(seed: u64) -> Result<Vec<Row>> {
    let (mut rows, pnova, beside) = mixed(1, seed)?;
    let falls = |what: String, share| outcome(what, "below 1", share, "x").within(0.0, 0.99);
    for cores in [2 * NODE, LAST] {
        for (name, curve) in [("pNOVA", &pnova), ("pNOVA, reads of what is overwritten", &beside)] {
            let share = curve.total(cores) / curve.total(NODE);
            rows.push(falls(format!("{name}, {cores} cores / 15"), share));
        }
        let reads = |cores| pnova.of(cores, |point| point.read);
        let what = format!("pNOVA, reads alone, {cores} cores / 15");
        rows.push(falls(what, reads(cores) / reads(NODE)));
    }
    Ok(rows)
}
