//! A scenario of a file that is written past the page cache, and read through it and past it.

use std::sync::Arc;

use ::drive::BLOCK_SIZE;
use cores::Mutex;
use vfs::Ino;

use super::volumes::{Mounted, TIMES, Threads, said};
use super::{Check, Structure, must, together};

/// Pages that each writer has for itself.
const PAGES: usize = 2;
const WRITERS: usize = 2;
/// How often each page is written.
const TURNS: u64 = 2 * TIMES;

/// The last letter of each page of which a write has returned.
type Written = Mutex<[u8; PAGES * WRITERS]>;

/// How a page is read.
#[derive(Clone, Copy)]
enum How {
    Cached,
    Direct,
}

/// Reads a page: it is whole, and at least as new as what had been written when the read began.
fn read(volume: &Mounted, file: Ino, page: usize, how: How, written: &Written) -> Check {
    let oldest = written.lock()[page];
    let mut data = vec![0; BLOCK_SIZE];
    let at = (page * BLOCK_SIZE) as u64;
    let len = match how {
        How::Cached => said("read", volume.fs.read(file, at, &mut data))?,
        How::Direct => said("direct read", volume.fs.read_direct(file, at, &mut data))?,
    };
    let letter = data[0];
    must(len == BLOCK_SIZE && data.iter().all(|byte| *byte == letter), || {
        format!("{len} bytes of page {page} were read, or it is torn")
    })?;
    must(letter >= oldest, || {
        format!("page {page}: '{}' was read after '{}' was written", letter as char, oldest as char)
    })
}

pub(super) const UNCACHED: Structure = Structure {
    name: "uncached",
    about: "a file written past the cache and read both ways: no read is older than the write",
    injected: false,
    zoned: false,
    run: |stage| {
        let volume = Mounted::new(stage, "")?;
        let root = volume.fs.root();
        let file = volume.create(root, "file")?;
        volume.write(file, 0, b'a', PAGES * WRITERS)?;
        volume.fsync(file)?;
        let written: Arc<Written> =
            Arc::new(Mutex::instrument("what is written", [b'a'; PAGES * WRITERS]));
        let mut threads: Threads = Vec::new();
        for writer in 0..WRITERS {
            let (volume, written) = (volume.clone(), written.clone());
            threads.push(Box::new(move || {
                (1..=TURNS).try_for_each(|turn| {
                    let (page, letter) =
                        (writer * PAGES + turn as usize % PAGES, b'a' + turn as u8);
                    let (at, data) = ((page * BLOCK_SIZE) as u64, vec![letter; BLOCK_SIZE]);
                    said("direct write", volume.fs.write_direct(file, at, &data))?;
                    written.lock()[page] = letter;
                    Ok(())
                })
            }));
        }
        for how in [How::Cached, How::Direct] {
            let (volume, written) = (volume.clone(), written.clone());
            threads.push(Box::new(move || {
                (0..2 * TURNS as usize)
                    .map(|turn| turn % (PAGES * WRITERS))
                    .try_for_each(|page| read(&volume, file, page, how, &written))
            }));
        }
        // Blocks that are freed are used again.
        let other = volume.clone();
        threads.push(Box::new(move || {
            (0..TIMES).try_for_each(|turn| {
                let name = format!("other-{turn}");
                let file = other.create(root, &name)?;
                other.write(file, 0, b'Z', PAGES)?;
                other.fsync(file)?;
                said("unlink", other.fs.unlink(root, name.as_bytes()))?;
                said("sync", other.fs.sync())
            })
        }));
        together(threads)?;
        for page in 0..PAGES * WRITERS {
            read(&volume, file, page, How::Cached, &written)?;
            read(&volume, file, page, How::Direct, &written)?;
        }
        volume.end()
    },
};
