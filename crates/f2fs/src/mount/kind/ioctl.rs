//! The ioctls of F2FS (`include/uapi/linux/f2fs.h`, `linux/fs.h`). FUSE lets those through whose
//! numbers say how much they read and write; `strandline f2fs_io` takes all of them.

use vfs::kind::Shutdown;
use vfs::kind::ioctl::{FITRIM, GETVERSION, Ioctl};
use vfs::{Errno, Ino, Result};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::F2fs;

const START_VOLATILE_WRITE: u32 = 0xf503;
const RELEASE_VOLATILE_WRITE: u32 = 0xf504;
const GARBAGE_COLLECT: u32 = 0x4004_f506;
const WRITE_CHECKPOINT: u32 = 0xf507;
const DEFRAGMENT: u32 = 0xc010_f508;
/// With the number of the inode that the blocks go to, in 64 bits, where the kernel has its
/// descriptor.
const MOVE_RANGE: u32 = 0xc020_f509;
const FLUSH_DEVICE: u32 = 0x4008_f50a;
const GARBAGE_COLLECT_RANGE: u32 = 0x4018_f50b;
const GET_FEATURES: u32 = 0x8004_f50c;
const SET_PIN_FILE: u32 = 0x4004_f50d;
const GET_PIN_FILE: u32 = 0x8004_f50e;
const PRECACHE_EXTENTS: u32 = 0xf50f;
/// Its number says that it returns a word; it takes one. So FUSE passes nothing on.
const SHUTDOWN: u32 = 0x8004_587d;
const SET_ENCRYPTION_POLICY: u32 = 0x800c_6613;
const GET_ENCRYPTION_PWSALT: u32 = 0x4010_6614;
const GET_ENCRYPTION_POLICY: u32 = 0x400c_6615;
/// `F2FS_FEATURE_ATOMIC_WRITE`, which tells programs that they may ask for atomic writes.
const FEATURE_ATOMIC_WRITE: u32 = 0x4;

/// `struct f2fs_gc_range`, 24 bytes.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct GcRange {
    sync: u32,
    pad: u32,
    start: u64,
    len: u64,
}

/// `struct f2fs_flush_device`, 8 bytes.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct FlushDevice {
    device: u32,
    segments: u32,
}

const _: () = assert!(size_of::<GcRange>() == 24);
const _: () = assert!(size_of::<FlushDevice>() == 8);

/// Those that change the volume, which only its administrator may.
const PRIVILEGED: [u32; 8] = [
    GARBAGE_COLLECT,
    WRITE_CHECKPOINT,
    DEFRAGMENT,
    FLUSH_DEVICE,
    GARBAGE_COLLECT_RANGE,
    SET_PIN_FILE,
    FITRIM,
    SHUTDOWN,
];

fn number(number: u32) -> Vec<u8> {
    number.as_bytes().to_vec()
}

pub(super) fn ioctl(fs: &F2fs, ino: Ino, call: Ioctl<'_>) -> Result<Vec<u8>> {
    if PRIVILEGED.contains(&call.number) && !call.privileged {
        return Err(Errno::PERM.into());
    }
    match call.number {
        GETVERSION => return Ok(number(fs.generation(ino)?)),
        GET_FEATURES => {
            let atomic = if call.atomic_writes { FEATURE_ATOMIC_WRITE } else { 0 };
            return Ok(number(fs.features() & !FEATURE_ATOMIC_WRITE | atomic));
        }
        GET_PIN_FILE => return Ok(number(fs.pin_file(ino)?)),
        DEFRAGMENT => {
            let [start, len] = call.input::<[u64; 2]>()?;
            return Ok([start, fs.defragment(ino, start, len)?].as_bytes().to_vec());
        }
        FITRIM => return call.trim(|bytes, least| fs.trim(bytes, least)),
        _ => {}
    }
    match call.number {
        PRECACHE_EXTENTS => fs.precache_extents(ino)?,
        GARBAGE_COLLECT => fs.garbage_collect(call.input::<u32>()? != 0)?,
        GARBAGE_COLLECT_RANGE => {
            let range: GcRange = call.input()?;
            let end = range.start.checked_add(range.len).ok_or(Errno::INVAL)?;
            fs.garbage_collect_range(range.sync != 0, range.start..end)?;
        }
        MOVE_RANGE => {
            let [to, from_start, to_start, len] = call.input::<[u64; 4]>()?;
            fs.move_range(ino, from_start, to, to_start, len)?;
        }
        FLUSH_DEVICE => {
            let flush: FlushDevice = call.input()?;
            fs.flush_device(flush.device, flush.segments)?;
        }
        WRITE_CHECKPOINT => fs.write_checkpoint()?,
        SET_PIN_FILE => fs.set_pin_file(ino, call.input::<u32>()? != 0)?,
        SHUTDOWN => fs.shutdown(match call.input::<u32>()? {
            0 => Shutdown::FullSync,
            1 => Shutdown::MetaSync,
            2 => Shutdown::NoSync,
            3 => Shutdown::MetaFlush,
            _ => return Err(Errno::INVAL.into()),
        })?,
        // Linux has taken volatile writes out (5.19), and without a key no file is encrypted here.
        START_VOLATILE_WRITE
        | RELEASE_VOLATILE_WRITE
        | SET_ENCRYPTION_POLICY
        | GET_ENCRYPTION_PWSALT
        | GET_ENCRYPTION_POLICY => return Err(Errno::OPNOTSUPP.into()),
        _ => return Err(Errno::NOTTY.into()),
    }
    Ok(Vec::new())
}
