//! Why a state is rejected: the fewest changes that must be missing, the mistake by its name, and
//! what the program should have waited for.

use vfs::ops::Op;

use super::Promised;
use super::effects::{Effect, Effects, Id, What};
use super::least::{Least, Without};
use super::picture::picture;
use crate::Result;

/// A mistake that programs make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// A file got its name before its contents were durable.
    NoFsyncBeforeRename,
    /// A name was made or removed, and its directory not fsynced.
    DirectoryNotFsynced,
    /// Something was promised before it was fsynced.
    NoFsync,
    /// A file that is in use was changed where it is.
    OverwriteInPlace,
    /// What was appended counts although not all of it is there.
    AppendWithoutLength,
    /// Two files belong together, and a cut comes between them.
    MultiFileCommit,
    /// An fsync failed, and the program went on.
    FsyncErrorIgnored,
}

impl Pattern {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::NoFsyncBeforeRename,
        Self::DirectoryNotFsynced,
        Self::NoFsync,
        Self::OverwriteInPlace,
        Self::AppendWithoutLength,
        Self::MultiFileCommit,
        Self::FsyncErrorIgnored,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoFsyncBeforeRename => "no fsync before rename",
            Self::DirectoryNotFsynced => "directory not fsynced",
            Self::NoFsync => "no fsync",
            Self::OverwriteInPlace => "overwrite in place",
            Self::AppendWithoutLength => "append without length",
            Self::MultiFileCommit => "multi-file commit",
            Self::FsyncErrorIgnored => "fsync error ignored",
        }
    }
}

/// The reason for a rejection.
#[derive(Clone, Debug)]
pub struct Why {
    /// The mistake.
    pub pattern: Pattern,
    /// Steps that had returned at the earliest cut.
    pub steps: usize,
    /// The steps of which something is missing, from 0.
    pub missing: Vec<usize>,
    /// What was missing, and what to do, a sentence each.
    pub words: Vec<String>,
    /// The order of the program and of the drive, a step a line.
    pub picture: Vec<String>,
}

impl Why {
    /// Of a run whose fsyncs fail, each after so many `steps`: names that mistake if the program
    /// went on after an fsync that came later than what is missing, or ended with success after
    /// all.
    pub(super) fn blame_failed(&mut self, failed: &[(usize, String)], steps: &[Op], exited: bool) {
        let first = self.missing.first().copied().unwrap_or(0);
        let next = |after: usize| (after..self.steps.min(steps.len())).find(|&n| is_act(&steps[n]));
        let mut went_on = failed.iter().filter(|(after, _)| *after > first);
        let found = went_on.find_map(|(after, path)| Some((*after, path, Some(next(*after)?))));
        let ended = || failed.first().filter(|_| exited).map(|(after, path)| (*after, path, None));
        let Some((after, path, next)) = found.or_else(ended) else { return };
        self.pattern = Pattern::FsyncErrorIgnored;
        let then = match next {
            Some(n) => format!("the program went on with step {} ({})", n + 1, shown(&steps[n])),
            None => "the program went on, and exited with 0".into(),
        };
        self.words = vec![
            format!("the fsync of {path} after step {after} failed with EIO"),
            then,
            advice(self.pattern, path, "").into_owned(),
        ];
    }
}

/// Asks the checker whether it accepts a state, with these promises.
type Accepts<'a> = dyn FnMut(&Without, &Promised) -> Result<bool> + 'a;

/// Shortens the list of what is missing in a rejected state as far as the checker rejects it, and
/// names the mistake.
pub(super) fn why(
    least: &Least<'_>,
    state: &Without,
    promised: &Promised,
    accepts: &mut Accepts<'_>,
) -> Result<Why> {
    let effects = &least.effects;
    let mut state = shortened(state.clone(), promised, accepts)?;
    if state.missing.iter().all(|&n| is_name(&effects.effects[n])) && !state.missing.is_empty() {
        // A name alone may be lost, but so may contents: these are the greater mistake.
        let mut contents = least.open(state.steps);
        contents.retain(|&n| !is_name(&effects.effects[n]));
        let other = Without { steps: state.steps, missing: contents };
        if !other.missing.is_empty() && !accepts(&other, promised)? {
            state = shortened(other, promised, accepts)?;
        }
    }
    let of_promise = accepts(&state, &Promised::default())?;
    let is_torn = match contents(effects, &state) {
        Some(first) => {
            let mut all = least.open(state.steps);
            all.retain(|&n| effects.effects[n].of == first.of && !is_name(&effects.effects[n]));
            accepts(&Without { steps: state.steps, missing: all }, promised)?
        }
        None => false,
    };
    let pattern = name(effects, &state, of_promise, is_torn);
    let mut steps: Vec<usize> = state.missing.iter().map(|&n| effects.effects[n].step).collect();
    steps.dedup();
    let words = words(effects, &state, pattern);
    let picture = picture(least, &state);
    Ok(Why { pattern, steps: state.steps, missing: steps, words, picture })
}

/// The fewest changes of these that must be missing for the checker to reject the state.
fn shortened(state: Without, promised: &Promised, accepts: &mut Accepts<'_>) -> Result<Without> {
    let mut failed = None;
    let missing = vfs::ops::shrink(&state.missing, |fewer| {
        let fewer = Without { steps: state.steps, missing: fewer.to_vec() };
        match accepts(&fewer, promised) {
            Ok(accepted) => !accepted,
            Err(error) => {
                failed.get_or_insert(error);
                false
            }
        }
    });
    match failed {
        Some(error) => Err(error),
        None => Ok(Without { missing, ..state }),
    }
}

/// What is there although it came later than `first`, or with it.
fn kept<'a>(
    effects: &'a Effects,
    state: &'a Without,
    first: &'a Effect,
) -> impl Iterator<Item = &'a Effect> {
    let done = effects.effects.iter().enumerate();
    let done = done.filter(|(n, _)| !state.missing.contains(n)).map(|(_, effect)| effect);
    done.filter(|effect| effect.step >= first.step && effect.step < state.steps)
}

const fn is_name(effect: &Effect) -> bool {
    matches!(effect.what, What::Names { .. })
}

/// Whether this gives inode `id` another name.
fn names(effect: &Effect, id: Id) -> bool {
    matches!(&effect.what, What::Names { come: Some((_, named)), .. } if *named == id)
}

/// The first change of contents that is missing.
fn contents<'a>(effects: &'a Effects, state: &Without) -> Option<&'a Effect> {
    state.missing.iter().map(|&n| &effects.effects[n]).find(|effect| !is_name(effect))
}

/// `of_promise`: without promises the checker accepts the state. `is_torn`: it accepts it if all
/// that is not durable of the file is missing.
fn name(effects: &Effects, state: &Without, of_promise: bool, is_torn: bool) -> Pattern {
    if state.missing.is_empty() {
        return if of_promise { Pattern::NoFsync } else { cut_between(effects, state) };
    }
    let Some(first) = contents(effects, state) else { return Pattern::DirectoryNotFsynced };
    let mut later = kept(effects, state, first).filter(|effect| effect.step > first.step);
    if later.any(|effect| names(effect, first.of)) {
        return Pattern::NoFsyncBeforeRename;
    }
    if of_promise {
        return Pattern::NoFsync;
    }
    let other = kept(effects, state, first).any(|effect| effect.of != first.of);
    match (is_torn, other) {
        (true, _) => in_one_file(effects, state),
        (false, true) => Pattern::MultiFileCommit,
        (false, false) => Pattern::NoFsync,
    }
}

/// Everything is there that was done by the cut, and more should have come with it.
fn cut_between(effects: &Effects, state: &Without) -> Pattern {
    let (done, later): (Vec<&Effect>, Vec<&Effect>) =
        effects.effects.iter().partition(|effect| effect.step < state.steps);
    let last = done.last();
    let begins = later.first().filter(|next| !is_name(next));
    match last {
        Some(last) if !is_name(last) => in_place_or_at_end(effects, last),
        // The only file is found before it is written.
        Some(last)
            if begins.is_some_and(|next| names(last, next.of))
                && done.iter().all(|effect| is_name(effect)) =>
        {
            Pattern::OverwriteInPlace
        }
        _ => Pattern::MultiFileCommit,
    }
}

/// Some of a file's changes are there and others are not.
fn in_one_file(effects: &Effects, state: &Without) -> Pattern {
    let missing = state.missing.iter().map(|&n| &effects.effects[n]);
    let in_place = |effect: &Effect| {
        !is_name(effect) && in_place_or_at_end(effects, effect) == Pattern::OverwriteInPlace
    };
    match missing.clone().any(in_place) {
        true => Pattern::OverwriteInPlace,
        false => Pattern::AppendWithoutLength,
    }
}

/// Whether a change of contents is within what the file had before that step.
fn in_place_or_at_end(effects: &Effects, change: &Effect) -> Pattern {
    let earlier = effects.effects.iter().take_while(|effect| effect.step < change.step);
    let of = |effect: &&Effect| effect.of == change.of;
    let mut size = 0;
    for effect in effects.before.iter().chain(earlier).filter(of) {
        match effect.what {
            What::Size { to, exact: true } => size = to,
            What::Size { to, exact: false } => size = size.max(to),
            _ => {}
        }
    }
    let within = match change.what {
        What::Bytes { at, .. } => at < size,
        What::Size { exact, .. } => exact,
        _ => true,
    };
    // A new file is written under the name by which it is found.
    let is_new = size == 0 && !effects.before.iter().any(|effect| names(effect, change.of));
    if within || is_new { Pattern::OverwriteInPlace } else { Pattern::AppendWithoutLength }
}

/// A step as people read it.
fn step(effects: &Effects, number: usize) -> String {
    let op = effects.steps.get(number).map_or_else(String::new, shown);
    format!("step {} ({op})", number + 1)
}

/// Whether it changes anything.
const fn is_act(op: &Op) -> bool {
    !matches!(op, Op::Open { .. } | Op::Close { .. })
}

/// An operation, without details that only matter for replay.
pub fn shown(op: &Op) -> String {
    let words = match op {
        Op::Write { .. } | Op::SetXattr { .. } | Op::Rename { .. } => 3,
        _ => usize::MAX,
    };
    op.to_string().split(' ').take(words).collect::<Vec<_>>().join(" ")
}

fn path(effects: &Effects, id: Id) -> &str {
    effects.inodes.get(id).map_or("?", |inode| inode.name.as_str())
}

fn words(effects: &Effects, state: &Without, pattern: Pattern) -> Vec<String> {
    let missing: Vec<&Effect> = state.missing.iter().map(|&n| &effects.effects[n]).collect();
    let last = state.steps.checked_sub(1).map_or_else(
        || "the cut comes before the first step".to_owned(),
        |last| format!("the cut comes after {}", step(effects, last)),
    );
    let mut words = vec![last];
    let data = missing.iter().find(|effect| !is_name(effect)).or(missing.first());
    let Some(data) = data else {
        words.push("everything done by then is there".into());
        let later = effects.effects.iter().find(|effect| effect.step >= state.steps);
        if let (Pattern::NoFsync, Some(later)) = (pattern, later) {
            let (step, path) = (step(effects, later.step), path(effects, later.of));
            words.push(format!("what is promised comes only later: next is {step}"));
            words.push(format!("fsync {path}, or msync its mapping, before anything is promised"));
            return words;
        }
        words.push(advice(pattern, "the file", "").into_owned());
        return words;
    };
    let what = match &data.what {
        What::Names { .. } => "the names that it changes",
        What::Size { .. } => "the size that it gives the file",
        What::Bytes { .. } => "bytes that it writes",
        What::Perm(_) => "the permissions that it sets",
    };
    words.push(format!("of {}, {what} did not reach the drive", step(effects, data.step)));
    let later = |effect: &&Effect| effect.step > data.step;
    let of_it = |effect: &&Effect| names(effect, data.of);
    let rename = kept(effects, state, data).filter(later).find(of_it);
    let other = rename.or_else(|| kept(effects, state, data).filter(later).last());
    if let Some(other) = other {
        words.push(format!("{} did", step(effects, other.step)));
    }
    let before = other.map_or_else(String::new, |other| step(effects, other.step));
    words.push(advice(pattern, path(effects, data.of), &before).into_owned());
    words
}

/// What to do.
fn advice<'a>(pattern: Pattern, file: &str, before: &str) -> std::borrow::Cow<'a, str> {
    match pattern {
        Pattern::NoFsyncBeforeRename => format!("fsync {file} before {before}").into(),
        Pattern::DirectoryNotFsynced => {
            let then = if before.is_empty() { "anything is promised" } else { before };
            format!("fsync the directory {file} before {then}").into()
        }
        Pattern::NoFsync => format!("fsync {file} before anything is promised").into(),
        Pattern::OverwriteInPlace => "write a new file, fsync it, rename it over the old one and \
             fsync the directory; or keep a journal of what is overwritten"
            .into(),
        Pattern::AppendWithoutLength => "give each record its length and a checksum, and ignore \
             an end that does not fit them"
            .into(),
        Pattern::MultiFileCommit if !before.is_empty() => {
            format!("fsync {file} before {before}").into()
        }
        Pattern::MultiFileCommit => "nothing joins the files: let one of them, renamed or fsynced \
             last, decide whether the others count"
            .into(),
        Pattern::FsyncErrorIgnored => "stop when an fsync fails: what it covered may be lost, and \
             a second fsync need not say so"
            .into(),
    }
}
