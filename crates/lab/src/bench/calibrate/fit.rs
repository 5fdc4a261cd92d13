//! Costs that make predicted times agree with measured ones.

use cores::{Profile, Stage};

use super::Load;
use crate::Result;

/// Rounds of the fit. Each brings the times closer together; the last ones change nothing.
const ROUNDS: usize = 10_000;

/// How much it counts against a cost that it is twice its start, where 1 is a load's time that is
/// wrong by all of it: what little a load says of a stage with a small share must not carry the
/// stage's cost away.
const STAY: f64 = 1e-4;

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

/// Chooses the costs of the stages so that the loads take the nanoseconds per operation that were
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
    let costs = self::fitted(&start, &models);
    let mut fitted = profile;
    for ((path, cost), (index, _)) in paths.iter().zip(&costs).zip(start.iter().enumerate()) {
        if models.iter().any(|model| model.passes[index] > 0.0) {
            let source = "fitted by `strandline bench calibrate` to FxMark's loads on this machine";
            fitted = fitted.with(path, cost.round() as u64, source).unwrap_or(fitted);
        }
    }
    Ok(fitted)
}

/// The costs, none below 0, with which the squares of the errors, as shares of what was measured,
/// add up to the least: each in turn is set to its best beside the others, again and again.
fn fitted(start: &[f64], models: &[Model]) -> Vec<f64> {
    let mut costs = start.to_vec();
    for _ in 0..ROUNDS {
        for index in (0..costs.len()).filter(|&index| start[index] > 0.0) {
            // What pulls it to its start, and what to the times measured.
            let stay = STAY / (start[index] * start[index]);
            let (mut pull, mut weight) = (stay * start[index], stay);
            for model in models {
                let passes = model.passes[index];
                let others = model.time(&costs) - passes * costs[index];
                let square = model.measured * model.measured;
                pull += passes * (model.measured - others) / square;
                weight += passes * passes / square;
            }
            costs[index] = (pull / weight).max(0.0);
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
        let found = fitted(&[200.0, 200.0, 200.0], &models);
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
