//! Discards and zone resets: a sequential zone is reset once its section is free; elsewhere
//! segments that a checkpoint freed, and smaller runs of blocks, are discarded
//! (`f2fs_clear_prefree_segments`, `issue_discard_thread`).
//!
//! A zone is withheld from the logs until its reset is stable. Runs wait in [`pending`] until the
//! thread ([`thread`]) or an `fstrim` ([`trim`]) discards them; a log that takes their segment
//! takes them out. While the discard of a run is in flight, its segments are kept from the logs, so
//! that it covers nothing written since. (Linux makes a write wait for a discard of its blocks:
//! `f2fs_wait_discard_bio`.)
//!
//! What can tear: only blocks are discarded that are valid neither now nor in the last durable
//! checkpoint, and that no log has written since. So whatever a cut leaves of a discard, recovery
//! does not read there. A cut may undo a reset before a flush has ended, and restore the zone with
//! its write pointer. New contents that are lost would then lie below the pointer, and recovery
//! would believe that they are there. So a section is withheld until that flush, too. A cut before
//! the reset leaves a free section whose zone is not empty; the next mount resets it.

mod pending;
mod thread;
mod trim;

use std::ops::Range;

use drive::{Command, Lba, ZoneAction};
use queue::{BlockQueue, IoError};

pub(crate) use pending::Pending;
pub(crate) use thread::discard_thread;

use crate::F2fs;
use crate::error::Result;
use crate::mount::engine::Engine;
use crate::mount::faults::FaultType;
use crate::mount::iostat::Moved;
use crate::mount::options::Inject;
use crate::ondisk::{BLOCKS_PER_SEGMENT, BlockAddr, SegNo};

/// Zones that are withheld until the drive has reset them, and discards in flight.
#[derive(Default)]
pub(crate) struct Discards {
    waiting: Vec<Discard>,
    /// How many sections or segments are withheld while their resets or discards are in flight.
    withheld: usize,
    /// How many calls are issuing discards or resets.
    under_way: usize,
    /// Blocks and commands of runs since the mount.
    pub(crate) blocks: u64,
    pub(crate) commands: u64,
}

/// Something free.
#[derive(Clone, Debug)]
enum Discard {
    /// A section, and where its zone begins.
    Zone(u32, Lba),
    /// Blocks outside sequential zones.
    Run(Range<BlockAddr>),
}

/// Which runs to discard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Runs {
    /// Those of at least so many blocks.
    pub(crate) least: u32,
    /// The most of them.
    pub(crate) most: usize,
}

impl Runs {
    /// None of them: only zones are reset.
    pub(crate) const NONE: Self = Self { least: u32::MAX, most: 0 };
    /// All of them.
    pub(crate) const ALL: Self = Self { least: 1, most: usize::MAX };
    /// Whole segments that a checkpoint freed, where no thread discards them over time.
    pub(crate) const SEGMENTS: Self = Self { least: BLOCKS_PER_SEGMENT, most: usize::MAX };
}

impl Discards {
    /// How much is withheld, in sections or, outside sequential zones, in segments.
    pub(crate) fn withheld(&self) -> usize {
        self.waiting.len() + self.withheld
    }

    /// Whether a thread is issuing discards now.
    pub(crate) fn are_under_way(&self) -> bool {
        self.under_way > 0
    }
}

/// Discards and resets to issue.
pub(crate) struct Telling {
    discards: Vec<Discard>,
    /// Segments kept from the logs meanwhile: free ones, and ones in use.
    held: Vec<SegNo>,
    busy: Vec<SegNo>,
    withheld: usize,
    barrier: bool,
}

/// Discards and resets that have completed.
pub(crate) struct Told {
    telling: Telling,
    /// Whether each was done.
    done: Vec<bool>,
    flushed: Result<(), IoError>,
}

impl Told {
    /// How many commands there were.
    fn commands(&self) -> usize {
        self.done.len()
    }

    /// How many blocks were discarded.
    fn blocks(&self) -> u64 {
        let done = self.telling.discards.iter().zip(&self.done).filter(|(_, done)| **done);
        done.map(|(discard, _)| discard.run().map_or(0, |run| run.len() as u64)).sum()
    }
}

impl Telling {
    /// Whether there is nothing to issue.
    pub(crate) fn is_empty(&self) -> bool {
        self.discards.is_empty()
    }

    /// Issues all commands at once, and waits for them.
    pub(crate) fn tell(self, queue: &BlockQueue) -> Told {
        let tickets = self.discards.iter().map(|discard| queue.submit(discard.command()));
        let tickets: Vec<_> = tickets.collect();
        let done = tickets.into_iter().map(|ticket| queue.wait(ticket).is_ok());
        let done: Vec<_> = done.collect();
        let mut discards = self.discards.iter().zip(&done);
        let has_reset = discards.any(|(discard, done)| *done && discard.run().is_none());
        let flushed = if self.barrier && has_reset { queue.flush() } else { Ok(()) };
        Told { telling: self, done, flushed }
    }
}

impl Discard {
    fn run(&self) -> Option<&Range<BlockAddr>> {
        match self {
            Self::Zone(..) => None,
            Self::Run(run) => Some(run),
        }
    }

    fn command(&self) -> Command {
        match self {
            Self::Zone(_, start) => {
                Command::ManageZone { action: ZoneAction::Reset, zone: Some(*start) }
            }
            Self::Run(run) => Command::Discard { lba: run.start.into(), blocks: run.len() as u64 },
        }
    }
}

impl Engine {
    /// Whether free blocks are discarded (`f2fs_realtime_discard_enable`).
    pub(crate) fn discards_blocks(&self) -> bool {
        self.options.discard && self.io.queue().identify().discard
    }

    /// How many small runs a checkpoint may add; none where a section is discarded as a whole.
    pub(crate) fn small_discards(&self) -> u64 {
        let small = self.discards_blocks() && self.zones.is_none();
        if small { self.knobs.max_small_discards } else { 0 }
    }

    /// Withholds the zones that a durable checkpoint has `freed`, and adds other segments to the
    /// pending discards.
    pub(crate) fn withhold(&mut self, freed: &[SegNo]) {
        let discards = self.discards_blocks();
        for &segno in freed {
            let section = self.sb.section_of(segno);
            let start = self.sb.seg_start(self.sb.section_start(section));
            let is_sequential = self.is_sequential(start);
            let segments = self.segments.get_mut();
            if is_sequential {
                // Of a section that is withheld already, no segment is free.
                if segments.is_section_free(section) {
                    self.discards.waiting.push(Discard::Zone(section, start.into()));
                    if !self.options.inject.contains(Inject::EARLY_REUSE) {
                        segments.hold(section);
                    }
                }
            } else if discards && segments.is_free(segno) {
                segments.add_pending(segno);
            }
        }
    }

    /// Takes what is to be issued now. A volume that has stopped issues nothing more.
    pub(crate) fn begin_discards(&mut self, runs: Runs) -> Result<Telling> {
        self.check_writable()?;
        let zones = std::mem::take(&mut self.discards.waiting);
        let (segments, logs) = (self.segments.get_mut(), self.logs.get_mut());
        let sb = self.sb.clone();
        let is_left =
            |run: &Range<BlockAddr>| sb.segments_with(run).all(|segno| !logs.is_current(segno));
        let runs = segments.pending().take(runs.least, runs.most, is_left);
        Ok(self.keep_from_logs(zones, runs))
    }

    /// Keeps the segments of `runs` from the logs until [`Engine::end_discards`].
    fn keep_from_logs(&mut self, zones: Vec<Discard>, runs: Vec<Range<BlockAddr>>) -> Telling {
        let barrier = self.options.barrier;
        let early = self.options.inject.contains(Inject::EARLY_REUSE);
        let segments = self.segments.get_mut();
        let (mut held, mut busy) = (Vec::new(), Vec::new());
        for segno in runs.iter().flat_map(|run| self.sb.segments_with(run)).filter(|_| !early) {
            if segments.is_free(segno) {
                segments.withhold(segno);
                held.push(segno);
            } else if segments.set_busy(segno) {
                busy.push(segno);
            }
        }
        let withheld = zones.len() + held.len();
        let discards: Vec<_> =
            zones.into_iter().chain(runs.into_iter().map(Discard::Run)).collect();
        self.discards.withheld += withheld;
        self.discards.under_way += usize::from(!discards.is_empty());
        Telling { discards, held, busy, withheld, barrier }
    }

    /// Lets the logs use what was discarded or reset. A discard is a hint: if it fails, nothing is
    /// lost. A zone that cannot be reset is not used again.
    pub(crate) fn end_discards(&mut self, mut told: Told) -> Result<()> {
        for (discard, done) in told.telling.discards.iter().zip(&mut told.done) {
            *done &= discard.run().is_none() || !self.faults.fires(FaultType::DISCARD);
        }
        let (commands, blocks) = (told.commands() as u64, told.blocks());
        let Told { telling, done, flushed } = told;
        self.discards.withheld -= telling.withheld;
        self.discards.under_way -= usize::from(!telling.is_empty());
        self.discards.blocks += blocks;
        self.discards.commands += commands;
        self.iostat.add_blocks(Moved::Discard, blocks as usize);
        flushed.map_err(Into::into).inspect_err(|error| self.stop(error))?;
        let (logs, segments) = (self.logs.get_mut(), self.segments.get_mut());
        for (discard, done) in telling.discards.into_iter().zip(done) {
            match discard {
                Discard::Zone(section, _) => {
                    segments.release(section, |segno| logs.is_current(segno));
                    if !done {
                        segments.retire(section);
                    }
                }
                Discard::Run(run) if done => segments.pending().set_told(&self.sb, run),
                Discard::Run(_) => {}
            }
        }
        telling.held.into_iter().for_each(|segno| segments.give_back(segno));
        for segno in telling.busy {
            if segments.end_busy(segno) {
                segments.add_pending(segno);
            }
        }
        Ok(())
    }

    /// How many sections are withheld.
    pub(crate) fn withheld_sections(&self) -> u64 {
        let per_section = if self.zones.is_some() { 1 } else { self.sb.segs_per_sec as usize };
        (self.discards.withheld() / per_section) as u64
    }
}

impl F2fs {
    /// Resets free zones and discards such runs, once a discard under way has ended. Returns how
    /// many commands that took.
    pub(crate) fn discard(&self, runs: Runs) -> Result<usize> {
        let _telling = self.discarding.lock();
        let telling = self.lock().begin_discards(runs)?;
        if telling.is_empty() {
            return Ok(0);
        }
        let told = telling.tell(self.queue());
        let commands = told.commands();
        self.lock().end_discards(told)?;
        Ok(commands)
    }
}
