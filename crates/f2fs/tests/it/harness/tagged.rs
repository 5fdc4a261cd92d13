//! A workload that can tell, after any cut, whether what it fsynced is there and whose each block
//! is: every block carries its file, its index and the generation that wrote it.

use std::collections::BTreeMap;
use std::sync::Arc;

use cores::Mutex;
use drive::{DriveState, Ssd};
use f2fs::F2fs;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use vfs::{Creator, FileSystem, Ino};

use super::{Kind, mount};

pub const PAGE: usize = 4096;
/// Files the workload overwrites, and their size in blocks.
const FILES: u32 = 6;
const PAGES: u64 = 40;

/// What a file system must hold: per block of a file the oldest generation that may be there.
#[derive(Clone, Default)]
pub struct Promise {
    acked: BTreeMap<(u32, u64), u64>,
    written: u64,
}

/// A cut: what it left on the drive, and what was promised at that instant.
pub struct Cut {
    pub state: DriveState,
    pub promise: Promise,
}

/// The workload and what it has been promised so far.
pub struct Tagged {
    rng: Xoshiro256PlusPlus,
    promise: Arc<Mutex<Promise>>,
    pending: BTreeMap<(u32, u64), u64>,
}

fn block(file: u32, page: u64, generation: u64) -> Vec<u8> {
    let mut tag = [0; 32];
    tag[..4].copy_from_slice(&(file + 1).to_le_bytes());
    tag[8..16].copy_from_slice(&page.to_le_bytes());
    tag[16..24].copy_from_slice(&generation.to_le_bytes());
    tag.repeat(PAGE / tag.len())
}

fn name(file: u32) -> String {
    format!("file{file}")
}

fn find(fs: &F2fs, name: &str) -> Option<Ino> {
    fs.lookup(fs.root(), name.as_bytes()).ok().map(|attr| attr.ino)
}

impl Tagged {
    pub fn new(seed: u64, promise: Promise) -> Self {
        Self {
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            promise: Arc::new(Mutex::new(promise)),
            pending: BTreeMap::new(),
        }
    }

    /// Takes what a power cut would leave at every `every`-th event of `drive` from now on.
    pub fn record(&self, drive: &Ssd, every: u64, seed: u64) -> Arc<Mutex<Vec<Cut>>> {
        let cuts = Arc::new(Mutex::new(Vec::new()));
        let (into, promise) = (Arc::clone(&cuts), Arc::clone(&self.promise));
        let mut events = 0;
        drive.observe(Box::new(move |_, moment| {
            events += 1;
            if events % every == 0 {
                let state = moment.survivors(seed ^ events);
                let promise = promise.lock().clone();
                into.lock().push(Cut { state, promise });
            }
        }));
        cuts
    }

    /// The promise as it is at any time from now on.
    pub fn promised(&self) -> Arc<Mutex<Promise>> {
        Arc::clone(&self.promise)
    }

    pub fn promise(&self) -> Promise {
        self.promise.lock().clone()
    }

    /// Random overwrites with fsync, and short-lived files in between.
    pub fn run(&mut self, fs: &F2fs, steps: u32) -> vfs::Result<()> {
        for step in 0..steps {
            match self.rng.random_range(0..10) {
                0 => self.short_lived(fs, step)?,
                1 if step % 7 == 0 => {
                    fs.sync()?;
                    self.kept(None);
                }
                _ => self.overwrite(fs)?,
            }
        }
        Ok(())
    }

    fn overwrite(&mut self, fs: &F2fs) -> vfs::Result<()> {
        let file = self.rng.random_range(0..FILES);
        let ino = match find(fs, &name(file)) {
            Some(ino) => ino,
            None => fs.create(fs.root(), name(file).as_bytes(), 0o644, Creator::default())?.ino,
        };
        let page = self.rng.random_range(0..PAGES);
        for page in page..page + self.rng.random_range(1..4) {
            let generation = {
                let mut promise = self.promise.lock();
                promise.written += 1;
                promise.written
            };
            self.pending.insert((file, page), generation);
            fs.write(ino, page * PAGE as u64, &block(file, page, generation))?;
        }
        if self.rng.random_range(0..10) < 7 {
            fs.fsync(ino, false)?;
            self.kept(Some(file));
        }
        Ok(())
    }

    /// Everything written to `file`, or to all files, is promised from now on.
    fn kept(&mut self, file: Option<u32>) {
        let mut promise = self.promise.lock();
        self.pending.retain(|&(of, page), generation| {
            let keep = file.is_none_or(|file| file == of);
            if keep {
                promise.acked.insert((of, page), *generation);
            }
            !keep
        });
    }

    fn short_lived(&mut self, fs: &F2fs, step: u32) -> vfs::Result<()> {
        let name = format!("temporary{}", step % 5);
        let ino = match find(fs, &name) {
            Some(_) if step.is_multiple_of(2) => return fs.unlink(fs.root(), name.as_bytes()),
            Some(ino) => ino,
            None => fs.create(fs.root(), name.as_bytes(), 0o600, Creator::default())?.ino,
        };
        fs.write(ino, 0, &vec![0xee; self.rng.random_range(1..9 * PAGE)])?;
        fs.fsync(ino, false)
    }
}

impl Promise {
    /// What `fs` holds that was never promised, or lacks although it was; `None` if nothing.
    pub fn broken(&self, fs: &F2fs) -> Option<String> {
        self.lost(fs).or_else(|| self.strange(fs))
    }

    /// Something fsynced that is not there.
    pub fn lost(&self, fs: &F2fs) -> Option<String> {
        self.acked.iter().find_map(|(&(file, page), &oldest)| {
            let Some(ino) = find(fs, &name(file)) else {
                return Some(format!("file {file} is gone"));
            };
            let mut found = vec![0; PAGE];
            fs.read(ino, page * PAGE as u64, &mut found).expect("a readable file");
            let generation = u64::from_le_bytes(found[16..24].try_into().unwrap());
            let lost = generation < oldest && tag_of(&found) == Some((file, page));
            let lost = lost || found.iter().all(|byte| *byte == 0);
            lost.then(|| format!("file {file} page {page}: {generation}, fsynced {oldest}"))
        })
    }

    /// A block that is neither a hole nor this file's at this place.
    pub fn strange(&self, fs: &F2fs) -> Option<String> {
        (0..FILES).find_map(|file| {
            let ino = find(fs, &name(file))?;
            (0..PAGES + 4).find_map(|page| {
                let mut found = vec![0; PAGE];
                let got = fs.read(ino, page * PAGE as u64, &mut found).expect("a readable file");
                let hole = found.iter().all(|byte| *byte == 0);
                let generation = u64::from_le_bytes(found[16..24].try_into().unwrap());
                let ours = got == PAGE
                    && generation <= self.written
                    && found == block(file, page, generation);
                (!hole && !ours).then(|| {
                    format!("file {file} page {page} holds {:?} {generation}", tag_of(&found))
                })
            })
        })
    }
}

fn tag_of(found: &[u8]) -> Option<(u32, u64)> {
    let file = u32::from_le_bytes(found[..4].try_into().ok()?).checked_sub(1)?;
    Some((file, u64::from_le_bytes(found[8..16].try_into().ok()?)))
}

/// Cuts all over a run of the tagged workload.
pub fn cuts_of(kind: Kind, options: &str, seed: u64, every: u64) -> Vec<Cut> {
    let drive = kind.formatted(seed);
    let fs = mount(&drive, options);
    let mut work = Tagged::new(seed, Promise::default());
    let cuts = work.record(&drive, every, seed);
    work.run(&fs, 60).unwrap();
    drive.unobserve();
    std::mem::take(&mut *cuts.lock())
}
