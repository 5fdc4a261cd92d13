//! The last steps: of each block the newest image that is not revoked goes home (`PASS_REVOKE`,
//! `PASS_REPLAY`).
//!
//! Order of writes: images, then a flush, then the superblock that says that the log is empty,
//! which is forced. A cut before that last write leaves the log as it was, and the same images are
//! written again. With fast commits to apply, the log stays open, without its transactions.

use cores::Stage;
use drive::Block;
use queue::WriteSet;
use rustc_hash::FxHashMap;

use super::Strictness;
use super::judge::Judged;
use super::scan::{Damage, Image, Transaction};
use crate::error::{Error, Result};
use crate::ondisk::fast::Change;
use crate::ondisk::header::{MAGIC, Tid};
use crate::ondisk::record::Record;
use crate::transaction::Stamp;
use crate::volume::{Log, Volume};

/// Blocks of the drive written at a time.
const BATCH: usize = 256;

/// The newest image of every block, by block.
pub struct Ordered {
    homes: Vec<Newest>,
    /// Number of the next transaction; `None` if the log was closed in good order.
    next: Option<Tid>,
    report: Replayed,
}

/// What recovery did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Transactions found complete, and valid.
    pub transactions: usize,
    /// Transactions found complete, whose chains are not.
    pub invalid: usize,
    /// Blocks written.
    pub blocks: usize,
    /// Images left out because they were revoked.
    pub revoked: usize,
    /// Records of single files, to be applied now, oldest first.
    pub records: Vec<Record>,
    /// What fast commits say, to be applied now, in this order. The log is still open then, and
    /// empty: see [`Superblock::take_over`](crate::Superblock::take_over).
    pub fast: Vec<Change>,
    /// What could not be recovered, in a [lenient](Strictness::Lenient) recovery.
    pub damage: Vec<Damage>,
}

/// The image that goes home to a block.
struct Newest {
    image: Image,
    stamp: Stamp,
}

impl Judged {
    /// Decides which image of each block goes home. Fails if a transaction is damaged, unless
    /// `strictness` allows it.
    pub fn order(self, strictness: Strictness) -> Result<Ordered> {
        let was_open = self.areas.iter().any(|area| area.was_open);
        let next = was_open.then_some(self.next);
        let mut report = Replayed {
            transactions: self.transactions().count(),
            invalid: self.invalid,
            damage: self.areas.iter().filter_map(|area| area.damage).collect(),
            ..Replayed::default()
        };
        let revoked = self.revokes();
        let mut homes = Vec::new();
        for transaction in self.transactions() {
            let stamp = transaction.link.stamp;
            for image in &transaction.images {
                if revoked.get(&image.home).is_some_and(|last| *last >= stamp) {
                    report.revoked += 1;
                } else if image.sound {
                    homes.push(Newest { image: *image, stamp });
                } else {
                    let (tid, home) = (transaction.tid, image.home);
                    report.damage.push(Damage::Image { tid, home });
                }
            }
        }
        if let (Strictness::Strict, Some(damage)) = (strictness, report.damage.first()) {
            return Err(damage.into_error());
        }
        // Newest first, since the first one of a block stays. A stable sort, because a transaction
        // may hold several images of a block, the newest last.
        homes.reverse();
        homes.sort_by_key(|newest| (newest.image.home, std::cmp::Reverse(newest.stamp)));
        homes.dedup_by_key(|newest| newest.image.home);
        report.blocks = homes.len();
        Ok(Ordered { homes, next, report })
    }

    /// The last stamp up to which images of a block do not count.
    fn revokes(&self) -> FxHashMap<u64, Stamp> {
        let mut revoked = FxHashMap::default();
        for transaction in self.transactions() {
            for home in &transaction.revoked {
                let last = revoked.entry(*home).or_insert(transaction.link.stamp);
                *last = transaction.link.stamp.max(*last);
            }
        }
        revoked
    }

    fn transactions(&self) -> impl Iterator<Item = &Transaction> {
        self.areas.iter().flat_map(|area| &area.transactions)
    }
}

impl Ordered {
    /// The blocks that replay writes.
    pub fn homes(&self) -> impl Iterator<Item = u64> + '_ {
        self.homes.iter().map(|newest| newest.image.home)
    }

    /// Writes the images home, makes them durable, and closes the log, which must be that which was
    /// scanned.
    pub fn replay(self, log: &mut Log<'_>) -> Result<Replayed> {
        let _span = cores::span(Stage::Recover);
        let volume = log.volume();
        let Some(next) = self.next else { return Ok(self.report) };
        self.check_homes(volume)?;
        let mut writes = WriteSet::default();
        let mut count = 0;
        let same_lba =
            |a: &Newest, b: &Newest| volume.place(a.image.home).0 == volume.place(b.image.home).0;
        for group in self.homes.chunk_by(same_lba) {
            let (lba, _) = volume.place(group[0].image.home);
            writes.push(volume.io(), lba, compose(volume, log, group)?);
            count += 1;
            if count % BATCH == 0 {
                writes.submit(volume.io());
                writes.wait(volume.io().queue())?;
            }
        }
        writes.submit(volume.io());
        writes.wait(volume.io().queue())?;
        volume.io().queue().flush()?;
        // The number of a transaction that may have been begun is not used again
        // (`jbd2_journal_recover`): blocks of it may be in the log.
        log.close(next)?;
        Ok(self.report)
    }

    /// Before anything is written: the images belong to this drive.
    fn check_homes(&self, volume: Volume<'_>) -> Result<()> {
        let blocks = volume.blocks();
        match self.homes.last().map(|newest| newest.image.home) {
            Some(home) if home >= blocks => {
                let allowed = format_args!("a block below {blocks}").to_string();
                Err(Error::corrupt("t_blocknr", home, home, allowed))
            }
            _ => Ok(()),
        }
    }
}

/// The drive's block that holds the homes of `group`, with their images.
fn compose(volume: Volume<'_>, log: &mut Log<'_>, group: &[Newest]) -> Result<Block> {
    let (lba, first) = volume.place(group[0].image.home);
    let is_whole = first.len() == drive::BLOCK_SIZE;
    let mut block = if is_whole { Block::unspecified() } else { volume.io().read(lba)? };
    for newest in group {
        let (_, range) = volume.place(newest.image.home);
        let (image, from) = log.read(newest.image.at)?;
        let home = &mut block.make_mut()[range];
        home.copy_from_slice(&image[from]);
        if newest.image.escaped {
            home[..4].copy_from_slice(&MAGIC.to_be_bytes());
        }
    }
    Ok(block)
}
