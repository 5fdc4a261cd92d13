//! The ioctls of F2FS that FUSE lets through: those whose numbers say how much they read and write
//! (`include/uapi/linux/f2fs.h`).
//!
//! `F2FS_IOC_SHUTDOWN` is not among them. Its number says that it only returns something, so FUSE
//! does not pass on the mode it is called with.

use vfs::kind::Ioctl;
use vfs::{Errno, Ino, Result};
use zerocopy::{FromBytes, IntoBytes};

use crate::F2fs;

const GARBAGE_COLLECT: u32 = 0x4004_f506;
const WRITE_CHECKPOINT: u32 = 0xf507;
const DEFRAGMENT: u32 = 0xc010_f508;
const GET_FEATURES: u32 = 0x8004_f50c;
const SET_PIN_FILE: u32 = 0x4004_f50d;
const GET_PIN_FILE: u32 = 0x8004_f50e;
const PRECACHE_EXTENTS: u32 = 0xf50f;
/// `F2FS_FEATURE_ATOMIC_WRITE`, which tells programs that they may ask for atomic writes.
const FEATURE_ATOMIC_WRITE: u32 = 0x4;

pub(super) fn ioctl(fs: &F2fs, ino: Ino, call: Ioctl<'_>) -> Result<Vec<u8>> {
    let input = || u32::read_from_prefix(call.input).map(|(n, _)| n).map_err(|_| Errno::INVAL);
    let number = |number: u32| Ok(number.as_bytes().to_vec());
    match call.number {
        GET_FEATURES => {
            let atomic = if call.atomic_writes { FEATURE_ATOMIC_WRITE } else { 0 };
            return number(fs.features() & !FEATURE_ATOMIC_WRITE | atomic);
        }
        GET_PIN_FILE => return number(fs.pin_file(ino)?),
        PRECACHE_EXTENTS => fs.precache_extents(ino)?,
        GARBAGE_COLLECT | WRITE_CHECKPOINT | DEFRAGMENT | SET_PIN_FILE if !call.privileged => {
            return Err(Errno::PERM.into());
        }
        GARBAGE_COLLECT => fs.garbage_collect(input()? != 0)?,
        WRITE_CHECKPOINT => fs.write_checkpoint()?,
        SET_PIN_FILE => fs.set_pin_file(ino, input()? != 0)?,
        DEFRAGMENT => {
            let range = <[u64; 2]>::read_from_prefix(call.input).map_err(|_| Errno::INVAL)?;
            let [start, len] = range.0;
            return Ok([start, fs.defragment(ino, start, len)?].as_bytes().to_vec());
        }
        _ => return Err(Errno::NOTTY.into()),
    }
    Ok(Vec::new())
}
