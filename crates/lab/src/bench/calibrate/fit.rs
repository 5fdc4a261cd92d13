//! Costs that make predicted times agree with measured ones.

use cores::{Profile, Stage};

use super::Load;
use crate::Result;

/// Rounds of the fit. Each brings the times closer together; the last ones change nothing.
const ROUNDS: usize = 100;

/// A stage's cost goes no further from where it began than by this factor: what little a load says
/// of a stage with a small share must not carry it away.
const FURTHEST: f64 = 20.0;

/// By how much a stage's cost is changed to see how often a load passes through it.
const STEP_NS: u64 = 1000;

/// The most lines that a lock is thought to move.
const LINES_MAX: u64 = 32;

/// How a load's time depends on the stages: passes of each per operation, and what is not theirs.
struct Model {
    measured: f64,
    passes: Vec<f64>,
    rest: f64,
}

impl Model {
    fn time(&self, costs: &[f64]) -> f64 {
        self.rest + self.passes.iter().zip(costs).map(|(n, cost)| n * cost).sum::<f64>()
    }
}

/// Scales the costs of the stages until the loads take the nanoseconds per operation that were
/// measured. `time` predicts a load's.
pub(super) fn stages(
    profile: Profile,
    measured: &[(Load, f64)],
    time: &dyn Fn(&Profile, Load) -> Result<f64>,
) -> Result<Profile> {
    let paths: Vec<String> = Stage::ALL.iter().map(|s| format!("cost.{}", s.name())).collect();
    let start: Vec<f64> = Stage::ALL.iter().map(|&stage| profile.cost(stage) as f64).collect();
    let mut models = Vec::new();
    for &(load, measured) in measured {
        let before = time(&profile, load)?;
        let mut passes = Vec::new();
        for (path, cost) in paths.iter().zip(&start) {
            let dearer = profile.with(path, *cost as u64 + STEP_NS, "");
            let after = dearer.map_or(Ok(before), |profile| time(&profile, load))?;
            passes.push(((after - before) / STEP_NS as f64).max(0.0));
        }
        let theirs: f64 = passes.iter().zip(&start).map(|(n, cost)| n * cost).sum();
        models.push(Model { measured, passes, rest: (before - theirs).max(0.0) });
    }
    let costs = scaled(&start, &models);
    let mut fitted = profile;
    for ((path, cost), (index, _)) in paths.iter().zip(&costs).zip(start.iter().enumerate()) {
        if models.iter().any(|model| model.passes[index] > 0.0) {
            let source = "fitted by `strandline bench calibrate` to FxMark's loads on this machine";
            fitted = fitted.with(path, cost.round() as u64, source).unwrap_or(fitted);
        }
    }
    Ok(fitted)
}

/// Each cost times the ratio of measured to predicted time, as the mean over the loads by the share
/// that the stage has in them; again and again.
fn scaled(start: &[f64], models: &[Model]) -> Vec<f64> {
    let mut costs = start.to_vec();
    for _ in 0..ROUNDS {
        let before = costs.clone();
        for (index, cost) in costs.iter_mut().enumerate() {
            let (mut weights, mut logs) = (0.0, 0.0);
            for model in models {
                let time = model.time(&before).max(1.0);
                let share = model.passes[index] * before[index] / time;
                weights += share;
                logs += share * (model.measured / time).ln();
            }
            if weights > 0.0 {
                let furthest = start[index] / FURTHEST..=start[index] * FURTHEST;
                *cost = (before[index] * (logs / weights).exp())
                    .clamp(*furthest.start(), *furthest.end());
            }
        }
    }
    costs
}

/// Chooses how many lines a lock moves, so that the load of two cores takes the nanoseconds per
/// operation that were measured.
pub(super) fn lines(
    profile: Profile,
    measured: f64,
    time: &dyn Fn(&Profile) -> Result<f64>,
) -> Result<Profile> {
    let mut best: Option<(f64, Profile)> = None;
    for lines in 0..=LINES_MAX {
        let source = "fitted by `strandline bench calibrate` to a load of two cores";
        let Some(tried) = profile.with("lock.lines", lines, source) else { break };
        let off = (time(&tried)? / measured).ln().abs();
        if best.as_ref().is_none_or(|(least, _)| off < *least) {
            best = Some((off, tried));
        }
    }
    Ok(best.map_or(profile, |(_, best)| best))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fit_finds_the_costs_behind_the_times() {
        let truth = [100.0, 30.0, 900.0];
        let passes = [[1.0, 2.0, 0.0], [1.0, 0.0, 1.0], [3.0, 1.0, 0.0]];
        let models = passes.map(|passes| {
            let mut model = Model { measured: 0.0, passes: passes.into(), rest: 50.0 };
            model.measured = model.time(&truth);
            model
        });
        let found = scaled(&[200.0, 200.0, 200.0], &models);
        for model in &models {
            assert!((model.time(&found) / model.measured - 1.0).abs() < 0.02, "{found:?}");
        }
        for (found, truth) in found.iter().zip(truth) {
            assert!((found / truth - 1.0).abs() < 0.25, "{found} {truth}");
        }
    }

    #[test]
    fn the_lines_that_fit_best_are_chosen() {
        let profile = Profile::named("xeon-4116").unwrap();
        let time = |profile: &Profile| Ok(1000.0 + 42.0 * profile.lock_lines() as f64);
        let fitted = lines(profile, 1000.0 + 42.0 * 7.0, &time).unwrap();
        assert_eq!(fitted.lock_lines(), 7);
    }
}
