//! Transactions of several areas that share blocks (Z-Journal, 2.2), and every state that a power
//! cut may leave of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use cores::{Machine, Profile, splitmix64};
use drive::Ssd;
use journal::ondisk::superblock::Incompat;
use journal::policy::ZJOURNAL;
use journal::{Id, Inject, Options, Strictness};

use crate::client::{
    self, BLOCKS, Store, Value, WIDE_DRIVE_BLOCKS, io, io_without_fua, read, recover,
};
use crate::explorer::{self, Tape};

/// An operation: which blocks it gave which value, in the order in which it ran.
#[derive(Clone, Debug)]
struct Op {
    changed: Vec<usize>,
    freed: Option<usize>,
    value: Value,
}

impl Op {
    fn touches(&self, block: usize) -> bool {
        self.changed.contains(&block) || self.freed == Some(block)
    }
}

/// All operations of a run, and how many of them had been promised when.
#[derive(Default)]
struct History {
    ops: Vec<Op>,
    promises: Vec<BTreeSet<usize>>,
}

impl History {
    /// Those that are promised, and all that found values are of, and all that those depend on: is
    /// the table what they make of it?
    fn judge(&self, found: &[Value], promise: usize) -> Result<(), String> {
        let mut there = self.promises[promise].clone();
        let writer = |value: &Value| self.ops.iter().position(|op| op.value == *value);
        there.extend(found.iter().filter_map(writer));
        for later in (0..self.ops.len()).rev().filter(|later| *later > 0) {
            if there.contains(&later) {
                let op = &self.ops[later];
                let shares = |earlier: &usize| {
                    (0..BLOCKS).any(|block| op.touches(block) && self.ops[*earlier].touches(block))
                };
                there.extend((0..later).filter(shares));
            }
        }
        let mut table = vec![Value::Zero; BLOCKS];
        for op in there.iter().map(|number| &self.ops[*number]) {
            op.changed.iter().for_each(|block| table[*block] = op.value);
            op.freed.into_iter().for_each(|block| table[block] = Value::Free);
        }
        let fits = |(want, found): (&Value, &Value)| *want == Value::Free || want == found;
        if table.iter().zip(found).all(fits) {
            return Ok(());
        }
        Err(format!("{found:?} instead of {table:?}, of {there:?} in {:?}", self.ops))
    }
}

/// A run whose operations are on cores of a virtual machine, one after another.
struct Run {
    store: Arc<Store>,
    tape: Tape,
    history: History,
    ids: Vec<Option<Id>>,
}

impl Run {
    fn on<T: Send + 'static>(core: usize, job: impl FnOnce() -> T + Send + 'static) -> T {
        cores::spawn("user", Some(core), job).join()
    }

    fn promise(&mut self, ops: impl IntoIterator<Item = usize>) {
        let mut promised = self.history.promises.last().expect("the first").clone();
        promised.extend(ops);
        self.history.promises.push(promised);
        self.tape.promise(self.history.promises.len() - 1);
    }

    /// An operation on a core. Its number.
    fn put(&mut self, core: usize, blocks: &[usize], freed: Option<usize>) -> usize {
        let number = self.history.ops.len();
        let value = number as u64 + 1;
        let (store, changed) = (self.store.clone(), blocks.to_vec());
        let id = Self::on(core, move || store.put(&changed, freed.as_slice(), value).expect("put"));
        let changed = blocks.to_vec();
        self.history.ops.push(Op { changed, freed, value: Value::Table(value) });
        self.ids.push(Some(id));
        number
    }

    /// A thread on a core makes an operation durable.
    fn commit(&mut self, core: usize, op: usize) {
        if let Some(id) = self.ids[op] {
            let store = self.store.clone();
            Self::on(core, move || store.journal.commit(id).expect("commit"));
            self.promise([op]);
        }
    }

    /// Writes data into a block whose operation is promised that freed it.
    fn data(&mut self, block: usize) {
        let value = self.history.ops.len() as u64 + 1;
        let op = Op { changed: vec![block], freed: None, value: Value::Data(value) };
        self.history.ops.push(op);
        self.ids.push(None);
        self.store.put_data(block, value).expect("data");
        self.promise([self.history.ops.len() - 1]);
    }
}

/// Runs `job` on a machine of several cores, then judges every state that a cut may leave.
fn explore(
    (areas, inject, fua): (u16, Inject, bool),
    job: impl FnOnce(&mut Run),
) -> (usize, Vec<String>) {
    let drive = explorer::drive(WIDE_DRIVE_BLOCKS);
    let profile = Profile::named("xeon-4116").expect("profile");
    let ran = Machine::simulated(&profile, 1).run(|| {
        let io = if fua { io(drive.clone()) } else { io_without_fua(drive.clone()) };
        let options = Options { policy: &ZJOURNAL, areas, inject, ..Options::default() };
        let store = Arc::new(Store::made_with(io, options, |_| {}));
        let before = explorer::contents(&drive, WIDE_DRIVE_BLOCKS);
        let history = History { ops: Vec::new(), promises: vec![BTreeSet::new()] };
        let mut run = Run { store, tape: Tape::on(&drive), history, ids: Vec::new() };
        job(&mut run);
        (before, run.tape, run.history)
    });
    let (before, tape, history) = ran.expect("a run");
    let judge = |drive: &Arc<Ssd>, promised: usize| {
        let io = client::io(drive.clone());
        recover(&io, Strictness::Strict).map_err(|error| error.to_string())?;
        let superblock = client::superblock(&io).map_err(|error| error.to_string())?;
        if superblock.start().is_some() || superblock.incompat().contains(Incompat::AREAS) {
            return Err("the log is still in use".into());
        }
        history.judge(&read(&io)?, promised)
    };
    tape.explore(WIDE_DRIVE_BLOCKS, before, &judge)
}

fn assert_whole(what: &str, (states, failures): (usize, Vec<String>), least: usize) {
    let first = failures.first();
    assert!(first.is_none(), "{what}: {} of {states}: {first:?}", failures.len());
    assert!(states >= least, "{what}: only {states} states");
}

/// The paper's example, as it stands in 2.2: core 0 changes blocks 0 and 1, then core 1 blocks 0
/// and 2, and either one commits first.
fn example(run: &mut Run, order: usize) {
    let first = run.put(0, &[0, 1], None);
    if order == 1 {
        run.commit(0, first);
    }
    let second = run.put(1, &[0, 2], None);
    match order {
        // Core 1's commit ends earlier than core 0's.
        0 => run.commit(1, second),
        1 => run.commit(1, second),
        _ => run.commit(0, first),
    }
    let third = run.put(0, &[0, 3], None);
    run.put(1, &[2], None);
    run.commit(0, third);
}

#[test]
fn the_papers_example_at_every_cut() {
    for (order, fua) in (0..3).flat_map(|order| [(order, false), (order, true)]) {
        let found = explore((2, Inject::empty(), fua), |run| example(run, order));
        assert_whole(&format!("order {order}, fua {fua}"), found, 30);
    }
}

#[test]
fn without_marks_the_papers_example_breaks() {
    for fua in [false, true] {
        let found = |order| explore((2, Inject::DROP_CHAIN, fua), |run| example(run, order)).1;
        assert!((0..3).any(|order| !found(order).is_empty()), "fua {fua}: no cut broke it");
    }
}

/// Operations by chance, on cores by chance.
fn random(run: &mut Run, areas: u16, seed: u64, length: usize) {
    let mut state = seed;
    let mut below = |max: usize| {
        state = splitmix64(state);
        (state >> 8) as usize % max
    };
    for _ in 0..length {
        let core = below(areas.into());
        let (first, count) = (below(BLOCKS), 1 + below(3));
        let blocks: Vec<usize> = (0..count).map(|n| (first + 3 * n) % BLOCKS).collect();
        if below(6) > 0 {
            let op = run.put(core, &blocks, None);
            if below(3) == 0 {
                let of = op - below(3).min(op);
                run.commit(below(areas.into()), of);
            }
            continue;
        }
        let freed = (first + 1) % BLOCKS;
        let op = run.put(core, &blocks[..1], Some(freed));
        run.commit(core, op);
        run.data(freed);
    }
}

#[test]
fn operations_by_chance_on_several_cores_at_every_cut() {
    for (seed, areas) in (0..4).zip([2, 3, 4, 3]) {
        let fua = seed % 2 == 0;
        let job = |run: &mut Run| random(run, areas, seed, 20);
        let found = explore((areas, Inject::empty(), fua), job);
        assert_whole(&format!("seed {seed}, {areas} areas, fua {fua}"), found, 300);
    }
}

#[test]
#[ignore = "long: 200 seeds and 120,000 states"]
fn many_operations_by_chance_on_several_cores_at_every_cut() {
    for (seed, areas) in (100..200).zip([2, 3, 4].into_iter().cycle()) {
        for fua in [false, true] {
            let job = |run: &mut Run| random(run, areas, seed, 60);
            let found = explore((areas, Inject::empty(), fua), job);
            assert_whole(&format!("seed {seed}, {areas} areas, fua {fua}"), found, 400);
        }
    }
}

/// Core 0's image of a block is in the log, core 2 has changed the block since, and core 1 frees
/// it: what says so must stay in core 1's log as long as that image in core 0's.
#[test]
fn a_block_freed_after_a_partner_took_it_stays_freed() {
    let result = explore((3, Inject::empty(), false), |run| {
        let first = run.put(0, &[0], None);
        run.commit(0, first);
        run.put(2, &[0, 1], None);
        let freed = run.put(1, &[2], Some(0));
        run.commit(1, freed);
        run.data(0);
        for _ in 0..30 {
            let op = run.put(1, &[2, 3], None);
            run.commit(1, op);
        }
    });
    assert_whole("a freed block", result, 100);
}

/// Who has joined one of two partners knows both, and needs no mark of its own for the other.
#[test]
fn partners_of_partners_are_committed_together() {
    let result = explore((3, Inject::empty(), true), |run| {
        run.put(0, &[0], None);
        run.put(1, &[0, 1], None);
        run.put(2, &[0], None);
        let last = run.put(2, &[1], None);
        run.commit(2, last);
        let running = |area| run.store.journal.running(area).map(|(id, _)| id);
        assert_eq!([running(0), running(1), running(2)], [None; 3], "all are committed");
    });
    assert_whole("partners of partners", result, 10);
}

fn assert_found(mistake: Inject) {
    let found = (0..20).any(|seed| {
        let job = |run: &mut Run| random(run, 3, seed, 40);
        !explore((3, mistake, seed % 2 == 0), job).1.is_empty()
    });
    assert!(found, "{mistake:?} broke nothing");
}

#[test]
fn a_tail_ahead_of_those_it_follows_is_found() {
    assert_found(Inject::TAIL_AHEAD);
}

#[test]
#[ignore = "long: mistakes that a single log's tests find as well"]
fn each_mistake_is_found() {
    let usual = [Inject::DROP_FLUSH, Inject::PLAIN_COMMIT, Inject::SKIP_REVOKE, Inject::EARLY_TAIL];
    usual.into_iter().for_each(assert_found);
    assert_found(Inject::DROP_CHAIN);
}

/// What shares no block is not closed along: its core need not stop for it.
#[test]
fn a_commit_takes_along_only_what_it_depends_on() {
    let result = explore((3, Inject::empty(), false), |run| {
        let first = run.put(0, &[0], None);
        run.put(1, &[0, 1], None);
        let other = run.put(2, &[5], None);
        let running = |run: &Run, area| run.store.journal.running(area).map(|(id, _)| id);
        assert_eq!(running(run, 2), run.ids[other]);
        run.commit(0, first);
        assert_eq!([running(run, 0), running(run, 1)], [None, None], "both are committed");
        assert_eq!(running(run, 2), run.ids[other], "it goes on");
        run.commit(2, other);
        assert_eq!(running(run, 2), None);
    });
    assert_whole("what a commit takes along", result, 10);
}
