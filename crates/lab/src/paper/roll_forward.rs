//! Table 6.3: how long a mount takes that has so many node blocks to roll forward, and what the
//! check of write pointers adds: on the thesis's machine, simulated, and on this one.

use std::sync::Arc;

use cores::Machine;
use drive::{Drive, DriveState, Ssd, Timing};
use vfs::Creator;

use super::{Row, VOLATILE};
use crate::mode::Mode;
use crate::subject::{F2fsSubject, Subject};
use crate::workload::Rng;
use crate::{Error, Result, machine, now_ns, rig};

/// Scanned nodes, and the thesis's milliseconds without and with the check.
const PUBLISHED: [(u64, f64, f64); 3] =
    [(40_791, 4177.0, 4380.0), (50_962, 7307.0, 7584.0), (57_500, 9751.0, 10_093.0)];
/// Files written to in turn.
const FILES: u64 = 1000;
/// Blocks of a file: most of the pointers its inode has room for.
const BLOCKS: u64 = 800;
/// Room on the drive for each fsync, in blocks: what becomes free without being freed must not
/// bring a checkpoint about.
const ROOM: u64 = 30;
/// Zones for the metadata of so large a volume.
const CONVENTIONAL_ZONES: u32 = 8;
/// Mounts on this machine, of which the shortest counts.
const MOUNTS: usize = 7;

/// Table 6.3.
pub(super) fn simulated(seed: u64) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (nodes, without, with) in PUBLISHED {
        let state = fsynced(nodes, seed)?;
        let mount = |mode| mount(&state, &machine(seed)?, Timing::Virtual, mode);
        let (scanned, plain) = mount(Mode::Posix)?;
        let (_, checked) = mount(Mode::Oprw)?;
        let row = |what: &str, paper: String, ours, unit, agrees| Row {
            what: format!("{nodes} nodes: {what}"),
            paper,
            ours,
            unit,
            agrees,
        };
        let same = Some((nodes as f64, nodes as f64));
        rows.push(row("scanned", nodes.to_string(), scanned as f64, "", same));
        rows.push(row("F2FS", format!("{without:.0} ms"), plain / 1e6, "ms", None));
        rows.push(row("OPRW", format!("{with:.0} ms"), checked / 1e6, "ms", None));
        let added = |plain, checked| 100.0 * (checked / plain - 1.0);
        let paper = format!("{:.1} %", added(without, with));
        let agrees = Some((f64::NEG_INFINITY, 8.0));
        rows.push(row("the check adds", paper, added(plain, checked), "%", agrees));
    }
    Ok(rows)
}

/// The same on this machine, with a drive that takes no time.
pub(super) fn measured(seed: u64) -> Result<Vec<Row>> {
    let state = fsynced(PUBLISHED[2].0, seed)?;
    let (mut plain, mut checked, mut nodes) = (f64::INFINITY, f64::INFINITY, 0);
    for _ in 0..MOUNTS {
        for (mode, best) in [(Mode::Posix, &mut plain), (Mode::Oprw, &mut checked)] {
            let took;
            (nodes, took) = mount(&state, &Machine::real(), Timing::Instant, mode)?;
            *best = best.min(took);
        }
    }
    let nodes = nodes as f64;
    let row = |what: &str, ours, unit, agrees| Row {
        what: what.into(),
        paper: String::new(),
        ours,
        unit,
        agrees,
    };
    Ok(vec![
        row("nodes rolled forward", nodes / checked * 1e9, "/s", Some((5e5, f64::INFINITY))),
        row("the check of a node", (checked - plain) / nodes, "ns", None),
        row("the check adds", 100.0 * (checked / plain - 1.0), "%", Some((f64::NEG_INFINITY, 5.0))),
    ])
}

/// A drive that lost its power with `nodes` fsynced nodes in the log since the last checkpoint.
fn fsynced(nodes: u64, seed: u64) -> Result<DriveState> {
    let spec = rig::spec(VOLATILE, ROOM * nodes * 4096)?.conventional(CONVENTIONAL_ZONES);
    machine(seed)?.run(|| {
        let drive = rig::new_drive(&spec, Timing::Instant, seed)?;
        F2fsSubject.format(&(drive.clone() as Arc<dyn Drive>))?;
        let fs = F2fsSubject.mount(drive.clone(), Mode::Oprw.mount_options())?.fs;
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
        for n in 0..nodes {
            let file = files[(n % FILES) as usize];
            let at = rng.below(BLOCKS) * 4096;
            fs.write(file, at, &bytes[..4096]).map_err(Error::at("write", b""))?;
            fs.fsync(file, false).map_err(Error::at("fsync", b""))?;
        }
        Ok(drive.cut(seed))
    })?
}

/// Nodes scanned by a mount, and the nanoseconds it took.
fn mount(state: &DriveState, machine: &Machine, timing: Timing, mode: Mode) -> Result<(u64, f64)> {
    let state = state.clone();
    machine.run(|| {
        let drive = Ssd::power_on(state, timing, 1);
        let from = now_ns();
        let mounted = F2fsSubject.mount(drive, mode.mount_options())?;
        Ok((mounted.recovery.scanned, (now_ns() - from) as f64))
    })?
}
