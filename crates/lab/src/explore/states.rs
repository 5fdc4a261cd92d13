//! The states a drive may show after a cut.
//!
//! Everything covered by a completed flush is there, and so is every completed FUA write. As for
//! the rest, at any instant:
//! - a sequential zone is as it was at any time since: a prefix, block by block, of what was
//!   written to it or, as long as its last reset is not durable, of what it held before the reset.
//!   Each zone's prefix is independent of the others, since programs of different zones end in any
//!   order and the drive flushes by itself whenever it likes;
//! - a block outside those zones is as it was or as any write since made it, independently of its
//!   neighbours; or, on a drive that tears blocks, the last of these writes brought its last sector
//!   alone, or all the others: a node's footer without its pointers, or the other way round;
//! - a discard has happened or not, as a whole: block by block there would be too many states, and
//!   a file system expects nothing of what it discarded;
//! - with power-loss protection everything completed is there, and part of the command under way,
//!   as above.
//!
//! A zone's finish is durable when it completes, and so is everything in the zone. As long as
//! nothing is flushed, states that were possible stay possible; so between two flushes only the
//! last instant at each of the oracle's positions is looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};

use drive::{BLOCK_SIZE, Block, Command, DriveState, Lba, Status, ZoneAction};

use super::Bound;
use super::collapse::{Look, distinct, every};
use super::sum::{Sum, digest};
use crate::rig::Left;
use crate::workload::Rng;
use crate::{Error, Result};

/// A command, and the oracle's position when the drive got it.
pub(super) struct Entry {
    pub(super) command: Command,
    pub(super) position: usize,
}

/// The commands of a run, and the drive that they were sent to.
pub(super) struct Commands<'a> {
    pub(super) base: &'a DriveState,
    pub(super) entries: &'a [Entry],
    /// The oracle's, at the beginning and the end.
    pub(super) positions: (usize, usize),
}

/// What a cut may leave, and the oracle's positions at which it may be left, in order.
pub(super) struct State {
    pub(super) left: Left,
    pub(super) positions: Vec<usize>,
}

/// All of a run.
#[derive(Default)]
pub(super) struct Found {
    pub(super) states: Vec<State>,
    /// Instants that were sampled.
    pub(super) sampled: usize,
    pub(super) by_key: BTreeMap<u64, usize>,
}

/// Something that becomes durable, or not.
pub(super) enum Effect {
    /// This block, and what tells it from others.
    Put(Lba, Block, u64),
    /// The zone that starts here is empty.
    Reset(Lba),
    /// This many blocks from here on are.
    Discard(Lba, u64),
}

/// Effects of which a cut leaves some prefix, independently of other tracks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Track {
    /// A sequential zone, by its first block.
    Zone(Lba),
    /// A block elsewhere.
    Block(Lba),
    /// The discard that was sent then.
    Discard(usize),
}

/// Instants with more combinations than are listed: kinds up to which each is found.
const DISTINCT: usize = 4096;

impl Track {
    fn is_zone(self) -> bool {
        matches!(self, Self::Zone(_))
    }
}

/// What is durable, what is not, and a sum that identifies the former.
struct Walk<'a, 'b> {
    found: Found,
    durable: DriveState,
    sum: Sum,
    /// Each effect with its command's number: where several tracks touch one block, effects apply
    /// in that order.
    tracks: BTreeMap<Track, Vec<(usize, Effect)>>,
    /// Number of the command.
    now: usize,
    rng: Rng,
    bound: Bound,
    judge: &'a mut Look<'b>,
}

/// All states a cut may leave of the drive of `tape`.
pub(super) fn enumerate(
    tape: &Commands<'_>,
    bound: Bound,
    seed: u64,
    judge: &mut Look<'_>,
) -> Result<Found> {
    let volatile = tape.base.identify().volatile_cache;
    let mut walk = Walk {
        found: Found::default(),
        durable: tape.base.clone(),
        sum: Sum::default(),
        tracks: BTreeMap::new(),
        now: 0,
        rng: Rng::new(seed, 8),
        bound,
        judge,
    };
    let (begin, end) = tape.positions;
    let next = |i: usize| tape.entries.get(i).map_or(end, |entry| entry.position);
    walk.look(begin..=next(0))?;
    for (i, Entry { command, position }) in tape.entries.iter().enumerate() {
        walk.now = i;
        walk.step(command, *position, volatile).map_err(impossible)?;
        // The next command only adds to this, unless it makes something durable.
        let settles = matches!(
            tape.entries.get(i + 1).map(|next| &next.command),
            None | Some(Command::Flush | Command::ManageZone { action: ZoneAction::Finish, .. })
        );
        let last = next(i + 1);
        if !volatile {
            // Under way, and then ended.
            walk.look(*position..=*position)?;
            walk.settle(|_| true).map_err(impossible)?;
            walk.look(*position..=last)?;
        } else if settles {
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

impl Walk<'_, '_> {
    /// Adds one command, under way or completed, depending on when the caller looks.
    fn step(&mut self, command: &Command, position: usize, volatile: bool) -> Result<(), Status> {
        match command {
            Command::Write { lba, data, fua } => {
                self.write(*lba, data, *fua && volatile, position)?;
            }
            Command::Append { zone, data, fua } => {
                let lba = self.append_point(*zone)?;
                self.write(lba, data, *fua && volatile, position)?;
            }
            Command::Flush => self.settle(|_| true)?,
            Command::ManageZone { action: ZoneAction::Reset, zone } => {
                let zone = zone.ok_or(Status::InvalidOpcode)?;
                self.add(Track::Zone(zone), Effect::Reset(zone));
            }
            Command::ManageZone { action: ZoneAction::Finish, zone } => {
                let zone = zone.ok_or(Status::InvalidOpcode)?;
                self.settle(|track| track == Track::Zone(zone))?;
                self.durable.finish_zone(zone)?;
                self.sum.add(zone, 1);
            }
            Command::Discard { lba, blocks } => {
                self.add(Track::Discard(self.now), Effect::Discard(*lba, *blocks));
            }
            Command::Read { .. } | Command::ReportZones { .. } | Command::ManageZone { .. } => {}
        }
        Ok(())
    }

    fn add(&mut self, track: Track, effect: Effect) {
        self.tracks.entry(track).or_default().push((self.now, effect));
    }

    fn write(
        &mut self,
        first: Lba,
        data: &[Block],
        fua: bool,
        position: usize,
    ) -> Result<(), Status> {
        for (lba, block) in (first..).zip(data) {
            let track = self.track(lba);
            let put = |block: &Block| Effect::Put(lba, block.clone(), digest(block));
            for torn in self.torn(track, block)? {
                self.add(track, put(&torn));
            }
            self.add(track, put(block));
        }
        if fua {
            // Under way, and then ended.
            self.look(position..=position).map_err(|_| Status::WriteFault)?;
            let range = first..first + data.len() as u64;
            let place = self.track(first);
            // An earlier discard must not empty what was forced out since: it is durable, too.
            let touches = |(_, effect): &(usize, Effect)| effect.discards(&range);
            let discards = self.tracks.iter().filter(|(_, effects)| effects.iter().any(touches));
            let discards: Vec<Track> = discards.map(|(track, _)| *track).collect();
            self.settle(|track| {
                let written = matches!(track, Track::Block(lba) if range.contains(&lba));
                track == place || written || discards.contains(&track)
            })?;
        }
        Ok(())
    }

    /// The torn versions of `block` that may be there.
    fn torn(&self, track: Track, block: &Block) -> Result<Vec<Block>, Status> {
        let size = self.durable.spec().atomic_write();
        let Track::Block(lba) = track else { return Ok(Vec::new()) };
        if size >= BLOCK_SIZE {
            return Ok(Vec::new());
        }
        let before = match self.tracks.get(&track).and_then(|effects| effects.last()) {
            Some((_, Effect::Put(_, before, _))) => before.clone(),
            _ => self.durable.media().read(lba).map_err(|_| Status::UnrecoveredRead)?,
        };
        let (mut head, mut tail) = (before.clone(), before);
        let last = BLOCK_SIZE - size;
        head.make_mut()[..last].copy_from_slice(&block[..last]);
        tail.make_mut()[last..].copy_from_slice(&block[last..]);
        Ok(vec![head, tail])
    }

    /// Where a write at `lba` has its place.
    fn track(&self, lba: Lba) -> Track {
        let zones = self.durable.identify().zones;
        let zone = zones.map(|z| (lba / z.size, z)).filter(|(n, z)| *n >= z.conventional.into());
        zone.map_or(Track::Block(lba), |(n, z)| Track::Zone(n * z.size))
    }

    /// Where the zone that starts at `zone` would be written next.
    fn append_point(&self, zone: Lba) -> Result<Lba, Status> {
        let size = self.durable.identify().zones.ok_or(Status::InvalidOpcode)?.size;
        let held = usize::try_from(zone / size).ok();
        let held = held.and_then(|zone| self.durable.write_pointers().nth(zone));
        let mut lba = zone + held.ok_or(Status::LbaOutOfRange)?;
        for (_, effect) in self.tracks.get(&Track::Zone(zone)).into_iter().flatten() {
            lba = if let Effect::Reset(_) = effect { zone } else { lba + 1 };
        }
        Ok(lba)
    }

    /// These tracks become durable, to their ends.
    fn settle(&mut self, which: impl Fn(Track) -> bool) -> Result<(), Status> {
        let (settled, left): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut self.tracks).into_iter().partition(|(track, _)| which(*track));
        self.tracks = left;
        let mut effects: Vec<(usize, Effect)> = settled.into_values().flatten().collect();
        effects.sort_by_key(|(when, _)| *when);
        let zone_blocks = self.durable.identify().zones.map_or(0, |zones| zones.size);
        for (_, effect) in effects {
            effect.apply(&mut self.durable)?;
            self.sum.apply(&effect, zone_blocks);
        }
        Ok(())
    }

    /// Notes every state of this instant as possible at `positions`.
    fn look(&mut self, positions: RangeInclusive<usize>) -> Result<()> {
        let choices: Vec<u64> = self.tracks.values().map(|track| track.len() as u64 + 1).collect();
        let all = every(&choices, self.bound.states);
        let all =
            all.map_or_else(|| self.distinct(&choices, positions.clone()), |all| Ok(Some(all)));
        if let Some(all) = all? {
            return all.iter().try_for_each(|digits| self.note(digits, positions.clone()));
        }
        self.found.sampled += 1;
        let newest: Vec<u64> = choices.iter().map(|n| n - 1).collect();
        self.note(&newest, positions.clone())?;
        self.note(&vec![0; choices.len()], positions.clone())?;
        for _ in 2..self.bound.states {
            let digits: Vec<u64> = choices.iter().map(|&n| self.rng.below(n)).collect();
            self.note(&digits, positions.clone())?;
        }
        Ok(())
    }

    /// The states that can be told apart, if they are not too many.
    fn distinct(
        &mut self,
        choices: &[u64],
        positions: RangeInclusive<usize>,
    ) -> Result<Option<Vec<Vec<u64>>>> {
        let zones = self.tracks.keys().zip(choices).filter(|(track, _)| track.is_zone());
        if zones.fold(1_u64, |least, (_, &n)| least.saturating_mul(n)) > DISTINCT as u64 {
            return Ok(None);
        }
        let positions: Vec<usize> = positions.collect();
        distinct(choices, DISTINCT, &mut |digits| self.reads(digits, &positions))
    }

    /// The tracks of which something is read when this state is judged. Of a sequential zone the
    /// write pointer always is.
    fn reads(&mut self, digits: &[u64], positions: &[usize]) -> Result<BTreeSet<usize>> {
        let zones = self.tracks.keys().enumerate().filter(|(_, track)| track.is_zone());
        let mut read: BTreeSet<usize> = zones.map(|(number, _)| number).collect();
        let drive = self.drive(&left(&self.tracks, digits))?;
        if !drive.fits() {
            return Ok(read);
        }
        let blocks = |(number, effects): (usize, &Vec<(usize, Effect)>)| {
            let block = move |(_, effect): &(usize, Effect)| (effect.blocks(), number);
            effects.iter().map(block).collect::<Vec<_>>()
        };
        let blocks: Vec<_> = self.tracks.values().enumerate().flat_map(blocks).collect();
        let mut judged = Ok(());
        let judge = &mut |drive| judged = (self.judge)(Left::Ssd(drive), positions);
        let watched = drive.reads(blocks, judge);
        judged?;
        // Not watched, all counts as read.
        read.extend(watched.unwrap_or_else(|| (0..digits.len()).collect()));
        Ok(read)
    }

    /// What is durable, and these effects.
    fn drive(&self, left: &[&(usize, Effect)]) -> Result<DriveState> {
        let mut drive = self.durable.clone();
        left.iter().try_for_each(|(_, effect)| effect.apply(&mut drive)).map_err(impossible)?;
        Ok(drive)
    }

    /// One state: a number of effects of each track.
    fn note(&mut self, digits: &[u64], positions: RangeInclusive<usize>) -> Result<()> {
        let left = left(&self.tracks, digits);
        let zone_blocks = self.durable.identify().zones.map_or(0, |zones| zones.size);
        let key = self.sum.with(left.iter().map(|(_, effect)| effect), zone_blocks);
        let at = match self.found.by_key.get(&key) {
            Some(&at) => at,
            None => {
                let drive = self.drive(&left)?;
                if !drive.fits() {
                    return Ok(());
                }
                self.found.states.push(State { left: drive.into(), positions: Vec::new() });
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

/// So many of each track's effects, in their order.
fn left<'a>(
    tracks: &'a BTreeMap<Track, Vec<(usize, Effect)>>,
    digits: &[u64],
) -> Vec<&'a (usize, Effect)> {
    let left = tracks.values().zip(digits).flat_map(|(of, &n)| &of[..n as usize]);
    let mut left: Vec<&(usize, Effect)> = left.collect();
    left.sort_by_key(|(when, _)| *when);
    left
}

impl Effect {
    /// Whether it is a discard of some of these blocks.
    fn discards(&self, range: &Range<Lba>) -> bool {
        matches!(self, Self::Discard(lba, n) if *lba < range.end && range.start < lba + n)
    }

    /// What it changes, of a reset the beginning.
    fn blocks(&self) -> Range<Lba> {
        match *self {
            Self::Put(lba, ..) | Self::Reset(lba) => lba..lba + 1,
            Self::Discard(lba, blocks) => lba..lba + blocks,
        }
    }

    fn apply(&self, drive: &mut DriveState) -> Result<(), Status> {
        match self {
            Self::Put(lba, block, _) => drive.put(*lba, block.clone()),
            Self::Reset(zone) => drive.reset_zone(*zone),
            Self::Discard(lba, blocks) => drive.discard(*lba, *blocks),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use drive::{Spec, Ssd, Timing};

    use super::*;

    const ZONE: Lba = 64;

    fn block(n: u8) -> Block {
        Block::from_prefix(&[n])
    }

    fn write(lba: Lba, n: u8, fua: bool) -> Command {
        Command::Write { lba, data: [block(n)].into_iter().collect(), fua }
    }

    fn append(n: u8) -> Command {
        Command::Append { zone: ZONE, data: [block(n)].into_iter().collect(), fua: false }
    }

    fn reset() -> Command {
        Command::ManageZone { action: ZoneAction::Reset, zone: Some(ZONE) }
    }

    /// What is in the first two blocks of conventional zone 0 and of zone 1, and how far that is.
    type Seen = (u8, u8, u8, u8, u64);

    /// All that may be seen after `commands`, on a drive with 7 in block 0 and 8 in zone 1.
    fn seen(commands: Vec<Command>) -> BTreeSet<Seen> {
        let spec = Spec::named("zn540-noplp").unwrap().zone_size(ZONE, ZONE).zones(4, 1);
        let mut base = Ssd::new(spec, Timing::Instant, 1).unwrap().survivors(0);
        base.put(0, block(7)).unwrap();
        base.put(ZONE, block(8)).unwrap();
        let entry = |(position, command)| Entry { command, position };
        let entries: Vec<Entry> = (0..).zip(commands).map(entry).collect();
        let positions = (0, entries.len());
        let tape = Commands { base: &base, entries: &entries, positions };
        let found = enumerate(&tape, Bound::default(), 1, &mut |_, _| Ok(())).unwrap();
        let at_end = found.states.iter().filter(|s| s.positions.contains(&positions.1));
        let look = |state: &State| {
            let drive = state.left.ssd().unwrap();
            let read = |lba| drive.media().read(lba).unwrap().bytes()[0];
            let wp = drive.write_pointers().nth(1).unwrap();
            (read(0), read(1), read(ZONE), read(ZONE + 1), wp)
        };
        at_end.map(look).collect()
    }

    #[test]
    fn what_is_appended_is_a_prefix() {
        let all = seen(vec![append(1), append(2)]);
        assert_eq!(all, [(7, 0, 8, 0, 1), (7, 0, 8, 1, 2), (7, 0, 8, 1, 3)].into());
        let all = seen(vec![append(1), Command::Flush, append(2)]);
        assert_eq!(all, [(7, 0, 8, 1, 2), (7, 0, 8, 1, 3)].into());
        let all = seen(vec![reset(), append(1), write(ZONE + 1, 2, true), append(3)]);
        assert_eq!(all, [(7, 0, 1, 2, 2), (7, 0, 1, 2, 3)].into());
    }

    #[test]
    fn a_reset_may_be_undone_until_something_says_it_is_durable() {
        let (old, empty, one) = ((7, 0, 8, 0, 1), (7, 0, 0, 0, 0), (7, 0, 1, 0, 1));
        assert_eq!(seen(vec![reset()]), [old, empty].into());
        assert_eq!(seen(vec![reset(), write(ZONE, 1, false)]), [old, empty, one].into());
        assert_eq!(seen(vec![reset(), write(ZONE, 1, true)]), [one].into());
        assert_eq!(seen(vec![reset(), Command::Flush]), [empty].into());
        // Every prefix of the earlier contents may come back, if their end is not durable either.
        let all = seen(vec![append(2), reset(), write(ZONE, 1, false)]);
        assert_eq!(all, [old, (7, 0, 8, 2, 2), empty, one].into());
    }

    #[test]
    fn a_discard_may_be_undone_until_a_flush() {
        let discard = || Command::Discard { lba: 0, blocks: 2 };
        let is = |commands, pairs: &[(u8, u8)]| {
            let all = pairs.iter().map(|&(a, b)| (a, b, 8, 0, 1)).collect();
            assert_eq!(seen(commands), all);
        };
        is(vec![discard()], &[(7, 0), (0, 0)]);
        is(vec![discard(), Command::Flush], &[(0, 0)]);
        is(vec![write(1, 5, false), discard()], &[(7, 0), (7, 5), (0, 0)]);
        is(vec![discard(), write(1, 5, false)], &[(7, 0), (7, 5), (0, 0), (0, 5)]);
        is(vec![discard(), write(1, 5, true)], &[(0, 5)]);
    }
    #[test]
    fn a_block_may_be_torn_before_its_last_sector() {
        let filled = |n: u8| Block::new([n; BLOCK_SIZE]);
        let spec = Spec::named("conventional-noplp").unwrap().blocks(8).tearing();
        let mut base = DriveState::new(spec).unwrap();
        base.put(0, filled(7)).unwrap();
        let data = [filled(5)].into_iter().collect();
        let entries =
            vec![Entry { command: Command::Write { lba: 0, data, fua: false }, position: 0 }];
        let tape = Commands { base: &base, entries: &entries, positions: (0, 1) };
        let found = enumerate(&tape, Bound::default(), 1, &mut |_, _| Ok(())).unwrap();
        let ends = |state: &State| {
            let block = state.left.ssd().unwrap().media().read(0).unwrap();
            (block[0], block[BLOCK_SIZE - 513], block[BLOCK_SIZE - 512], block[BLOCK_SIZE - 1])
        };
        let seen: BTreeSet<_> = found.states.iter().map(ends).collect();
        assert_eq!(seen, [(7, 7, 7, 7), (5, 5, 7, 7), (7, 7, 5, 5), (5, 5, 5, 5)].into());
    }
}
