//! A file system in shared memory that `kill -9` cannot hurt: each run finds what the last one
//! left, adds to it, and kills itself. Nothing is synced and nothing unmounted.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use drive::pm::{Mapped, PmAccess, PmDrive};
use rustix::process::{Signal, getpid, kill_process};
use vfs::kind::Format;
use vfs::{Creator, path};

fn run(memory: &Path) -> Result<u64, Box<dyn Error>> {
    let is_new = !memory.exists();
    if is_new {
        Mapped::create(memory, 16 << 20)?;
    }
    let mapped = Arc::new(Mapped::open(&[memory], PmAccess::Write)?);
    let drive: Arc<dyn drive::Drive> = PmDrive::new(mapped, PmAccess::Write);
    if is_new {
        pmfs::Format.make(&drive)?;
    }
    let fs = pmfs::Format.mount(drive, "")?;
    let file = match fs.lookup(fs.root(), b"runs") {
        Ok(found) => found.ino,
        Err(_) => fs.create(fs.root(), b"runs", 0o644, Creator::default())?.ino,
    };
    let runs = path::read_to_vec(&*fs, file)?.len() as u64 + 1;
    fs.write(file, runs - 1, b"|")?;
    Ok(runs)
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).unwrap_or("/dev/shm/kept.pm".into());
    println!("run {}", run(Path::new(&path))?);
    Ok(kill_process(getpid(), Signal::KILL)?)
}

#[test]
fn each_run_finds_what_the_last_one_left() {
    let dir = tempfile::tempdir().unwrap();
    let memory = dir.path().join("kept.pm");
    for expected in 1..=3 {
        assert_eq!(run(&memory).unwrap(), expected);
    }
}
