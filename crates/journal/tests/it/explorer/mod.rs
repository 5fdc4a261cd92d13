//! Every state that a power cut may leave of a run on a drive with a volatile cache: between two
//! flushes each block that was written may be as it was or as any of its writes left it.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cores::Mutex;
use drive::{Block, Command, Drive, EventKind, Lba, Spec, Ssd, Timing};

/// States judged at one flush; if there may be more, this many are drawn by chance.
const STATES_MAX: usize = 512;

/// A drive with a volatile cache that answers at once.
pub fn drive(blocks: u64) -> Arc<Ssd> {
    let spec = Spec::named("conventional-noplp").expect("a profile").blocks(blocks);
    Ssd::new(spec, Timing::Instant, 1).expect("a drive")
}

struct Entry {
    command: Command,
    durable: usize,
}

/// The commands of a run, and how much had been promised durable when each was sent.
#[derive(Clone, Default)]
pub struct Tape {
    entries: Arc<Mutex<Vec<Entry>>>,
    durable: Arc<AtomicUsize>,
}

impl Tape {
    /// Records what `drive` is asked from now on.
    pub fn on(drive: &Ssd) -> Self {
        let tape = Self::default();
        let (entries, durable) = (tape.entries.clone(), tape.durable.clone());
        drive.observe(Box::new(move |event, _| {
            if let EventKind::Command { command, .. } = event.kind {
                let durable = durable.load(Ordering::Relaxed);
                entries.lock().push(Entry { command: command.clone(), durable });
            }
        }));
        tape
    }

    /// The workload has been promised that its states from `state` on are durable.
    pub fn promise(&self, state: usize) {
        self.durable.store(state, Ordering::Relaxed);
    }

    /// Calls `judge` with every state that a cut may leave of a drive that held `before`, and with
    /// what had been promised. How many states there were, and the failures.
    pub fn explore(
        &self,
        blocks: u64,
        before: BTreeMap<Lba, Block>,
        judge: Judge<'_>,
    ) -> (usize, Vec<String>) {
        let mut run = Run { blocks, stable: before, ..Run::default() };
        for entry in self.entries.lock().iter() {
            run.take(entry, judge);
        }
        let durable = self.durable.load(Ordering::Relaxed);
        run.cut(durable, judge);
        (run.states, run.failures)
    }
}

#[derive(Default)]
struct Run {
    blocks: u64,
    stable: BTreeMap<Lba, Block>,
    /// What the cache may have of each block, oldest first.
    cached: BTreeMap<Lba, Vec<Block>>,
    /// What had been promised when the first of it was written.
    promised: usize,
    states: usize,
    failures: Vec<String>,
    seed: u64,
}

type Judge<'a> = &'a dyn Fn(&Arc<Ssd>, usize) -> Result<(), String>;

impl Run {
    fn take(&mut self, entry: &Entry, judge: Judge<'_>) {
        match &entry.command {
            Command::Write { lba, data, fua } => {
                if *fua {
                    // The states before and after it: it is the last that may be missing.
                    self.cut(entry.durable, judge);
                } else if self.cached.is_empty() || entry.durable != self.promised {
                    self.cut(entry.durable, judge);
                }
                self.promised = entry.durable;
                for (lba, block) in (*lba..).zip(data) {
                    if *fua {
                        self.cached.remove(&lba);
                        self.stable.insert(lba, block.clone());
                    } else {
                        self.cached.entry(lba).or_default().push(block.clone());
                    }
                }
            }
            Command::Flush => {
                self.cut(entry.durable, judge);
                let newest = std::mem::take(&mut self.cached).into_iter();
                self.stable.extend(newest.filter_map(|(lba, mut all)| Some((lba, all.pop()?))));
            }
            _ => {}
        }
    }

    /// Judges what may be left if the power fails now.
    fn cut(&mut self, durable: usize, judge: Judge<'_>) {
        let choices: Vec<(Lba, Vec<Block>)> =
            self.cached.iter().map(|(lba, all)| (*lba, all.clone())).collect();
        let combinations = choices.iter().try_fold(1_usize, |product, (_, all)| {
            product.checked_mul(all.len() + 1).filter(|product| *product <= STATES_MAX)
        });
        for number in 0..combinations.unwrap_or(STATES_MAX) {
            let mut rest = number;
            let drive = drive::ram(self.blocks);
            let mut state = self.stable.clone();
            for (lba, all) in &choices {
                if combinations.is_none() {
                    self.seed = cores::splitmix64(self.seed);
                    rest = self.seed as usize;
                }
                if let Some(block) = all.get((rest % (all.len() + 1)).wrapping_sub(1)) {
                    state.insert(*lba, block.clone());
                }
                rest /= all.len() + 1;
            }
            fill(&drive, &state);
            self.states += 1;
            if let Err(failure) = judge(&drive, durable) {
                self.failures.push(format!("state {number} with {durable} promised: {failure}"));
            }
        }
    }
}

fn fill(drive: &Ssd, state: &BTreeMap<Lba, Block>) {
    for (lba, block) in state {
        let data = std::iter::once(block.clone()).collect();
        drive.submit(0, 0, Command::Write { lba: *lba, data, fua: false });
        drive.wait_for(0, 0);
    }
}

/// What a drive holds now.
pub fn contents(drive: &Ssd, blocks: u64) -> BTreeMap<Lba, Block> {
    let mut all = Vec::new();
    drive.look(&mut (0..blocks), &mut |block| all.push(block.clone()));
    (0..).zip(all).collect()
}
