//! Cuts under load of mounted volumes: the server is killed, or the power of the emulated drive
//! fails below it, while SQLite with a journal, SQLite with atomic writes, fio, a writer of records
//! and a job on a tree run on the mount. The mount returns, everything fsynced is there, and both
//! fscks find nothing; several cuts in a row.
//!
//! `CUTS` is how many (500 in the long test), `CUT_SEED` the first seed. A seed fixes the drive,
//! the mode, the loads' choices and the moment; threads and processes remain the system's, so the
//! image as the last cut left it is kept if `CUT_KEEP` names a directory. The canary is a mode that
//! promises nothing to the drive it is on.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use crate::loads::{Kept, Load, atomic, records, sqlite, tree};
use crate::mounting::{Disk, PROTECTED, Rig, VOLATILE, number, require, strandline};

const MS: u64 = 1_000_000;
/// Cuts of one volume in a row.
const IN_A_ROW: u64 = 4;

/// Each mode on a drive on which it keeps its promises.
const KEPT: [(Disk, &str); 3] = [
    (Disk::Zoned(VOLATILE, 64), "oprw"),
    (Disk::Zoned(VOLATILE, 64), "fsync_mode=strict"),
    (Disk::Zoned(PROTECTED, 64), "fsync_mode=posix"),
];

/// A plain file has no power to lose, but its server can be killed.
const PLAIN: (Disk, &str) = (Disk::Plain(256), "fsync_mode=posix");

#[test]
fn a_dozen_cuts() {
    cuts(12);
}

#[test]
#[ignore = "long: 500 cuts"]
fn five_hundred_cuts() {
    cuts(500);
}

/// Cuts until there were this many; everything promised is there.
fn cuts(default: u64) {
    let (cuts, first) = (number("CUTS", default), number("CUT_SEED", 1));
    let mut promises = BTreeMap::new();
    for seed in first..first + cuts.div_ceil(IN_A_ROW) {
        let (disk, options) = if seed % 8 == 0 { PLAIN } else { KEPT[(seed % 3) as usize] };
        let mut volume = Loaded::new(seed, disk, options);
        for cut in 0..IN_A_ROW {
            let (how, broken) = volume.cut();
            let replay = format!("CUT_SEED={seed} CUTS={IN_A_ROW}: {disk:?} {options}");
            assert!(broken.is_empty(), "{replay}: cut {cut}, {how}: {}", broken.join("\n"));
        }
        volume.add_promises(&mut promises);
        volume.rig.unmount();
        volume.rig.check();
    }
    println!("{cuts} cuts, fsyncs and commits kept: {promises:?}");
    let least = promises.values().copied().min();
    assert!(least > Some(0), "a load was promised nothing: {promises:?}");
    let all = promises.values().sum::<u64>();
    assert!(all > cuts, "the loads were promised too little to say anything");
}

/// Without flushes on a drive whose buffer is volatile, what was fsynced last is only in that
/// buffer: a load notices. It has one thread, and has ended when the power fails, so no race on
/// this machine decides what is missing.
#[test]
fn a_mode_that_promises_nothing_is_found_out() {
    let found = (1..=20).any(|seed| {
        let mut volume = Loaded::new(seed, Disk::Zoned(VOLATILE, 64), "fsync_mode=nobarrier");
        !volume.cut_after(30 + seed, seed).is_empty()
    });
    assert!(found, "20 cuts and nothing is missing");
}

/// A volume, and its loads.
struct Loaded {
    rig: Rig,
    options: String,
    disk: Disk,
    random: Xoshiro256PlusPlus,
    ended: Vec<(PathBuf, Vec<Box<dyn Load>>)>,
}

impl Loaded {
    fn new(seed: u64, disk: Disk, options: &str) -> Self {
        require("sqlite3", "sqlite3");
        require("fio", "fio");
        Self {
            rig: Rig::on(disk, &["-o", options]),
            options: options.to_owned(),
            disk,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            ended: Vec::new(),
        }
    }

    fn add_promises(&self, all: &mut BTreeMap<&str, u64>) {
        for load in self.ended.iter().flat_map(|(_, loads)| loads) {
            *all.entry(load.name()).or_default() += load.promises();
        }
    }

    /// One cut under load; returns what is missing afterwards.
    fn cut(&mut self) -> (&'static str, Vec<String>) {
        let power = match self.disk {
            Disk::Plain(_) | Disk::Memory(..) => false,
            Disk::Zoned(..) => self.random.random_bool(0.5),
        };
        if power {
            let seed = self.random.random();
            ("power", self.cut_power(seed))
        } else {
            ("kill", self.under_load(Rig::kill))
        }
    }

    fn cut_power(&mut self, seed: u64) -> Vec<String> {
        self.under_load(|rig| power_off(rig, seed))
    }

    /// A power cut after so many steps of a load.
    fn cut_after(&mut self, steps: u64, seed: u64) -> Vec<String> {
        let log = tree::work_for(&self.rig.point(), seed, steps, &Kept::default());
        assert_eq!(log.promises(), steps, "the load failed before the cut");
        self.ended.push((PathBuf::new(), vec![Box::new(log)]));
        power_off(&self.rig, seed);
        self.recover()
    }

    fn under_load(&mut self, cut: impl FnOnce(&Rig)) -> Vec<String> {
        let name = PathBuf::from(format!("load{}", self.ended.len()));
        let outside = tempfile::tempdir().unwrap();
        let dir = self.rig.point().join(&name);
        fs::create_dir_all(dir.join("tree")).unwrap();
        let [a, b, c] = self.random.random();
        let sqlite = sqlite::start(&dir, outside.path(), self.random.random());
        let fio = self.random.random_bool(0.3).then(|| fio(&dir));
        let (in_dir, in_tree, beside) = (dir.clone(), dir.join("tree"), dir.clone());
        let kept: [Kept; 3] = Default::default();
        let [of_records, of_tree, of_atomic] = kept.clone();
        let records = cores::spawn("records", None, move || records::work(&in_dir, a, &of_records));
        let tree = cores::spawn("tree", None, move || tree::work(&in_tree, b, &of_tree));
        let atomic = cores::spawn("atomic", None, move || atomic::work(&beside, c, &of_atomic));
        cores::sleep(self.random.random_range(20..500) * MS);
        if self.ended.is_empty() {
            // However slow the machine is, a volume's first cut has something to take from each.
            self.rig.eventually("each load is promised something", || {
                kept.iter().all(Kept::any) && sqlite.committed() > 0
            });
        }
        cut(&self.rig);
        let (records, tree, atomic) = (records.join(), tree.join(), atomic.join());
        let loads: Vec<Box<dyn Load>> =
            vec![Box::new(records), Box::new(sqlite.end()), Box::new(atomic)];
        self.ended.push((name.clone(), loads));
        self.ended.push((name.join("tree"), vec![Box::new(tree)]));
        if let Some(mut fio) = fio {
            fio.kill().unwrap();
            fio.wait().unwrap();
        }
        self.recover()
    }

    /// Mounts again after a cut; returns what is missing.
    fn recover(&self) -> Vec<String> {
        if self.rig.is_mounted() {
            self.rig.give_up();
        }
        if let Some(keep) = std::env::var_os("CUT_KEEP") {
            self.rig.copy_image(Path::new(&keep));
        }
        self.rig.mount(&["-o", &self.options]);
        self.broken()
    }

    fn broken(&self) -> Vec<String> {
        let point = self.rig.point();
        let all = self.ended.iter().flat_map(|(dir, loads)| {
            let dir = point.join(dir);
            loads.iter().flat_map(move |load| load.broken(&dir))
        });
        all.collect()
    }
}

fn power_off(rig: &Rig, seed: u64) {
    let cut = strandline(&["drive", "cut", "--seed", &seed.to_string()], &rig.point());
    assert!(cut.status.success(), "{cut:?}");
}

/// Noise: random writes, direct and buffered, with fsyncs.
fn fio(dir: &Path) -> Child {
    let mut fio = Command::new("fio");
    fio.arg(format!("--directory={}", dir.display())).args(["--name=noise", "--size=8m"]);
    fio.args(["--rw=randwrite", "--bsrange=4k-64k", "--fsync=8", "--time_based", "--runtime=60"]);
    fio.args(["--thread", "--verify=crc32c", "--do_verify=0", "--verify_state_save=0"]);
    fio.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("fio runs")
}
