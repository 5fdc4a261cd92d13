//! Our mount beside the kernel's ext4 on a loop device and beside `fuse2fs`, all on images in
//! /dev/shm: what users wait for. Needs root, and says which of the others it could not mount.
//!
//!     cargo bench -p strandline --bench mount [-- NAME...]

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

const MIB: u64 = 1 << 20;
/// Size of each image.
const IMAGE: u64 = 2 << 30;
/// The file written at random, and read and written from end to end.
const FILE: u64 = 512 * MIB;
const WRITES: u64 = 20_000;
const FILES: usize = 2000;
/// Files that `find` looks at, in directories of a thousand.
const TREE: usize = 100_000;
/// The median of so many.
const ROUNDS: usize = 5;

/// A file system to measure.
struct Subject {
    name: &'static str,
    /// Makes a file system in the file `$1`.
    mkfs: &'static str,
    /// Mounts the file `$1` on the directory `$2`.
    mount: &'static str,
    /// Unmounts the directory `$1`.
    umount: &'static str,
}

/// Which features the kernel offers is settled at mount.
const MOUNT_WITH_RINGS: &str = "was=$(cat $RINGS) && echo 1 >$RINGS && \
    $STRANDLINE mount $1 $2 -o io_uring && echo $was >$RINGS";

const SUBJECTS: [Subject; 8] = [
    Subject {
        name: "strandline",
        mkfs: "$STRANDLINE mkfs -q $1",
        mount: "$STRANDLINE mount $1 $2",
        umount: "$STRANDLINE umount $1",
    },
    Subject {
        name: "strandline-io_uring",
        mkfs: "$STRANDLINE mkfs -q $1",
        mount: MOUNT_WITH_RINGS,
        umount: "$STRANDLINE umount $1",
    },
    Subject {
        name: "strandline-writeback",
        mkfs: "$STRANDLINE mkfs -q $1",
        mount: "$STRANDLINE mount $1 $2 -o writeback",
        umount: "$STRANDLINE umount $1",
    },
    Subject {
        name: "strandline-ext4",
        mkfs: "$STRANDLINE mkfs --fs ext4 -q $1",
        mount: "$STRANDLINE mount $1 $2",
        umount: "$STRANDLINE umount $1",
    },
    Subject {
        name: "strandline-ext4-io_uring",
        mkfs: "$STRANDLINE mkfs --fs ext4 -q $1",
        mount: MOUNT_WITH_RINGS,
        umount: "$STRANDLINE umount $1",
    },
    Subject {
        name: "strandline-ext4-fast",
        mkfs: "$STRANDLINE mkfs --fs ext4 -q -O fast_commit $1",
        mount: "$STRANDLINE mount $1 $2 -o journal=fast",
        umount: "$STRANDLINE umount $1",
    },
    Subject {
        name: "ext4-loop",
        mkfs: "mkfs.ext4 -q -F $1",
        mount: "mount -o loop $1 $2",
        umount: "umount $1",
    },
    Subject {
        name: "fuse2fs",
        mkfs: "mkfs.ext4 -q -F $1",
        mount: "fuse2fs $1 $2",
        umount: "umount $1",
    },
];

fn shell(script: &str, args: &[&Path]) -> bool {
    let mut shell = Command::new("sh");
    shell.env("STRANDLINE", env!("CARGO_BIN_EXE_strandline"));
    shell.env("RINGS", "/sys/module/fuse/parameters/enable_uring");
    shell.arg("-c").arg(script).arg("sh").args(args).stdout(Stdio::null());
    shell.status().is_ok_and(|status| status.success())
}

/// The median time of some rounds, in seconds.
fn median(mut round: impl FnMut(usize)) -> f64 {
    let mut times = [0.0; ROUNDS];
    for (n, time) in times.iter_mut().enumerate() {
        let start = Instant::now();
        round(n);
        *time = start.elapsed().as_secs_f64();
    }
    times.sort_by(f64::total_cmp);
    times[ROUNDS / 2]
}

fn report(subject: &str, what: &str, value: f64, unit: &str) {
    println!("{subject:24} {what:24} {value:10.1} {unit}");
}

fn random_writes(name: &str, dir: &Path) {
    let file = OpenOptions::new().write(true).open(dir.join("file")).expect("made before");
    let page = [7; 4096];
    let mut state = 1_u64;
    let seconds = median(|_| {
        for _ in 0..WRITES {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let offset = (state >> 33) % (FILE / 4096) * 4096;
            file.write_all_at(&page, offset).expect("a write");
            file.sync_all().expect("an fsync");
        }
    });
    report(name, "4k random write+fsync", WRITES as f64 / seconds, "/s");
}

fn sequential(name: &str, dir: &Path) {
    let path = dir.join("file");
    let mut buffer = vec![7; MIB as usize];
    let seconds = median(|_| {
        let file = File::create(&path).expect("a file");
        for n in 0..FILE / MIB {
            file.write_all_at(&buffer, n * MIB).expect("a write");
        }
        file.sync_all().expect("an fsync");
    });
    report(name, "sequential write+fsync", FILE as f64 / seconds / 1e6, "MB/s");
    let seconds = median(|_| {
        fs::write("/proc/sys/vm/drop_caches", "1").expect("root");
        let file = File::open(&path).expect("a file");
        for n in 0..FILE / MIB {
            file.read_exact_at(&mut buffer, n * MIB).expect("a read");
        }
    });
    report(name, "sequential read, cold", FILE as f64 / seconds / 1e6, "MB/s");
}

fn creates(name: &str, dir: &Path) {
    let seconds = median(|round| {
        let dir = dir.join(format!("small{round}"));
        fs::create_dir(&dir).expect("a directory");
        for n in 0..FILES {
            let file = File::create_new(dir.join(n.to_string())).expect("a file");
            file.write_all_at(b"small", 0).expect("a write");
            file.sync_all().expect("an fsync");
        }
    });
    report(name, "create+write+fsync", FILES as f64 / seconds, "/s");
}

fn find(name: &str, dir: &Path) {
    let tree = dir.join("tree");
    for n in 0..TREE {
        if n % 1000 == 0 {
            fs::create_dir_all(tree.join((n / 1000).to_string())).expect("a directory");
        }
        File::create_new(tree.join(format!("{}/{n}", n / 1000))).expect("a file");
    }
    let look = "find $1 -type f -newermt 1990-01-01 -printf x > /dev/null";
    let cold = median(|_| {
        fs::write("/proc/sys/vm/drop_caches", "2").expect("root");
        assert!(shell(look, &[&tree]));
    });
    report(name, "find 100,000 files, cold", cold * 1e3, "ms");
    let warm = median(|_| assert!(shell(look, &[&tree])));
    report(name, "find 100,000 files, warm", warm * 1e3, "ms");
}

fn measure(subject: &Subject, base: &Path) {
    let (image, dir): (PathBuf, PathBuf) = (base.join("image"), base.join("mnt"));
    drop(fs::remove_file(&image));
    File::create(&image).and_then(|file| file.set_len(IMAGE)).expect("room in /dev/shm");
    fs::create_dir_all(&dir).expect("a mount point");
    if !shell(subject.mkfs, &[&image]) || !shell(subject.mount, &[&image, &dir]) {
        println!("{:24} could not be mounted here", subject.name);
        return;
    }
    sequential(subject.name, &dir);
    random_writes(subject.name, &dir);
    creates(subject.name, &dir);
    find(subject.name, &dir);
    assert!(shell(subject.umount, &[&dir]), "unmount {}", dir.display());
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let base = tempfile::tempdir_in("/dev/shm").expect("/dev/shm");
    for subject in &SUBJECTS {
        if wanted.is_empty() || wanted.iter().any(|name| name == subject.name) {
            measure(subject, base.path());
        }
    }
}
