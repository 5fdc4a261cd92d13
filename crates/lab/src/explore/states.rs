//! The states a drive may show after a cut.
//!
//! What a flush that ended covers is there, and so is what was written with FUA and ended. Of the
//! rest, at any instant:
//! - a sequential zone shows any prefix, block by block, of what was written to it; how far is each
//!   zone's own affair, since programs of different zones end in any order and the drive flushes by
//!   itself whenever it likes;
//! - a block outside them is as it was or as any write since made it, whatever its neighbours are;
//! - with power-loss protection all that ended is there, and of the write under way a part, as
//!   above.
//!
//! Resets, finishes and discards are durable when they end. While nothing is flushed what was
//! possible stays possible, so of each stretch between flushes only the last instant at each of the
//! oracle's positions is looked at.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};

use drive::{Block, Command, DriveState, Lba, Status, ZoneAction};

use super::{Bound, Tape};
use crate::workload::Rng;
use crate::{Error, Result};

/// A command, and how far the oracle was when the drive got it.
pub(super) struct Entry {
    pub(super) command: Command,
    pub(super) position: usize,
}

/// What a cut may leave, and the oracle's positions it may be left at, in order.
pub(super) struct State {
    pub(super) drive: DriveState,
    pub(super) positions: Vec<usize>,
}

/// All of a run.
#[derive(Default)]
pub(super) struct Found {
    pub(super) states: Vec<State>,
    /// Instants that were sampled.
    pub(super) sampled: usize,
    by_key: BTreeMap<u64, usize>,
}

/// A block and what tells it from others.
type Written = (Lba, Block, u64);

/// What is durable, what is not, and the sum that names the former.
struct Walk {
    found: Found,
    durable: DriveState,
    /// Sum over all blocks that changed.
    sum: u64,
    changed: BTreeMap<Lba, u64>,
    /// By first block of the zone, in order of writing.
    zones: BTreeMap<Lba, Vec<Written>>,
    /// Versions of each block elsewhere, oldest first.
    random: BTreeMap<Lba, Vec<Written>>,
    rng: Rng,
    bound: Bound,
}

/// All states a cut may leave of `tape`.
pub(super) fn enumerate(tape: &Tape, volatile: bool, bound: Bound, seed: u64) -> Result<Found> {
    let mut walk = Walk {
        found: Found::default(),
        durable: tape.base.clone(),
        sum: 0,
        changed: BTreeMap::new(),
        zones: BTreeMap::new(),
        random: BTreeMap::new(),
        rng: Rng::new(seed, 8),
        bound,
    };
    let (begin, end) = tape.positions;
    let next = |i: usize| tape.entries.get(i).map_or(end, |entry| entry.position);
    walk.look(begin..=next(0))?;
    for (i, Entry { command, position }) in tape.entries.iter().enumerate() {
        walk.step(command, *position, volatile).map_err(impossible)?;
        let flushes = matches!(
            tape.entries.get(i + 1).map(|next| &next.command),
            None | Some(Command::Flush | Command::ManageZone { .. } | Command::Discard { .. })
        );
        // What comes next can do no more than add to this, unless it settles something.
        let last = next(i + 1);
        if !volatile {
            // Under way, and then ended.
            walk.look(*position..=*position)?;
            walk.settle().map_err(impossible)?;
            walk.look(*position..=last)?;
        } else if flushes {
            walk.look(*position..=last)?;
        } else if *position < last {
            walk.look(*position..=last - 1)?;
        }
    }
    Ok(walk.found)
}

fn impossible(status: Status) -> Error {
    Error::Usage(format!("the tape does not fit its drive: {status}"))
}

impl Walk {
    /// Takes in one command: under way or ended, as the caller looks next.
    fn step(&mut self, command: &Command, position: usize, volatile: bool) -> Result<(), Status> {
        match command {
            Command::Write { lba, data, fua } => {
                let first = *lba;
                (first..).zip(data).for_each(|(lba, block)| self.write(lba, block.clone()));
                if *fua && volatile {
                    // Under way, and then ended.
                    self.look(position..=position).map_err(|_| Status::WriteFault)?;
                    self.settle_blocks(first, data.len() as u64)?;
                }
            }
            Command::Append { .. } => return Err(Status::InvalidOpcode),
            Command::Flush => self.settle()?,
            Command::ManageZone { action: ZoneAction::Reset, zone: Some(zone) } => {
                self.zones.remove(zone);
                self.durable.reset_zone(*zone)?;
                let size = self.durable.identify().zones.map_or(0, |zones| zones.size);
                self.forget(*zone, size);
            }
            Command::ManageZone { action: ZoneAction::Finish, zone: Some(zone) } => {
                self.settle()?;
                self.durable.finish_zone(*zone)?;
                self.sum = self.sum.wrapping_add(mix(*zone, 1));
            }
            Command::Discard { lba, blocks } => {
                let gone: Vec<Lba> =
                    self.random.range(*lba..*lba + *blocks).map(|(&lba, _)| lba).collect();
                gone.iter().for_each(|lba| drop(self.random.remove(lba)));
                self.durable.discard(*lba, *blocks)?;
                self.forget(*lba, *blocks);
            }
            Command::Read { .. } | Command::ReportZones { .. } | Command::ManageZone { .. } => {}
        }
        Ok(())
    }

    fn write(&mut self, lba: Lba, block: Block) {
        let written = (lba, block.clone(), digest(&block));
        let zones = self.durable.identify().zones;
        let zone = zones.map(|z| (lba / z.size, z)).filter(|(n, z)| *n >= z.conventional.into());
        match zone {
            Some((n, z)) => self.zones.entry(n * z.size).or_default().push(written),
            None => self.random.entry(lba).or_default().push(written),
        }
    }

    /// All that was written becomes durable.
    fn settle(&mut self) -> Result<(), Status> {
        for (_, written) in std::mem::take(&mut self.zones) {
            written.into_iter().try_for_each(|written| self.endure(written))?;
        }
        for (_, versions) in std::mem::take(&mut self.random) {
            versions.into_iter().next_back().map_or(Ok(()), |newest| self.endure(newest))?;
        }
        Ok(())
    }

    /// These blocks do, and in a sequential zone all before them.
    fn settle_blocks(&mut self, first: Lba, blocks: u64) -> Result<(), Status> {
        let zone = self.durable.identify().zones.map_or(first, |z| first - first % z.size);
        for written in self.zones.remove(&zone).unwrap_or_default() {
            self.endure(written)?;
        }
        for lba in first..first + blocks {
            if let Some(newest) = self.random.remove(&lba).and_then(|mut all| all.pop()) {
                self.endure(newest)?;
            }
        }
        Ok(())
    }

    fn endure(&mut self, (lba, block, hash): Written) -> Result<(), Status> {
        self.durable.put(lba, block)?;
        let before = self.changed.insert(lba, hash).map_or(0, |old| mix(lba, old));
        self.sum = self.sum.wrapping_sub(before).wrapping_add(mix(lba, hash));
        Ok(())
    }

    /// The range is empty: what it held is part of the sum no more, that it was emptied is.
    fn forget(&mut self, lba: Lba, blocks: u64) {
        let held: Vec<(Lba, u64)> =
            self.changed.range(lba..lba + blocks).map(|(&lba, &hash)| (lba, hash)).collect();
        for (lba, hash) in held {
            self.changed.remove(&lba);
            self.sum = self.sum.wrapping_sub(mix(lba, hash));
        }
        self.sum = self.sum.wrapping_add(mix(lba, blocks ^ 0x5eed));
    }

    /// Notes every state of this instant as possible at `positions`.
    fn look(&mut self, positions: std::ops::RangeInclusive<usize>) -> Result<()> {
        let zones: Vec<Vec<Written>> = self.zones.values().cloned().collect();
        let random: Vec<Vec<Written>> = self.random.values().cloned().collect();
        let choices: Vec<usize> = zones.iter().chain(&random).map(|all| all.len() + 1).collect();
        let all = choices.iter().try_fold(1_usize, |all, &n| all.checked_mul(n));
        match all.filter(|&all| all <= self.bound.states) {
            Some(all) => {
                for n in 0..all {
                    let mut left = n;
                    let digits = choices.iter().map(|&of| {
                        let digit = left % of;
                        left /= of;
                        digit
                    });
                    let digits: Vec<usize> = digits.collect();
                    self.note(&zones, &random, &digits, positions.clone())?;
                }
            }
            None => {
                self.found.sampled += 1;
                let newest: Vec<usize> = choices.iter().map(|n| n - 1).collect();
                self.note(&zones, &random, &newest, positions.clone())?;
                self.note(&zones, &random, &vec![0; choices.len()], positions.clone())?;
                for _ in 2..self.bound.states {
                    let digits: Vec<usize> =
                        choices.iter().map(|&n| self.rng.below(n as u64) as usize).collect();
                    self.note(&zones, &random, &digits, positions.clone())?;
                }
            }
        }
        Ok(())
    }

    /// One state: of each zone so many blocks, of each other block that version; 0 is none.
    fn note(
        &mut self,
        zones: &[Vec<Written>],
        random: &[Vec<Written>],
        digits: &[usize],
        positions: std::ops::RangeInclusive<usize>,
    ) -> Result<()> {
        let (prefixes, versions) = digits.split_at(zones.len());
        let prefixes = zones.iter().zip(prefixes).flat_map(|(all, &n)| &all[..n]);
        let versions =
            random.iter().zip(versions).filter_map(|(all, &n)| all.get(n.wrapping_sub(1)));
        let left: Vec<&Written> = prefixes.chain(versions).collect();
        let key = left.iter().fold(self.sum, |sum, (lba, _, hash)| {
            let before = self.changed.get(lba).map_or(0, |old| mix(*lba, *old));
            sum.wrapping_sub(before).wrapping_add(mix(*lba, *hash))
        });
        let at = match self.found.by_key.get(&key) {
            Some(&at) => at,
            None => {
                let mut drive = self.durable.clone();
                for (lba, block, _) in left {
                    drive.put(*lba, block.clone()).map_err(impossible)?;
                }
                self.found.states.push(State { drive, positions: Vec::new() });
                self.found.by_key.insert(key, self.found.states.len() - 1);
                self.found.states.len() - 1
            }
        };
        let known = &mut self.found.states[at].positions;
        let from = known.last().map_or(0, |last| last + 1);
        known.extend(positions.filter(|position| *position >= from));
        Ok(())
    }
}

fn digest(block: &Block) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(block.bytes());
    hasher.finish()
}

/// One term of the sum: a block with these contents at this place.
fn mix(lba: Lba, hash: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write_u64(lba);
    hasher.write_u64(hash);
    hasher.finish()
}
