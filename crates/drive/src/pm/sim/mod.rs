//! A model of persistent memory that knows what a cut may leave.
//!
//! Three things are kept apart: what is durable, what loads see, and the stores on their way from
//! one to the other. Each cache line has a queue of stores of a word each, because a line is
//! evicted or written back as it is at an instant, and so always with a prefix of its stores. A
//! write-back marks the end of the queue for the calling core, and that core's fence makes durable
//! what it marked. Streaming stores wait word by word for their core's fence. In the domain of
//! caches the queue is a core's instead of a line's (total store order); in that of processes
//! nothing waits.
//!
//! Sources: the x86-TSO persistency model "Px86" (Raad, Wickerson, Neis, Vafeiadis, POPL 2020),
//! restricted to what it allows of stores, `clwb` and `sfence`; Chipmunk (EuroSys 2023) for looking
//! before each fence: between fences the set of possible states only grows.

mod lines;
mod state;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cores::{Mutex, slot};

use super::{Domain, LINE, Pm, PmInfo, WORD, whole_lines};
use lines::OnTheWay;
pub use state::{Pending, PmState};

/// Told what a cut would leave: before each fence that has something to do, and in the domain of
/// processes after stores. It is called with the memory locked and must not touch it.
pub type PmObserver = Arc<dyn Fn(Pending) + Send + Sync>;

/// What a program has done to a memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PmCounts {
    /// Words stored through the cache.
    pub stored_words: u64,
    /// Words stored past the cache.
    pub streamed_words: u64,
    /// Lines written back.
    pub lines: u64,
    /// Fences.
    pub fences: u64,
}

/// A store of one word that may not be durable yet.
#[derive(Clone, Copy, Debug)]
struct Store {
    /// Its place in the order of all stores.
    number: u64,
    at: u64,
    word: u64,
    core: usize,
    /// The call of [`Pm::stream`] that it belongs to.
    call: u64,
    /// A later store to the same word is durable, so coherence keeps this one from coming after it.
    dead: bool,
}

/// Simulated persistent memory whose power can be cut at any time.
pub struct PmSim {
    info: PmInfo,
    /// It stands for hardware, so it costs no virtual time.
    inner: Mutex<Inner>,
    fences: AtomicU64,
}

struct Inner {
    durable: PmState,
    visible: PmState,
    way: OnTheWay,
    stores: u64,
    counts: PmCounts,
    observer: Option<PmObserver>,
}

impl PmSim {
    /// Memory that holds `state`, with nothing on its way.
    pub fn power_on(state: PmState, domain: Domain) -> Arc<Self> {
        let info = PmInfo { bytes: state.bytes(), domain, nodes: state.nodes().to_vec() };
        let inner = Inner {
            visible: state.clone(),
            durable: state,
            way: OnTheWay::default(),
            stores: 0,
            counts: PmCounts::default(),
            observer: None,
        };
        let inner = Mutex::instrument("simulated persistent memory", inner);
        Arc::new(Self { info, inner, fences: AtomicU64::new(0) })
    }

    /// From now on `observer` is told what a cut would leave.
    pub fn observe(&self, observer: PmObserver) {
        self.inner.lock().observer = Some(observer);
    }

    /// Makes everything durable, as if each core had written back all that it stored and fenced.
    pub fn settle_all(&self) {
        let mut inner = self.inner.lock();
        inner.way = OnTheWay::default();
        inner.durable = inner.visible.clone();
    }

    /// What a cut may leave now.
    pub fn pending(&self) -> Pending {
        self.inner.lock().pending()
    }

    /// What a cut leaves now, as `seed` decides.
    pub fn survivors(&self, seed: u64) -> PmState {
        self.pending().pick(seed)
    }

    /// What loads see now.
    pub fn visible(&self) -> PmState {
        self.inner.lock().visible.clone()
    }

    /// What has been done since it was powered on.
    pub fn counts(&self) -> PmCounts {
        let fences = self.fences.load(Ordering::Relaxed);
        PmCounts { fences, ..self.inner.lock().counts }
    }

    fn check(&self, at: u64, len: u64) {
        let end = at.checked_add(len);
        assert!(end.is_some_and(|end| end <= self.info.bytes), "{at:#x} + {len:#x} is outside");
    }

    /// Stores the words that `from` covers, whole or in part.
    fn put(&self, at: u64, from: &[u8], streamed: bool) {
        if from.is_empty() {
            return;
        }
        let mut inner = self.inner.lock();
        let call = inner.stores;
        let first = at / WORD * WORD;
        let end = at + from.len() as u64;
        let words = (end - first).div_ceil(WORD);
        for number in 0..words {
            let word_at = first + number * WORD;
            inner.settle_read(self.info.domain, word_at);
            let is_whole = at <= word_at && word_at + WORD <= end;
            let before = if is_whole { 0 } else { inner.visible.load(word_at) };
            let mut bytes = before.to_le_bytes();
            for (byte, address) in bytes.iter_mut().zip(word_at..) {
                if (at..end).contains(&address) {
                    *byte = from[(address - at) as usize];
                }
            }
            let word = u64::from_le_bytes(bytes);
            inner.store(self.info.domain, word_at, word, streamed.then_some(call));
            // A killed process stops between two stores; three of the places stand for all.
            let told = number == 0 || number == words / 2 || number + 1 == words;
            if self.info.domain == Domain::Process && told {
                inner.tell();
            }
        }
    }
}

impl Inner {
    fn store(&mut self, domain: Domain, at: u64, word: u64, stream: Option<u64>) {
        self.stores += 1;
        let count = match stream {
            Some(_) => &mut self.counts.streamed_words,
            None => &mut self.counts.stored_words,
        };
        *count += 1;
        self.visible.set(at, word);
        let call = stream.unwrap_or(0);
        let store = Store { number: self.stores, at, word, core: slot(), call, dead: false };
        match (domain, stream) {
            (Domain::Process, _) => self.durable.set(at, word),
            (_, Some(_)) => self.way.stream(store),
            (Domain::Memory, None) => self.way.store(at / LINE, store),
            (Domain::Caches, None) => self.way.store(slot() as u64, store),
        }
    }

    /// In the domain of caches, what another core has read is durable: it left the store buffer.
    fn settle_read(&mut self, domain: Domain, at: u64) {
        if domain == Domain::Caches && self.way.is_stored_elsewhere(at, slot() as u64) {
            let stores = self.way.take_read(at, slot() as u64);
            self.settle(stores);
        }
    }

    fn settle(&mut self, mut stores: Vec<Store>) {
        stores.sort_by_key(|store| store.number);
        for store in stores.iter().filter(|store| !store.dead) {
            self.durable.set(store.at, store.word);
        }
        self.way.supersede(&stores);
    }

    fn pending(&self) -> Pending {
        Pending::new(self.durable.clone(), self.way.tracks())
    }

    fn tell(&self) {
        if let Some(observer) = &self.observer {
            observer(self.pending());
        }
    }
}

impl Pm for PmSim {
    fn info(&self) -> &PmInfo {
        &self.info
    }

    fn read(&self, at: u64, to: &mut [u8]) {
        self.check(at, to.len() as u64);
        let mut inner = self.inner.lock();
        if self.info.domain == Domain::Caches {
            let words = at / WORD * WORD..at + to.len() as u64;
            words.step_by(8).for_each(|word| inner.settle_read(Domain::Caches, word));
        }
        inner.visible.read(at, to);
    }

    fn load(&self, at: u64) -> u64 {
        assert!(at.is_multiple_of(WORD), "{at:#x} is not aligned");
        self.check(at, WORD);
        let mut inner = self.inner.lock();
        inner.settle_read(self.info.domain, at);
        inner.visible.load(at)
    }

    fn store(&self, at: u64, from: &[u8]) {
        self.check(at, from.len() as u64);
        self.put(at, from, false);
    }

    fn store_word(&self, at: u64, word: u64) {
        assert!(at.is_multiple_of(WORD), "{at:#x} is not aligned");
        self.store(at, &word.to_le_bytes());
    }

    fn stream(&self, at: u64, from: &[u8]) {
        self.check(at, from.len() as u64);
        let lines = whole_lines(at, from.len() as u64);
        let (head, rest) = from.split_at((lines.start - at) as usize);
        let (whole, tail) = rest.split_at((lines.end - lines.start) as usize);
        for (at, edge) in [(at, head), (lines.end, tail)] {
            self.put(at, edge, false);
            self.write_back(at, edge.len() as u64);
        }
        self.put(lines.start, whole, true);
    }

    fn write_back(&self, at: u64, len: u64) {
        self.check(at, len);
        if len == 0 {
            return;
        }
        let mut inner = self.inner.lock();
        for line in at / LINE..(at + len).div_ceil(LINE) {
            inner.counts.lines += 1;
            if self.info.domain == Domain::Memory {
                inner.way.mark(line, slot());
            }
        }
    }

    fn fence(&self) {
        self.fences.fetch_add(1, Ordering::Relaxed);
        let mut inner = self.inner.lock();
        if inner.way.is_empty() {
            return;
        }
        inner.tell();
        let stores = inner.way.take_fenced(slot(), self.info.domain == Domain::Caches);
        inner.settle(stores);
    }
}
