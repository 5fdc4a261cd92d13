//! What is wrong with a run whatever its checker thinks: files and names that no fsync covers.

use std::collections::{BTreeMap, BTreeSet};

use super::effects::{Effect, Effects, Id, What};
use crate::Result;
use crate::record::Run;

/// Warnings of each kind that are listed; the others are counted.
const LISTED: usize = 5;

/// The warnings for a run, a sentence each; steps count from 1.
///
/// # Errors
///
/// The run makes no sense.
pub fn warnings(run: &Run) -> Result<Vec<String>> {
    let effects = Effects::of(run)?;
    let mut all = Vec::new();
    for mut kind in [renames(&effects), files(&effects), directories(&effects)] {
        let more = kind.len().saturating_sub(LISTED);
        kind.truncate(LISTED);
        all.append(&mut kind);
        if more > 0 {
            all.push(format!("and {more} more of these"));
        }
    }
    Ok(all)
}

const fn is_contents(effect: &Effect) -> bool {
    matches!(effect.what, What::Size { .. } | What::Bytes { .. })
}

/// Renames of files whose contents are not durable.
fn renames(effects: &Effects) -> Vec<String> {
    let mut found = Vec::new();
    for rename in &effects.effects {
        let What::Names { gone: Some(gone), come: Some((name, id)) } = &rename.what else {
            continue;
        };
        let mut of_file = effects.effects.iter().filter(|e| e.of == *id && e.step < rename.step);
        let open = of_file.find(|e| is_contents(e) && !e.is_durable(rename.step));
        if let Some(open) = open {
            found.push(format!(
                "step {} renames {} to {}, which step {} wrote and nothing fsynced before",
                rename.step + 1,
                gone.1,
                name.1,
                open.step + 1
            ));
        }
    }
    found
}

/// Files that have a name at the end and contents that no fsync covers.
fn files(effects: &Effects) -> Vec<String> {
    let named = named(effects);
    let mut met = BTreeSet::new();
    let mut found = Vec::new();
    for effect in effects.effects.iter().filter(|effect| is_contents(effect)) {
        let is_open = effect.durable.is_none();
        if let Some(name) = named.get(&effect.of).filter(|_| is_open)
            && met.insert(effect.of)
        {
            found.push(format!("{name} is written by step {} and not fsynced after", {
                effect.step + 1
            }));
        }
    }
    found
}

/// Directories with names that came or went and that no fsync covers.
fn directories(effects: &Effects) -> Vec<String> {
    let named = named(effects);
    let mut open: BTreeMap<Id, Vec<usize>> = BTreeMap::new();
    for effect in &effects.effects {
        let What::Names { gone, come } = &effect.what else { continue };
        // A name that was given to what is gone at the end, and names it had.
        let lasts = come.as_ref().is_none_or(|(_, id)| named.contains_key(id));
        let was_there = gone.as_ref().is_none_or(|name| {
            come.is_some()
                || effects.before.iter().any(|b| {
                    matches!(&b.what,
                What::Names { come: Some((old, _)), .. } if old == name)
                })
        });
        if lasts && was_there && effect.durable.is_none() {
            open.entry(effect.of).or_default().push(effect.step + 1);
        }
    }
    let told = |(id, steps): (Id, Vec<usize>)| {
        let name = effects.inodes.get(id).map_or("?", |inode| inode.name.as_str());
        let more = match steps.len() {
            1 => String::new(),
            all => format!(" and {} more", all - 1),
        };
        format!("directory {name}: step {}{more} changes its names, and nothing fsyncs it after", {
            steps[0]
        })
    };
    open.into_iter().map(told).collect()
}

/// The inodes that have a name at the end, and the name.
fn named(effects: &Effects) -> BTreeMap<Id, &str> {
    let mut names = BTreeMap::new();
    for effect in effects.before.iter().chain(&effects.effects) {
        if let What::Names { gone, come } = &effect.what {
            if let Some(gone) = gone {
                names.remove(gone);
            }
            if let Some((name, id)) = come {
                names.insert(name, *id);
            }
        }
    }
    names.into_iter().map(|(name, id)| (id, name.1.as_str())).collect()
}
