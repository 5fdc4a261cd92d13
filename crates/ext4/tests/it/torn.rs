//! Power cuts that tear blocks, on a log that has gone round: behind what was being written there
//! are older blocks of the log, not zeroes.

use std::sync::Arc;

use cores::{Line, Machine, Profile};
use drive::{Drive, DriveState, Spec, Ssd, Timing};
use ext4::{Ext4, Format, MountOptions};
use vfs::kind::Format as _;
use vfs::{Creator, FileSystem, Ino};

const CUTS: u64 = 80;
/// How long it takes until the log has gone round, in nanoseconds.
const ROUND: u64 = 300_000_000;

/// Makes, writes, fsyncs and unlinks files in `dirs` until `stop`.
fn work(fs: &dyn FileSystem, dirs: &[Ino], stop: &Line, me: usize) {
    for n in (0..).take_while(|_| stop.load() == 0) {
        let (dir, name) = (dirs[(n * 5 + me) % dirs.len()], format!("{me}-{}", n % 60));
        match fs.create(dir, name.as_bytes(), 0o644, Creator::default()) {
            Ok(attr) => {
                fs.write(attr.ino, 0, &vec![7; 100 + 3000 * (n % 4)]).unwrap();
                fs.fsync(attr.ino, false).unwrap();
            }
            Err(_) => fs.unlink(dir, name.as_bytes()).unwrap(),
        }
    }
}

fn cuts(options: &str) -> Vec<DriveState> {
    let spec = Spec::named("conventional-noplp").unwrap().blocks(8 << 10).tearing().unkind();
    let drive = Ssd::new(spec, Timing::Virtual, 1).unwrap();
    let dynamic: Arc<dyn Drive> = drive.clone();
    Format.make(&dynamic).unwrap();
    let fs = Arc::new(Ext4::mount(dynamic, &options.parse().unwrap()).unwrap());
    let mkdir = |n: u8| fs.mkdir(fs.root(), &[b'a' + n], 0o755, Creator::default()).unwrap().ino;
    let dirs: Arc<[Ino]> = (0..7).map(mkdir).collect();
    let stop = Arc::new(Line::new(0));
    let worker = |me: usize| {
        let (fs, dirs, stop) = (fs.clone(), dirs.clone(), stop.clone());
        cores::spawn("worker", Some(1 + me), move || work(&*fs, &dirs, &stop, me))
    };
    let workers = [0, 1].map(worker);
    cores::sleep(ROUND);
    let cut = |round: u64| {
        cores::sleep(1_000_000 + (round * 7919) % 97 * 10_007);
        drive.survivors(round)
    };
    let left = (0..CUTS).map(cut).collect();
    stop.store(1);
    workers.into_iter().for_each(cores::JoinHandle::join);
    left
}

#[test]
fn a_torn_commit_block_keeps_no_volume_from_being_mounted() {
    let profile = Profile::named("xeon-4116").unwrap();
    for options in [
        "",
        "data=journal",
        "journal=ijournal",
        "journal=grouped",
        "journal=zjournal,areas=2",
        "journal=zgrouped,areas=2",
    ] {
        let left = Machine::simulated(&profile, 1).run(move || cuts(options)).unwrap();
        for (round, state) in left.into_iter().enumerate() {
            let drive: Arc<dyn Drive> = Ssd::power_on(state, Timing::Instant, 1);
            let fs = Ext4::mount(drive.clone(), &MountOptions::default())
                .unwrap_or_else(|error| panic!("{options}, cut {round}: {error}"));
            fs.unmount().unwrap();
            let checked = Format.check(&drive).unwrap();
            assert!(checked.findings.is_empty(), "{options}, {round}: {:?}", checked.findings);
        }
    }
}
