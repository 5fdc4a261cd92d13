//! Scenarios of names that come and go.

use std::sync::Arc;

use vfs::kind::Volume;
use vfs::{Creator, Ino, RenameFlags};

use super::volumes::{Mounted, TIMES, Threads, holds, pages_of, said};
use super::{Structure, must, together};

pub(super) const NODES: Structure = Structure {
    name: "nodes",
    about: "files made, looked up and removed side by side, in one directory and in several",
    injected: false,
    zoned: false,
    run: |stage| {
        let volume = Mounted::new(stage, "")?;
        let root = volume.fs.root();
        let mut threads: Threads = Vec::new();
        for core in 0..4 {
            let volume = volume.clone();
            threads.push(Box::new(move || {
                let made = volume.fs.mkdir(root, &[b'd', b'0' + core], 0o755, Creator::default());
                let own = said("mkdir", made)?.ino;
                for turn in 0..TIMES {
                    let dir = if turn % 2 == 0 { root } else { own };
                    let name = format!("f{core}-{turn}");
                    let file = volume.create(dir, &name)?;
                    let found = said(&name, volume.fs.lookup(dir, name.as_bytes()))?.ino;
                    must(found == file, || format!("{name} is {found}, made as {file}"))?;
                    if turn == 0 {
                        said("unlink", volume.fs.unlink(dir, name.as_bytes()))?;
                        let gone = volume.fs.lookup(dir, name.as_bytes()).is_err();
                        must(gone, || format!("{name} is still there"))?;
                    }
                }
                Ok(())
            }));
        }
        together(threads)?;
        volume.end()
    },
};

pub(super) const NUMBERS: Structure = Structure {
    name: "numbers",
    about: "files made in more directories at once than a block has inodes: each is there",
    injected: false,
    zoned: false,
    run: |stage| {
        let volume = Mounted::new(stage, "")?;
        let mkdir = |parent, name: &str| {
            let made = volume.fs.mkdir(parent, name.as_bytes(), 0o755, Creator::default());
            said("mkdir", made).map(|attr| attr.ino)
        };
        // Below one of the root, directories and their files are near to each other.
        let above = mkdir(volume.fs.root(), "above")?;
        let mut threads: Threads = Vec::new();
        for core in 0..8 {
            let (volume, dir) = (volume.clone(), mkdir(above, &core.to_string())?);
            threads.push(Box::new(move || {
                (0..TIMES).try_for_each(|turn| volume.create(dir, &turn.to_string()).map(drop))
            }));
        }
        together(threads)?;
        volume.end()
    },
};

pub(super) const NAMES: Structure = Structure {
    name: "names",
    about: "files made, fsynced and removed in one directory: what was fsynced survives a cut",
    injected: false,
    zoned: false,
    run: |stage| {
        let volume = Mounted::new(stage, "")?;
        let (root, seed) = (volume.fs.root(), stage.seed);
        let left = Arc::new(cores::Mutex::instrument("what is left", None));
        let mut threads: Threads = Vec::new();
        for core in 0..3_u8 {
            let (volume, left) = (volume.clone(), left.clone());
            threads.push(Box::new(move || {
                let names = [0, 1, 2].map(|turn| format!("{core}-{turn}"));
                for (turn, name) in names.iter().enumerate() {
                    let file = volume.create(root, name)?;
                    if turn > 0 {
                        said("unlink", volume.fs.unlink(root, names[turn - 1].as_bytes()))?;
                    }
                    volume.write(file, 0, b'a' + core, 1)?;
                    volume.fsync(file)?;
                    if seed / 8 % 9 == 3 * turn as u64 + u64::from(core) {
                        let state = volume.medium.survivors(seed);
                        *left.lock() = Some((name.clone(), b'a' + core, state));
                    }
                }
                Ok(())
            }));
        }
        together(threads)?;
        let files = count(&*volume.fs, root, 0)?;
        must(files == 3, || format!("{files} files of 3 are to be found"))?;
        volume.end()?;
        let Some((name, letter, state)) = left.lock().take() else { return Ok(()) };
        stage.after_cut(state, |fs| holds(fs, &name, &[letter]))
    },
};

pub(super) const REPLACE: Structure = Structure {
    name: "replace",
    about: "files replaced by new ones that were fsynced: after a cut there is the old or the new",
    injected: false,
    zoned: false,
    run: |stage| {
        let volume = Mounted::new(stage, "")?;
        let (root, seed) = (volume.fs.root(), stage.seed);
        let left = Arc::new(cores::Mutex::instrument("what is left", None));
        let mut threads: Threads = Vec::new();
        for core in 0..3_u8 {
            let (volume, left) = (volume.clone(), left.clone());
            threads.push(Box::new(move || {
                let (old, new) = (format!("{core}"), format!("{core}-new"));
                for (turn, letter) in (0..TIMES).zip(b'a'..) {
                    let file = volume.create(root, &new)?;
                    volume.write(file, 0, letter, 1)?;
                    volume.fsync(file)?;
                    let flags = RenameFlags::empty();
                    let moved = volume.fs.rename(root, new.as_bytes(), root, old.as_bytes(), flags);
                    said("rename", moved)?;
                    if seed / 8 % 9 == 3 * turn + u64::from(core) {
                        *left.lock() = Some((core, letter, volume.medium.survivors(seed)));
                    }
                }
                Ok(())
            }));
        }
        together(threads)?;
        let files = count(&*volume.fs, root, 0)?;
        must(files == 3, || format!("{files} files of 3 are to be found"))?;
        volume.end()?;
        let Some((core, letter, state)) = left.lock().take() else { return Ok(()) };
        stage.after_cut(state, |fs| {
            let holds = |name: String| {
                let found = fs.lookup(fs.root(), name.as_bytes()).ok();
                found.map_or(Ok(Vec::new()), |attr| pages_of(fs, attr.ino, 2))
            };
            let (old, new) = (holds(format!("{core}"))?, holds(format!("{core}-new"))?);
            must(old == [letter] || new == [letter], || {
                format!("{letter} was fsynced: {core} holds {old:?}, {core}-new {new:?}")
            })?;
            let is_there = letter == b'a' || old == [letter] || old == [letter - 1];
            must(is_there, || format!("{core} was replaced by {letter}, and holds {old:?}"))
        })
    },
};

pub(super) const RENAME: Structure = Structure {
    name: "rename",
    about: "directories and files move against each other: no name is lost, no circle closes",
    injected: false,
    zoned: false,
    run: |stage| {
        let volume = Mounted::new(stage, "")?;
        let root = volume.fs.root();
        let made = |name| said("mkdir", volume.fs.mkdir(root, name, 0o755, Creator::default()));
        let (a, b) = (made(b"a")?.ino, made(b"b")?.ino);
        volume.create(a, "x")?;
        let mut threads: Threads = Vec::new();
        let moves: [(Ino, &[u8], Ino, &[u8]); 4] =
            [(a, b"x", b, b"x"), (b, b"x", a, b"x"), (root, b"a", b, b"a"), (root, b"b", a, b"b")];
        for (from, name, to, new) in moves {
            let volume = volume.clone();
            threads.push(Box::new(move || {
                // The later of two renames finds no name, or would close a cycle.
                let _ = volume.fs.rename(from, name, to, new, RenameFlags::empty());
                Ok(())
            }));
        }
        together(threads)?;
        let files = count(&*volume.fs, root, 0)?;
        must(files == 1, || format!("{files} files of 1 are to be found"))?;
        volume.end()
    },
};

/// Regular files below `dir`.
fn count(fs: &dyn Volume, dir: Ino, depth: u32) -> std::result::Result<u64, String> {
    must(depth < 8, || "a circle of directories".to_owned())?;
    let mut entries = Vec::new();
    let listed = fs.readdir(dir, 0, &mut |entry| {
        entries.push(entry);
        true
    });
    said("readdir", listed)?;
    let mut files = 0;
    for entry in entries.iter().filter(|entry| entry.name != b"." && entry.name != b"..") {
        files += match entry.kind {
            vfs::FileKind::Directory => count(fs, entry.ino, depth + 1)?,
            _ => 1,
        };
    }
    Ok(files)
}
