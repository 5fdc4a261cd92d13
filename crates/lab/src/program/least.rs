//! The least that POSIX promises: an fsync makes durable what was done to its file, or the names
//! in its directory, and nothing else orders anything. Whatever no fsync covers may be there after
//! a cut or not, change by change, in any combination.
//!
//! No file system is so unkind in everything, but each kind of loss is some file system's. A
//! program that survives here survives on all of them.

use std::collections::{BTreeMap, BTreeSet};
use vfs::FileKind;

use super::effects::{Effect, Effects, Id, Name, What};
use super::tree::{Entry, PAGE, Page, Tree};
use crate::Result;
use crate::record::Run;
use crate::workload::Rng;

/// The stream of random numbers that draws combinations.
const DRAWS: u64 = 12;

/// With fewer changes open than this, all combinations are looked at; the more are wanted, the more
/// may be open, up to a number.
const LISTED: usize = 6;
const LISTED_MAX: usize = 13;

/// Combinations drawn after each step besides the regular ones, at most.
const DRAWN: usize = 32;

/// A run, and what may be lost of it.
pub(super) struct Least<'a> {
    run: &'a Run,
    pub(super) effects: Effects,
    /// What is there with the first `settled` effects, which are durable.
    before: Disk,
    settled: usize,
}

/// One state: after so many steps, with these changes missing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Without {
    pub(super) steps: usize,
    /// Numbers of effects.
    pub(super) missing: Vec<usize>,
}

impl<'a> Least<'a> {
    pub(super) fn new(run: &'a Run) -> Result<Self> {
        let effects = Effects::of(run)?;
        let mut before = Disk::default();
        effects.before.iter().for_each(|effect| before.apply(effect, run));
        Ok(Self { run, effects, before, settled: 0 })
    }

    /// Steps of the run.
    pub(super) fn steps(&self) -> usize {
        self.effects.steps.len()
    }

    /// From now on only states after `steps` steps or more are asked for.
    pub(super) fn advance(&mut self, steps: usize) {
        while let Some(effect) = self.effects.effects.get(self.settled)
            && effect.is_durable(steps)
        {
            self.before.apply(effect, self.run);
            self.settled += 1;
        }
    }

    /// The effects of the first `steps` steps, by number.
    fn done(&self, steps: usize) -> impl Iterator<Item = (usize, &Effect)> {
        let all = self.effects.effects.iter().enumerate().skip(self.settled);
        all.take_while(move |(_, effect)| effect.step < steps)
    }

    /// Those of them that no fsync has made durable by then.
    pub(super) fn open(&self, steps: usize) -> Vec<usize> {
        self.done(steps).filter(|(_, effect)| !effect.is_durable(steps)).map(|(n, _)| n).collect()
    }

    /// About `most` states after `steps` steps, and whether these are all. First everything is
    /// there. Then all combinations follow, or if there are too many: each change missing alone,
    /// each step's, each inode's, all since a step, all but one, and some drawn by `seed`.
    pub(super) fn states(&self, steps: usize, most: usize, seed: u64) -> (Vec<Without>, bool) {
        let open = self.open(steps);
        let mut states = vec![Vec::new()];
        let listed = (most.max(1).ilog2() as usize / 3).clamp(LISTED, LISTED_MAX);
        let is_whole = open.len() < listed && 1 << open.len() <= most;
        if is_whole {
            let sets = 1..1_u32 << open.len();
            let at = |set: u32, n: usize| set >> n & 1 == 1;
            let of = |set: u32| (0..open.len()).filter(|&n| at(set, n)).map(|n| open[n]).collect();
            states.extend(sets.map(of));
        } else {
            states.extend(self.regular(&open, most / 2));
            let mut rng = Rng::new(seed ^ steps as u64, DRAWS);
            let drawn = (0..DRAWN.min(most / 4))
                .map(|_| open.iter().copied().filter(|_| rng.below(2) == 0).collect());
            states.extend(drawn.collect::<Vec<_>>());
        }
        states.sort_by_key(Vec::len);
        states.dedup();
        let without = |missing| Without { steps, missing };
        (states.into_iter().map(without).collect(), is_whole)
    }

    /// About `most` sets of changes that are missing, the newest changes first.
    fn regular(&self, open: &[usize], most: usize) -> Vec<Vec<usize>> {
        let share = (most / 6).max(1);
        let some = |all: BTreeSet<usize>| -> Vec<usize> {
            let stride = all.len().div_ceil(share).max(1);
            all.into_iter().rev().step_by(stride).collect()
        };
        let but = |gone: &dyn Fn(usize) -> bool| -> Vec<usize> {
            open.iter().copied().filter(|&n| gone(n)).collect()
        };
        let effect = |n: usize| &self.effects.effects[n];
        let singles = some(open.iter().copied().collect());
        let mut sets: Vec<Vec<usize>> = singles.iter().map(|&one| vec![one]).collect();
        for step in some(open.iter().map(|&n| effect(n).step).collect()) {
            sets.push(but(&|n| effect(n).step == step));
            sets.push(but(&|n| effect(n).step >= step));
        }
        for id in some(open.iter().map(|&n| effect(n).of).collect()) {
            sets.push(but(&|n| effect(n).of == id));
            sets.push(but(&|n| effect(n).of != id));
        }
        sets.extend(singles.into_iter().map(|one| but(&|n| n != one)));
        sets
    }

    /// What is in the program's directory then.
    pub(super) fn tree(&self, state: &Without) -> Tree {
        let mut disk = self.before.clone();
        for (n, effect) in self.done(state.steps) {
            if state.missing.binary_search(&n).is_err() {
                disk.apply(effect, self.run);
            }
        }
        disk.tree(&self.effects)
    }
}

/// Names, contents and permissions.
#[derive(Clone, Default)]
struct Disk {
    names: BTreeMap<Name, Id>,
    files: BTreeMap<Id, FileOf>,
    perms: BTreeMap<Id, u16>,
}

#[derive(Clone, Default)]
struct FileOf {
    size: u64,
    pages: BTreeMap<u64, Page>,
}

impl Disk {
    fn apply(&mut self, effect: &Effect, run: &Run) {
        match &effect.what {
            What::Names { gone, come } => {
                if let Some(name) = gone {
                    self.names.remove(name);
                }
                if let Some((name, id)) = come {
                    self.names.insert(name.clone(), *id);
                }
            }
            What::Perm(perm) => drop(self.perms.insert(effect.of, *perm)),
            What::Size { to, exact } => {
                let file = self.files.entry(effect.of).or_default();
                if *exact {
                    file.cut(*to);
                }
                file.size = file.size.max(*to);
            }
            What::Bytes { at, len, from } => {
                let file = self.files.entry(effect.of).or_default();
                let bytes = from.map(|(seed, from)| &run.contents[&seed][from..from + len]);
                file.write(*at, *len, bytes);
            }
        }
    }

    fn tree(&self, effects: &Effects) -> Tree {
        let mut tree = Tree::default();
        let mut first: BTreeMap<Id, Vec<u8>> = BTreeMap::new();
        let mut ahead = vec![(0, Vec::new())];
        let mut entered = BTreeSet::from([0]);
        while let Some((dir, path)) = ahead.pop() {
            let names = self.names.range((dir, String::new())..(dir + 1, String::new()));
            for ((_, name), &id) in names {
                let mut path: Vec<u8> = path.clone();
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend(name.as_bytes());
                let inode = &effects.inodes[id];
                let perm = self.perms.get(&id).copied().unwrap_or(inode.perm);
                let entry = match inode.kind {
                    // A directory whose rename was half kept has one name all the same.
                    FileKind::Directory if !entered.insert(id) => continue,
                    FileKind::Directory => {
                        ahead.push((id, path.clone()));
                        Entry::Directory { perm }
                    }
                    FileKind::Symlink => Entry::Symlink(inode.target.clone()),
                    FileKind::Regular => match first.get(&id) {
                        Some(first) => Entry::Link(first.clone()),
                        None => {
                            first.insert(id, path.clone());
                            self.files.get(&id).cloned().unwrap_or_default().entry(perm)
                        }
                    },
                    _ => Entry::Special,
                };
                tree.0.insert(path, entry);
            }
        }
        tree
    }
}

impl FileOf {
    fn cut(&mut self, size: u64) {
        self.pages.retain(|&page, _| page * PAGE < size);
        if let Some(page) = self.pages.get_mut(&(size / PAGE)) {
            let mut bytes = page.to_vec();
            bytes.truncate((size % PAGE) as usize);
            *page = Page::new(bytes);
        }
        self.size = size;
    }

    /// Bytes within one page.
    fn write(&mut self, at: u64, len: usize, bytes: Option<&[u8]>) {
        let (page, offset) = (at / PAGE, (at % PAGE) as usize);
        let mut whole = self.pages.get(&page).map_or_else(Vec::new, |page| page.to_vec());
        whole.resize(whole.len().max(offset + len), 0);
        match bytes {
            Some(bytes) => whole[offset..offset + len].copy_from_slice(bytes),
            None => whole[offset..offset + len].fill(0),
        }
        self.pages.insert(page, Page::new(whole));
    }

    /// Bytes that came without the size that has room for them are not there.
    fn entry(mut self, perm: u16) -> Entry {
        self.cut(self.size);
        // As a volume shows it: whole pages but for the last, and none that is all zeros.
        let size = self.size;
        let whole = |(number, page): (u64, Page)| {
            let len = (size - number * PAGE).min(PAGE) as usize;
            let page = match page.len() == len {
                true => page,
                false => {
                    let mut bytes = page.to_vec();
                    bytes.resize(len, 0);
                    Page::new(bytes)
                }
            };
            (!page.is_zero()).then_some((number, page))
        };
        let pages = self.pages.into_iter().filter_map(whole).collect();
        Entry::File { perm, size, pages }
    }
}
