//! A request: one command for the drive, and the callers' commands of which it was merged.

use drive::{Blocks, Command, Lba, Output, Status};
use smallvec::SmallVec;

use crate::slots::Answer;

/// One caller's share of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The ticket's slot.
    pub(crate) slot: u32,
    pub(crate) blocks: u32,
}

/// Those of a request, in the order of addresses.
pub(crate) type Parts = SmallVec<[Part; 4]>;

/// A request that has not been sent.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) command: Command,
    /// The hardware queue that holds the slots.
    pub(crate) queue: u16,
    /// Its tag, if it has one already.
    pub(crate) tag: Option<u16>,
    /// For a write to a sequential zone that must be alone in it: the zone.
    pub(crate) lane: Option<u32>,
    pub(crate) parts: Parts,
}

/// How far requests may be merged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// In blocks.
    pub(crate) max_transfer: usize,
    /// Blocks of a zone. No request crosses the border of one.
    pub(crate) zone_blocks: Option<u64>,
}

/// First block, length, and whether it is a write, of a command that may be merged.
fn span(command: &Command) -> Option<(Lba, usize, bool)> {
    match command {
        Command::Read { lba, blocks } => Some((*lba, *blocks as usize, false)),
        Command::Write { lba, data, fua: false } => Some((*lba, data.len(), true)),
        _ => None,
    }
}

impl Request {
    /// Takes `other` in if it is adjacent and the result is not too long (`blk_attempt_bio_merge`);
    /// otherwise gives it back.
    pub(crate) fn merge(&mut self, other: Request, limits: Limits) -> Option<Request> {
        let (Some(mine), Some(its)) = (span(&self.command), span(&other.command)) else {
            return Some(other);
        };
        let ((lba, len, write), (other_lba, other_len, other_write)) = (mine, its);
        let behind = lba.checked_add(len as u64) == Some(other_lba);
        let ahead = other_lba.checked_add(other_len as u64) == Some(lba);
        let border = if behind { other_lba } else { lba };
        let crosses = limits.zone_blocks.is_some_and(|zone| border.is_multiple_of(zone));
        let fits = len + other_len <= limits.max_transfer;
        let alike = write == other_write && self.queue == other.queue;
        // What waits for a place in its zone keeps the order of submission.
        let ordered = behind || self.lane.is_none();
        if !alike || !fits || crosses || !ordered || !(behind || ahead) {
            return Some(other);
        }
        let Request { command, mut parts, .. } = other;
        if behind {
            self.parts.append(&mut parts);
            append(&mut self.command, command);
        } else {
            parts.append(&mut self.parts);
            self.parts = parts;
            let tail = std::mem::replace(&mut self.command, command);
            append(&mut self.command, tail);
        }
        None
    }
}

/// Lengthens `command` by `tail`, which begins where it ends.
fn append(command: &mut Command, tail: Command) {
    match (command, tail) {
        (Command::Read { blocks, .. }, Command::Read { blocks: more, .. }) => *blocks += more,
        (Command::Write { data, .. }, Command::Write { data: more, .. }) => data.extend(more),
        _ => {}
    }
}

/// Cuts the answer to a request into those to its parts, in order.
pub(crate) struct Shares {
    answer: Answer,
    at: usize,
}

impl Shares {
    pub(crate) fn of(answer: Answer) -> Self {
        Self { answer, at: 0 }
    }

    pub(crate) fn next(&mut self, blocks: u32) -> Answer {
        let from = self.at;
        self.at += blocks as usize;
        match &self.answer {
            Ok(Output::Data(data)) => match data.get(from..self.at) {
                Some(part) => Ok(Output::Data(Blocks::from(part))),
                None => Err(Status::UnrecoveredRead),
            },
            Ok(_) => Ok(Output::Done),
            Err(status) => Err(*status),
        }
    }
}

#[cfg(test)]
mod tests {
    use drive::Block;

    use super::*;

    const LIMITS: Limits = Limits { max_transfer: 8, zone_blocks: Some(64) };

    fn write(lba: Lba, len: u32, slot: u32) -> Request {
        let data = (lba..lba + u64::from(len)).map(|n| Block::from_prefix(&n.to_le_bytes()));
        let command = Command::Write { lba, data: data.collect(), fua: false };
        Request {
            command,
            queue: 0,
            tag: None,
            lane: None,
            parts: Parts::from_elem(Part { slot, blocks: len }, 1),
        }
    }

    #[test]
    fn adjacent_writes_are_one_request_in_the_order_of_addresses() {
        let mut request = write(10, 2, 0);
        assert!(request.merge(write(12, 3, 1), LIMITS).is_none());
        assert!(request.merge(write(9, 1, 2), LIMITS).is_none());
        let Command::Write { lba, data, .. } = &request.command else { panic!("{request:?}") };
        assert_eq!((*lba, data.len()), (9, 6));
        for (n, block) in (9u64..).zip(data) {
            assert_eq!(*block, Block::from_prefix(&n.to_le_bytes()));
        }
        let slots: Vec<_> = request.parts.iter().map(|part| part.slot).collect();
        assert_eq!(slots, [2, 0, 1]);
    }

    #[test]
    fn what_may_not_be_merged_is_given_back() {
        let alone = |mut request: Request, other| request.merge(other, LIMITS).is_some();
        assert!(alone(write(10, 2, 0), write(13, 1, 1)), "a gap");
        assert!(alone(write(10, 5, 0), write(15, 4, 1)), "too long");
        assert!(alone(write(62, 2, 0), write(64, 1, 1)), "across zones");
        assert!(alone(write(64, 1, 0), write(62, 2, 1)), "across zones");
        let mut read = write(12, 1, 1);
        read.command = Command::Read { lba: 12, blocks: 1 };
        assert!(alone(write(10, 2, 0), read), "a read");
        let mut forced = write(12, 1, 1);
        forced.command = Command::Write { lba: 12, data: Blocks::new(), fua: true };
        assert!(alone(write(10, 2, 0), forced), "a forced write");
        let zoned = Request { lane: Some(0), ..write(10, 2, 0) };
        assert!(alone(zoned, write(9, 1, 1)), "ahead in a zone");
    }
}
