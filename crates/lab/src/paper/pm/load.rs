//! One point: a load on some cores, on a fresh volume.

use std::sync::Arc;

use cores::{LockUse, lockstat};
use drive::BLOCK_SIZE;
use drive::pm::{Domain, PmAccess, PmCharged, PmDrive, PmSim, PmState};
use vfs::kind::Volume;
use vfs::{Creator, Ino, path};

use super::window::{Op, Window, prepare};
use super::{CORES, MACHINE, NODES, Setting};
use crate::{Error, Result, machine_named, rig};

const BLOCK: u64 = BLOCK_SIZE as u64;
/// Pages of each core: one segment.
const PAGES: u64 = 64;
/// Long enough for every core to write several times where all wait for one lock.
const WINDOW: Window = Window { warm_up: 500_000, length: 3_000_000 };
/// The memory of a node: NOVA has all of a run's files on the first one.
const NODE_BYTES: u64 = 256 << 20;

/// What the cores do.
#[derive(Clone, Copy)]
pub(super) enum Load {
    /// Each overwrites a file of its own.
    OwnFiles,
    /// Each overwrites its own part of one file.
    OneFile,
    /// So many of four overwrite, the others read.
    Mixed(u64, Reads),
}

/// Which part of the file a reader reads.
#[derive(Clone, Copy)]
pub(super) enum Reads {
    /// Its own, which is not overwritten.
    Own,
    /// What a core of another node overwrites meanwhile.
    Overwritten,
}

/// What one run did in the window.
#[derive(Clone, Default)]
pub(super) struct Point {
    /// GB/s.
    pub(super) written: f64,
    pub(super) read: f64,
    /// The share of the bytes moved between cores and memory that went between nodes.
    pub(super) remote: f64,
    /// What happened at locks.
    pub(super) locks: Vec<LockUse>,
    /// Time of all cores.
    pub(super) core_time: f64,
}

impl Point {
    pub(super) fn total(&self) -> f64 {
        self.written + self.read
    }
}

impl Load {
    /// Whether a core writes. Writers and readers alternate, so that each node has its share.
    fn writes(self, core: usize) -> bool {
        match self {
            Self::OwnFiles | Self::OneFile => true,
            Self::Mixed(writers, _) => core as u64 % 4 < writers,
        }
    }

    /// Whose pages a core uses.
    fn part(self, core: usize, cores: usize) -> usize {
        match self {
            Self::Mixed(_, Reads::Overwritten) if !self.writes(core) => {
                let writers: Vec<usize> = (0..cores).filter(|&core| self.writes(core)).collect();
                let own = writers.partition_point(|&writer| writer < core);
                writers.get((own + writers.len() / 2) % writers.len().max(1)).copied().unwrap_or(0)
            }
            _ => core,
        }
    }
}

/// Runs `load` on the first `cores` cores.
pub(super) fn measure(load: Load, setting: Setting, cores: usize, seed: u64) -> Result<Point> {
    machine_named(MACHINE, seed)?.run(|| {
        let bytes = u64::from(NODES) * NODE_BYTES;
        let pm = PmSim::power_on(PmState::on_nodes(bytes, NODES), Domain::Process);
        let pm = PmCharged::new(pm);
        let format = subjects::named("pmfs").map_err(Error::of("pmfs"))?;
        let drive = PmDrive::new(pm.clone(), PmAccess::Write);
        let features = format!("design=nova,cores={CORES},inodes=1024");
        format.make_with(&(drive.clone() as _), &features).map_err(Error::of("mkfs"))?;
        let fs = rig::mount(format, drive, setting.options)?;
        let files = Arc::new(files(&*fs, load, cores)?);
        let loads = prepare(&fs, cores, move |fs, core| {
            let (file, first) = match load {
                Load::OwnFiles => (files[core], 0),
                _ => (files[0], load.part(core, cores) as u64 * PAGES),
            };
            let mut op =
                if load.writes(core) { writer(file, first, core) } else { reader(file, first) };
            if load.writes(core) {
                (0..PAGES).try_for_each(|_| op(fs).map(drop))?;
            }
            Ok(op)
        })?;
        let mut moved = Vec::new();
        let mut locks = Vec::new();
        let done = WINDOW.run(&fs, loads, &mut || {
            match moved.is_empty() {
                true => lockstat::start(),
                false => locks = lockstat::finish(),
            }
            moved.push(pm.moved());
        })?;
        fs.unmount().map_err(Error::at("unmount", b""))?;
        let of = |writes: bool| -> f64 {
            let counted = done.iter().enumerate().filter(|(core, _)| load.writes(*core) == writes);
            WINDOW.per_s(counted.map(|(_, done)| done * BLOCK).sum()) / 1e9
        };
        let (before, after) = (moved.first().copied(), moved.last().copied());
        let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
        let (local, remote) = (after.0 - before.0, after.1 - before.1);
        Ok(Point {
            written: of(true),
            read: of(false),
            remote: remote as f64 / (local + remote).max(1) as f64,
            locks,
            core_time: WINDOW.length as f64 * cores as f64,
        })
    })?
}

/// Makes the files, on the core and the node of the caller.
fn files(fs: &dyn Volume, load: Load, cores: usize) -> Result<Vec<Ino>> {
    let make = |name: String, pages: u64| {
        let made = fs.create(fs.root(), name.as_bytes(), 0o644, Creator::default());
        let file = made.map_err(Error::at("create", name.as_bytes()))?.ino;
        (0..pages).try_for_each(|page| {
            let written = path::write_all(fs, file, page * BLOCK, &[1; BLOCK_SIZE]);
            written.map_err(Error::at("write", name.as_bytes()))
        })?;
        Ok(file)
    };
    match load {
        Load::OwnFiles => (0..cores).map(|core| make(format!("file{core}"), PAGES)).collect(),
        _ => Ok(vec![make("shared".into(), cores as u64 * PAGES)?]),
    }
}

/// Overwrites the pages from `first` on, one after the other.
fn writer(file: Ino, first: u64, core: usize) -> Op {
    let (block, mut at) = ([core as u8; BLOCK_SIZE], 0);
    Box::new(move |fs| {
        let page = first + at % PAGES;
        at += 1;
        fs.write(file, page * BLOCK, &block).map_err(Error::at("write", b""))?;
        Ok(1)
    })
}

/// Reads them.
fn reader(file: Ino, first: u64) -> Op {
    let (mut block, mut at) = ([0; BLOCK_SIZE], 0);
    Box::new(move |fs| {
        let page = first + at % PAGES;
        at += 1;
        fs.read(file, page * BLOCK, &mut block).map_err(Error::at("read", b""))?;
        Ok(1)
    })
}

#[cfg(test)]
mod tests {
    use super::super::{NOVA, PNOVA};
    use super::*;

    #[test]
    fn one_file_scales_with_all_three_options() {
        let of = |setting, cores| measure(Load::OneFile, setting, cores, 1).expect("it runs");
        let (nova, pnova) = ([of(NOVA, 1), of(NOVA, 30)], [of(PNOVA, 1), of(PNOVA, 30)]);
        let rate = |points: &[Point; 2]| [points[0].written, points[1].written];
        let (nova_rate, pnova_rate) = (rate(&nova), rate(&pnova));
        assert!(nova_rate[1] < nova_rate[0], "one lock: {nova_rate:?}");
        assert!(pnova_rate[1] > 20.0 * pnova_rate[0], "no lock that all take: {pnova_rate:?}");
        assert!(
            nova[1].remote > 0.3 && pnova[1].remote < 0.1,
            "{} {}",
            nova[1].remote,
            pnova[1].remote
        );
        let waits = |point: &Point| point.locks.iter().map(|lock| lock.wait).max();
        assert!(waits(&nova[1]) > Some(20 * 3_000_000), "29 of 30 wait: {:?}", waits(&nova[1]));
        assert_eq!(of(NOVA, 30).written.to_bits(), nova[1].written.to_bits(), "the same seed");
    }

    #[test]
    fn that_one_node_falls_rests_on_remote_share() {
        let profile = crate::profile_named(MACHINE).expect("it is built in");
        assert!(profile.is_estimate("pm.remote_share"), "so that --sensitivity varies it");
        let falls = |share| {
            let varied = profile.with("pm.remote_share", share, "varied").expect("it is there");
            let at = |cores| measure(Load::OwnFiles, NOVA, cores, 1).expect("it runs").written;
            crate::paper::sensitivity::on(MACHINE, varied, || at(45) / at(15))
        };
        let (one, two) = (falls(1), falls(2));
        assert!((0.95..1.05).contains(&one) && two < 0.7, "a plateau, and a fall: {one}, {two}");
    }

    #[test]
    fn readers_and_writers_have_their_parts() {
        let mixed = |reads| Load::Mixed(3, reads);
        let writers = (0..120).filter(|&core| mixed(Reads::Own).writes(core)).count();
        assert_eq!(writers, 90);
        for core in 0..120 {
            assert_eq!(mixed(Reads::Own).part(core, 120), core);
            let part = mixed(Reads::Overwritten).part(core, 120);
            assert!(mixed(Reads::Overwritten).writes(part), "core {core} uses the part of {part}");
        }
    }
}
