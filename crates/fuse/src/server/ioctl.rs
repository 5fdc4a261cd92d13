//! ioctl(2), as far as FUSE lets it through: numbers that say how much they read and write
//! (`include/uapi/linux/fs.h`, `f2fs.h`).
//!
//! `F2FS_IOC_SHUTDOWN` is not among them: its number says that it only returns something, so FUSE
//! does not hand over the mode it is called with.

use zerocopy::FromBytes;

use super::{Done, Errno, Server, errno};
use crate::abi::{IoctlIn, IoctlOut};
use crate::wire::{Reply, Request};

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ioctl {
    /// `FS_IOC_GETFLAGS`: a number.
    GetFlags,
    /// `FS_IOC_SETFLAGS`; the kernel has checked whether the caller may.
    SetFlags(u32),
    /// `F2FS_IOC_GARBAGE_COLLECT`.
    GarbageCollect {
        /// As the foreground cleans.
        sync: bool,
    },
    /// `F2FS_IOC_WRITE_CHECKPOINT`.
    WriteCheckpoint,
    /// `F2FS_IOC_DEFRAGMENT`: how many bytes were moved.
    Defragment {
        /// First byte.
        start: u64,
        /// Bytes.
        len: u64,
    },
    /// `F2FS_IOC_GET_FEATURES`: a number.
    GetFeatures,
    /// `F2FS_IOC_SET_PIN_FILE`: a number, as for the next.
    SetPinFile(bool),
    /// `F2FS_IOC_GET_PIN_FILE`: a number.
    GetPinFile,
    /// `F2FS_IOC_PRECACHE_EXTENTS`.
    PrecacheExtents,
}

/// What is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// That it is done.
    Done,
    /// A number.
    Number(u32),
    /// A number of bytes.
    Bytes(u64),
}

const GETFLAGS: u32 = 0x8008_6601;
const SETFLAGS: u32 = 0x4008_6602;
const GARBAGE_COLLECT: u32 = 0x4004_f506;
const WRITE_CHECKPOINT: u32 = 0xf507;
const DEFRAGMENT: u32 = 0xc010_f508;
const GET_FEATURES: u32 = 0x8004_f50c;
const SET_PIN_FILE: u32 = 0x4004_f50d;
const GET_PIN_FILE: u32 = 0x8004_f50e;
const PRECACHE_EXTENTS: u32 = 0xf50f;

impl Ioctl {
    /// What a number and the bytes handed over with it ask for.
    fn parse(cmd: u32, data: &[u8]) -> Result<Self, Errno> {
        let number = || u32::read_from_prefix(data).map(|(n, _)| n).map_err(|_| Errno::INVAL);
        Ok(match cmd {
            GETFLAGS => Self::GetFlags,
            SETFLAGS => Self::SetFlags(number()?),
            GARBAGE_COLLECT => Self::GarbageCollect { sync: number()? != 0 },
            WRITE_CHECKPOINT => Self::WriteCheckpoint,
            DEFRAGMENT => {
                let range = <[u64; 2]>::read_from_prefix(data).map_err(|_| Errno::INVAL)?;
                Self::Defragment { start: range.0[0], len: range.0[1] }
            }
            GET_FEATURES => Self::GetFeatures,
            SET_PIN_FILE => Self::SetPinFile(number()? != 0),
            GET_PIN_FILE => Self::GetPinFile,
            PRECACHE_EXTENTS => Self::PrecacheExtents,
            _ => return Err(Errno::NOTTY),
        })
    }

    /// Whether anybody who could open the file may ask.
    fn is_free(self) -> bool {
        matches!(
            self,
            Self::GetFlags
                | Self::SetFlags(_)
                | Self::GetFeatures
                | Self::GetPinFile
                | Self::PrecacheExtents
        )
    }
}

impl Server {
    pub(super) fn ioctl(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let (args, data) = request.args_and_rest::<IoctlIn>()?;
        let data = data.get(..args.in_size as usize).ok_or(Errno::IO)?;
        let ioctl = Ioctl::parse(args.cmd, data)?;
        let control = self.control.as_deref().ok_or(Errno::NOTTY)?;
        if !ioctl.is_free() && self.control(request).is_none() {
            return Err(Errno::PERM);
        }
        let ino = self.ino(request.header.nodeid);
        if matches!(ioctl, Ioctl::SetFlags(_)) {
            self.nodes.changed(ino);
        }
        let answer = control.ioctl(ino, ioctl).map_err(errno)?;
        reply.put(&IoctlOut::default());
        match (answer, ioctl) {
            (Answer::Done, _) => {}
            (Answer::Number(number), _) => reply.put(&number),
            (Answer::Bytes(len), Ioctl::Defragment { start, .. }) => reply.put(&[start, len]),
            (Answer::Bytes(len), _) => reply.put(&len),
        }
        Ok(())
    }
}
