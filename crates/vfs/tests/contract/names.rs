//! The rules for names against the reference file system, which has its own: before each random
//! operation the rules say what it must answer.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use vfs::names::{self, Names, Rename};
use vfs::{Creator, Errno, FileKind, FileSystem, Ino, MemFs, RenameFlags};

/// What the rules see of the reference file system.
struct Seen<'a>(&'a MemFs);

fn errno<T>(result: vfs::Result<T>) -> Result<T, Errno> {
    result.map_err(|error| error.errno())
}

impl Names for Seen<'_> {
    type Error = Errno;

    fn node(&mut self, ino: Ino) -> Result<(FileKind, u32), Errno> {
        errno(self.0.getattr(ino)).map(|attr| (attr.kind, attr.nlink))
    }

    fn find(&mut self, dir: Ino, name: &[u8]) -> Result<Option<Ino>, Errno> {
        match errno(self.0.lookup(dir, name)) {
            Ok(attr) => Ok(Some(attr.ino)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn parent(&mut self, dir: Ino) -> Result<Ino, Errno> {
        errno(self.0.lookup(dir, b"..")).map(|attr| attr.ino)
    }

    fn is_empty(&mut self, dir: Ino) -> Result<bool, Errno> {
        let mut count = 0;
        let mut see = |_| {
            count += 1;
            true
        };
        errno(self.0.readdir(dir, 0, &mut see))?;
        Ok(count == 2)
    }

    fn is_below(&mut self, dir: Ino, ancestor: Ino) -> Result<bool, Errno> {
        let mut here = dir;
        while here != ancestor && here != self.0.root() {
            here = self.parent(here)?;
        }
        Ok(here == ancestor)
    }

    fn can_link(&self, _: FileKind, links: u32) -> bool {
        links < MemFs::LINK_MAX
    }
}

const LONG: [u8; 256] = [b'x'; 256];
const NAMES: [&[u8]; 8] = [b"a", b"b", b"c", b"d", b"", b".", b"..", &LONG];

struct Run {
    fs: MemFs,
    inos: Vec<Ino>,
    random: Xoshiro256PlusPlus,
}

impl Run {
    fn ino(&mut self) -> Ino {
        self.inos[self.random.random_range(0..self.inos.len())]
    }

    fn name(&mut self) -> &'static [u8] {
        // Most often a plain one.
        let count = if self.random.random_bool(0.9) { 4 } else { NAMES.len() };
        NAMES[self.random.random_range(0..count)]
    }

    fn step(&mut self) -> (String, Result<(), Errno>, Result<(), Errno>) {
        let (parent, name) = (self.ino(), self.name());
        let (other, second) = (self.ino(), self.name());
        let seen = &mut Seen(&self.fs);
        let creator = Creator::default();
        match self.random.random_range(0..7) {
            0 => {
                let said = names::check_create(seen, parent, name, FileKind::Regular);
                let done = errno(self.fs.create(parent, name, 0o644, creator));
                self.inos.extend(done.iter().map(|attr| attr.ino));
                ("create".into(), said, done.map(drop))
            }
            1 => {
                let said = names::check_create(seen, parent, name, FileKind::Directory);
                let done = errno(self.fs.mkdir(parent, name, 0o755, creator));
                self.inos.extend(done.iter().map(|attr| attr.ino));
                ("mkdir".into(), said, done.map(drop))
            }
            2 => {
                let said = names::check_link(seen, other, parent, name, false);
                ("link".into(), said, errno(self.fs.link(other, parent, name)).map(drop))
            }
            3 => {
                let said = names::check_unlink(seen, parent, name).map(drop);
                ("unlink".into(), said, errno(self.fs.unlink(parent, name)))
            }
            4 => {
                let said = names::check_rmdir(seen, parent, name).map(drop);
                ("rmdir".into(), said, errno(self.fs.rmdir(parent, name)))
            }
            _ => {
                let flags = RenameFlags::from_bits_retain(match self.random.random_range(0..8) {
                    flags @ 0..=4 => flags,
                    _ => 0,
                });
                let (from, to) = ((parent, name), (other, second));
                let said = names::check_rename(seen, from, to, flags);
                self.check_what_is_moved(from, to, said);
                let done = errno(self.fs.rename(parent, name, other, second, flags));
                (format!("rename {flags:?}"), said.map(drop), done)
            }
        }
    }

    fn check_what_is_moved(
        &self,
        (parent, name): (Ino, &[u8]),
        (new_parent, new_name): (Ino, &[u8]),
        said: Result<Rename, Errno>,
    ) {
        let at = |parent, name| self.fs.lookup(parent, name).ok().map(|attr| attr.ino);
        let (old, new) = (at(parent, name), at(new_parent, new_name));
        match said {
            Ok(Rename::Move { moved, replaced, .. }) => {
                assert_eq!((Some(moved), replaced), (old, new));
            }
            Ok(Rename::Exchange { moved, other }) => {
                assert_eq!((Some(moved), Some(other)), (old, new));
            }
            Ok(Rename::Nothing) => assert_eq!(old, new),
            Err(_) => {}
        }
    }
}

#[test]
fn the_rules_say_what_the_reference_file_system_does() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..20 {
        let fs = MemFs::new();
        let inos = vec![fs.root()];
        let mut run = Run { fs, inos, random: Xoshiro256PlusPlus::seed_from_u64(seed) };
        for step in 0..2_000 {
            let (what, said, done) = run.step();
            assert_eq!(said, done, "seed {seed}, step {step}: {what}");
            seen.insert(format!("{done:?}"));
        }
    }
    // The operations met every error but those of full directories.
    assert!(seen.len() >= 9, "{seen:?}");
}
