//! Directories on which something is mounted for a benchmark: by this command, by the kernel on a
//! loop device, or by the user.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use crate::failure::{Failure, Outcome};

/// How often to look whether a mount is there, and how long to wait in between.
const LOOKS: u32 = 1_000;
const PAUSE_NS: u64 = 5_000_000;

/// A directory, and what to undo when it is no longer needed.
pub(super) struct Mounted {
    point: PathBuf,
    /// To be unmounted.
    is_ours: bool,
    /// The process that serves it.
    server: Option<Child>,
}

impl Mounted {
    /// A directory on which the user has mounted something.
    pub(super) fn by_somebody(point: &Path) -> Self {
        Self { point: point.to_owned(), is_ours: false, server: None }
    }

    /// An image, mounted by this command in a process of its own.
    pub(super) fn ours(dir: &Path, image: &Path, options: &str) -> Outcome<Self> {
        let point = new_dir(dir, "mounted")?;
        let program = std::env::current_exe().map_err(Failure::on("this program"))?;
        let mut command = Command::new(program);
        command.args(["mount", "-f", "-o", options]).arg(image).arg(&point);
        let server = command.spawn().map_err(Failure::on("mount"))?;
        let mut mounted = Self { point, is_ours: false, server: Some(server) };
        for _ in 0..LOOKS {
            if is_mounted(&mounted.point, dir) {
                mounted.is_ours = true;
                return Ok(mounted);
            }
            let ended = mounted.server.as_mut().map(Child::try_wait);
            if !matches!(ended, Some(Ok(None))) {
                break;
            }
            cores::sleep(PAUSE_NS);
        }
        Err(Failure::Problem("it cannot be mounted here".into()))
    }

    /// The kernel's ext4 in a new file of so many bytes, by a loop device.
    pub(super) fn ext4(dir: &Path, bytes: u64) -> Outcome<Self> {
        let (point, image) = (new_dir(dir, "ext4")?, dir.join("ext4.img"));
        let file = File::create(&image).and_then(|file| file.set_len(bytes));
        file.map_err(Failure::host(&image))?;
        succeed(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image))?;
        let options = "loop,data=ordered";
        succeed(Command::new("mount").args(["-t", "ext4", "-o", options]).arg(&image).arg(&point))?;
        Ok(Self { point, is_ours: true, server: None })
    }

    pub(super) fn point(&self) -> &Path {
        &self.point
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A failure cannot be reported; what stays mounted can be seen.
        if self.is_ours {
            let _ = Command::new("umount").arg(&self.point).status();
        }
        if let Some(mut server) = self.server.take() {
            // Where another mount namespace has a copy of the mount, the server goes on serving it.
            if !self.is_ours || !ends(&mut server) {
                let _ = server.kill();
            }
            let _ = server.wait();
        }
    }
}

/// Waits a while for a process to end. False if it does not.
fn ends(server: &mut Child) -> bool {
    (0..LOOKS).any(|_| {
        let has_ended = !matches!(server.try_wait(), Ok(None));
        if !has_ended {
            cores::sleep(PAUSE_NS);
        }
        has_ended
    })
}

fn new_dir(dir: &Path, name: &str) -> Outcome<PathBuf> {
    let point = dir.join(name);
    fs::create_dir(&point).map_err(Failure::host(&point))?;
    Ok(point)
}

fn is_mounted(point: &Path, dir: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).map(|of| of.dev()).ok();
    device(point) != device(dir)
}

/// Runs a program; fails with the first line of what it says if it does.
fn succeed(command: &mut Command) -> Outcome<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(Failure::on(&name))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let first = said.lines().find(|line| !line.trim().is_empty()).unwrap_or("it fails");
    Err(Failure::Problem(format!("{name}: {first}")))
}
