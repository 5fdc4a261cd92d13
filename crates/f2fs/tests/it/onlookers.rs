//! Readers use the volume while the cleaner reads: here the drive completes none of the cleaner's
//! reads before an operation has read the volume. A cleaner that read with the volume locked
//! exclusively would deadlock.

use std::sync::Arc;

use cores::{Condvar, Machine, Mutex, Profile};
use drive::{Command, Completion, Drive, Identify, Lba, Ssd};
use f2fs::F2fs;
use vfs::{Creator, FileSystem};

use crate::harness::{self, Kind, checkpoint_of, mount_on};

const PAGE: u64 = 4096;
/// Small files, so that a segment has many nodes and inodes.
const FILES: u64 = 300;

/// A drive that completes a read only after an operation has read the volume.
struct Watched {
    below: Arc<Ssd>,
    /// Reads of summaries, nodes and data begin here.
    from: Lba,
    looks: Mutex<Looks>,
    changed: Condvar,
}

#[derive(Default)]
struct Looks {
    armed: bool,
    asked: u64,
    done: u64,
    ended: bool,
}

impl Watched {
    fn change(&self, change: impl FnOnce(&mut Looks)) {
        change(&mut self.looks.lock());
        self.changed.notify_all();
    }

    /// Looks whenever it is asked to.
    fn look(&self, fs: &F2fs) {
        loop {
            let mut looks = self.looks.lock();
            while looks.asked == looks.done && !looks.ended {
                self.changed.wait(&mut looks);
            }
            if looks.ended {
                return;
            }
            drop(looks);
            fs.getattr(fs.root()).unwrap();
            self.change(|looks| looks.done += 1);
        }
    }
}

impl Drive for Watched {
    fn identify(&self) -> &Identify {
        self.below.identify()
    }

    fn submit(&self, queue: u16, cid: u16, command: Command) {
        if matches!(command, Command::Read { lba, .. } if lba >= self.from) {
            let mut looks = self.looks.lock();
            if looks.armed {
                looks.asked += 1;
                let ticket = looks.asked;
                self.changed.notify_all();
                while looks.done < ticket {
                    self.changed.wait(&mut looks);
                }
            }
        }
        self.below.submit(queue, cid, command);
    }

    fn poll(&self, queue: u16) -> Option<Completion> {
        self.below.poll(queue)
    }

    fn wait(&self, queue: u16) -> Option<Completion> {
        self.below.wait(queue)
    }

    fn wait_for(&self, queue: u16, cid: u16) -> Option<Completion> {
        self.below.wait_for(queue, cid)
    }
}

/// A volume whose files have each lost half of their blocks.
fn aged(kind: Kind) -> Arc<Ssd> {
    let drive = kind.formatted(1);
    let fs = harness::mount(&drive, "mode=lfs");
    let create = |n: u64| {
        let name = format!("file {n}");
        fs.create(fs.root(), name.as_bytes(), 0o644, Creator::default()).unwrap().ino
    };
    let files: Vec<_> = (0..FILES).map(create).collect();
    for pages in [8, 4] {
        for &file in &files {
            fs.write(file, 0, &vec![pages; usize::from(pages) * PAGE as usize]).unwrap();
        }
        fs.sync().unwrap();
    }
    fs.unmount().unwrap();
    drive
}

#[test]
fn who_looks_does_not_wait_for_what_the_cleaner_reads() {
    for kind in Kind::ALL {
        let machine = Machine::simulated(&Profile::named("xeon-4116").unwrap(), 1);
        let asked = machine.run(move || {
            let below = aged(kind);
            let (sb, _) = checkpoint_of(&below.survivors(0));
            let drive = Arc::new(Watched {
                below,
                from: sb.ssa_blkaddr.into(),
                looks: Mutex::new(Looks::default()),
                changed: Condvar::new(),
            });
            // Nothing of it is in memory but the root.
            let fs = Arc::new(mount_on(drive.clone(), "mode=lfs"));
            fs.getattr(fs.root()).unwrap();
            let looker = {
                let (drive, fs) = (drive.clone(), fs.clone());
                cores::spawn("looker", Some(1), move || drive.look(&fs))
            };
            drive.change(|looks| looks.armed = true);
            assert!(fs.background_gc().unwrap(), "{kind:?}: nothing to clean");
            drive.change(|looks| looks.ended = true);
            looker.join();
            fs.unmount().unwrap();
            drive.looks.lock().asked
        });
        // A summary, nodes of many files, and data.
        let asked = asked.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
        assert!(asked > 10, "{kind:?}: only {asked} reads");
    }
}
