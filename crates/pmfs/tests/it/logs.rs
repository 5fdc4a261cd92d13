//! Logs that grow: they are cleaned, so they stay short, and a cut at any time of that leaves what
//! the calls that returned left. And how long recovery takes to read them.

use std::sync::Arc;

use cores::{Mutex, splitmix64};
use drive::pm::{Domain, Pending, Pm, PmSim, PmState};
use vfs::kind::Volume;
use vfs::{Creator, FileSystem, Ino, path};

use crate::harness::{empty, findings, mount};

const BLOCK: usize = 4096;
const PAGES: u64 = 8;
/// Blocks that the files of the test, their directory and short logs fit into.
const BLOCKS_MAX: u64 = 60;

fn page(step: u64) -> Vec<u8> {
    (0..BLOCK as u64 / 8).flat_map(|word| splitmix64(step << 10 | word).to_le_bytes()).collect()
}

/// Overwrites a page, changes attributes, makes a name and removes an older one.
fn step(fs: &dyn FileSystem, file: Ino, number: u64) -> vfs::Result<()> {
    assert_eq!(fs.write(file, number % PAGES * BLOCK as u64, &page(number))?, BLOCK);
    let perm = Some(0o600 + (number % 8) as u16);
    fs.setattr(file, &vfs::SetAttr { perm, ..vfs::SetAttr::default() })?;
    let name = |number: u64| format!("a-name-of-some-length-{number}");
    fs.create(fs.root(), name(number).as_bytes(), 0o644, Creator::default())?;
    match number.checked_sub(3) {
        Some(old) => fs.unlink(fs.root(), name(old).as_bytes()),
        None => Ok(()),
    }
}

/// The pages are those of step `number - 1`, with some of step `number`.
fn judge(state: PmState, number: u64) -> Result<(), String> {
    let sim = PmSim::power_on(state, Domain::Memory);
    findings(sim.clone())?;
    let fs = mount(sim)?;
    let file = fs.lookup(fs.root(), b"file").map_err(|error| error.to_string())?.ino;
    let bytes = path::read_to_vec(&*fs, file).map_err(|error| error.to_string())?;
    for (index, found) in (0..).zip(bytes.chunks(BLOCK)) {
        let last = (0..=number).rev().find(|step| step % PAGES == index);
        let before = last.filter(|&last| last == number).and_then(|last| last.checked_sub(PAGES));
        let is_right = last.is_none_or(|last| found == page(last))
            || before.is_some_and(|before| found == page(before))
            || last == Some(number) && number < PAGES;
        if !is_right {
            return Err(format!("page {index} is not that of step {last:?} or {before:?}"));
        }
    }
    Ok(())
}

fn clean(design: &str) {
    let sim = PmSim::power_on(empty(design, 4 << 20), Domain::Memory);
    let fs: Arc<dyn Volume> = mount(sim.clone()).expect("mount");
    let file = fs.create(fs.root(), b"file", 0o644, Creator::default()).expect("a file").ino;
    let free = fs.statfs().expect("statfs").blocks_free;
    let looks: Arc<Mutex<Vec<Pending>>> = Arc::default();
    let to = looks.clone();
    sim.observe(Arc::new(move |pending| to.lock().push(pending)));
    let mut cuts = 0;
    for number in 0..600 {
        step(&*fs, file, number).unwrap_or_else(|error| panic!("step {number}: {error}"));
        for (index, look) in std::mem::take(&mut *looks.lock()).iter().enumerate() {
            // A page's cuts cost much: all of the calls that clean, which are the longest, and some
            // others.
            let is_picked = splitmix64(number << 8 | index as u64).is_multiple_of(16);
            if index < 14 && !is_picked {
                continue;
            }
            cuts += 1;
            let state = look.pick(splitmix64(number ^ (index as u64) << 32));
            judge(state, number)
                .unwrap_or_else(|why| panic!("step {number}, fence {index}: {why}"));
        }
    }
    let used = free - fs.statfs().expect("statfs").blocks_free;
    assert!(used < BLOCKS_MAX, "{used} blocks for {PAGES} pages");
    assert!(cuts > 400, "{cuts}");
    fs.unmount().expect("unmount");
    assert!(sim.pending().is_settled() && sim.info().bytes > 0);
    judge(sim.visible(), 599).expect("after an unmount");
}

#[test]
fn cleaning_is_bounded_and_can_be_cut() {
    ["nova", "pnova"].into_iter().for_each(clean);
}
