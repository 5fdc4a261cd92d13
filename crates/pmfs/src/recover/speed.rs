//! How long recovery takes to read logs.

use std::sync::Arc;

use drive::pm::{Mapped, Pm, PmAccess};
use vfs::{Creator, FileSystem};

use super::Image;
use crate::commit::Change;
use crate::log::written;
use crate::mkfs::{MkfsOptions, make};
use crate::mount::Pmfs;
use crate::mount::options::MountOptions;
use crate::ondisk::BLOCK;
use crate::ondisk::extent::Extent;
use crate::ondisk::log::LINES;

const LOG_BYTES: u64 = 1 << 30;
const FILES: u64 = 64;

/// Fills the log of a new file with overwrites of its two pages.
fn fill(fs: &Pmfs, number: u64) -> u64 {
    let name = format!("file-{number}");
    let ino = fs.create(fs.root(), name.as_bytes(), 0o644, Creator::default()).expect("made").ino;
    let node = fs.node(ino).expect("there");
    let mut inode = node.lock.write();
    let blocks = fs.space.take_run(4).expect("space").keep()[0].0;
    inode.raw.size = (2 * BLOCK).into();
    let raw = inode.raw;
    let entries = LOG_BYTES / FILES / BLOCK * (LINES - 1);
    let log = inode.log.as_mut().expect("design nova");
    log.reserve(&fs.space, entries + LINES, false).expect("space");
    for entry in 0..entries {
        log.stage(&written(&raw, Extent { page: entry % 2, block: blocks + entry % 4, len: 1 }));
    }
    let mut change = Change::new(&*fs.pm);
    inode.flush(&mut change);
    let _done = fs.journal.commit(change);
    entries
}

/// Milliseconds that this thread has computed: the machine may be busy with something else.
/// Fields 14 and 15 of proc(5)'s `stat`, in ticks of 10 ms; the second is in parentheses.
fn computed_ms() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("procfs");
    let (_, fields) = stat.rsplit_once(')').expect("a name");
    let ticks = fields.split_whitespace().skip(11).take(2);
    ticks.map(|ticks| ticks.parse::<u64>().expect("a number")).sum::<u64>() * 10
}

#[test]
#[ignore = "a gibibyte of logs in /dev/shm"]
fn a_gibibyte_of_logs_is_read_in_a_second() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("/dev/shm");
    let path = dir.path().join("image.pm");
    Mapped::create(&path, LOG_BYTES + (256 << 20)).expect("memory");
    let pm: Arc<dyn Pm> = Arc::new(Mapped::open(&[&path], PmAccess::Write).expect("memory"));
    let features = "design=nova,inodes=1024".into();
    make(&*pm, &MkfsOptions { features, ..MkfsOptions::default() }).expect("a volume");
    let open = || Image::open(pm.clone()).expect("a volume").recover().expect("sound");
    let start = cores::now();
    let empty = open();
    let mounted = cores::now() - start;
    let fs = Pmfs::new(empty, MountOptions::default());
    let entries: u64 = (0..FILES).map(|number| fill(&fs, number)).sum();
    // Not unmounted: recovery reads the logs either way.
    let start = (cores::now(), computed_ms());
    let recovered = open();
    let (took, computed) = (cores::now() - start.0, computed_ms() - start.1);
    let (took, mounted) = (took / 1_000_000, mounted / 1000);
    println!("{entries} entries: {computed} ms of {took}; empty volume: {mounted} us");
    assert_eq!(recovered.numbers.total() - recovered.numbers.free(), FILES + 1);
    assert!(computed < 1000, "{computed} ms");
}
