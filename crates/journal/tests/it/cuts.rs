//! The journal over a table of blocks, and every state that a power cut may leave of it.

use std::sync::Arc;

use cores::splitmix64;
use drive::Ssd;
use journal::{Inject, Options, Strictness};

use crate::client::{
    self, BLOCKS, DRIVE_BLOCKS, Store, Value, io, io_without_fua, is_one_of, read, recover,
};
use crate::explorer::{self, Tape};

/// A run by chance of one thread, with its states: after each transaction, and after data was made
/// durable.
struct Run {
    store: Store,
    tape: Tape,
    states: Vec<Vec<Value>>,
    seed: u64,
}

impl Run {
    fn below(&mut self, max: usize) -> usize {
        self.seed = splitmix64(self.seed);
        (self.seed >> 8) as usize % max
    }

    fn state(&mut self) -> &mut [Value] {
        let next = self.states.last().expect("the first").clone();
        self.states.push(next);
        self.states.last_mut().expect("just pushed")
    }

    fn promise(&self) {
        self.tape.promise(self.states.len() - 1);
    }

    /// One transaction that changes some blocks; sometimes it is made durable.
    fn change(&mut self, value: u64) {
        let first = self.below(BLOCKS);
        let count = 1 + self.below(4);
        let blocks: Vec<usize> = (0..count).map(|n| (first + 3 * n) % BLOCKS).collect();
        let id = self.store.put(&blocks, &[], value).expect("put");
        let state = self.state();
        blocks.iter().for_each(|block| state[*block] = Value::Table(value));
        if self.below(2) == 0 {
            self.store.journal.commit(id).expect("commit");
            self.promise();
        }
    }

    /// A block is freed together with a change of another; then it holds data.
    fn reuse(&mut self, value: u64) {
        let block = self.below(BLOCKS);
        let other = (block + 1) % BLOCKS;
        let id = self.store.put(&[other], &[block], value).expect("put");
        let state = self.state();
        (state[other], state[block]) = (Value::Table(value), Value::Free);
        self.store.journal.commit(id).expect("commit");
        assert_eq!(self.store.journal.client().committed.lock().last(), Some(&id));
        self.promise();
        self.store.put_data(block, value).expect("data");
        self.state()[block] = Value::Data(value);
        self.promise();
    }
}

/// Runs `length` operations and explores what cuts may leave: the number of states, and failures.
fn explore(inject: Inject, fua: bool, seed: u64, length: u64) -> (usize, Vec<String>) {
    let drive = explorer::drive(DRIVE_BLOCKS);
    let io = if fua { io(drive.clone()) } else { io_without_fua(drive.clone()) };
    let store = Store::made_with(io, Options { inject, ..Options::default() }, |_| {});
    let before = explorer::contents(&drive, DRIVE_BLOCKS);
    let states = vec![vec![Value::Zero; BLOCKS]];
    let mut run = Run { store, tape: Tape::on(&drive), states, seed };
    for value in 1..=length {
        if run.below(4) == 0 { run.reuse(value) } else { run.change(value) }
    }
    let Run { tape, states, store, .. } = run;
    drop(store);
    let judge = |drive: &Arc<Ssd>, promised: usize| {
        let io = client::io(drive.clone());
        recover(&io, Strictness::Strict).map_err(|error| error.to_string())?;
        let found = read(&io)?;
        let good = is_one_of(&found, &states, promised);
        if good { Ok(()) } else { Err(format!("{found:?} is no state")) }
    };
    tape.explore(DRIVE_BLOCKS, before, &judge)
}

#[test]
fn every_cut_leaves_a_state_of_the_run() {
    for (seed, fua) in (0..4).flat_map(|seed| [(seed, false), (seed, true)]) {
        let (states, failures) = explore(Inject::empty(), fua, seed, 30);
        let first = failures.first();
        assert!(
            first.is_none(),
            "seed {seed}, fua {fua}: {} of {states}: {first:?}",
            failures.len()
        );
        assert!(states > 500, "only {states} states");
    }
}

#[test]
fn each_mistake_is_found() {
    for mistake in
        [Inject::DROP_FLUSH, Inject::PLAIN_COMMIT, Inject::SKIP_REVOKE, Inject::EARLY_TAIL]
    {
        for fua in [false, true] {
            let found = (0..6).any(|seed| !explore(mistake, fua, seed, 30).1.is_empty());
            assert!(found, "{mistake:?} broke nothing, fua {fua}");
        }
    }
}
