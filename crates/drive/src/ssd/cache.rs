//! Random-write blocks that are not on NAND yet, of conventional zones and conventional drives.
//!
//! Blocks have versions, because a block may be written again while an older version is being
//! programmed, and programs end in any order. Until its newest version is on NAND, a block has an
//! entry here. A power cut may keep or lose that version independently of every other block and, on
//! a drive that tears blocks, of every other sector.

use std::collections::BTreeMap;

use crate::{Block, Lba};

/// Counts writes; a later write has a higher number.
pub(super) type Version = u64;

/// A block that is not on NAND yet.
#[derive(Debug)]
struct Entry {
    /// The newest version that the buffer holds completely.
    buffered: Option<(Version, Block)>,
    /// A newer version whose transfer is not complete.
    arriving: Option<(Version, Block)>,
    /// The newest version on NAND. At first, the newest when the entry was made.
    nand: Version,
}

/// Blocks that are not on NAND yet, and those that are collected for the next program.
#[derive(Debug, Default)]
pub(super) struct Cache {
    entries: BTreeMap<Lba, Entry>,
    gathering: Vec<(Lba, Version, Block)>,
    next: Version,
}

impl Cache {
    /// Accepts a write of `block`, whose transfer begins.
    pub(super) fn accept(&mut self, lba: Lba, block: Block) -> Version {
        let floor = self.next;
        self.next += 1;
        let entry = self.entries.entry(lba).or_insert(Entry {
            buffered: None,
            arriving: None,
            nand: floor,
        });
        entry.arriving = Some((self.next, block));
        self.next
    }

    /// The transfer of a version is complete. With `gather` it waits for its program. False if it
    /// is no longer needed: a later version reached NAND first, or the block was discarded
    /// meanwhile.
    pub(super) fn arrive(
        &mut self,
        lba: Lba,
        version: Version,
        block: Block,
        gather: bool,
    ) -> bool {
        let Some(entry) = self.entries.get_mut(&lba) else { return false };
        if version <= entry.nand {
            return false;
        }
        if entry.arriving.as_ref().is_some_and(|(arriving, _)| *arriving == version) {
            entry.arriving = None;
        }
        if entry.buffered.as_ref().is_none_or(|(buffered, _)| *buffered < version) {
            entry.buffered = Some((version, block.clone()));
        }
        if gather {
            self.gathering.push((lba, version, block));
        }
        true
    }

    /// A version is on NAND. True if it should go to the media, false if a newer one is there.
    pub(super) fn programmed(&mut self, lba: Lba, version: Version) -> bool {
        let Some(entry) = self.entries.get_mut(&lba) else { return false };
        if version <= entry.nand {
            return false;
        }
        entry.nand = version;
        if entry.buffered.as_ref().is_some_and(|(buffered, _)| *buffered <= version) {
            entry.buffered = None;
        }
        if entry.buffered.is_none() && entry.arriving.is_none() {
            self.entries.remove(&lba);
        }
        true
    }

    /// How many blocks wait for a program.
    pub(super) fn gathered(&self) -> u64 {
        self.gathering.len() as u64
    }

    /// Takes up to `blocks` of those that wait, oldest first.
    pub(super) fn take(&mut self, blocks: u64) -> Vec<(Lba, Version, Block)> {
        let count = usize::try_from(blocks).unwrap_or(usize::MAX).min(self.gathering.len());
        self.gathering.drain(..count).collect()
    }

    /// Takes those of the range, even if older ones still wait.
    pub(super) fn take_range(&mut self, lba: Lba, blocks: u64) -> Vec<(Lba, Version, Block)> {
        let range = lba..lba.saturating_add(blocks);
        self.gathering.extract_if(.., |(lba, ..)| range.contains(lba)).collect()
    }

    /// The newest version of a block, if NAND does not have it.
    pub(super) fn newest(&self, lba: Lba) -> Option<&Block> {
        let entry = self.entries.get(&lba)?;
        let version = entry.arriving.as_ref().or(entry.buffered.as_ref());
        version.map(|(_, block)| block)
    }

    /// Forgets the range; programs under way for it are void.
    pub(super) fn discard(&mut self, lba: Lba, blocks: u64) {
        let end = lba.saturating_add(blocks);
        while let Some((&at, _)) = self.entries.range(lba..end).next() {
            self.entries.remove(&at);
        }
    }

    /// The blocks that NAND does not have.
    pub(super) fn pending(&self) -> impl Iterator<Item = (Lba, Pending<'_>)> {
        self.entries.iter().map(|(&lba, entry)| {
            let [arriving, buffered] = [&entry.arriving, &entry.buffered]
                .map(|version| version.as_ref().map(|(_, block)| block));
            (lba, Pending { arriving, buffered })
        })
    }
}

/// The versions of a block that are not on NAND.
#[derive(Clone, Copy)]
pub(super) struct Pending<'a> {
    arriving: Option<&'a Block>,
    buffered: Option<&'a Block>,
}

impl<'a> Pending<'a> {
    /// What a power cut leaves of the block, with the choices of `keep(salt)`. Without `plp`,
    /// either version or neither; with it, what is buffered or what was being transferred.
    pub(super) fn survivor(self, plp: bool, keep: impl Fn(u64) -> bool) -> Option<&'a Block> {
        let arriving = self.arriving.filter(|_| keep(1));
        arriving.or_else(|| self.buffered.filter(|_| plp || keep(2)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(n: u8) -> Block {
        Block::from_prefix(&[n])
    }

    /// Versions 1 and 2 of a block are programmed on two dies, and 2 ends first.
    #[test]
    fn an_old_program_that_ends_late_does_not_win() {
        let mut cache = Cache::default();
        let old = cache.accept(9, block(1));
        cache.arrive(9, old, block(1), true);
        let new = cache.accept(9, block(2));
        cache.arrive(9, new, block(2), true);
        assert_eq!(cache.take(8).len(), 2);
        assert!(cache.programmed(9, new));
        assert!(!cache.programmed(9, old));
        assert!(cache.newest(9).is_none());
        let third = cache.accept(9, block(3));
        assert!(!cache.programmed(9, old), "not even when the block is written again");
        assert_eq!(cache.newest(9), Some(&block(3)));
        cache.arrive(9, third, block(3), false);
        assert!(cache.programmed(9, third));
    }

    /// With PLP, the acknowledged version survives while its successor is being transferred.
    #[test]
    fn a_write_in_flight_does_not_undo_the_one_before() {
        let mut cache = Cache::default();
        let first = cache.accept(9, block(1));
        cache.arrive(9, first, block(1), true);
        cache.accept(9, block(2));
        let (_, pending) = cache.pending().next().expect("it is pending");
        let kept = |keep: bool| pending.survivor(true, |_| keep).cloned();
        assert_eq!((kept(false), kept(true)), (Some(block(1)), Some(block(2))));
    }
}
