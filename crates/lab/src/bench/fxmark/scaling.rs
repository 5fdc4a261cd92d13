//! What scales on the virtual machine, and what keeps it from scaling.

use cores::{Line, Profile};

use super::files::Files;
use super::*;
use crate::paper::sensitivity::on;

const MACHINE: &str = "e7-8870v2-120";

/// The machine's cores.
const CORES: u64 = 120;

/// Operations per core.
const OPS: u64 = 200;

/// Files of which each operation also changes one line that all cores share.
struct OneLine<F> {
    files: F,
    line: Line,
}

impl<F> OneLine<F> {
    fn touched(&self) -> &F {
        self.line.fetch_add(1);
        &self.files
    }
}

impl<F: Files> Files for OneLine<F> {
    type Dir = F::Dir;
    type File = F::File;
    type Entries = F::Entries;

    fn root(&self) -> F::Dir {
        self.files.root()
    }
    fn mkdir(&self, parent: &F::Dir, name: &str) -> Result<F::Dir> {
        self.touched().mkdir(parent, name)
    }
    fn create(&self, dir: &F::Dir, name: &str) -> Result<F::File> {
        self.touched().create(dir, name)
    }
    fn open(&self, dir: &F::Dir, name: &str) -> Result<F::File> {
        self.touched().open(dir, name)
    }
    fn write(&self, file: &F::File, at: u64, data: &[u8]) -> Result<()> {
        self.touched().write(file, at, data)
    }
    fn read(&self, file: &F::File, at: u64, data: &mut [u8]) -> Result<()> {
        self.touched().read(file, at, data)
    }
    fn truncate(&self, file: &F::File, size: u64) -> Result<()> {
        self.touched().truncate(file, size)
    }
    fn fsync(&self, file: &F::File) -> Result<()> {
        self.touched().fsync(file)
    }
    fn rename(&self, from: &F::Dir, name: &str, to: &F::Dir, new_name: &str) -> Result<()> {
        self.touched().rename(from, name, to, new_name)
    }
    fn unlink(&self, dir: &F::Dir, name: &str) -> Result<()> {
        self.touched().unlink(dir, name)
    }
    fn entries(&self, dir: &F::Dir) -> Result<F::Entries> {
        self.touched().entries(dir)
    }
    fn next(&self, entries: &mut F::Entries) -> Result<bool> {
        self.touched().next(entries)
    }
    fn stat(&self, path: &str) -> Result<()> {
        self.touched().stat(path)
    }
    fn sync(&self) -> Result<()> {
        self.touched().sync()
    }
}

/// The machine without what moves between cores: lines, memory, wake-ups.
fn ideal() -> Profile {
    let profile = profile_named(MACHINE).expect("it is built in");
    let moves = |path: &String| {
        let is_work = path.starts_with("cost.") || path == "thread.time_slice";
        !is_work && profile.number(path).is_some()
    };
    Profile::paths().filter(moves).fold(profile.clone(), |profile, path| {
        profile.with(&path, 0, "as if it cost nothing").expect("it is a path of profiles")
    })
}

/// Operations per second on 1, 15, 60 and 120 cores, each over what so many times one core would
/// do; with a line of the mutant if `mutant`.
fn speedup(load: Load, mutant: bool) -> Vec<f64> {
    speedup_of("f2fs", OPS, load, mutant)
}

/// The same of file system `name`, with so many operations per core.
fn speedup_of(name: &str, ops: u64, load: Load, mutant: bool) -> Vec<f64> {
    let rate = |cores| {
        let (first_core, seed, profile_locks) = (0, 1, false);
        let run = Run { load, cores, first_core, ops, direct: false, seed, profile_locks };
        let quiet = Told { ready: &|| Ok(()), done: &|| Ok(()) };
        let (format, footprint) =
            (subjects::named(name).expect("it is known"), load.footprint(cores, ops));
        let (drive, mount_opts, simulated) = ("ram", "", true);
        let fresh = Fresh { format, drive, mount_opts, seed, simulated, footprint };
        let on = |fs: &Arc<dyn vfs::kind::Volume>| {
            let files = InProcess { volume: Arc::clone(fs), direct: false };
            match mutant {
                true => run.on(&Arc::new(OneLine { files, line: Line::new(0) }), &quiet),
                false => run.on(&Arc::new(files), &quiet),
            }
        };
        let machine = machine_named(MACHINE, seed).expect("it is built in");
        let (took, _) =
            machine.run(|| fresh.volume(|fs, _| on(fs))).expect("no deadlock").expect("it runs");
        cores as f64 * 1e9 / took.time as f64
    };
    let one = rate(1);
    [1, 15, 60, CORES].map(|cores| rate(cores) / (cores as f64 * one)).to_vec()
}

/// Loads that take no lock on their way: where nothing costs anything to move, twice the cores do
/// twice the work.
#[test]
fn without_transfers_what_takes_no_lock_is_a_straight_line() {
    for load in [Load::Drbl, Load::Mrpl] {
        let straight = on(MACHINE, ideal(), || speedup(load, false));
        assert!(straight.iter().all(|share| (0.99..1.01).contains(share)), "{load}: {straight:?}");
    }
}

/// On the machine as it is they keep most of that, and one line that all cores change takes it.
#[test]
fn one_shared_line_flattens_the_curve() {
    let sound = speedup(Load::Drbl, false);
    assert!(sound[3] > 0.7, "{sound:?}");
    let mutant = speedup(Load::Drbl, true);
    assert!(mutant[3] < 0.1 && mutant[2] < 2.0 * mutant[3].max(0.05) + 0.1, "{mutant:?}");
}

/// What cores do to files and paths of their own on ext4 takes neither a lock nor a line that
/// others use, from the first operation on.
#[test]
fn private_files_of_ext4_keep_most_of_a_straight_line() {
    for load in [Load::Dwol, Load::Drbl, Load::Mrpl] {
        let shares = speedup_of("ext4", 1_000, load, false);
        assert!(shares.iter().all(|share| *share >= 0.7), "{load}: {shares:?}");
    }
}
