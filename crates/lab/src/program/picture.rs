//! A picture of the order: the program's steps, and which of them the drive had when the power
//! failed.

use super::effects::{Effect, What};
use super::least::{Least, Without};
use super::why::shown;
use vfs::ops::Op;

/// The most steps that are drawn. Those of which something is missing come first.
const DRAWN: usize = 16;
/// The width of a step's words.
const WIDTH: usize = 34;

/// A line for each step of interest before the cut of `state`.
pub(super) fn picture(least: &Least<'_>, state: &Without) -> Vec<String> {
    let lines: Vec<(usize, String, bool)> =
        (0..state.steps).filter_map(|step| line(least, state, step)).collect();
    let missing = lines.iter().filter(|(.., is_missing)| *is_missing).count();
    let mut room = DRAWN.saturating_sub(missing);
    // The newest steps are those nearest to the cut.
    let mut keeps: Vec<bool> = lines
        .iter()
        .rev()
        .map(|(.., is_missing)| {
            let keeps = *is_missing || room > 0;
            room -= usize::from(keeps && !*is_missing);
            keeps
        })
        .collect();
    keeps.reverse();
    let mut picture = vec![format!("{:6}{:WIDTH$}  program     drive", "", "")];
    let mut is_gap = false;
    for ((_, line, _), keeps) in lines.into_iter().zip(keeps) {
        if keeps {
            picture.push(line);
        } else if !is_gap {
            picture.push("       …".into());
        }
        is_gap = !keeps;
    }
    picture.push(format!("{:6}{:WIDTH$}  ---- the power fails ----", "", ""));
    picture
}

/// A step with what became of it, and whether anything of it is missing. `None` for steps that
/// leave nothing on a drive.
fn line(least: &Least<'_>, state: &Without, step: usize) -> Option<(usize, String, bool)> {
    let op = least.effects.steps.get(step)?;
    // They are in the order of their steps.
    let first = least.effects.effects.partition_point(|effect| effect.step < step);
    let all = least.effects.effects.iter().enumerate().skip(first);
    let (gone, there): (Vec<_>, Vec<_>) = all
        .take_while(|(_, effect)| effect.step == step)
        .partition(|(n, _)| state.missing.binary_search(n).is_ok());
    let is_sync = matches!(op, Op::Fsync { .. } | Op::Fdatasync { .. } | Op::Sync);
    if gone.is_empty() && there.is_empty() && !is_sync {
        return None;
    }
    let arrow = match (gone.is_empty(), there.is_empty()) {
        _ if is_sync => "|=========|  waits until it is durable".to_owned(),
        (true, _) => "|-------->|".to_owned(),
        (false, true) => format!("|--x      |  missing: {}", kinds(&gone)),
        (false, false) => format!("|--x----->|  missing of it: {}", kinds(&gone)),
    };
    let mut words = shown(op);
    if words.chars().count() > WIDTH {
        words = words.chars().take(WIDTH - 1).chain(['…']).collect();
    }
    Some((step, format!("  {:3} {words:WIDTH$}  {arrow}", step + 1), !gone.is_empty()))
}

/// What kinds of changes these are, each once.
fn kinds(effects: &[(usize, &Effect)]) -> String {
    let mut kinds = Vec::new();
    for (_, effect) in effects {
        let kind = match effect.what {
            What::Names { .. } => "names",
            What::Size { .. } => "size",
            What::Bytes { .. } => "bytes",
            What::Perm(_) => "permissions",
        };
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds.join(", ")
}
