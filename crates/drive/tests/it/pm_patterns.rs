//! The log patterns of persistent memory, each with every state that a cut can leave.
//!
//! Sound patterns leave no bad state, the others some; so the model is neither too kind nor too
//! cruel. Sources: NOVA (FAST 2016) section 4.2 for entry and tail, WineFS (SOSP 2021) for entries
//! of one line, "An Efficient Metadata Journaling Scheme for In-memory File Systems" (JIIBC 2023)
//! for the redo record, and the lost fences of NOVA's released code.

use std::sync::Arc;

use cores::Mutex;
use drive::pm::{Domain, Pending, Pm, PmSim, PmState};

const TAIL: u64 = 0;
const ENTRY: u64 = 4096;
const DATA: u64 = 8192;
const OBJECT: u64 = 12288;
const NEW: u64 = 0xabcd;

/// All different states before each fence and at the end.
fn states(domain: Domain, before: &[(u64, u64)], program: impl Fn(&dyn Pm)) -> Vec<PmState> {
    let mut start = PmState::new(1 << 14);
    before.iter().for_each(|&(at, word)| start.set(at, word));
    let pm = PmSim::power_on(start, domain);
    let looks: Arc<Mutex<Vec<Pending>>> = Arc::default();
    let to = looks.clone();
    pm.observe(Arc::new(move |pending| to.lock().push(pending)));
    program(&*pm);
    let mut looks = std::mem::take(&mut *looks.lock());
    looks.push(pm.pending());
    let mut states: Vec<PmState> = Vec::new();
    for look in &looks {
        assert!(look.count() <= 1 << 16, "{} states", look.count());
        states.extend(look.states(1 << 16, 0));
    }
    states.sort_by_key(PmState::hash);
    states.dedup_by_key(|state| state.hash());
    states
}

fn words(from: u64) -> Vec<u8> {
    (from..from + 7).flat_map(u64::to_le_bytes).collect()
}

/// Seven words in one line; the eighth is the mark.
fn is_whole(state: &PmState, at: u64) -> bool {
    (0..7).all(|n| state.load(at + n * 8) == NEW + n)
}

/// Bad states, and all of them, of a program that ends an entry with a tail.
fn bad_of_tail(domain: Domain, program: impl Fn(&dyn Pm)) -> (usize, usize) {
    let all = states(domain, &[], program);
    let bad = all.iter().filter(|state| state.load(TAIL) == 64 && !is_whole(state, ENTRY));
    (bad.count(), all.len())
}

/// The same of one that ends it with a mark in its last word.
fn bad_of_mark(domain: Domain, program: impl Fn(&dyn Pm)) -> (usize, usize) {
    let all = states(domain, &[], program);
    let bad = all.iter().filter(|state| state.load(ENTRY + 56) == 1 && !is_whole(state, ENTRY));
    (bad.count(), all.len())
}

#[test]
fn entry_then_tail() {
    let with = |fence_between: bool, domain| {
        bad_of_tail(domain, move |pm| {
            pm.store(ENTRY, &words(NEW));
            pm.write_back(ENTRY, 56);
            if fence_between {
                pm.fence();
            }
            pm.store_word(TAIL, 64);
            pm.write_back(TAIL, 8);
            pm.fence();
        })
    };
    assert_eq!(with(true, Domain::Memory), (0, 9), "entry, fence, tail, fence");
    let without = with(false, Domain::Memory);
    assert_eq!(without, (7, 16), "without the first fence any prefix of the entry is there");
    // The caches keep the order of stores, and so does a killed process.
    assert_eq!(with(false, Domain::Caches).0, 0);
    assert_eq!(with(false, Domain::Process).0, 0);
}

#[test]
fn a_line_with_its_mark_last() {
    let plain = |pm: &dyn Pm| {
        pm.store(ENTRY, &words(NEW));
        pm.store_word(ENTRY + 56, 1);
        pm.write_back(ENTRY, 64);
        pm.fence();
    };
    let line: Vec<u8> = [words(NEW), 1u64.to_le_bytes().to_vec()].concat();
    let streamed = |pm: &dyn Pm| {
        pm.stream(ENTRY, &line);
        pm.fence();
    };
    let streamed_fenced = |pm: &dyn Pm| {
        let mut unmarked = line.clone();
        unmarked[56] = 0;
        pm.stream(ENTRY, &unmarked);
        pm.fence();
        pm.store_word(ENTRY + 56, 1);
        pm.write_back(ENTRY, 64);
        pm.fence();
    };
    for domain in [Domain::Memory, Domain::Caches, Domain::Process] {
        assert_eq!(bad_of_mark(domain, plain).0, 0, "one fence is enough: {domain:?}");
        assert_eq!(bad_of_mark(domain, streamed_fenced).0, 0, "{domain:?}");
    }
    // A mark beside every subset of the seven words but the whole one.
    assert_eq!(bad_of_mark(Domain::Memory, streamed), (127, 256));
    assert_eq!(bad_of_mark(Domain::Caches, streamed), (127, 256));
    assert_eq!(bad_of_mark(Domain::Process, streamed).0, 0);
}

/// Stores something at `at`, a mark for it, two words on two lines, and takes the mark away.
fn journalled(pm: &dyn Pm, data: Option<u64>, fences: [bool; 3]) {
    let fence = |there: bool| {
        if there {
            pm.fence();
        }
    };
    if let Some(at) = data {
        pm.stream(at, &words(NEW));
    }
    pm.store(ENTRY, &words(NEW));
    pm.write_back(ENTRY, 56);
    fence(fences[0]);
    pm.store_word(TAIL, 64);
    pm.write_back(TAIL, 8);
    fence(fences[1]);
    for at in [OBJECT, OBJECT + 64] {
        pm.store_word(at, 2);
        pm.write_back(at, 8);
    }
    fence(fences[2]);
    pm.store_word(TAIL, 0);
    pm.write_back(TAIL, 8);
    pm.fence();
}

/// How many states are bad with all three fences, and without each of them.
fn bad_without(data: Option<u64>, is_bad: impl Fn(&PmState, [u64; 2]) -> bool) -> [usize; 4] {
    let bad = |fences| {
        let before = [(OBJECT, 1), (OBJECT + 64, 1)];
        let all = states(Domain::Memory, &before, |pm| journalled(pm, data, fences));
        let object = |state: &PmState| [OBJECT, OBJECT + 64].map(|at| state.load(at));
        all.iter().filter(|state| is_bad(state, object(state))).count()
    };
    let all = [true; 3];
    let without = |missing: usize| {
        let mut fences = all;
        fences[missing] = false;
        bad(fences)
    };
    [bad(all), without(0), without(1), without(2)]
}

#[test]
fn undo_before_the_change_and_retired_after_it() {
    // With a mark the entry is rolled back, so it must be what was recorded.
    let bad = bad_without(None, |state, object| match state.load(TAIL) {
        64 => !is_whole(state, ENTRY),
        _ => object[0] != object[1],
    });
    assert!(bad[0] == 0 && bad[1..].iter().all(|&bad| bad > 0), "{bad:?}");
}

#[test]
fn redo_of_a_marked_record() {
    // With a mark the record is applied; without one the object is whole, and if new, so is data.
    let bad = bad_without(Some(DATA), |state, object| {
        let data = is_whole(state, DATA);
        match state.load(TAIL) {
            64 => !is_whole(state, ENTRY) || !data,
            _ => object[0] != object[1] || object == [2, 2] && !data,
        }
    });
    assert!(bad[0] == 0 && bad[1..].iter().all(|&bad| bad > 0), "{bad:?}");
}
