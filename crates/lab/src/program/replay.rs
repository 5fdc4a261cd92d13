//! A recorded run, repeated on a volume on which other things happen, too.
//!
//! What a program never fsyncs becomes durable when another program makes the file system commit,
//! or when the flusher runs. A run alone on a volume shows neither.

use std::sync::Arc;

use cores::Mutex;
use vfs::FileSystem;

use crate::record::Run;
use crate::workload::recorder::{Node, Recorder};
use crate::workload::script::{Player, ScriptStep};
use crate::workload::{Rng, Script, Workload};
use crate::{Error, Result};

/// The program's directory on the volume, and that of others.
pub(super) const HOME: &str = "program";
const OTHERS: &[u8] = b"others";

/// Longer than dirty pages and changes may wait: 30 s and 60 s.
const PAUSE_NS: u64 = 66_000_000_000;

/// The stream of random numbers that decides what others do.
const CHANCE: u64 = 11;

/// What happens on the volume between the program's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Others {
    /// Nothing.
    Idle,
    /// After each call, another program saves a file, with fsyncs of the file and its directory.
    Save,
    /// After each call a minute passes, and the volume's own threads write back and commit.
    Pause,
    /// After each call one of these or none, as this seed decides.
    Chance(u64),
}

impl Others {
    /// As it is called in words.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Idle => "nothing else happens on the volume",
            Self::Save => "another program saves a file with fsync after each call",
            Self::Pause => "a minute passes after each call, and the file system writes back",
            Self::Chance(_) => "now and then another program saves a file, or a minute passes",
        }
    }
}

/// A run to repeat.
pub(super) struct Replay {
    run: Arc<Run>,
    others: Others,
    footprint: u64,
    /// The oracle's position after each step.
    ends: Mutex<Vec<usize>>,
}

impl Replay {
    /// Fails if the run is too large.
    pub(super) fn new(run: Arc<Run>, others: Others) -> Result<Self> {
        let script = Script::of_steps("the program", run.steps.clone(), None, "")?;
        // Others save small files.
        let footprint = script.footprint() + (run.steps.len() as u64) * (64 << 10);
        let ends = Mutex::instrument("ends of steps", Vec::new());
        Ok(Self { run, others, footprint, ends })
    }

    /// The oracle's position after each step of the last repetition.
    pub(super) fn ends(&self) -> Vec<usize> {
        self.ends.lock().clone()
    }
}

impl Workload for Replay {
    fn name(&self) -> &str {
        "the program"
    }

    fn footprint(&self) -> u64 {
        self.footprint
    }

    fn run(&self, fs: &Recorder, _seed: u64, started: &mut dyn FnMut()) -> Result<()> {
        let home = fs.mkdir(fs.root(), HOME.as_bytes(), 0o755)?;
        let mut others = Neighbour::new(fs, self.others)?;
        let mut player = Player::new(fs, home, &self.run.contents);
        let (mut ends, mut threads) = (Vec::new(), None);
        for step in &self.run.steps {
            match step {
                ScriptStep::Begin => {
                    fs.sync()?;
                    started();
                    if others.pauses() {
                        threads = Some(fs.volume().maintain());
                    }
                    ends.push(fs.position());
                    others.act()?;
                }
                ScriptStep::Clean => {}
                ScriptStep::Do(op) => {
                    player.apply(op).map_err(|error| repeat_failed(step, error))?;
                    if !ends.is_empty() {
                        fs.transaction(ends.len() as u64, true);
                        ends.push(fs.position());
                        others.act()?;
                    }
                }
            }
        }
        player.finish();
        drop(threads);
        *self.ends.lock() = ends;
        Ok(())
    }
}

fn repeat_failed(step: &ScriptStep, error: Error) -> Error {
    match error {
        Error::Full => Error::Full,
        error => Error::Usage(format!("'{step}' worked for the program, and not here: {error}")),
    }
}

/// Who else uses the volume.
struct Neighbour<'a> {
    fs: &'a Recorder,
    dir: Node,
    others: Others,
    rng: Rng,
    saved: u32,
}

impl<'a> Neighbour<'a> {
    fn new(fs: &'a Recorder, others: Others) -> Result<Self> {
        let seed = if let Others::Chance(seed) = others { seed } else { 0 };
        let dir = fs.mkdir(fs.root(), OTHERS, 0o755)?;
        Ok(Self { fs, dir, others, rng: Rng::new(seed, CHANCE), saved: 0 })
    }

    fn pauses(&self) -> bool {
        matches!(self.others, Others::Pause | Others::Chance(_))
    }

    fn act(&mut self) -> Result<()> {
        match self.others {
            Others::Idle => Ok(()),
            Others::Save => self.save(),
            Others::Pause => {
                cores::sleep(PAUSE_NS);
                Ok(())
            }
            Others::Chance(_) => match self.rng.below(6) {
                0 => self.save(),
                1 => {
                    cores::sleep(PAUSE_NS);
                    Ok(())
                }
                _ => Ok(()),
            },
        }
    }

    /// A file replaced as it should be.
    fn save(&mut self) -> Result<()> {
        self.saved += 1;
        let file = self.fs.create(self.dir, b"new", 0o644)?;
        self.fs.write(file, 0, &self.saved.to_le_bytes())?;
        self.fs.fsync(file)?;
        self.fs.rename(self.dir, b"new", self.dir, b"file")?;
        self.fs.fsync(self.dir)
    }
}

/// The program's directory on a volume.
pub(super) fn home(fs: &dyn FileSystem) -> vfs::Result<vfs::Ino> {
    fs.lookup(fs.root(), HOME.as_bytes()).map(|attr| attr.ino)
}
