//! Several threads on one volume, each with a script of its own, drawn from the seed.
//!
//! `threads:N` or `threads:N:MIX`, as `threads:8:names`. On a virtual machine each runs on a core
//! of its own and in the order of virtual time, so a run is a function of the seed. The volume's
//! own threads, the flusher and the cleaner, run concurrently.

mod script;
mod table;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::Workload;
use super::content::Rng;
use crate::workload::recorder::{Node, Recorder};
use crate::{Error, Result};

use script::{Action, Script};
use table::Table;

/// Most threads: the cores of the machine that campaigns run on.
const THREADS_MAX: usize = 12;

/// Blocks of a zone of the smallest drive: at most how far the logs are advanced before a run, so
/// that each run meets the end of a zone somewhere else.
const ZONE: u64 = 512;

/// What the threads do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mix {
    /// Each in files of its own.
    Private,
    /// All in the same few files.
    Shared,
    /// Files come, go and move in a few directories.
    Names,
    /// Private files, with preallocation, holes and `O_DIRECT`.
    Ranges,
    /// Private files, on a volume that is filled and cleaned, with a small cache.
    Cleaning,
    /// All of it, with a small cache.
    All,
}

impl Mix {
    const ALL: [Self; 6] =
        [Self::Private, Self::Shared, Self::Names, Self::Ranges, Self::Cleaning, Self::All];

    const fn name(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Shared => "shared",
            Self::Names => "names",
            Self::Ranges => "ranges",
            Self::Cleaning => "cleaning",
            Self::All => "all",
        }
    }

    /// How often each action comes.
    const fn weights(self) -> &'static [(Action, u64)] {
        match self {
            Self::Private => &[
                (Action::Overwrite, 4),
                (Action::Append, 3),
                (Action::Own, 2),
                (Action::OwnAttributes, 1),
            ],
            Self::Shared => &[(Action::Shared, 6), (Action::Cut, 2), (Action::Attributes, 1)],
            Self::Names => &[
                (Action::Make, 3),
                (Action::Move, 3),
                (Action::MoveIntoNew, 2),
                (Action::Again, 3),
                (Action::Any, 4),
                (Action::Stray, 1),
                (Action::Replace, 2),
                (Action::Directory, 1),
                (Action::Device, 1),
            ],
            Self::Ranges => &[
                (Action::Ranges, 5),
                (Action::Direct, 3),
                (Action::Overwrite, 2),
                (Action::Append, 2),
                (Action::Own, 1),
                (Action::OwnAttributes, 3),
            ],
            Self::Cleaning => &[
                (Action::Overwrite, 4),
                (Action::Filling, 6),
                (Action::Burst, 1),
                (Action::Clean, 1),
            ],
            Self::All => &[
                (Action::Overwrite, 2),
                (Action::Append, 2),
                (Action::Own, 1),
                (Action::OwnAttributes, 1),
                (Action::Shared, 3),
                (Action::Cut, 1),
                (Action::Attributes, 1),
                (Action::Make, 1),
                (Action::Move, 1),
                (Action::MoveIntoNew, 1),
                (Action::Again, 1),
                (Action::Any, 2),
                (Action::Stray, 1),
                (Action::Replace, 1),
                (Action::Directory, 1),
                (Action::Burst, 1),
                (Action::Clean, 1),
                (Action::Sync, 1),
            ],
        }
    }

    /// Whether more is written than the cache holds.
    const fn evicts(self) -> bool {
        matches!(self, Self::Cleaning | Self::All)
    }
}

/// See the module's header.
#[derive(Clone, Debug)]
pub struct Threads {
    count: usize,
    mix: Mix,
    name: String,
}

impl Threads {
    /// What may stand behind `threads:N:`.
    pub fn mixes() -> [&'static str; Mix::ALL.len()] {
        Mix::ALL.map(Mix::name)
    }
}

impl FromStr for Threads {
    type Err = Error;

    /// What stands behind `threads:`.
    fn from_str(text: &str) -> Result<Self> {
        let (count, mix) = text.split_once(':').unwrap_or((text, "all"));
        let count = count.parse().ok().filter(|count| (1..=THREADS_MAX).contains(count));
        let mix = Mix::ALL.into_iter().find(|known| known.name() == mix);
        let (Some(count), Some(mix)) = (count, mix) else {
            let known = Self::mixes().join(", ");
            return Err(Error::Usage(format!(
                "threads:{text}: expected threads:N or threads:N:MIX with N from 1 to \
                 {THREADS_MAX}; mixes: {known}"
            )));
        };
        Ok(Self { count, mix, name: format!("threads:{count}:{mix}") })
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What all threads share.
struct World {
    fs: Recorder,
    mix: Mix,
    /// Files that any thread writes, in whole blocks.
    shared: Vec<Node>,
    /// Names that come and go.
    table: Table,
    /// What fills the volume. Thread n writes every file whose number is n modulo their count.
    filling: Vec<Node>,
}

impl Workload for Threads {
    fn name(&self) -> &str {
        &self.name
    }

    fn footprint(&self) -> u64 {
        0
    }

    fn mount_options(&self) -> &str {
        if self.mix.evicts() { ",cache=1m" } else { "" }
    }

    fn evicts(&self) -> bool {
        self.mix.evicts()
    }

    fn run(&self, fs: &Recorder, seed: u64, started: &mut dyn FnMut()) -> Result<()> {
        let mut rng = Rng::new(seed, 8);
        let world = Arc::new(self.prepare(fs, &mut rng)?);
        let scripts: Vec<Script> = (0..self.count)
            .map(|thread| Script::new(world.clone(), thread, self.count, seed))
            .collect::<Result<_>>()?;
        advance(fs, &mut rng)?;
        fs.sync()?;
        fs.overlap()?;
        started();
        if self.mix.evicts() {
            fs.volume().clean_always().map_err(Error::of("clean"))?;
        }
        let upkeep = fs.volume().maintain();
        let workers: Vec<_> = scripts
            .into_iter()
            .zip(0..)
            .map(|(script, core)| {
                cores::spawn(&format!("script {core}"), Some(core), move || script.run())
            })
            .collect();
        let ran: Vec<Result<()>> = workers.into_iter().map(cores::JoinHandle::join).collect();
        drop(upkeep);
        ran.into_iter().collect()
    }
}

impl Threads {
    fn prepare(&self, fs: &Recorder, rng: &mut Rng) -> Result<World> {
        let filling = if self.mix == Mix::Cleaning { fill(fs, rng)? } else { Vec::new() };
        let shared: Result<Vec<Node>> = (0..2)
            .map(|number| {
                let node = fs.create(fs.root(), format!("shared{number}").as_bytes(), 0o644)?;
                for index in script::SHARED_BLOCKS {
                    fs.write(node, index * 4096, &rng.bytes(4096))?;
                }
                Ok(node)
            })
            .collect();
        Ok(World {
            fs: fs.clone(),
            mix: self.mix,
            shared: shared?,
            table: Table::new(fs)?,
            filling,
        })
    }
}

/// Moves the logs on by less than a zone.
fn advance(fs: &Recorder, rng: &mut Rng) -> Result<()> {
    let node = fs.create(fs.root(), b"before", 0o644)?;
    for _ in 0..rng.below(ZONE) {
        fs.write(node, 0, &[1; 4096])?;
        fs.fsync(node)?;
    }
    Ok(())
}

/// Bytes of a file that fills.
const FILLING: usize = 256 << 10;

/// Fills the volume to 60%, with holes: every third file is removed again.
fn fill(fs: &Recorder, rng: &mut Rng) -> Result<Vec<Node>> {
    let room = fs.fs().statfs().map_err(Error::at("statfs", b""))?;
    let files = room.blocks * 4096 * 9 / 10 / FILLING as u64;
    let mut made = Vec::new();
    for number in 0..files {
        let name = format!("filling{number}");
        let node = fs.create(fs.root(), name.as_bytes(), 0o644)?;
        for at in (0..FILLING).step_by(64 << 10) {
            fs.write(node, at as u64, &rng.bytes(64 << 10))?;
        }
        fs.fsync(node)?;
        made.push((node, name));
    }
    fs.sync()?;
    let mut left = Vec::new();
    for (number, (node, name)) in made.into_iter().enumerate() {
        if number % 3 == 2 {
            fs.unlink(fs.root(), name.as_bytes())?;
        } else {
            left.push(node);
        }
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        let threads: Threads = "8:names".parse().expect("it is right");
        assert_eq!((threads.count, threads.mix), (8, Mix::Names));
        assert_eq!("4".parse::<Threads>().expect("it is right").name(), "threads:4:all");
        for wrong in ["", "0", "13", "x:names", "4:", "4:odd", "4:names:more"] {
            assert!(wrong.parse::<Threads>().is_err(), "{wrong}");
        }
    }
}
