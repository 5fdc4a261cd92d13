//! Stores on their way to durability.

use std::collections::BTreeMap;

use super::Store;
use super::state::Track;

/// Words of a streaming call up to which every subset of them is a state of its own; of longer ones
/// four patterns stand for all.
const FEW: usize = 8;

/// Stores that are visible and not yet durable.
#[derive(Default)]
pub(super) struct OnTheWay {
    /// By cache line, or by core in the domain of caches.
    queues: BTreeMap<u64, Queue>,
    streams: Vec<Store>,
    /// Lines that a core has marked since its last fence.
    marked: BTreeMap<usize, Vec<u64>>,
}

/// Stores of which any prefix may become durable.
#[derive(Default)]
struct Queue {
    stores: Vec<Store>,
    /// How many of them each core's write-backs cover.
    marks: BTreeMap<usize, usize>,
}

impl Queue {
    /// Takes the first `count` stores out.
    fn take(&mut self, count: usize) -> Vec<Store> {
        self.marks.values_mut().for_each(|mark| *mark = mark.saturating_sub(count));
        self.stores.drain(..count.min(self.stores.len())).collect()
    }
}

impl OnTheWay {
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.streams.is_empty()
    }

    pub(super) fn store(&mut self, queue: u64, store: Store) {
        self.queues.entry(queue).or_default().stores.push(store);
    }

    pub(super) fn stream(&mut self, store: Store) {
        self.streams.push(store);
    }

    /// `core` writes back `line`.
    pub(super) fn mark(&mut self, line: u64, core: usize) {
        if let Some(queue) = self.queues.get_mut(&line) {
            queue.marks.insert(core, queue.stores.len());
            self.marked.entry(core).or_default().push(line);
        }
    }

    /// What a fence of `core` makes durable. With `whole`, the core's own queue is all of it.
    pub(super) fn take_fenced(&mut self, core: usize, whole: bool) -> Vec<Store> {
        let mut taken: Vec<Store> =
            self.streams.extract_if(.., |store| store.core == core).collect();
        if whole {
            taken.extend(
                self.queues.remove(&(core as u64)).map(|queue| queue.stores).unwrap_or_default(),
            );
            return taken;
        }
        for line in self.marked.remove(&core).unwrap_or_default() {
            let Some(queue) = self.queues.get_mut(&line) else { continue };
            let count = queue.marks.remove(&core).unwrap_or(0);
            taken.extend(queue.take(count));
            if queue.stores.is_empty() {
                self.queues.remove(&line);
            }
        }
        taken
    }

    /// Whether a core other than `core` has the word at `at` in its queue.
    pub(super) fn is_stored_elsewhere(&self, at: u64, core: u64) -> bool {
        let others = self.queues.iter().filter(|(other, _)| **other != core);
        others.flat_map(|(_, queue)| &queue.stores).any(|store| store.at == at)
    }

    /// What is durable because `core` reads the word at `at`.
    pub(super) fn take_read(&mut self, at: u64, core: u64) -> Vec<Store> {
        let mut taken = Vec::new();
        for (_, queue) in self.queues.iter_mut().filter(|(other, _)| **other != core) {
            if let Some(last) = queue.stores.iter().rposition(|store| store.at == at) {
                taken.extend(queue.take(last + 1));
            }
        }
        self.queues.retain(|_, queue| !queue.stores.is_empty());
        taken
    }

    /// Keeps stores to the same words from coming after `durable` ones, which they came before.
    /// Those are in the order of their numbers.
    pub(super) fn supersede(&mut self, durable: &[Store]) {
        if self.is_empty() {
            return;
        }
        let newest: BTreeMap<u64, u64> =
            durable.iter().map(|store| (store.at, store.number)).collect();
        let queued = self.queues.values_mut().flat_map(|queue| &mut queue.stores);
        for store in queued.chain(&mut self.streams) {
            store.dead |= newest.get(&store.at).is_some_and(|newest| store.number < *newest);
        }
    }

    /// What a cut decides one by one.
    pub(super) fn tracks(&self) -> Vec<Track> {
        let live = |stores: &[Store]| -> Vec<Store> {
            stores.iter().filter(|store| !store.dead).copied().collect()
        };
        let mut tracks: Vec<Track> = self
            .queues
            .values()
            .map(|queue| Track::Prefix(live(&queue.stores)))
            .filter(|track| track.choices() > 1)
            .collect();
        let streams = live(&self.streams);
        for call in streams.chunk_by(|one, other| (one.core, one.call) == (other.core, other.call))
        {
            if call.len() > FEW {
                tracks.push(Track::Long(call.to_vec()));
            } else {
                tracks.extend(call.iter().map(|store| Track::Prefix(vec![*store])));
            }
        }
        tracks
    }
}
