//! Scenarios of blocks that change hands: written back, cut off, freed and used again.

use std::sync::Arc;

use vfs::kind::Volume;
use vfs::{Creator, Errno, FallocateMode, Ino, SetAttr};

use super::volumes::{Mounted, TIMES, Threads, holds, pages_of, said};
use super::{Check, Structure, must, together};

/// Pages of each file.
const PAGES: usize = 4;
const PAGE: u64 = ::drive::BLOCK_SIZE as u64;

fn resize(fs: &dyn Volume, ino: Ino, pages: u64) -> Check {
    let size = Some(pages * PAGE);
    said("truncate", fs.setattr(ino, &SetAttr { size, ..SetAttr::default() })).map(drop)
}

pub(super) const TRUNCATE: Structure = Structure {
    name: "truncate",
    about: "a file cut and grown while it is written and written back: pages are old, new or zero",
    injected: false,
    zoned: false,
    run: |stage| {
        let volume = Mounted::new(stage, "")?;
        let (root, seed) = (volume.fs.root(), stage.seed);
        let file = volume.create(root, "file")?;
        volume.write(file, 0, b'a', PAGES)?;
        volume.fsync(file)?;
        let left = Arc::new(cores::Mutex::instrument("what is left", None));
        let (writer, cutter, syncer, kept) =
            (volume.clone(), volume.clone(), volume.clone(), left.clone());
        let threads: Threads = vec![
            Box::new(move || {
                (0..TIMES).try_for_each(|turn| {
                    writer.write(file, turn % 3, b'b' + turn as u8, 2)?;
                    writer.fsync(file)
                })
            }),
            Box::new(move || {
                (0..TIMES).try_for_each(|turn| {
                    resize(&*cutter.fs, file, 1 + turn % 2)?;
                    resize(&*cutter.fs, file, PAGES as u64)
                })
            }),
            Box::new(move || {
                (0..TIMES).try_for_each(|turn| {
                    said("sync", syncer.fs.sync())?;
                    if seed / 8 % TIMES == turn {
                        *kept.lock() = Some(syncer.medium.survivors(seed));
                    }
                    Ok(())
                })
            }),
        ];
        together(threads)?;
        let known = |fs: &dyn Volume| {
            let file = said("file", fs.lookup(root, b"file"))?.ino;
            let letters = pages_of(fs, file, PAGES + 1)?;
            let known = letters.iter().all(|letter| b"\0abcd".contains(letter));
            let first = letters.first().is_some_and(|first| *first != 0);
            must(known && first && letters.len() <= PAGES, || format!("it holds {letters:?}"))
        };
        known(&*volume.fs)?;
        volume.end()?;
        let Some(state) = left.lock().take() else { return Ok(()) };
        stage.after_cut(state, known)
    },
};

pub(super) const ZEROED: Structure = Structure {
    name: "zeroed",
    about: "pages that are not cached, zeroed on the drive while they are read: they stay zero",
    injected: false,
    zoned: false,
    run: |stage| {
        let before = Mounted::new(stage, "")?;
        let root = before.fs.root();
        let file = before.create(root, "file")?;
        before.write(file, 0, b'a', PAGES)?;
        before.end()?;
        let volume = before.again()?;
        let file = said("file", volume.fs.lookup(root, b"file"))?.ino;
        let mut threads: Threads = Vec::new();
        for page in 0..2 {
            let volume = volume.clone();
            threads.push(Box::new(move || {
                let mut data = [0; PAGE as usize];
                (0..TIMES).try_for_each(|_| {
                    said("read", volume.fs.read(file, page * PAGE, &mut data)).map(drop)
                })
            }));
        }
        let zeroer = volume.clone();
        threads.push(Box::new(move || {
            let range = zeroer.fs.fallocate(file, FallocateMode::ZERO_RANGE, 0, 2 * PAGE);
            said("zero range", range)
        }));
        together(threads)?;
        // A page that is written in part keeps the rest of what is cached.
        said("write", volume.fs.write(file, 0, &[0]))?;
        let zeroed = |fs: &dyn Volume| {
            let letters = pages_of(fs, file, PAGES + 1)?;
            must(letters == [0, 0, b'a', b'a'], || format!("it holds {letters:?}"))
        };
        zeroed(&*volume.fs)?;
        volume.end()?;
        zeroed(&*volume.again()?.fs)
    },
};

pub(super) const GROWN: Structure = Structure {
    name: "grown",
    about: "a file made longer and fsynced while a page in front is written: it is as long",
    injected: false,
    zoned: false,
    run: |stage| {
        let volume = Mounted::new(stage, "")?;
        let (root, seed) = (volume.fs.root(), stage.seed);
        let file = volume.create(root, "file")?;
        volume.write(file, 0, b'a', 1)?;
        volume.fsync(file)?;
        let left = Arc::new(cores::Mutex::instrument("what is left", None));
        let (grower, writer, kept) = (volume.clone(), volume.clone(), left.clone());
        let threads: Threads = vec![
            Box::new(move || {
                (1..=TIMES).try_for_each(|turn| {
                    resize(&*grower.fs, file, turn * PAGES as u64)?;
                    grower.fsync(file)?;
                    if seed / 8 % TIMES + 1 == turn {
                        let size = turn * PAGES as u64 * PAGE;
                        *kept.lock() = Some((size, grower.medium.survivors(seed)));
                    }
                    Ok(())
                })
            }),
            Box::new(move || {
                (0..4 * TIMES).try_for_each(|turn| writer.write(file, 0, b'b' + turn as u8, 1))
            }),
        ];
        together(threads)?;
        volume.end()?;
        let Some((size, state)) = left.lock().take() else { return Ok(()) };
        stage.after_cut(state, |fs| {
            let found = said("file", fs.lookup(root, b"file"))?.size;
            must(found >= size, || format!("{size} bytes were fsynced, there are {found}"))
        })
    },
};

pub(super) const SPACE: Structure = Structure {
    name: "space",
    about: "blocks taken, preallocated and freed by several files: none belongs to two",
    injected: false,
    zoned: false,
    run: |stage| {
        let volume = Mounted::new(stage, "")?;
        let root = volume.fs.root();
        let mut threads: Threads = Vec::new();
        for core in 0..3_u8 {
            let volume = volume.clone();
            threads.push(Box::new(move || {
                let letter = b'a' + core;
                for turn in 0..TIMES {
                    let name = format!("{core}-{turn}");
                    let file = volume.create(root, &name)?;
                    let ahead = 2 * PAGES as u64 * PAGE;
                    let kept = volume.fs.fallocate(file, FallocateMode::KEEP_SIZE, 0, ahead);
                    said("fallocate", kept)?;
                    volume.write(file, 0, letter, PAGES)?;
                    volume.fsync(file)?;
                    let punch = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
                    said("punch", volume.fs.fallocate(file, punch, PAGE, PAGE))?;
                    let letters = pages_of(&*volume.fs, file, PAGES + 1)?;
                    must(letters == [letter, 0, letter, letter], || format!("{letters:?}"))?;
                    if turn > 0 {
                        let old = format!("{core}-{}", turn - 1);
                        said("unlink", volume.fs.unlink(root, old.as_bytes()))?;
                    }
                }
                Ok(())
            }));
        }
        let syncer = volume.clone();
        threads.push(Box::new(move || (0..TIMES).try_for_each(|_| said("sync", syncer.fs.sync()))));
        together(threads)?;
        volume.end()
    },
};

pub(super) const PROMISED: Structure = Structure {
    name: "promised",
    about: "a file written while others preallocate all that is free: its fsync finds room",
    injected: false,
    zoned: false,
    run: |stage| {
        let volume = Mounted::new(stage, "")?;
        let root = volume.fs.root();
        let free = said("statfs", volume.fs.statfs())?;
        let most = free.blocks_available * u64::from(free.block_size) / 10 * 9;
        let mut threads: Threads = Vec::new();
        for core in 0..2 {
            let volume = volume.clone();
            threads.push(Box::new(move || {
                let file = volume.create(root, &format!("large {core}"))?;
                for _ in 0..TIMES {
                    match volume.fs.fallocate(file, FallocateMode::empty(), 0, most) {
                        Err(error) if error.errno() != Errno::NOSPC => {
                            return Err(format!("fallocate: {error}"));
                        }
                        Ok(()) | Err(_) => resize(&*volume.fs, file, 0)?,
                    }
                }
                Ok(())
            }));
        }
        let writer = volume.clone();
        threads.push(Box::new(move || {
            let file = writer.create(root, "file")?;
            let page = [b'x'; PAGE as usize];
            for _ in 0..TIMES {
                let written = (0..64).map_while(|at| writer.fs.write(file, at * PAGE, &page).ok());
                let pages = written.count();
                let synced = writer.fs.fsync(file, false);
                synced.map_err(|error| format!("{pages} pages were written; fsync: {error}"))?;
                resize(&*writer.fs, file, 0)?;
            }
            Ok(())
        }));
        together(threads)?;
        volume.end()
    },
};

pub(super) const ORPHANS: Structure = Structure {
    name: "orphans",
    about: "files unlinked while they are open, and cut: none is left after a power cut",
    injected: false,
    zoned: false,
    run: |stage| {
        let volume = Mounted::new(stage, "")?;
        let (root, seed) = (volume.fs.root(), stage.seed);
        let left = Arc::new(cores::Mutex::instrument("what is left", None));
        let mut threads: Threads = Vec::new();
        for core in 0..3_u64 {
            let (volume, left) = (volume.clone(), left.clone());
            threads.push(Box::new(move || {
                for turn in 0..TIMES {
                    let name = format!("{core}-{turn}");
                    let file = volume.create(root, &name)?;
                    said("open", volume.fs.open(file))?;
                    volume.write(file, 0, b'x', PAGES)?;
                    said("unlink", volume.fs.unlink(root, name.as_bytes()))?;
                    if core == turn {
                        said("sync", volume.fs.sync())?;
                    }
                    if seed / 8 % 9 == TIMES * turn + core {
                        *left.lock() = Some(volume.medium.survivors(seed));
                    }
                    resize(&*volume.fs, file, 1)?;
                    volume.fs.release(file);
                }
                Ok(())
            }));
        }
        together(threads)?;
        volume.end()?;
        let Some(state) = left.lock().take() else { return Ok(()) };
        stage.after_cut(state, |_| Ok(()))
    },
};

pub(super) const REUSE: Structure = Structure {
    name: "reuse",
    about: "blocks of removed directories become contents: what was fsynced survives a cut",
    injected: false,
    zoned: false,
    run: |stage| {
        let volume = Mounted::new(stage, "")?;
        let (root, seed) = (volume.fs.root(), stage.seed);
        let left = Arc::new(cores::Mutex::instrument("what is left", None));
        let mut threads: Threads = Vec::new();
        for core in 0..2_u8 {
            let maker = volume.clone();
            threads.push(Box::new(move || {
                for turn in 0..TIMES as u8 {
                    let name = [b'd', b'0' + core, b'0' + turn];
                    let dir = maker.fs.mkdir(root, &name, 0o755, Creator::default());
                    let dir = said("mkdir", dir)?.ino;
                    maker.create(dir, "below")?;
                    maker.fsync(dir)?;
                    said("unlink", maker.fs.unlink(dir, b"below"))?;
                    said("rmdir", maker.fs.rmdir(root, &name))?;
                    said("sync", maker.fs.sync())?;
                }
                Ok(())
            }));
            let (writer, kept) = (volume.clone(), left.clone());
            threads.push(Box::new(move || {
                for turn in 0..TIMES {
                    let (name, letter) = (format!("f{core}-{turn}"), b'a' + turn as u8);
                    let file = writer.create(root, &name)?;
                    writer.write(file, 0, letter, PAGES)?;
                    writer.fsync(file)?;
                    if seed / 8 % 6 == 2 * turn + u64::from(core) {
                        *kept.lock() = Some((name, letter, writer.medium.survivors(seed)));
                    }
                }
                Ok(())
            }));
        }
        together(threads)?;
        volume.end()?;
        let Some((name, letter, state)) = left.lock().take() else { return Ok(()) };
        stage.after_cut(state, |fs| holds(fs, &name, &[letter; PAGES]))
    },
};

pub(super) const FLUSHER: Structure = Structure {
    name: "flusher",
    about: "more is written than may be dirty while the flusher works: what was fsynced survives",
    injected: false,
    zoned: false,
    run: |stage| {
        // Two files of which each has 100 of 256 pages: a quarter wakes the flusher, and with half
        // writers wait.
        let has_cache = stage.format.has_option("cache");
        let (cache, pages) = if has_cache { ("cache=1m", 100) } else { ("", PAGES) };
        let half = pages / 2;
        let volume = Mounted::new(stage, cache)?;
        let upkeep = volume.fs.clone().maintain();
        let (root, seed) = (volume.fs.root(), stage.seed);
        let left = Arc::new(cores::Mutex::instrument("what is left", None));
        let mut threads: Threads = Vec::new();
        for core in 0..2 {
            let (volume, left) = (volume.clone(), left.clone());
            threads.push(Box::new(move || {
                let name = format!("f{core}");
                let file = volume.create(root, &name)?;
                for (turn, letter) in (0..TIMES).zip(b'a'..) {
                    volume.write(file, 0, letter, half)?;
                    volume.write(file, half as u64, letter, half)?;
                    if seed / 8 % (2 * TIMES) == 2 * turn + core {
                        volume.fsync(file)?;
                        *left.lock() = Some((name.clone(), letter, volume.medium.survivors(seed)));
                    }
                    let letters = pages_of(&*volume.fs, file, pages + 1)?;
                    must(letters == vec![letter; pages], || format!("{name}: {letters:?}"))?;
                }
                Ok(())
            }));
        }
        together(threads)?;
        drop(upkeep);
        volume.end()?;
        let Some((name, letter, state)) = left.lock().take() else { return Ok(()) };
        stage.after_cut(state, |fs| holds(fs, &name, &vec![letter; pages]))
    },
};
