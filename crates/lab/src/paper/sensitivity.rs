//! How far a result rests on estimates: an experiment again with each estimated cost of its machine
//! halved and half as much again, and which of its figures change places.

use std::cell::RefCell;
use std::collections::BTreeMap;

use cores::Profile;
use serde::Serialize;

use crate::Result;

/// An estimate may be wrong by so many percent, up or down.
pub const PERCENT: [i32; 2] = [-50, 50];

/// Two figures that differ by less, as a share of the larger one, have no order.
const EQUAL: f64 = 0.01;

thread_local! {
    /// The machine that experiments of this thread run on in place of the one of its name.
    static VARIED: RefCell<Option<(String, Profile)>> = const { RefCell::new(None) };
    /// The machines that this thread has asked for.
    static ASKED: RefCell<BTreeMap<String, Profile>> = const { RefCell::new(BTreeMap::new()) };
}

/// The profile to be used in place of the one called `name`, if there is one.
pub(crate) fn varied(name: &str) -> Option<Profile> {
    VARIED.with_borrow(|varied| varied.clone().filter(|(of, _)| of == name).map(|(_, to)| to))
}

/// Notes that an experiment runs on the machine called `name`.
pub(crate) fn note(name: &str, profile: &Profile) {
    ASKED.with_borrow_mut(|asked| asked.insert(name.to_owned(), profile.clone()));
}

/// Runs `experiment` on `profile` wherever it asks for the machine called `name`.
pub(crate) fn on<T>(name: &str, profile: Profile, experiment: impl FnOnce() -> T) -> T {
    struct Restore(Option<(String, Profile)>);
    impl Drop for Restore {
        fn drop(&mut self) {
            VARIED.set(self.0.take());
        }
    }
    let _restore = Restore(VARIED.replace(Some((name.to_owned(), profile))));
    experiment()
}

/// A figure. Only those of one unit have an order.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// What it is of.
    pub what: String,
    /// Its unit.
    pub unit: &'static str,
    /// Its value.
    pub value: f64,
}

/// Two figures that change places.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Turned {
    /// The estimate, by its path in the profile.
    pub cost: String,
    /// By how much it was changed.
    pub percent: i32,
    /// The figure that was the larger one, and no longer is.
    pub larger: String,
    /// The other.
    pub smaller: String,
}

/// What became of the order of an experiment's figures.
#[derive(Clone, Debug, Serialize)]
pub struct Sensitivity {
    /// The machines it runs on.
    pub machines: Vec<String>,
    /// The figures as they are.
    pub figures: Vec<Figure>,
    /// Estimates that change some figure.
    pub estimates: Vec<String>,
    /// Pairs of figures that have an order.
    pub orderings: usize,
    /// Those that do not survive.
    pub turned: Vec<Turned>,
}

/// Runs `experiment` with each estimate of each of its machines changed.
///
/// # Errors
///
/// Those of the experiment.
pub fn sensitivity(experiment: &mut dyn FnMut() -> Result<Vec<Figure>>) -> Result<Sensitivity> {
    ASKED.take();
    let figures = experiment()?;
    let pairs = orderings(&figures);
    let (mut machines, mut estimates, mut turned) = (Vec::new(), Vec::new(), Vec::new());
    for (name, profile) in ASKED.take() {
        for path in Profile::paths().filter(|path| profile.is_estimate(path)) {
            let mut matters = false;
            for (percent, varied) in variations(&profile, &path) {
                let now = on(&name, varied, &mut *experiment)?;
                matters |= now != figures;
                let turns = |&&(l, s): &&(usize, usize)| match (now.get(l), now.get(s)) {
                    (Some(larger), Some(smaller)) => larger.value <= smaller.value,
                    _ => true,
                };
                for &(larger, smaller) in pairs.iter().filter(turns) {
                    let what = |at: usize| figures[at].what.clone();
                    let (cost, larger, smaller) = (path.clone(), what(larger), what(smaller));
                    turned.push(Turned { cost, percent, larger, smaller });
                }
            }
            if matters {
                estimates.push(path);
            }
        }
        machines.push(name);
    }
    Ok(Sensitivity { machines, figures, estimates, orderings: pairs.len(), turned })
}

/// The machine with the number at `path` changed.
fn variations(profile: &Profile, path: &str) -> Vec<(i32, Profile)> {
    let number = profile.number(path).unwrap_or(0);
    let changed = PERCENT.iter().filter_map(|&percent| {
        let changed = number * u64::from((100 + percent).unsigned_abs()) / 100;
        Some((percent, profile.with(path, changed, "varied")?))
    });
    changed.collect()
}

/// Pairs of figures of which the first is clearly larger.
fn orderings(figures: &[Figure]) -> Vec<(usize, usize)> {
    let value = |at: usize| figures[at].value;
    let all = (0..figures.len()).flat_map(|a| (0..figures.len()).map(move |b| (a, b)));
    let comparable = all.filter(|&(a, b)| figures[a].unit == figures[b].unit);
    comparable.filter(|&(a, b)| value(a) - value(b) > EQUAL * value(a).abs()).collect()
}

impl Sensitivity {
    /// For people.
    pub fn text(&self) -> String {
        let Self { machines, estimates, orderings, turned, .. } = self;
        let machine = machines.join(" and ");
        let mut pairs: Vec<_> = turned.iter().map(|t| (&t.larger, &t.smaller)).collect();
        pairs.sort_unstable();
        pairs.dedup();
        let mut text = format!(
            "sensitivity: {} estimates of {machine} change figures, each tried at -50% and +50%; \
             {} of {orderings} orderings survive\n",
            estimates.len(),
            orderings - pairs.len()
        );
        for Turned { cost, percent, larger, smaller } in turned {
            text +=
                &format!("  not a result: {larger} > {smaller} (turns with {cost} {percent:+}%)\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use cores::{Machine, Stage};

    use super::*;
    use crate::profile_named;

    const MACHINE: &str = "uniform-1";

    /// Costs of two stages, one of them twice the other's.
    fn figures() -> Result<Vec<Figure>> {
        let profile = profile_named(MACHINE)?;
        let time = |stages: &'static [Stage]| {
            let run = || {
                stages.iter().for_each(|&stage| drop(cores::span(stage)));
                cores::now() as f64
            };
            Machine::simulated(&profile, 1).run(run)
        };
        let figure = |what: &str, unit, value| Figure { what: what.to_owned(), unit, value };
        Ok(vec![
            figure("one", "ns", time(&[Stage::DirEntry])?),
            figure("nearly two", "ns", time(&[Stage::MapBlock, Stage::RecoverCheck])?),
            figure("three", "ns", time(&[Stage::Gc, Stage::Gc, Stage::Gc])?),
            figure("of another kind", "", 1050.0),
        ])
    }

    #[test]
    fn an_order_that_rests_on_an_estimate_is_named() {
        let mut estimates = profile_named(MACHINE).unwrap();
        for path in ["cost.fs.dir_entry", "cost.fs.gc"] {
            let number = estimates.number(path).unwrap();
            estimates = estimates.with(path, number, "estimate").unwrap();
        }
        let found = on(MACHINE, estimates, || sensitivity(&mut figures)).unwrap();
        assert_eq!(found.estimates, ["cost.fs.dir_entry", "cost.fs.gc"]);
        assert_eq!(found.orderings, 3);
        let turned = |cost: &str, percent, larger: &str, smaller: &str| Turned {
            cost: cost.to_owned(),
            percent,
            larger: larger.to_owned(),
            smaller: smaller.to_owned(),
        };
        assert_eq!(found.turned, [turned("cost.fs.dir_entry", 50, "nearly two", "one")]);
        assert!(found.text().contains("2 of 3 orderings survive"), "{}", found.text());
        assert_eq!(profile_named(MACHINE).unwrap().number("cost.fs.gc"), Some(1000));
    }
}
