//! How fast requests come and go: one null file system behind our crate `fuse`, `fuser` and
//! `fuse-backend-rs`, each in a process of its own, with as many threads, the same limits and the
//! same agreement with the kernel. All are mounted at once and measured in turns. Needs root.
//!
//!     make bench-fuse

#![deny(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, StatxFlags};
use rustix::mount::UnmountFlags;

mod null;
mod ours;
mod with_backend;
mod with_fuser;

/// Each server is measured so many times.
const ROUNDS: usize = 11;
/// A file's number is its name: this one is written to, and those from `LOOKED_UP` are looked up.
const WRITTEN: &str = "2";
const LOOKED_UP: usize = 1000;

/// A name on the command line, and what serves a mount point under it.
type Subject = (&'static str, fn(&Path));

const SUBJECTS: [Subject; 5] = [
    ("fuse", |point| ours::serve(point, "")),
    ("fuse, io_uring", |point| ours::serve(point, "io_uring")),
    ("fuser", |point| with_fuser::serve(point, false)),
    ("fuser, clone_fd", |point| with_fuser::serve(point, true)),
    ("fuse-backend-rs", with_backend::serve),
];

/// What is measured: its name, how often a round does it, and how much one counts.
const MEASURES: [(&str, usize, f64); 4] = [
    ("4k write+fsync /s", 4000, 1.0),
    ("1M writes MB/s", 512, 1.048_576),
    ("getattr /s", 8000, 1.0),
    ("lookup /s", 2000, 1.0),
];

/// A server's process, and where it serves.
struct Mounted {
    name: &'static str,
    point: PathBuf,
    process: Child,
    looked_up: usize,
}

impl Mounted {
    fn start(name: &'static str, base: &Path) -> Self {
        let point = base.join(name);
        std::fs::create_dir(&point).expect("a mount point");
        let me = std::env::current_exe().expect("this program");
        let process = Command::new(me).arg(name).arg(&point).spawn().expect("a server");
        let device_of = |path: &Path| std::fs::metadata(path).map(|meta| meta.dev()).ok();
        let began = Instant::now();
        while device_of(&point) == device_of(base) {
            assert!(began.elapsed() < Duration::from_secs(10), "{name} did not mount: not root?");
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { name, point, process, looked_up: LOOKED_UP }
    }

    /// One round: what [`MEASURES`] says, in its units.
    fn round(&mut self) -> [f64; 4] {
        let file = OpenOptions::new().write(true).open(self.point.join(WRITTEN)).expect("a file");
        let page = vec![7; null::MAX_WRITE];
        let offset = |n: usize, len: usize| (n * len) as u64 % null::FILE_SIZE;
        let (dir, first) = (File::open(&self.point).expect("a directory"), self.looked_up);
        self.looked_up += MEASURES[3].1;
        let steps: [&dyn Fn(usize); 4] = [
            &|n| {
                file.write_all_at(&page[..4096], offset(n, 4096)).expect("a write");
                file.sync_all().expect("an fsync");
            },
            &|n| file.write_all_at(&page, offset(n, page.len())).expect("a write"),
            &|_| {
                // Or the kernel would answer from what it was told before.
                let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
                rustix::fs::statx(&file, "", flags, StatxFlags::MODE).expect("attributes");
            },
            &|n| {
                let name = (first + n).to_string();
                rustix::fs::statx(&dir, name, AtFlags::empty(), StatxFlags::MODE).expect("a name");
            },
        ];
        std::array::from_fn(|measure| {
            let (_, times, unit) = MEASURES[measure];
            let start = Instant::now();
            (0..times).for_each(steps[measure]);
            times as f64 * unit / start.elapsed().as_secs_f64()
        })
    }
}

impl Drop for Mounted {
    /// However the measurement ended, nothing stays mounted.
    fn drop(&mut self) {
        let unmounted = rustix::mount::unmount(&self.point, UnmountFlags::DETACH);
        let status = self.process.wait();
        if unmounted.is_err() || !status.as_ref().is_ok_and(ExitStatus::success) {
            eprintln!("{}: {unmounted:?}, {status:?}", self.name);
        }
    }
}

/// What the kernel offers is settled while it is mounted. Returns what was set before, if anything.
fn set_rings(value: &str) -> Option<String> {
    let switch = "/sys/module/fuse/parameters/enable_uring";
    let was = std::fs::read_to_string(switch).ok()?;
    std::fs::write(switch, value).ok().map(|()| was)
}

fn print(names: &[&str], rounds: &[Vec<[f64; 4]>]) {
    print!("{:18}", format!("median of {ROUNDS}"));
    MEASURES.iter().for_each(|(what, ..)| print!("{what:>24}"));
    println!();
    for (name, rounds) in names.iter().zip(rounds) {
        print!("{name:18}");
        for measure in 0..MEASURES.len() {
            let mut values: Vec<f64> = rounds.iter().map(|round| round[measure]).collect();
            values.sort_by(f64::total_cmp);
            // The middle, and how far the middle half reaches.
            let [low, middle, high] = [1, 2, 3].map(|quarter| values[values.len() * quarter / 4]);
            print!("{:>24}", format!("{middle:.0} ({low:.0}-{high:.0})"));
        }
        println!();
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [name, point] = args.as_slice() {
        let (_, serve) = SUBJECTS.iter().find(|(known, _)| known == name).expect("a server");
        return serve(Path::new(point));
    }
    let base = tempfile::tempdir().expect("a directory");
    let rings = set_rings("1");
    let mut servers: Vec<Mounted> = SUBJECTS
        .iter()
        .filter(|(name, _)| rings.is_some() || !name.contains("io_uring"))
        .map(|(name, _)| Mounted::start(name, base.path()))
        .collect();
    if let Some(was) = &rings {
        set_rings(was);
    } else {
        println!("this kernel has no FUSE over io_uring");
    }
    let mut rounds = vec![Vec::new(); servers.len()];
    servers.iter_mut().for_each(|server| _ = server.round());
    for round in 0..ROUNDS {
        // Each starts a round once in a while, so that none always follows the same.
        for n in 0..rounds.len() {
            let n = (n + round) % rounds.len();
            rounds[n].push(servers[n].round());
        }
    }
    let names: Vec<&str> = servers.iter().map(|server| server.name).collect();
    print(&names, &rounds);
}
