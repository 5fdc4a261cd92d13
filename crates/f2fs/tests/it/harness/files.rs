//! Files by name, in the root directory.

use f2fs::F2fs;
use vfs::{Creator, FileSystem, Ino};

pub fn create(fs: &F2fs, name: &str) -> Ino {
    fs.create(fs.root(), name.as_bytes(), 0o644, Creator::default()).unwrap().ino
}

pub fn read(fs: &F2fs, name: &str) -> Option<Vec<u8>> {
    let attr = fs.lookup(fs.root(), name.as_bytes()).ok()?;
    let mut data = vec![0; attr.size as usize];
    assert_eq!(fs.read(attr.ino, 0, &mut data).unwrap(), data.len());
    Some(data)
}

pub fn write_synced(fs: &F2fs, name: &str, data: &[u8]) -> Ino {
    let ino = create(fs, name);
    fs.write(ino, 0, data).unwrap();
    fs.fsync(ino, false).unwrap();
    ino
}
