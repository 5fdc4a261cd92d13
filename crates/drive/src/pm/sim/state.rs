//! What a memory holds at an instant, and all that a cut may make of it.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use cores::{mix, splitmix64};

use super::super::{PmNode, WORD};
use super::Store;
use crate::watch::Watch;
use crate::{BLOCK_SIZE, RamMedia};

const BLOCK: u64 = BLOCK_SIZE as u64;

/// The contents of a memory. A clone costs nothing until one of the two is changed.
#[derive(Clone, Debug)]
pub struct PmState {
    media: RamMedia,
    bytes: u64,
    nodes: Vec<PmNode>,
    /// Of all words that are not zero, in no order, so that it follows each change.
    hash: u64,
    /// Notes which words are read, of this memory and of all that comes of it.
    watch: Option<Arc<Watch>>,
}

impl PmState {
    /// Zeroes, in so many bytes, rounded up to a block, on one node.
    pub fn new(bytes: u64) -> Self {
        Self::on_nodes(bytes, 1)
    }

    /// As [`PmState::new`], divided evenly among so many nodes; at least one block on each.
    pub fn on_nodes(bytes: u64, nodes: u32) -> Self {
        let (nodes, blocks) = (u64::from(nodes.max(1)), bytes.div_ceil(BLOCK).max(nodes.into()));
        let bound = |node| blocks * node / nodes * BLOCK;
        let range = |node: u64| Range { start: bound(node), end: bound(node + 1) };
        let nodes = (0..nodes).map(|n| PmNode { range: range(n), node: n as u32 }).collect();
        Self { media: RamMedia::new(), bytes: blocks * BLOCK, nodes, hash: 0, watch: None }
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its parts.
    pub fn nodes(&self) -> &[PmNode] {
        &self.nodes
    }

    /// Equal for equal contents; different ones have the same with the odds of 64 bits.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The aligned word at `at`; zero outside.
    pub fn load(&self, at: u64) -> u64 {
        self.note(at..at + WORD);
        self.get(at)
    }

    fn note(&self, bytes: Range<u64>) {
        if let Some(watch) = &self.watch {
            watch.note(bytes);
        }
    }

    /// As [`PmState::load`], for what does not depend on the word.
    fn get(&self, at: u64) -> u64 {
        let block = self.media.get(at / BLOCK);
        block.map_or(0, |block| word(&block[..], (at % BLOCK) as usize))
    }

    /// Copies bytes out; zeroes where there are none.
    pub fn read(&self, at: u64, to: &mut [u8]) {
        self.note(at..at + to.len() as u64);
        let mut done = 0;
        while done < to.len() {
            let here = at + done as u64;
            let offset = (here % BLOCK) as usize;
            let len = (to.len() - done).min(BLOCK_SIZE - offset);
            let part = &mut to[done..done + len];
            match self.media.get(here / BLOCK) {
                Some(block) => part.copy_from_slice(&block[offset..offset + len]),
                None => part.fill(0),
            }
            done += len;
        }
    }

    /// Replaces the aligned word at `at`.
    pub fn set(&mut self, at: u64, new: u64) {
        let old = self.get(at);
        if old == new {
            return;
        }
        self.hash ^= of_word(at, old) ^ of_word(at, new);
        let offset = (at % BLOCK) as usize;
        let page = self.media.change(at / BLOCK);
        page[offset..offset + WORD as usize].copy_from_slice(&new.to_le_bytes());
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}

fn of_word(at: u64, word: u64) -> u64 {
    if word == 0 { 0 } else { mix(word ^ splitmix64(at)) }
}

/// Stores about which a cut decides together.
#[derive(Clone, Debug)]
pub(super) enum Track {
    /// Any number of the first ones is there.
    Prefix(Vec<Store>),
    /// A long streaming call: nothing, the first half, every second word, or all of it.
    Long(Vec<Store>),
}

impl Track {
    pub(super) fn choices(&self) -> u64 {
        match self {
            Self::Prefix(stores) => stores.len() as u64 + 1,
            Self::Long(_) => 4,
        }
    }

    fn stores(&self) -> &[Store] {
        let (Self::Prefix(stores) | Self::Long(stores)) = self;
        stores
    }

    /// The last choice is everything, the first nothing.
    fn chosen(&self, choice: u64) -> impl Iterator<Item = &Store> {
        let (stores, is_long) = match self {
            Self::Prefix(stores) => (stores, false),
            Self::Long(stores) => (stores, true),
        };
        stores
            .iter()
            .enumerate()
            .filter(move |(index, _)| match (is_long, choice) {
                (false, _) => (*index as u64) < choice,
                (true, 0) => false,
                (true, 1) => *index < stores.len() / 2,
                (true, 2) => index % 2 == 0,
                (true, _) => true,
            })
            .map(|(_, store)| store)
    }
}

/// All states that a cut may leave at an instant.
#[derive(Clone, Debug)]
pub struct Pending {
    base: PmState,
    tracks: Vec<Track>,
}

impl Pending {
    pub(super) fn new(base: PmState, tracks: Vec<Track>) -> Self {
        Self { base, tracks }
    }

    /// Whether everything is durable, so that there is one state only.
    pub fn is_settled(&self) -> bool {
        self.tracks.is_empty()
    }

    /// What is durable for certain.
    pub fn durable(&self) -> &PmState {
        &self.base
    }

    /// How many combinations there are. Some may be equal.
    pub fn count(&self) -> u64 {
        self.tracks.iter().fold(1, |count, track| count.saturating_mul(track.choices()))
    }

    /// The parts about which a cut decides one by one, by the number of its choices.
    pub fn choices(&self) -> Vec<u64> {
        self.tracks.iter().map(Track::choices).collect()
    }

    /// The state of these choices, one for each part.
    pub fn chosen(&self, choices: &[u64]) -> PmState {
        self.state(|track| choices[track])
    }

    /// The parts that `look` reads of the state of these choices, or of what it makes of it.
    pub fn reads(&self, choices: &[u64], look: &mut dyn FnMut(PmState)) -> BTreeSet<usize> {
        let words = |(part, track): (usize, &Track)| {
            track.stores().iter().map(|store| (store.at..store.at + WORD, part)).collect::<Vec<_>>()
        };
        let watch = Arc::new(Watch::new(self.tracks.iter().enumerate().flat_map(words)));
        let mut state = self.chosen(choices);
        state.watch = Some(watch.clone());
        look(state);
        watch.read()
    }

    /// The states: all of them if there are at most `max`, and otherwise so many of them: none and
    /// all of what is on its way, each part of it alone, all but each part, and combinations that
    /// `seed` picks.
    pub fn states(&self, max: u64, seed: u64) -> impl Iterator<Item = PmState> + '_ {
        let (count, parts) = (self.count(), self.tracks.len() as u64);
        let whole = count <= max;
        (0..count.min(max)).map(move |number| {
            if whole {
                return self.numbered(number);
            }
            let last = |track: usize| self.tracks[track].choices() - 1;
            match number {
                0 => self.state(|_| 0),
                1 => self.state(last),
                n if n < 2 + parts => self.state(|t| if t as u64 == n - 2 { last(t) } else { 0 }),
                n if n < 2 + 2 * parts => {
                    self.state(|t| if t as u64 == n - 2 - parts { 0 } else { last(t) })
                }
                n => self.pick(splitmix64(seed ^ n)),
            }
        })
    }

    /// The state that `seed` picks.
    pub fn pick(&self, seed: u64) -> PmState {
        self.state(|track| {
            splitmix64(seed ^ splitmix64(track as u64)) % self.tracks[track].choices()
        })
    }

    fn numbered(&self, mut number: u64) -> PmState {
        let digits: Vec<u64> = self
            .tracks
            .iter()
            .map(|track| {
                let digit = number % track.choices();
                number /= track.choices();
                digit
            })
            .collect();
        self.chosen(&digits)
    }

    /// The state in which `choice` says how much of each track is there.
    fn state(&self, choice: impl Fn(usize) -> u64) -> PmState {
        let tracks = self.tracks.iter().enumerate();
        let mut stores: Vec<&Store> =
            tracks.flat_map(|(n, track)| track.chosen(choice(n))).collect();
        // Stores to one word keep their order whatever way they take.
        stores.sort_by_key(|store| store.number);
        let mut state = self.base.clone();
        stores.iter().for_each(|store| state.set(store.at, store.word));
        state
    }
}
