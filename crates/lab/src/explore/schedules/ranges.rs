//! A scenario of overwrites of one file by several threads at once, as range locks allow.

use std::sync::Arc;

use ::drive::BLOCK_SIZE;
use vfs::Ino;

use super::volumes::{Mounted, TIMES, Threads, pages_of, said};
use super::{Check, Structure, must, together};

/// Pages that two threads overwrite, three at a time: they overlap in the two in the middle.
const PAGES: usize = 4;
/// A page of which two threads overwrite a half each.
const HALVES: usize = 4;
/// A page that one thread overwrites and fsyncs.
const SYNCED: usize = 5;

const HALF: usize = BLOCK_SIZE / 2;

/// Overwrites a half of a page.
fn half(volume: &Mounted, file: Ino, number: usize, letter: u8) -> Check {
    let at = HALVES * BLOCK_SIZE + number * HALF;
    said("write", volume.fs.write(file, at as u64, &[letter; HALF])).map(drop)
}

/// What there is of a half of that page, if all of it is the same.
fn half_of(volume: &Mounted, file: Ino, number: usize) -> std::result::Result<u8, String> {
    let mut read = [0; HALF];
    let at = HALVES * BLOCK_SIZE + number * HALF;
    said("read", volume.fs.read(file, at as u64, &mut read))?;
    let whole = read.iter().all(|byte| *byte == read[0]);
    must(whole, || "half a page is torn".to_owned()).map(|()| read[0])
}

/// Reads the overlapping pages, which every overwrite fills with one letter, and the file's time.
fn read(volume: &Mounted, file: Ino) -> Check {
    let mut last = None;
    for _ in 0..2 * TIMES {
        let letters = pages_of(&*volume.fs, file, PAGES)?;
        let whole = letters.len() == PAGES && letters[1] == letters[2];
        must(whole, || format!("half an overwrite was read: {letters:?}"))?;
        let mtime = said("stat", volume.fs.getattr(file))?.mtime;
        let now = (mtime.secs, mtime.nanos);
        must(last <= Some(now), || format!("{last:?} was followed by {now:?}"))?;
        last = Some(now);
    }
    Ok(())
}

pub(super) const RANGES: Structure = Structure {
    name: "ranges",
    about: "overlapping overwrites of one file: reads see each whole, an fsync keeps its own",
    injected: false,
    zoned: false,
    run: |stage| {
        let volume = Mounted::new(stage, "")?;
        let (root, seed) = (volume.fs.root(), stage.seed);
        let file = volume.create(root, "file")?;
        volume.write(file, 0, b'0', SYNCED + 1)?;
        volume.fsync(file)?;
        // The first overwrite, after which pages can be locked for themselves.
        volume.write(file, 0, b'0', 1)?;
        let left = Arc::new(cores::Mutex::instrument("what is left", None));
        let mut threads: Threads = Vec::new();
        for (number, letter) in [(0, b'a'), (1, b'A')] {
            let volume = volume.clone();
            threads.push(Box::new(move || {
                (0..TIMES as u8).try_for_each(|turn| {
                    volume.write(file, number as u64, letter + turn, PAGES - 1)?;
                    half(&volume, file, number, letter + turn)
                })
            }));
        }
        let (syncer, reader, kept) = (volume.clone(), volume.clone(), left.clone());
        threads.push(Box::new(move || {
            (0..TIMES).try_for_each(|turn| {
                let letter = b's' + turn as u8;
                syncer.write(file, SYNCED as u64, letter, 1)?;
                syncer.fsync(file)?;
                if seed / 8 % TIMES == turn {
                    *kept.lock() = Some((letter, syncer.medium.survivors(seed)));
                }
                Ok(())
            })
        }));
        threads.push(Box::new(move || read(&reader, file)));
        together(threads)?;
        let letters = pages_of(&*volume.fs, file, PAGES)?;
        let last = b'a' + TIMES as u8 - 1;
        let ends = [last, last.to_ascii_uppercase()];
        must(letters[0] == ends[0] && letters[3] == ends[1], || format!("{letters:?} is left"))?;
        must(ends.contains(&letters[1]), || format!("{letters:?} is left"))?;
        let halves = [half_of(&volume, file, 0)?, half_of(&volume, file, 1)?];
        must(halves == ends, || format!("of the halves of a page, {halves:?} is left"))?;
        volume.end()?;
        let Some((letter, state)) = left.lock().take() else { return Ok(()) };
        stage.after_cut(state, |fs| {
            let file = said("file", fs.lookup(fs.root(), b"file"))?.ino;
            let mut page = vec![0; BLOCK_SIZE];
            said("read", fs.read(file, (SYNCED * BLOCK_SIZE) as u64, &mut page))?;
            let kept = page.iter().all(|byte| *byte == letter);
            must(kept, || format!("{letter} was fsynced, and {} is left", page[0]))
        })
    },
};
