//! `strandline f2fs_io`: the ioctls of F2FS on a mounted volume, by the names and arguments that
//! f2fs_io(8) has.
//!
//! They do not go through ioctl(2) but through the request channel of the mount: FUSE passes
//! nothing on of some of them.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use crate::failure::{Failure, Outcome};
use crate::mounted::Mounted;
use crate::out;

/// Ask a mounted volume for what F2FS offers by ioctl, as f2fs_io does.
#[derive(Args)]
#[command(after_help = "\
Examples:
  strandline f2fs_io gc 1 /mnt
  strandline f2fs_io pinfile set /mnt/database
  strandline f2fs_io trim /mnt
  strandline f2fs_io shutdown 2 /mnt")]
pub(crate) struct F2fsIo {
    #[command(subcommand)]
    call: Call,
}

#[derive(Subcommand)]
#[command(rename_all = "snake_case")]
enum Call {
    /// Clean one section, chosen greedily if SYNC is 1
    Gc {
        #[arg(value_parser = clap::value_parser!(u32).range(0..=1))]
        sync: u32,
        dir: PathBuf,
    },
    /// Clean the sections of LENGTH blocks from block START on
    GcRange {
        #[arg(value_parser = clap::value_parser!(u32).range(0..=1))]
        sync: u32,
        start: u64,
        length: u64,
        dir: PathBuf,
    },
    /// Write a checkpoint
    Checkpoint { dir: PathBuf },
    /// Move the blocks of LENGTH bytes from START on side by side
    DefragFile { start: u64, length: u64, file: PathBuf },
    /// Move LENGTH bytes of one file to another; they leave a hole
    MoveRange { from: PathBuf, to: PathBuf, from_start: u64, to_start: u64, length: u64 },
    /// Clean SEGMENTS segments of the device with this number
    FlushDevice { device: u32, segments: u32, dir: PathBuf },
    /// Show the optional parts of the format in use, as a number
    GetFeatures { dir: PathBuf },
    /// Pin a file's blocks to where they are, or show how often cleaning met them
    Pinfile {
        #[arg(value_parser = ["get", "set", "unset"])]
        what: String,
        file: PathBuf,
    },
    /// Read a file's nodes into memory
    PrecacheExtents { file: PathBuf },
    /// Show a file's generation (`lsattr -v`)
    Getversion { file: PathBuf },
    /// Tell the drive what is free, as fstrim does
    Trim {
        dir: PathBuf,
        /// Byte of the volume to begin at
        #[arg(long, default_value_t = 0)]
        offset: u64,
        /// How many bytes of the volume
        #[arg(long, default_value_t = u64::MAX)]
        length: u64,
        /// Leave out what is shorter, in bytes
        #[arg(long, default_value_t = 0)]
        minimum: u64,
    },
    /// Stop the volume: 0 after a sync, 1 after a checkpoint, 2 at once, 3 after writing metadata
    Shutdown {
        #[arg(value_parser = clap::value_parser!(u32).range(0..=3))]
        level: u32,
        dir: PathBuf,
    },
}

/// What is asked: of which file, by which number, with which bytes.
struct Request<'a>(&'a Path, u32, Vec<u8>);

fn bytes<const N: usize>(words: [u64; N]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn word(word: u32) -> Vec<u8> {
    word.to_le_bytes().to_vec()
}

impl Call {
    fn request(&self) -> Outcome<Request<'_>> {
        Ok(match self {
            Self::Gc { sync, dir } => Request(dir, 0x4004_f506, word(*sync)),
            Self::GcRange { sync, start, length, dir } => {
                Request(dir, 0x4018_f50b, bytes([(*sync).into(), *start, *length]))
            }
            Self::Checkpoint { dir } => Request(dir, 0xf507, Vec::new()),
            Self::DefragFile { start, length, file } => {
                Request(file, 0xc010_f508, bytes([*start, *length]))
            }
            Self::MoveRange { from, to, from_start, to_start, length } => {
                let ino = std::fs::metadata(to).map_err(Failure::host(to))?.ino();
                Request(from, 0xc020_f509, bytes([ino, *from_start, *to_start, *length]))
            }
            Self::FlushDevice { device, segments, dir } => {
                Request(dir, 0x4008_f50a, [word(*device), word(*segments)].concat())
            }
            Self::GetFeatures { dir } => Request(dir, 0x8004_f50c, Vec::new()),
            Self::Pinfile { what, file } => match what.as_str() {
                "get" => Request(file, 0x8004_f50e, Vec::new()),
                what => Request(file, 0x4004_f50d, word(u32::from(what == "set"))),
            },
            Self::PrecacheExtents { file } => Request(file, 0xf50f, Vec::new()),
            Self::Getversion { file } => Request(file, 0x8008_7601, Vec::new()),
            Self::Trim { dir, offset, length, minimum } => {
                Request(dir, 0xc018_5879, bytes([*offset, *length, *minimum]))
            }
            Self::Shutdown { level, dir } => Request(dir, 0x8004_587d, word(*level)),
        })
    }

    /// Says what was answered.
    fn show(&self, answer: &[u8]) -> Outcome<()> {
        let word = || answer.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let length = || {
            let bytes = answer.get(8..16).and_then(|bytes| bytes.first_chunk());
            bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        match self {
            Self::GetFeatures { .. } => out::line(format!("{:#x}", word())),
            Self::Pinfile { what, .. } if what == "get" => out::line(word()),
            Self::Getversion { .. } => out::line(word()),
            Self::DefragFile { .. } => out::line(format!("{} bytes moved", length())),
            Self::Trim { .. } => out::line(format!("{} bytes trimmed", length())),
            _ => Ok(()),
        }
    }
}

impl F2fsIo {
    pub(crate) fn run(self) -> Outcome {
        let Request(path, number, input) = self.call.request()?;
        let ino = std::fs::metadata(path).map_err(Failure::host(path))?.ino();
        let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
        let answer = Mounted::with(path)?.ask(&format!("ioctl={ino}:{number}:{hex}"))?;
        match answer.split_first() {
            Some((0, answer)) => self.call.show(answer)?,
            Some((_, errno)) => {
                let errno = String::from_utf8_lossy(errno);
                return Err(Failure::Problem(format!("{}: {errno}", path.display())));
            }
            None => return Err(Failure::Problem(format!("{}: no answer", path.display()))),
        }
        Ok(0)
    }
}
