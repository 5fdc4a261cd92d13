//! Telling the drive what is free: a sequential zone is reset once its section is free, other
//! segments are discarded (`f2fs_clear_prefree_segments`, `issue_discard_thread`).
//!
//! Nobody holds the volume meanwhile. What a checkpoint freed is withheld from the logs until the
//! drive has answered, so that nothing written since can be in it. (Linux lets the logs have it at
//! once, and makes a write wait for a discard of its blocks: `f2fs_wait_discard_bio`.)
//!
//! What can tear: a cut may undo a reset before a flush has ended, and restore the zone with its
//! write pointer. New contents that are lost would then lie below the pointer, and recovery would
//! believe that they are there. So a section is withheld until that flush, too. A cut before the
//! reset leaves a free section whose zone is not empty; the next mount resets it.

use drive::{Command, Lba, ZoneAction};
use queue::{BlockQueue, IoError};

use crate::F2fs;
use crate::error::Result;
use crate::mount::engine::Engine;
use crate::mount::options::Inject;
use crate::ondisk::{BLOCKS_PER_SEGMENT, SegNo};

/// What is withheld until the drive has been told that it is free.
#[derive(Default)]
pub(crate) struct Discards {
    waiting: Vec<Discard>,
    /// How many sections the drive is being told about, or as many segments.
    under_way: usize,
}

/// Something free.
#[derive(Clone, Copy)]
enum Discard {
    /// A section, and where its zone begins.
    Zone(u32, Lba),
    /// A segment, and where it begins.
    Segment(SegNo, Lba),
}

impl Discards {
    /// How much is withheld, in sections or, outside sequential zones, in segments.
    pub(crate) fn withheld(&self) -> usize {
        self.waiting.len() + self.under_way
    }

    /// Whether somebody is telling the drive now.
    pub(crate) fn are_under_way(&self) -> bool {
        self.under_way > 0
    }
}

/// What the drive is being told.
pub(crate) struct Telling {
    discards: Vec<Discard>,
    barrier: bool,
}

/// What the drive has answered.
pub(crate) struct Told {
    /// With whether it was done.
    discards: Vec<(Discard, bool)>,
    flushed: Result<(), IoError>,
}

impl Telling {
    /// Tells the drive, and waits for its answers. It is told of everything at once.
    pub(crate) fn tell(self, queue: &BlockQueue) -> Told {
        let tickets = self.discards.iter().map(|discard| queue.submit(discard.command()));
        let tickets: Vec<_> = tickets.collect();
        let done = tickets.into_iter().map(|ticket| queue.wait(ticket).is_ok());
        let discards: Vec<_> = self.discards.iter().copied().zip(done).collect();
        let has_reset = discards.iter().any(|(discard, done)| *done && discard.is_zone());
        let flushed = if self.barrier && has_reset { queue.flush() } else { Ok(()) };
        Told { discards, flushed }
    }
}

impl Discard {
    fn is_zone(self) -> bool {
        matches!(self, Self::Zone(..))
    }

    fn command(self) -> Command {
        match self {
            Self::Zone(_, start) => {
                Command::ManageZone { action: ZoneAction::Reset, zone: Some(start) }
            }
            Self::Segment(_, lba) => Command::Discard { lba, blocks: BLOCKS_PER_SEGMENT.into() },
        }
    }
}

impl Engine {
    /// Withholds what a durable checkpoint has `freed`, as far as the drive wants to know of it.
    pub(crate) fn withhold(&mut self, freed: &[SegNo]) {
        let discards = self.options.discard && self.io.queue().identify().discard;
        for &segno in freed {
            let section = self.sb.section_of(segno);
            let start = self.sb.seg_start(self.sb.section_start(section));
            let is_sequential = self.is_sequential(start);
            let segments = self.segments.get_mut();
            let discard = if is_sequential {
                // Of a section that is withheld already, no segment is free.
                if !segments.is_section_free(section) {
                    continue;
                }
                Discard::Zone(section, start.into())
            } else if discards && segments.is_free(segno) {
                Discard::Segment(segno, self.sb.seg_start(segno).into())
            } else {
                continue;
            };
            self.discards.waiting.push(discard);
            match discard {
                _ if self.options.inject.contains(Inject::EARLY_REUSE) => {}
                Discard::Zone(section, _) => segments.hold(section),
                Discard::Segment(segno, _) => segments.withhold(segno),
            }
        }
    }

    /// What the drive has to be told now. A volume that has stopped tells it nothing more.
    pub(crate) fn begin_discards(&mut self) -> Result<Telling> {
        self.check_writable()?;
        let discards = std::mem::take(&mut self.discards.waiting);
        self.discards.under_way += discards.len();
        Ok(Telling { discards, barrier: self.options.barrier })
    }

    /// Gives the logs what the drive knows to be free. A discard is a hint; a drive that refuses it
    /// has lost nothing. A zone that cannot be reset is not used again.
    pub(crate) fn end_discards(&mut self, told: Told) -> Result<()> {
        self.discards.under_way -= told.discards.len();
        told.flushed.map_err(Into::into).inspect_err(|error| self.stop(error))?;
        let (logs, segments) = (self.logs.get_mut(), self.segments.get_mut());
        for (discard, done) in told.discards {
            match discard {
                Discard::Zone(section, _) => {
                    segments.release(section, |segno| logs.is_current(segno));
                    if !done {
                        segments.retire(section);
                    }
                }
                Discard::Segment(..) if self.options.inject.contains(Inject::EARLY_REUSE) => {}
                Discard::Segment(segno, _) => segments.give_back(segno),
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
    /// Tells the drive what is free, after whoever is telling it now.
    pub(crate) fn discard(&self) -> Result<()> {
        let _telling = self.discarding.lock();
        let telling = self.lock().begin_discards()?;
        if telling.discards.is_empty() {
            return Ok(());
        }
        let told = telling.tell(self.queue());
        self.lock().end_discards(told)
    }
}
