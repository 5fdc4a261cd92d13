//! Files whose fsync returned, and a workload that makes some.

use std::collections::BTreeMap;

use f2fs::F2fs;
use vfs::{Creator, Errno, FileSystem};

use super::read_all;

/// What has been promised: contents of each file whose fsync returned, and those an fsync that
/// failed may have left instead.
#[derive(Default)]
pub(crate) struct Promises {
    pub(crate) durable: BTreeMap<&'static str, Vec<u8>>,
    pub(crate) maybe: BTreeMap<&'static str, Vec<u8>>,
}

impl Promises {
    pub(crate) fn write(
        &mut self,
        fs: &F2fs,
        name: &'static str,
        fill: u8,
        len: usize,
    ) -> vfs::Result<()> {
        let ino = match fs.lookup(fs.root(), name.as_bytes()) {
            Ok(attr) => attr.ino,
            Err(error) if error.errno() == Errno::NOENT => {
                fs.create(fs.root(), name.as_bytes(), 0o644, Creator::default())?.ino
            }
            Err(error) => return Err(error),
        };
        let contents = vec![fill; len];
        self.maybe.insert(name, contents.clone());
        fs.write(ino, 0, &contents)?;
        fs.fsync(ino, false)?;
        self.durable.insert(name, contents);
        Ok(())
    }

    /// Everything durable is there, as it was or as the fsync under way would have made it.
    pub(crate) fn assert_kept(&self, fs: &F2fs, when: &str) {
        for (name, contents) in &self.durable {
            let attr = fs.lookup(fs.root(), name.as_bytes());
            let attr = attr.unwrap_or_else(|e| panic!("{when}: {name} is lost: {e}"));
            let found = read_all(fs, attr.ino).unwrap_or_else(|e| panic!("{when}: {name}: {e}"));
            let newer = self.maybe.get(name);
            let brief = (found.first(), found.len());
            assert!(found == *contents || Some(&found) == newer, "{when}: {name} is {brief:?}");
        }
    }
}

/// Creates, overwrites, a checkpoint, more of both. Overwrites are one block: two may tear.
pub(crate) fn workload(fs: &F2fs, promises: &mut Promises) -> vfs::Result<()> {
    promises.write(fs, "first", 1, 4096)?;
    // More than 16 dirty pages go to the warm log, and so to a zone of their own.
    promises.write(fs, "large", 2, 100_000)?;
    promises.write(fs, "first", 3, 4096)?;
    fs.mkdir(fs.root(), b"dir", 0o755, Creator::default())?;
    fs.sync()?;
    promises.write(fs, "inline", 4, 100)?;
    promises.write(fs, "first", 5, 4096)?;
    let dir = fs.lookup(fs.root(), b"dir")?.ino;
    fs.create(dir, b"inner", 0o644, Creator::default())?;
    fs.fsync(dir, false)?;
    promises.write(fs, "last", 6, 9000)
}
