//! `strandline cat`.

use clap::Args;
use vfs::{Errno, FileKind};

use crate::failure::Outcome;
use crate::out;
use crate::target::{Devices, ImageVolume, Inside};

/// Print files inside images.
#[derive(Args)]
#[command(mut_arg("named", |named| named.short('t')))]
#[command(after_help = "Example:\n  strandline cat disk.img:/etc/hostname")]
pub(crate) struct Cat {
    /// IMAGE:/path
    #[arg(required = true)]
    targets: Vec<Inside>,
    #[command(flatten)]
    devices: Devices,
}

impl Cat {
    pub(crate) fn run(self) -> Outcome {
        for target in &self.targets {
            let volume = ImageVolume::look(&target.image, &self.devices)?;
            let attr = volume.find(&target.path, true)?;
            if attr.kind == FileKind::Directory {
                return Err(volume.about(&target.path)(Errno::ISDIR.into()));
            }
            let mut chunk = vec![0; 256 << 10];
            let mut offset = 0;
            loop {
                let got = volume.fs.read(attr.ino, offset, &mut chunk);
                let got = got.map_err(volume.about(&target.path))?;
                if got == 0 {
                    break;
                }
                out::bytes(&chunk[..got])?;
                offset += got as u64;
            }
        }
        Ok(0)
    }
}
