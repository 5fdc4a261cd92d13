//! ioctl(2), as far as FUSE lets it through: numbers that say how much they read and write, and of
//! these the ones that F2FS has for whole volumes.
//!
//! `F2FS_IOC_SHUTDOWN` is not among them: its number says that it only returns something, so FUSE
//! does not hand over the mode it is called with.

use super::{Done, Errno, Server};
use crate::abi::{IoctlIn, IoctlOut};
use crate::wire::{Reply, Request};

/// `F2FS_IOC_GARBAGE_COLLECT`, `_IOW(0xf5, 6, __u32)`.
const GARBAGE_COLLECT: u32 = 0x4004_f506;
/// `F2FS_IOC_WRITE_CHECKPOINT`, `_IO(0xf5, 7)`.
const WRITE_CHECKPOINT: u32 = 0xf507;

impl Server {
    pub(super) fn ioctl(&self, request: &Request<'_>, reply: &mut Reply) -> Done {
        let args: IoctlIn = request.args()?;
        let control = || self.control(request).ok_or(Errno::PERM);
        match args.cmd {
            GARBAGE_COLLECT => control()?.garbage_collect()?,
            WRITE_CHECKPOINT => control()?.write_checkpoint()?,
            _ => return Err(Errno::NOTTY),
        }
        reply.put(&IoctlOut::default());
        Ok(())
    }
}
