//! A tree that grows, changes and shrinks: files are made, replaced by renaming a new one over
//! them, and removed, with fsyncs of files and directories. After a cut every path is as the last
//! fsync that covered it left it, or as a later operation did.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use super::{Kept, Load, anchored};

const DIRS: u32 = 5;
const NAMES: u32 = 25;

/// What is at a path.
#[derive(PartialEq)]
enum State {
    Nothing,
    Contents(Vec<u8>),
    /// A file that was never fsynced, of any contents, or nothing.
    Unsettled,
}

/// For each path below the load's directory the states it may be in; the last is the newest.
pub(crate) struct Log {
    paths: BTreeMap<PathBuf, Vec<State>>,
    fsyncs: u64,
}

/// Works in `dir` until that fails.
pub(crate) fn work(dir: &Path, seed: u64, kept: &Kept) -> Log {
    work_for(dir, seed, u64::MAX, kept)
}

/// Works in `dir` for so many steps, or until that fails.
pub(crate) fn work_for(dir: &Path, seed: u64, steps: u64, kept: &Kept) -> Log {
    let mut log = Log { paths: BTreeMap::new(), fsyncs: 0 };
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let Ok((_anchor, dir)) = anchored(dir) else { return log };
    for _ in 0..steps {
        // The error is the cut.
        if log.step(&dir, &mut random).is_err() {
            break;
        }
        kept.one_more();
    }
    log
}

impl Log {
    fn step(&mut self, dir: &Path, random: &mut Xoshiro256PlusPlus) -> io::Result<()> {
        let parent = PathBuf::from(format!("d{}", random.random_range(0..DIRS)));
        let path = parent.join(format!("f{}", random.random_range(0..NAMES)));
        let full = dir.join(&path);
        fs::create_dir_all(dir.join(&parent))?;
        let mark = format!("{} {} ", path.display(), self.fsyncs).into_bytes();
        let len = random.random_range(1..30_000);
        let contents: Vec<u8> = mark.iter().copied().cycle().take(len).collect();
        let states = self.paths.entry(path).or_insert_with(|| vec![State::Nothing]);
        if states.last() == Some(&State::Nothing) {
            // The fsync of a file that is new makes its name durable with it.
            states.push(State::Unsettled);
            write_and_sync(&full, &contents)?;
            *states = vec![State::Contents(contents)];
            self.fsyncs += 1;
            return Ok(());
        }
        if random.random_bool(0.3) {
            states.push(State::Nothing);
            fs::remove_file(&full)?;
        } else {
            let new = full.with_extension("new");
            write_and_sync(&new, &contents)?;
            states.push(State::Contents(contents));
            fs::rename(&new, &full)?;
        }
        File::open(dir.join(&parent))?.sync_all()?;
        states.drain(..states.len() - 1);
        self.fsyncs += 1;
        Ok(())
    }
}

fn write_and_sync(path: &Path, contents: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(contents)?;
    file.sync_all()
}

impl State {
    fn is(&self, found: Option<&[u8]>) -> bool {
        match self {
            Self::Nothing => found.is_none(),
            Self::Contents(contents) => found == Some(contents),
            Self::Unsettled => true,
        }
    }

    fn words(&self) -> String {
        match self {
            Self::Nothing => "nothing".into(),
            Self::Contents(contents) => format!("{} bytes", contents.len()),
            Self::Unsettled => "anything".into(),
        }
    }
}

impl Load for Log {
    fn name(&self) -> &'static str {
        "a tree"
    }

    fn promises(&self) -> u64 {
        self.fsyncs
    }

    fn broken(&self, dir: &Path) -> Vec<String> {
        let mut broken = Vec::new();
        for (path, states) in &self.paths {
            let found = fs::read(dir.join(path)).ok();
            if !states.iter().any(|state| state.is(found.as_deref())) {
                let found =
                    found.map_or("nothing".into(), |bytes| format!("{} bytes", bytes.len()));
                let may: Vec<String> = states.iter().map(State::words).collect();
                broken.push(format!("{}: {found}, not {}", path.display(), may.join(" or ")));
            }
        }
        broken
    }
}
