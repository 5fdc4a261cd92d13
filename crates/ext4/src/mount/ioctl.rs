//! The ioctls of ext4 that FUSE lets through, besides those of all file systems.

use vfs::kind::ioctl::{FITRIM, GETVERSION, Ioctl};
use vfs::{Errno, Ino, Result};

use crate::mount::draft::ino as narrow;
use crate::mount::engine::Engine;

pub(super) fn ioctl(engine: &Engine, ino: Ino, call: Ioctl<'_>) -> Result<Vec<u8>> {
    engine.check_usable()?;
    match call.number {
        GETVERSION => {
            let ino = narrow(ino)?;
            let generation = engine
                .look(ino.into(), |shard| Ok(shard.inode(ino)?.inode.raw.generation.get()))?;
            Ok(generation.to_ne_bytes().to_vec())
        }
        FITRIM if !call.privileged => Err(Errno::PERM.into()),
        FITRIM => call.trim(|bytes, least| engine.trim(bytes, least)),
        _ => Err(Errno::NOTTY.into()),
    }
}
