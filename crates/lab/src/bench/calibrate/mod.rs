//! `bench calibrate`: a profile of the machine this process runs on, and whether it predicts loads
//! that it was not made from.
//!
//! Lines, memory and wake-ups are measured by themselves. What the stages cost is fitted: some of
//! FxMark's loads run on one real core and on one virtual core, and the costs are those with which
//! the times differ least. How many lines a lock moves is fitted to one load of two cores. Other
//! loads then run on both machines.

mod fit;
mod probe;

use cores::{Machine, Profile, core_count};
use serde::Serialize;

use super::fxmark::{Job, Load, Place};
use crate::paper::sensitivity::on;
use crate::report::columns;
use crate::{Error, Result};

/// Costs before the fit.
const BASE: &str = "xeon-4116";

/// Name of the fitted profile.
pub const NAME: &str = "here";

/// Runs of a load on the real machine; the one in the middle counts.
const TURNS: usize = 3;

/// Loads that the profile is made from, on one core.
const FITTED: [Load; 5] = [Load::Drbl, Load::Dwol, Load::Dwsl, Load::Mrpl, Load::Mwcl];

/// The load of two cores that it is made from.
const FITTED_ON_TWO: Load = Load::Dwom;

/// Loads that it has to predict, on one core and on two.
const HELD_OUT: [Load; 9] = [
    Load::Drbm,
    Load::Drbh,
    Load::Dwol,
    Load::Dwal,
    Load::Mrdl,
    Load::Mrpm,
    Load::Mwul,
    Load::Mwrl,
    Load::Mwcm,
];

/// How often [`Setting::run`], and [`Setting::check`] too if it follows, call their `step`.
pub fn steps(check: bool) -> u64 {
    let two = u64::from(core_count() > 1);
    let held_out = held_out().count() as u64;
    2 + FITTED.len() as u64 + two + if check { held_out } else { 0 }
}

/// The loads to predict, each with its number of cores.
fn held_out() -> impl Iterator<Item = (Load, u64)> {
    let cores = [1, 2].into_iter().filter(|&cores| cores <= core_count() as u64);
    let all = cores.flat_map(|cores| HELD_OUT.map(|load| (load, cores)));
    all.filter(|(load, cores)| *cores == 2 || !FITTED.contains(load))
}

/// A prediction may be wrong by this share.
pub const TOLERANCE: f64 = 0.25;

/// What to run the loads on.
pub struct Setting {
    /// Where the files are: a fresh volume in this process.
    pub place: Place,
    /// Seed of contents and choices.
    pub seed: u64,
}

/// A load on both machines.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// FxMark's name of it.
    pub load: &'static str,
    /// Cores that took part.
    pub cores: u64,
    /// Whether the profile was made from it.
    pub fitted: bool,
    /// Operations per second, measured.
    pub real_per_s: f64,
    /// Operations per second on the virtual machine.
    pub virtual_per_s: f64,
    /// The latter over the former.
    pub ratio: f64,
}

/// A fitted profile.
pub struct Calibrated {
    /// The profile.
    pub profile: Profile,
    /// The loads that it was made from.
    pub fitted: Vec<Compared>,
}

impl Setting {
    /// Operations per second of `load` on so many real cores.
    fn real(&self, load: Load, cores: u64) -> Result<f64> {
        let mut turns =
            (0..TURNS).map(|_| self.per_s(load, cores, "real")).collect::<Result<Vec<f64>>>()?;
        turns.sort_by(f64::total_cmp);
        Ok(turns[TURNS / 2])
    }

    /// Operations per second of `load` on so many cores of `profile`.
    fn predicted(&self, profile: &Profile, load: Load, cores: u64) -> Result<f64> {
        on(NAME, profile.clone(), || self.per_s(load, cores, NAME))
    }

    fn per_s(&self, load: Load, cores: u64, machine: &str) -> Result<f64> {
        let (place, machine, cores) = (self.place.clone(), machine.to_owned(), vec![cores]);
        let (seed, ops) = (self.seed, None);
        let direct = false;
        let job = Job { load, place, machine, cores, ops, direct, seed, profile_locks: false };
        let curve = job.run(&mut || ())?;
        let point = curve.points.first().ok_or_else(|| Error::Usage("no cores".into()))?;
        Ok(point.works_per_s)
    }

    fn compared(&self, profile: &Profile, load: Load, cores: u64, real: f64) -> Result<Compared> {
        let predicted = self.predicted(profile, load, cores)?;
        Ok(Compared {
            load: load.name(),
            cores,
            fitted: cores == 1 && FITTED.contains(&load) || cores == 2 && load == FITTED_ON_TWO,
            real_per_s: real,
            virtual_per_s: predicted,
            ratio: predicted / real,
        })
    }

    /// Makes a profile of this machine. Calls `step` with what it does.
    ///
    /// # Errors
    ///
    /// Those of the loads.
    pub fn run(&self, step: &mut dyn FnMut(&str)) -> Result<Calibrated> {
        let about =
            format!("This machine, {} cores, by 'strandline bench calibrate'.", core_count());
        let base = Profile::named(BASE).map_err(|e| Error::Usage(e.to_string()))?;
        let mut profile = base.shaped(NAME, &about, 1, core_count());
        step("lines, memory, wake-ups");
        for (path, number) in Machine::real().run(probe::probe)?? {
            let source = "measured by `strandline bench calibrate`";
            profile = profile.with(path, number, source).unwrap_or(profile);
        }
        let mut real = Vec::new();
        for load in FITTED {
            step(load.name());
            real.push((load, self.real(load, 1)?));
        }
        step("fit");
        let times: Vec<(Load, f64)> = real.iter().map(|(load, rate)| (*load, 1e9 / rate)).collect();
        let time = |profile: &Profile, load| Ok(1e9 / self.predicted(profile, load, 1)?);
        profile = fit::stages(profile, &times, &time)?;
        let mut fitted = Vec::new();
        for (load, rate) in real {
            fitted.push(self.compared(&profile, load, 1, rate)?);
        }
        if core_count() > 1 {
            step(FITTED_ON_TWO.name());
            let rate = self.real(FITTED_ON_TWO, 2)?;
            let time = |profile: &Profile| Ok(1e9 / self.predicted(profile, FITTED_ON_TWO, 2)?);
            profile = fit::lines(profile, 1e9 / rate, &time)?;
            fitted.push(self.compared(&profile, FITTED_ON_TWO, 2, rate)?);
        }
        Ok(Calibrated { profile, fitted })
    }

    /// Runs loads that `profile` was not made from on both machines. Calls `step` before each.
    ///
    /// # Errors
    ///
    /// Those of the loads.
    pub fn check(&self, profile: &Profile, step: &mut dyn FnMut(&str)) -> Result<Vec<Compared>> {
        let mut all = Vec::new();
        for (load, cores) in held_out() {
            step(load.name());
            let rate = self.real(load, cores)?;
            all.push(self.compared(profile, load, cores, rate)?);
        }
        Ok(all)
    }
}

/// Loads on both machines side by side.
pub fn table(compared: &[Compared]) -> String {
    let row = |of: &Compared| {
        let per_s = |rate: f64| format!("{rate:.0}");
        let said = match (of.fitted, (of.ratio.max(1.0 / of.ratio)) <= 1.0 + TOLERANCE) {
            (true, _) => "fitted",
            (false, true) => "held out: within 25%",
            (false, false) => "held out: NOT within 25%",
        };
        let (load, cores) = (of.load.to_owned(), of.cores.to_string());
        let (real, predicted) = (per_s(of.real_per_s), per_s(of.virtual_per_s));
        vec![load, cores, real, predicted, format!("{:.2}", of.ratio), said.to_owned()]
    };
    let head = ["load", "cores", "real /s", "virtual /s", "ratio", ""];
    columns(&head, compared.iter().map(row).collect(), 1)
}
