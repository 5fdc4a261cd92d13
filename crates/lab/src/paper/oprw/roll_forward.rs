//! Table 6.3: how long a mount takes with that many node blocks to roll forward, and what the check
//! of write pointers adds, on the thesis's machine (simulated) and on this one; and why our figures
//! differ from the thesis's.

use std::collections::LinkedList;
use std::sync::Arc;

use cores::Machine;
use drive::{Drive, DriveState, Ssd, Timing};
use vfs::Creator;

use super::{Kind, Row, VOLATILE};
use crate::oracle::{Event, Oracle};
use crate::workload::recorder::Recorder;
use crate::workload::{Rng, Varmail, Workload};
use crate::{Error, Result, machine, now_ns, rig};
use f2fs::technique;
use vfs::kind::Technique;
use vfs::kind::Volume;

/// Scanned nodes, and the thesis's milliseconds without and with the check.
type Published = (u64, f64, f64);
const PUBLISHED: [Published; 3] =
    [(40_791, 4177.0, 4380.0), (50_962, 7307.0, 7584.0), (57_500, 9751.0, 10_093.0)];
/// How far from a published figure ours may be and still agree.
const NEAR: f64 = 0.1;
/// Files there are, and of [`Load::Overwrites`] their blocks: most of the pointers an inode has
/// room for.
const FILES: u64 = 1000;
const BLOCKS: u64 = 800;
/// Room on the drive for each fsync, in blocks: blocks that are outdated but not yet reusable must
/// not cause a checkpoint.
const ROOM: u64 = 30;
/// Zones for the metadata of so large a volume.
const CONVENTIONAL_ZONES: u32 = 8;
/// Mounts on this machine, of which the shortest counts.
const MOUNTS: usize = 7;
/// Words of an inode in Linux's memory, some 1,200 bytes.
const INODE_WORDS: usize = 150;

/// What fsynced so many nodes.
#[derive(Clone, Copy)]
enum Load {
    /// Blocks of [`FILES`] large files in turn: nodes full of pointers, few inodes.
    Overwrites,
    /// The thesis's: small files, every second fsync that of a new one.
    Varmail,
}

/// Ways to recover, and the mount options they take.
const WAYS: [(&str, &str); 3] = [AS_IS, ONE_BY_ONE, EVERY];
const AS_IS: (&str, &str) = ("as is", "");
const ONE_BY_ONE: (&str, &str) = ("read-ahead off", ",inject=recover-no-read-ahead");
const EVERY: (&str, &str) = ("every version", ",inject=recover-every-version");
/// One step along Linux's list, in ns: what Table 6.3's second mount leaves for it.
const STEP: f64 = 10.0;

/// Table 6.3.
pub(super) fn simulated(seed: u64) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (nodes, without, with) in PUBLISHED {
        let (state, _) = fsynced(Load::Overwrites, nodes, seed)?;
        let [plain, checked] = simulated_mounts(&state, AS_IS.1, nodes, seed)?;
        let (theirs, ours) = (1e6 * (with - without), 1e6 * (checked - plain));
        let per_node = |ns: f64| ns / nodes as f64;
        let row = |kind, what: &str, paper: String, ours, unit| {
            Row::new(kind, format!("{nodes} nodes: {what}"), paper, ours, unit)
        };
        let ms = |ms: f64| format!("{ms:.0} ms");
        rows.push(row(Kind::Outcome, "F2FS", ms(without), plain, "ms").near(without, NEAR));
        rows.push(row(Kind::Outcome, "OPRW", ms(with), checked, "ms").near(with, NEAR));
        let paper = format!("{:.0} ns", per_node(theirs));
        let check = row(Kind::Input, "check of a node", paper, per_node(ours), "ns");
        rows.push(check.near(per_node(theirs), NEAR));
        rows.push(share(format!("{nodes} nodes"), without, with, plain, checked));
    }
    Ok(rows)
}

/// The smallest and the largest mount of Table 6.3, with the possible reasons why ours differs.
pub(super) fn variations(seed: u64) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (whose, load) in [("large files", Load::Overwrites), ("Varmail", Load::Varmail)] {
        let [few, _, many] = PUBLISHED;
        let (less, more) = (each_way(load, few.0, seed)?, each_way(load, many.0, seed)?);
        for (less, more) in less.into_iter().zip(more) {
            let what = format!("{whose}, {}", more.what);
            rows.extend(beside(more.kind, &what, (few, less.ms), (many, more.ms)));
        }
    }
    Ok(rows)
}

/// A variation of Table 6.3's largest mount, and how much longer it takes than the smallest.
fn beside(
    kind: Kind,
    what: &str,
    (few, [less, _]): (Published, [f64; 2]),
    (many, [plain, checked]): (Published, [f64; 2]),
) -> [Row; 3] {
    let row = |what, paper, ours, unit| Row::new(kind, what, paper, ours, unit);
    let (paper, trend) = (many.1, many.1 / few.1);
    let time = row(format!("{what}: F2FS"), format!("{paper:.0} ms"), plain, "ms");
    let grows = format!("{what}: {} over {} nodes", many.0, few.0);
    let grows = row(grows, format!("{trend:.2} x"), plain / less, "x");
    let share = share(what.to_owned(), many.1, many.2, plain, checked);
    [time.near(paper, NEAR), grows.near(trend, NEAR), share]
}

/// One way to recover, and the milliseconds of a mount without and with the check.
struct Variation {
    kind: Kind,
    what: String,
    ms: [f64; 2],
}

fn each_way(load: Load, nodes: u64, seed: u64) -> Result<Vec<Variation>> {
    let (state, inodes) = fsynced(load, nodes, seed)?;
    let ways = WAYS.iter().map(|(what, options)| {
        let ms = simulated_mounts(&state, options, nodes, seed)?;
        Ok(Variation { kind: Kind::Outcome, what: (*what).to_owned(), ms })
    });
    let mut ways = ways.collect::<Result<Vec<_>>>()?;
    // The list is not walked in the mount itself: its steps are counted and charged.
    let walked = walk_list(&inodes).steps as f64 * STEP / 1e6;
    let [plain, checked] = ways[ways.len() - 1].ms;
    let what = format!("{}, inodes in a list, {STEP} ns a step", EVERY.0);
    let ms = [plain + walked, checked + walked];
    ways.push(Variation { kind: Kind::Consequence, what, ms });
    Ok(ways)
}

/// What the check adds to a mount, theirs and ours.
fn share(what: String, without: f64, with: f64, plain: f64, checked: f64) -> Row {
    let added = |plain: f64, checked: f64| 100.0 * (checked / plain - 1.0);
    let (theirs, ours) = (added(without, with), added(plain, checked));
    let what = format!("{what}: the check adds");
    Row::new(Kind::Consequence, what, format!("{theirs:.1} %"), ours, "%").near(theirs, NEAR)
}

/// On this machine, with a drive that takes no time; and how long Linux's way takes here to find
/// the inode of each node.
pub(super) fn measured(seed: u64) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let row =
        |what: String, paper: &str, ours, unit| Row::new(Kind::Outcome, what, paper, ours, unit);
    let (state, _) = fsynced(Load::Overwrites, PUBLISHED[2].0, seed)?;
    for (name, options) in [AS_IS, EVERY] {
        let (mut best, mut nodes) = ([f64::INFINITY; 2], 0);
        for _ in 0..MOUNTS {
            for (mode, best) in [technique::POSIX, technique::OPRW].into_iter().zip(&mut best) {
                let options = format!("{}{options}", mode.options);
                let took;
                (nodes, took) = mount(&state, &Machine::real(), Timing::Instant, &options)?;
                *best = best.min(took);
            }
        }
        let ([plain, checked], nodes) = (best, nodes as f64);
        let what = |what: &str| format!("{name}: {what}");
        rows.push(row(what("nodes rolled forward"), "", nodes / plain * 1e9, "/s"));
        rows.push(row(what("with the check"), "", nodes / checked * 1e9, "/s"));
        rows.push(row(what("the check of a node"), "", (checked - plain) / nodes, "ns"));
    }
    for (nodes, without, _) in PUBLISHED {
        let (_, inodes) = fsynced(Load::Varmail, nodes, seed)?;
        let walk = Machine::real().run(|| walk_list(&inodes))?;
        let what = format!("{nodes} nodes of Varmail, inodes found in a list");
        let paper = format!("{without:.0} ms in all");
        let steps = walk.steps as f64;
        rows.push(row(what.clone(), &paper, walk.ns / 1e6, "ms"));
        let paper = format!("{:.1} ns in all", 1e6 * without / steps);
        rows.push(row(
            format!("{what}: one of {:.0} million steps", steps / 1e6),
            &paper,
            walk.ns / steps,
            "ns",
        ));
    }
    Ok(rows)
}

/// A drive that lost its power with `nodes` fsynced nodes in the log since the last checkpoint, and
/// the inodes of these nodes, in order.
fn fsynced(load: Load, nodes: u64, seed: u64) -> Result<(DriveState, Vec<u64>)> {
    let spec = rig::spec(VOLATILE, ROOM * nodes * 4096)?.conventional(CONVENTIONAL_ZONES);
    machine(seed)?.run(|| {
        let drive = rig::new_drive(&spec, Timing::Instant, seed)?;
        rig::make(&f2fs::Format, &(drive.clone() as Arc<dyn Drive>))?;
        let fs = rig::mount(&f2fs::Format, drive.clone(), technique::OPRW.options)?;
        let inodes = match load {
            Load::Overwrites => overwrite(&*fs, nodes, seed)?,
            Load::Varmail => run_varmail(&fs, nodes, seed)?,
        };
        Ok((drive.cut(seed), inodes))
    })?
}

fn overwrite(fs: &dyn Volume, nodes: u64, seed: u64) -> Result<Vec<u64>> {
    let mut rng = Rng::new(seed, 8);
    let bytes = rng.bytes(BLOCKS as usize * 4096);
    let files = (0..FILES).map(|n| {
        let name = format!("f{n}").into_bytes();
        let file = fs.create(fs.root(), &name, 0o644, Creator::default());
        let file = file.map_err(Error::at("create", &name))?.ino;
        fs.write(file, 0, &bytes).map_err(Error::at("write", &name))?;
        Ok(file)
    });
    let files = files.collect::<Result<Vec<_>>>()?;
    fs.sync().map_err(Error::at("sync", b""))?;
    let turns = (0..nodes).map(|n| {
        let file = files[(n % FILES) as usize];
        let at = rng.below(BLOCKS) * 4096;
        fs.write(file, at, &bytes[..4096]).map_err(Error::at("write", b""))?;
        fs.fsync(file, false).map_err(Error::at("fsync", b""))?;
        Ok(file)
    });
    turns.collect()
}

/// Each of its fsyncs writes one node, the inode; the last of an odd number is left out. Mails have
/// one byte, because the space of deleted ones must not cause a checkpoint.
fn run_varmail(fs: &Arc<dyn Volume>, nodes: u64, seed: u64) -> Result<Vec<u64>> {
    let mailbox = Varmail { mailbox: 0, files: FILES, turns: nodes / 2, mean: 1 };
    let oracle = Arc::new(Oracle::new());
    let recorder = Recorder::new(fs.clone(), oracle.clone()).without_times();
    mailbox.run(&recorder, seed, &mut || ())?;
    let fsynced = |event| match event {
        Event::SyncEnd { obj, .. } => obj.map(|obj| obj as u64),
        _ => None,
    };
    Ok(oracle.take_log().into_iter().filter_map(fsynced).collect())
}

/// Milliseconds of a mount without and with the check, on the thesis's machine.
fn simulated_mounts(state: &DriveState, options: &str, nodes: u64, seed: u64) -> Result<[f64; 2]> {
    let timed = |mode: &'static Technique| {
        let options = format!("{}{options}", mode.options);
        let (scanned, took) = mount(state, &machine(seed)?, Timing::Virtual, &options)?;
        if scanned.abs_diff(nodes) > 1 {
            let message = format!("a chain of {scanned} nodes, not {nodes}");
            return Err(Error::Volume { step: "roll forward", message });
        }
        Ok(took / 1e6)
    };
    Ok([timed(technique::POSIX)?, timed(technique::OPRW)?])
}

/// Nodes scanned by a mount, and the nanoseconds it took.
fn mount(
    state: &DriveState,
    machine: &Machine,
    timing: Timing,
    options: &str,
) -> Result<(u64, f64)> {
    let state = state.clone();
    machine.run(|| {
        let drive = Ssd::power_on(state, timing, 1);
        let from = now_ns();
        let mounted = rig::mount(&f2fs::Format, drive, options)?;
        Ok((mounted.recovery().scanned, (now_ns() - from) as f64))
    })?
}

/// How long a list was walked.
struct Walk {
    steps: u64,
    ns: f64,
}

/// Finds each node's inode as Linux's first pass does (`get_fsync_inode`): in a list of all met so
/// far, from its beginning, new ones at its end. Its second pass removes inodes that are done from
/// the list, which leaves hundreds.
fn walk_list(inodes: &[u64]) -> Walk {
    let from = now_ns();
    let mut list: LinkedList<Box<[u64; INODE_WORDS]>> = LinkedList::new();
    let mut steps = 0;
    for &ino in inodes {
        let at = list.iter().position(|inode| inode[0] == ino);
        steps += at.map_or(list.len(), |at| at + 1) as u64;
        if at.is_none() {
            let mut inode = Box::new([0; INODE_WORDS]);
            inode[0] = ino;
            list.push_back(inode);
        }
    }
    Walk { steps, ns: (now_ns() - from) as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_walked_from_its_beginning() {
        let steps = |inodes| Machine::real().run(|| walk_list(inodes).steps).expect("it runs");
        // Past none, one and two others; then found as the first and as the last of three.
        assert_eq!(steps(&[7, 8, 9, 7, 9]), 1 + 2 + 1 + 3);
        let (_, inodes) = fsynced(Load::Varmail, 200, 1).expect("it runs");
        assert_eq!(inodes.len(), 200);
        assert!(steps(&inodes) > 200);
    }
}
