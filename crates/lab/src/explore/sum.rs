//! A sum that tells states of a drive apart.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};

use drive::{Block, Lba};

use super::states::Effect;

/// What changed since the run began, as a sum over all blocks that distinguishes states.
#[derive(Default)]
pub(super) struct Sum {
    sum: u64,
    changed: BTreeMap<Lba, u64>,
}

impl Sum {
    pub(super) fn add(&mut self, lba: Lba, hash: u64) {
        self.sum = self.sum.wrapping_add(mix(lba, hash));
    }

    /// Applies `effect`; returns what it replaced.
    pub(super) fn apply(&mut self, effect: &Effect, zone_blocks: u64) -> Vec<(Lba, Option<u64>)> {
        let (lba, blocks) = match *effect {
            Effect::Put(lba, _, hash) => {
                let before = self.changed.insert(lba, hash);
                let gone = before.map_or(0, |old| mix(lba, old));
                self.sum = self.sum.wrapping_sub(gone);
                self.add(lba, hash);
                return vec![(lba, before)];
            }
            Effect::Reset(zone) => (zone, zone_blocks),
            Effect::Discard(lba, blocks) => (lba, blocks),
        };
        let held = self.changed.range(lba..lba + blocks);
        let held: Vec<(Lba, Option<u64>)> = held.map(|(&lba, &hash)| (lba, Some(hash))).collect();
        for (lba, hash) in &held {
            self.changed.remove(lba);
            self.sum = self.sum.wrapping_sub(hash.map_or(0, |hash| mix(*lba, hash)));
        }
        self.add(lba, blocks ^ 0x5eed);
        held
    }

    /// The sum after `effects` too.
    pub(super) fn with<'a>(
        &mut self,
        effects: impl Iterator<Item = &'a Effect>,
        zone_blocks: u64,
    ) -> u64 {
        let before = self.sum;
        let replaced: Vec<_> = effects.flat_map(|effect| self.apply(effect, zone_blocks)).collect();
        let sum = std::mem::replace(&mut self.sum, before);
        for (lba, hash) in replaced.into_iter().rev() {
            match hash {
                Some(hash) => drop(self.changed.insert(lba, hash)),
                None => drop(self.changed.remove(&lba)),
            }
        }
        sum
    }
}

/// What tells a block from others.
pub(super) fn digest(block: &Block) -> u64 {
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
