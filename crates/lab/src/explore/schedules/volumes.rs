//! Scenarios over a mounted volume.

use std::sync::Arc;

use ::drive::{BLOCK_SIZE, Drive, Timing};
use vfs::kind::{Format, Technique, Volume};
use vfs::{Creator, Errno, Ino, SetAttr};

use super::{Check, Stage, Structure, must, together};
use crate::rig::{Left, Medium};
use crate::{Error, Result, rig};

/// Without write buffer protection, so that an fsync is worth what it did, and without zones, where
/// order comes from the file system alone.
const DRIVE: &str = "conventional-noplp";
/// With zones, which are reset before they are used again.
const ZONED: &str = "zn540-noplp";
/// For file systems that need it.
const MEMORY: &str = "pm";
/// Bytes that a volume on memory is to have room for.
const MEMORY_ROOM: u64 = 4 << 20;
/// Free blocks of a volume that is nearly full.
const FREE: u64 = 640;

/// How often each thread does its part.
pub(super) const TIMES: u64 = 3;

pub(super) type Threads = Vec<Box<dyn FnOnce() -> Check + Send>>;

/// A medium with an empty volume, with `more` features.
pub(super) fn empty(format: &'static dyn Format, way: &Technique, more: &str) -> Result<Left> {
    Ok(made(DRIVE, format, way, more)?.power_off())
}

/// How many bytes of an overwrite under way a cut leaves old or new as a whole: with calls that
/// are durable when they return, but whose contents are not atomic, what the medium never tears.
pub(super) fn unit(way: &Technique, empty: &Left) -> usize {
    let medium = empty.power_on(Timing::Instant, 1);
    let drive = medium.drive();
    let promise = (way.promise)(drive.identify());
    match promise.at_return && !promise.atomic {
        true => drive.identify().atomic_write as usize,
        false => BLOCK_SIZE,
    }
}

/// Whether it makes volumes on drives with zones.
pub(super) fn takes_zones(format: &'static dyn Format) -> Result<bool> {
    let ssd = rig::new_drive(&rig::unkind(ZONED, 0)?, Timing::Instant, 1)?;
    Ok(format.techniques().first().is_some_and(|way| (way.runs_on)(ssd.identify())))
}

/// A medium with a volume that has [`FREE`] blocks left, and `more` features.
pub(super) fn nearly_full(
    format: &'static dyn Format,
    way: &Technique,
    more: &str,
) -> Result<Left> {
    let medium = made(ZONED, format, way, more)?;
    let fs = format.mount(medium.drive(), "").map_err(Error::of("mount"))?;
    let fill = || -> vfs::Result<()> {
        let file = fs.create(fs.root(), b"filler", 0o644, Creator::default())?.ino;
        let pages = fs.statfs()?.blocks_free.saturating_sub(FREE);
        for page in 0..pages {
            match fs.write(file, page * BLOCK_SIZE as u64, &[b'f'; BLOCK_SIZE]) {
                // Some that are free are kept for metadata.
                Err(error) if error.errno() == Errno::NOSPC => {
                    let size = page.saturating_sub(FREE) * BLOCK_SIZE as u64;
                    fs.setattr(file, &SetAttr { size: Some(size), ..SetAttr::default() })?;
                    break;
                }
                written => drop(written?),
            }
        }
        fs.unmount()
    };
    fill().map_err(Error::at("fill", b"filler"))?;
    Ok(medium.power_off())
}

fn made(drive: &str, format: &'static dyn Format, way: &Technique, more: &str) -> Result<Medium> {
    let drive = rig::kit(drive, 0)?;
    let kit = match (way.runs_on)(&drive.identify()?) {
        true => drive,
        false => rig::kit(MEMORY, MEMORY_ROOM)?,
    };
    let medium = kit.make(Timing::Instant, 1)?;
    rig::make_for(format, &medium.drive(), way, way.options, more)?;
    Ok(medium)
}

/// A mounted volume and what lies below it.
pub(super) struct Mounted {
    pub(super) fs: Arc<dyn Volume>,
    pub(super) medium: Medium,
    stage: Arc<Stage>,
}

pub(super) fn said<T, E: std::fmt::Display>(
    what: &str,
    result: std::result::Result<T, E>,
) -> std::result::Result<T, String> {
    result.map_err(|error| format!("{what}: {error}"))
}

impl Mounted {
    pub(super) fn new(stage: &Arc<Stage>, options: &str) -> std::result::Result<Arc<Self>, String> {
        Self::on(&stage.empty, stage, options)
    }

    fn on(
        state: &Left,
        stage: &Arc<Stage>,
        options: &str,
    ) -> std::result::Result<Arc<Self>, String> {
        let medium = state.power_on(Timing::Virtual, stage.seed);
        let options = format!("{},{options}", stage.options);
        let options = options.trim_matches(',');
        let fs = said("mount", stage.format.mount(medium.drive(), options))?;
        Ok(Arc::new(Self { fs, medium, stage: stage.clone() }))
    }

    /// The volume mounted again, with nothing cached.
    pub(super) fn again(&self) -> std::result::Result<Arc<Self>, String> {
        Self::on(&self.medium.power_off(), &self.stage, "")
    }

    pub(super) fn create(&self, dir: Ino, name: &str) -> std::result::Result<Ino, String> {
        let made = self.fs.create(dir, name.as_bytes(), 0o644, Creator::default());
        said(name, made).map(|attr| attr.ino)
    }

    pub(super) fn write(&self, ino: Ino, page: u64, letter: u8, pages: usize) -> Check {
        let data = vec![letter; pages * BLOCK_SIZE];
        let written = said("write", self.fs.write(ino, page * BLOCK_SIZE as u64, &data))?;
        must(written == data.len(), || format!("{written} of {} bytes written", data.len()))
    }

    pub(super) fn fsync(&self, ino: Ino) -> Check {
        said("fsync", self.fs.fsync(ino, false))
    }

    /// Unmounts, and finds nothing wrong.
    pub(super) fn end(&self) -> Check {
        said("unmount", self.fs.unmount())?;
        self.stage.sound(&self.medium.drive())
    }
}

impl Stage {
    fn sound(&self, drive: &Arc<dyn Drive>) -> Check {
        let found = said("check", rig::check(self.format, drive))?;
        must(found.is_empty(), || format!("check: {found:?}"))
    }

    /// What `see` sees on a drive after a power cut left `state`, and nothing wrong with it.
    pub(super) fn after_cut(&self, state: Left, see: impl FnOnce(&dyn Volume) -> Check) -> Check {
        let drive = state.power_on(Timing::Instant, self.seed).drive();
        let fs = said("mount after the cut", self.format.mount(drive.clone(), &self.options))?;
        see(&*fs)?;
        said("unmount after the cut", fs.unmount())?;
        self.sound(&drive)
    }
}

/// The letter that fills each page of what there is of a file.
pub(super) fn pages_of(
    fs: &dyn Volume,
    ino: Ino,
    pages: usize,
) -> std::result::Result<Vec<u8>, String> {
    units_of(fs, ino, pages, BLOCK_SIZE)
}

/// The letter that fills each `unit` bytes of what there is of a file.
fn units_of(
    fs: &dyn Volume,
    ino: Ino,
    pages: usize,
    unit: usize,
) -> std::result::Result<Vec<u8>, String> {
    let mut data = vec![0; pages * BLOCK_SIZE];
    let len = said("read", fs.read(ino, 0, &mut data))?;
    data[..len]
        .chunks(unit)
        .map(|part| {
            let letter = part.first().copied().unwrap_or(0);
            must(part.iter().all(|&byte| byte == letter), || {
                let what = if unit == BLOCK_SIZE { "page" } else { "word" };
                format!("a {what} is torn")
            })?;
            Ok(letter)
        })
        .collect()
}

/// Fails unless the file `name` of the root was fsynced with these pages, each of one letter.
pub(super) fn holds(fs: &dyn Volume, name: &str, letters: &[u8]) -> Check {
    let file = said(name, fs.lookup(fs.root(), name.as_bytes()))?.ino;
    let found = pages_of(fs, file, letters.len() + 1)?;
    must(found == letters, || format!("{name} was fsynced with {letters:?}, and holds {found:?}"))
}

pub(super) const INODE: Structure = Structure {
    name: "inode",
    about: "writers of one file and readers of it: no page is torn, the last write stays",
    injected: false,
    zoned: false,
    run: |stage| {
        let volume = Mounted::new(stage, "")?;
        let file = volume.create(volume.fs.root(), "file")?;
        volume.write(file, 0, b'0', 2)?;
        let mut threads: Threads = Vec::new();
        for letter in [b'a', b'b'] {
            let volume = volume.clone();
            threads.push(Box::new(move || {
                for turn in 0..TIMES {
                    volume.write(file, turn % 2, letter, 1 + (turn % 2 == 0) as usize)?;
                }
                Ok(())
            }));
        }
        for _ in 0..2 {
            let volume = volume.clone();
            threads.push(Box::new(move || {
                for _ in 0..TIMES {
                    let letters = pages_of(&*volume.fs, file, 2)?;
                    let known = letters.iter().all(|letter| b"0ab".contains(letter));
                    must(known && letters.len() == 2, || format!("read {letters:?}"))?;
                }
                Ok(())
            }));
        }
        together(threads)?;
        let letters = pages_of(&*volume.fs, file, 3)?;
        let last = letters.len() == 2 && letters.iter().all(|letter| b"ab".contains(letter));
        must(last, || format!("{letters:?} is left"))?;
        volume.end()
    },
};

pub(super) const FSYNC: Structure = Structure {
    name: "fsync",
    about: "files fsynced side by side: what has returned survives a cut at that moment",
    injected: false,
    zoned: false,
    run: |stage| {
        let volume = Mounted::new(stage, "")?;
        let root = volume.fs.root();
        let seed = stage.seed;
        let left = Arc::new(cores::Mutex::instrument("what is left", None));
        let mut threads: Threads = Vec::new();
        for core in 0..3_u8 {
            let (volume, left) = (volume.clone(), left.clone());
            threads.push(Box::new(move || {
                let name = format!("f{core}");
                let file = volume.create(root, &name)?;
                volume.write(file, 0, b'a' + core, 2)?;
                volume.fsync(file)?;
                if seed / 8 % 3 == u64::from(core) {
                    *left.lock() = Some((name, b'a' + core, volume.medium.survivors(seed)));
                }
                Ok(())
            }));
        }
        together(threads)?;
        let Some((name, letter, state)) = left.lock().take() else { return Ok(()) };
        stage.after_cut(state, |fs| holds(fs, &name, &[letter; 2]))
    },
};

pub(super) const UNMOUNT: Structure = Structure {
    name: "unmount",
    about: "an unmount during writes and fsyncs: what was fsynced survives, nothing is corrupt",
    injected: false,
    zoned: false,
    run: |stage| {
        let volume = Mounted::new(stage, "")?;
        let root = volume.fs.root();
        let durable = Arc::new(cores::Mutex::instrument("what is durable", Vec::new()));
        let mut threads: Threads = Vec::new();
        for letter in [b'a', b'b'] {
            let (volume, durable) = (volume.clone(), durable.clone());
            threads.push(Box::new(move || {
                for turn in 0..TIMES {
                    let name = format!("{}{turn}", char::from(letter));
                    // From the unmount on, calls fail.
                    let Ok(file) = volume.create(root, &name) else { break };
                    if volume.write(file, 0, letter, 2).and_then(|()| volume.fsync(file)).is_err() {
                        break;
                    }
                    durable.lock().push((name, letter));
                }
                Ok(())
            }));
        }
        let ender = volume.clone();
        let before = stage.seed / 8 % (TIMES + 1);
        threads.push(Box::new(move || {
            for turn in 0..before {
                ender.create(root, &format!("c{turn}"))?;
            }
            said("unmount", ender.fs.unmount())
        }));
        together(threads)?;
        stage.sound(&volume.medium.drive())?;
        let durable = durable.lock().clone();
        stage.after_cut(volume.medium.survivors(stage.seed), |fs| {
            durable.iter().try_for_each(|(name, letter)| holds(fs, name, &[*letter; 2]))
        })
    },
};

pub(super) const CHECKPOINT: Structure = Structure {
    name: "checkpoint",
    about: "checkpoints during writes and fsyncs: what had returned survives, nothing is corrupt",
    injected: false,
    zoned: false,
    run: |stage| {
        let volume = Mounted::new(stage, "")?;
        let root = volume.fs.root();
        let file = volume.create(root, "file")?;
        volume.write(file, 0, b'a', 2)?;
        let seed = stage.seed;
        let left = Arc::new(cores::Mutex::instrument("what is left", None));
        let mut threads: Threads = Vec::new();
        let (writer, syncer, maker, kept) =
            (volume.clone(), volume.clone(), volume.clone(), left.clone());
        threads.push(Box::new(move || {
            for letter in [b'b', b'c'] {
                writer.write(file, 0, letter, 2)?;
                writer.fsync(file)?;
            }
            Ok(())
        }));
        threads.push(Box::new(move || {
            for turn in 0..2 {
                said("sync", syncer.fs.sync())?;
                if seed / 8 % 2 == turn {
                    *kept.lock() = Some(syncer.medium.survivors(seed));
                }
            }
            Ok(())
        }));
        threads.push(Box::new(move || {
            for turn in 0..TIMES {
                let name = format!("g{turn}");
                let made = maker.create(root, &name)?;
                maker.write(made, 0, b'g', 1)?;
            }
            said("unlink", maker.fs.unlink(root, b"g0"))
        }));
        together(threads)?;
        let Some(state) = left.lock().take() else { return Ok(()) };
        stage.after_cut(state, |fs| {
            let file = said("file", fs.lookup(fs.root(), b"file"))?.ino;
            let letters = units_of(fs, file, 3, stage.unit)?;
            let is_long = letters.len() * stage.unit == 2 * BLOCK_SIZE;
            let known = is_long && letters.iter().all(|letter| b"abc".contains(letter));
            must(known, || format!("it was synced, and holds {letters:?}"))
        })?;
        volume.end()
    },
};

pub(super) const CLEANER: Structure = Structure {
    name: "cleaner",
    about: "cleaning during writes, reads and fsyncs: contents stay what they are",
    injected: false,
    zoned: false,
    run: |stage| {
        let volume = Mounted::new(stage, "")?;
        let root = volume.fs.root();
        let mut files = Vec::new();
        for letter in [b'a', b'b'] {
            let file = volume.create(root, &format!("{}", char::from(letter)))?;
            volume.write(file, 0, letter, 8)?;
            volume.fsync(file)?;
            files.push((file, letter));
        }
        let mut threads: Threads = Vec::new();
        for &(file, letter) in &files {
            let volume = volume.clone();
            threads.push(Box::new(move || {
                for turn in 0..TIMES {
                    volume.write(file, 2 * turn, letter.to_ascii_uppercase(), 1)?;
                    volume.fsync(file)?;
                    let letters = pages_of(&*volume.fs, file, 9)?;
                    let own = letters.iter().all(|l| l.to_ascii_lowercase() == letter);
                    must(own && letters.len() == 8, || format!("read {letters:?}"))?;
                }
                Ok(())
            }));
        }
        let cleaner = volume.clone();
        threads.push(Box::new(move || {
            for _ in 0..2 {
                // There may be nothing to clean.
                let _ = cleaner.fs.clean();
            }
            Ok(())
        }));
        together(threads)?;
        for (file, letter) in files {
            let letters = pages_of(&*volume.fs, file, 9)?;
            let new = |page: usize| page.is_multiple_of(2) && page < 2 * TIMES as usize;
            let wanted: Vec<u8> =
                (0..8).map(|p| if new(p) { letter.to_ascii_uppercase() } else { letter }).collect();
            must(letters == wanted, || format!("{letters:?}, not {wanted:?}"))?;
        }
        volume.end()
    },
};

pub(super) const DISCARDS: Structure = Structure {
    name: "discards",
    about: "zones are reset while a nearly full volume is written: what was fsynced survives a cut",
    injected: false,
    zoned: true,
    run: |stage| {
        const PAGES: usize = 256;
        const LETTERS: std::ops::RangeInclusive<u8> = b'a'..=b'f';
        let nearly_full = stage.nearly_full.as_ref().ok_or("no volume with zones")?;
        let volume = Mounted::on(nearly_full, stage, "")?;
        let upkeep = volume.fs.clone().maintain();
        let (root, seed) = (volume.fs.root(), stage.seed);
        let left = Arc::new(cores::Mutex::instrument("what is left", None));
        let mut threads: Threads = Vec::new();
        for core in 0..2 {
            let (volume, left) = (volume.clone(), left.clone());
            threads.push(Box::new(move || {
                let file = volume.create(root, &format!("f{core}"))?;
                for (turn, letter) in (0..).zip(LETTERS) {
                    volume.write(file, 0, letter, PAGES)?;
                    volume.fsync(file)?;
                    if seed / 8 % 12 == 2 * turn + core {
                        *left.lock() = Some((core, letter, volume.medium.survivors(seed)));
                    }
                }
                Ok(())
            }));
        }
        let syncer = volume.clone();
        threads.push(Box::new(move || (0..TIMES).try_for_each(|_| said("sync", syncer.fs.sync()))));
        together(threads)?;
        drop(upkeep);
        let all_hold = |fs: &dyn Volume, core: u64, letter: u8| {
            holds(fs, &format!("f{core}"), &[letter; PAGES])
        };
        (0..2).try_for_each(|core| all_hold(&*volume.fs, core, *LETTERS.end()))?;
        volume.end()?;
        let Some((core, letter, state)) = left.lock().take() else { return Ok(()) };
        stage.after_cut(state, |fs| all_hold(fs, core, letter))
    },
};
