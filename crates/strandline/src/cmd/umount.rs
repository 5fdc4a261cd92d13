//! `strandline umount`, and `umount.strandline`, the helper umount(8) calls: unmount, and wait
//! until the volume has been written back and its image is free again.

use std::fs::File;
use std::path::{Path, PathBuf};

use clap::{Args, Parser};
use fuse::How;
use rustix::fs::FlockOperation;

use crate::cmd::mount::FAILED;
use crate::ending::Listener;
use crate::failure::{Failure, Outcome};
use crate::mounted::Mounted;

/// Unmount a volume and wait until its image is free.
#[derive(Args)]
#[command(after_help = "\
Example:
  strandline umount /mnt && fsck.f2fs disk.img

Exit status, as in umount(8): 0 unmounted, 1 wrong usage, 32 it cannot be unmounted, or
not everything was written.")]
pub(crate) struct Umount {
    /// Directory it is mounted on
    dir: PathBuf,
}

/// Unmount a volume and wait until its image is free: the helper umount(8) calls.
#[derive(Parser)]
#[command(name = "umount.strandline", version)]
pub(crate) struct Helper {
    /// Directory it is mounted on
    dir: PathBuf,
    /// Force: whatever is under way fails, and what the kernel has not written back is lost
    #[arg(short = 'f')]
    force: bool,
    /// Lazy: take it out of the tree now, unmount when nobody uses it
    #[arg(short = 'l')]
    lazy: bool,
    /// Do not write /etc/mtab, which is never done
    #[arg(short = 'n')]
    no_mtab: bool,
    /// Ignored
    #[arg(short = 'r')]
    read_only: bool,
    /// Ignored
    #[arg(short = 'v')]
    verbose: bool,
    /// Ignored
    #[arg(short = 't', value_name = "TYPE")]
    kind: Option<String>,
}

impl Umount {
    pub(crate) fn run(self) -> Outcome {
        unmount(&self.dir, How::Plainly)
    }
}

impl Helper {
    pub(crate) fn run(self) -> Outcome {
        unmount(
            &self.dir,
            match self {
                Self { lazy: true, .. } => How::Lazily,
                Self { force: true, .. } => How::ByForce,
                _ => How::Plainly,
            },
        )
    }
}

fn unmount(dir: &Path, how: How) -> Outcome {
    let failed = |what: String| Failure::Coded {
        message: format!("{}: {what}", dir.display()),
        code: FAILED,
    };
    let mounted = Mounted::on(dir).map_err(|_| failed("no volume is mounted here".into()))?;
    let waits = how == How::Plainly;
    // How it ends, only the server knows. It need not be asked, and may have died.
    let listener =
        Listener::new().ok().filter(|listener| waits && mounted.ask(&listener.request()).is_ok());
    let died = waits && mounted.is_dead();
    fuse::unmount(&mounted.dir, how).map_err(|error| failed(error.to_string()))?;
    if died {
        return Err(failed("unmounted, but its server had died: only fsynced data is safe".into()));
    }
    if !waits || mounted.is_elsewhere() {
        return Ok(0);
    }
    if let Ok(image) = File::open(&mounted.image) {
        // The serving process holds a lock until everything is written.
        let _ = rustix::fs::flock(&image, FlockOperation::LockShared);
    }
    // A caller that may not ask need not wait.
    let Some(listener) = listener else { return Ok(0) };
    // The image may have another name now, or the server may have died.
    match listener.heard().or_else(|| listener.wait()) {
        Some(Ok(())) => Ok(0),
        Some(Err(lost)) => {
            Err(failed(format!("unmounted, but not everything was written: {lost}")))
        }
        None => Err(failed("unmounted, but its server does not answer: it may have died".into())),
    }
}
