//! Images that cannot be opened as they should: which process has one, what is mounted on it,
//! whether its medium is write-protected.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::io::Errno;

use crate::failure::{Failure, Outcome};
use crate::mounted::Mounted;

/// The failure to open an image that another process has open, with who has it if that is known.
pub(crate) fn in_use(path: &Path) -> Failure {
    let shown = path.display();
    Failure::Problem(match (Mounted::find(path), lock_holder(path)) {
        (Some(Mounted { dir, .. }), _) => {
            let dir = dir.display();
            format!("{shown}: in use: mounted on {dir}; 'strandline umount {dir}' ends that")
        }
        (None, Some((id, program))) => format!("{shown}: in use by process {id} ({program})"),
        (None, None) => format!("{shown}: in use: mounted, or open in another process"),
    })
}

/// The failure to open a directory as an image.
pub(crate) fn is_directory(path: &Path) -> Failure {
    let shown = path.display();
    Failure::Problem(match Mounted::find(path).filter(|mounted| !mounted.is_dead()) {
        Some(mounted) => {
            let image = mounted.image.display();
            format!("{shown}: a directory, on which {image} is mounted; an image is needed here")
        }
        None => format!("{shown}: a directory; a file or a block device is needed here"),
    })
}

/// Fails if the kernel has the volume in the file at `path` mounted through a loop device, which
/// takes no lock on it.
pub(crate) fn check_not_looped(path: &Path) -> Outcome<()> {
    let Some((device, dir)) = std::fs::canonicalize(path).ok().and_then(|file| loop_mount(&file))
    else {
        return Ok(());
    };
    let shown = path.display();
    Err(Failure::Problem(format!("{shown}: in use: mounted on {dir} by the kernel, as {device}")))
}

/// The loop device of the file, and where that is mounted, by /sys and /proc/self/mountinfo.
fn loop_mount(file: &Path) -> Option<(String, String)> {
    let devices = std::fs::read_dir("/sys/block").ok()?.flatten();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    devices.filter(|device| device.file_name().as_bytes().starts_with(b"loop")).find_map(|device| {
        let sys = device.path();
        let backing = std::fs::read(sys.join("loop/backing_file")).ok()?;
        if backing.trim_ascii_end() != file.as_os_str().as_bytes() {
            return None;
        }
        let number = std::fs::read_to_string(sys.join("dev")).ok()?;
        // `36 35 7:0 / /mnt rw,relatime shared:1 - ext4 /dev/loop0 rw`
        let dir = mounts.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(' ').collect();
            (fields.get(2) == Some(&number.trim_end())).then(|| fields.get(4).copied())?
        })?;
        Some((format!("/dev/{}", device.file_name().display()), dir.to_owned()))
    })
}

/// The process that has locked a file with flock(2), by /proc/locks, and its program.
fn lock_holder(path: &Path) -> Option<(u32, String)> {
    let file = std::fs::metadata(path).ok()?;
    let (major, minor) = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
    let which = format!("{major:02x}:{minor:02x}:{}", file.ino());
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    // `1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF`
    let id: u32 = locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_it = fields.get(1) == Some(&"FLOCK") && fields.get(5) == Some(&&*which);
        is_it.then(|| fields[4].parse().ok()).flatten()
    })?;
    let program = std::fs::read_to_string(format!("/proc/{id}/comm")).ok()?;
    Some((id, program.trim_end().to_owned()))
}

/// Whether the medium of an image, or the image itself, cannot be written.
pub(crate) fn is_write_protected(path: &Path) -> bool {
    let refused = |errno| matches!(errno, Errno::ROFS | Errno::ACCESS | Errno::PERM);
    let denied = rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_err_and(refused);
    let is_device = std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_block_device());
    let open = || std::fs::File::options().write(true).open(path);
    let protects = |error: std::io::Error| {
        error.raw_os_error().is_some_and(|code| refused(Errno::from_raw_os_error(code)))
    };
    denied || is_device && open().is_err_and(protects)
}
