//! Attaching to the kernel: mount(2) on our own `/dev/fuse` if we are privileged, otherwise the
//! set-user-id helper `fusermount3`, as libfuse does (its `mount.c`); and detaching.

use std::ffi::{CString, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{AtFlags, CWD, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};
use thiserror::Error;

use crate::options::MountOptions;

const DEVICE: &str = "/dev/fuse";
/// Type of the file system, after `fuse.`, as `mount` and `/proc/mounts` show it.
const SUBTYPE: &str = "strandline";
const HELPER: &str = "fusermount3";
/// The helper sends the device's descriptor over the descriptor that this variable names.
const HELPER_SOCKET: &str = "_FUSE_COMMFD";

/// Why there is no mount.
#[derive(Debug, Error)]
pub enum MountError {
    /// There is no usable `/dev/fuse`.
    #[error("{DEVICE}: {0}{hint}", hint = device_hint(.0))]
    Device(io::Error),
    /// The mount point cannot be used.
    #[error("mount point: {0}")]
    Point(io::Error),
    /// mount(2) failed.
    #[error("{0}")]
    Kernel(Errno),
    /// `fusermount3` is missing or refused.
    #[error("{0}")]
    Helper(String),
    /// The connection failed.
    #[error("{DEVICE}: {0}")]
    Connection(Errno),
}

fn device_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => " (is the fuse module loaded?)",
        io::ErrorKind::PermissionDenied => {
            " (mount as root, or let this user read and write it; in a container, add the device)"
        }
        _ => "",
    }
}

/// How far the kernel reads ahead of a sequential reader, in KiB. Its default for FUSE, 128, is
/// less than one request can carry, and leaves the server idle while the reader copies.
const READ_AHEAD_KB: u32 = 4096;

/// Mounts on `point`. Mount tables show `source` as the device.
pub(crate) fn attach(
    source: &Path,
    point: &Path,
    options: &MountOptions,
) -> Result<File, MountError> {
    let directory = std::fs::metadata(point).map_err(MountError::Point)?;
    if !directory.is_dir() {
        return Err(MountError::Point(Errno::NOTDIR.into()));
    }
    let device =
        OpenOptions::new().read(true).write(true).open(DEVICE).map_err(MountError::Device)?;
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    if options.allows_other() {
        data.push_str(",allow_other");
    }
    let kind = format!("fuse.{SUBTYPE}");
    let data = CString::new(data).map_err(|_| MountError::Kernel(Errno::INVAL))?;
    match rustix::mount::mount(source, point, kind.as_str(), options.flags(), data.as_c_str()) {
        Ok(()) => Ok(device),
        Err(Errno::PERM) => attach_by_helper(source, point, options),
        Err(errno) => Err(MountError::Kernel(errno)),
    }
}

/// Makes the kernel read far ahead on what is mounted on `point`. Only root may do that; for others
/// everything works, but more slowly.
pub(crate) fn widen_read_ahead(point: &Path) {
    // Without a question to the server, which is ourselves: killed in the middle of one, this
    // process would wait for its own answer and never end.
    let (flags, mask) = (AtFlags::STATX_DONT_SYNC, StatxFlags::empty());
    let Ok(found) = rustix::fs::statx(CWD, point, flags, mask) else { return };
    let path =
        format!("/sys/class/bdi/{}:{}/read_ahead_kb", found.stx_dev_major, found.stx_dev_minor);
    let _ = std::fs::write(path, READ_AHEAD_KB.to_string());
}

fn attach_by_helper(
    source: &Path,
    point: &Path,
    options: &MountOptions,
) -> Result<File, MountError> {
    let socket = |errno: Errno| MountError::Helper(format!("{HELPER}: {errno}"));
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(socket)?;
    let mut list = OsString::from(format!("default_permissions,subtype={SUBTYPE},fsname="));
    list.push(escaped(source));
    if options.allows_other() {
        list.push(",allow_other");
    }
    for (flag, name) in FLAG_NAMES {
        if options.flags().contains(flag) {
            list.push(",");
            list.push(name);
        }
    }
    let mut helper = Command::new(HELPER);
    helper.arg("-o").arg(list).arg("--").arg(point);
    // Standard input is the only descriptor that a child inherits by default.
    helper.env(HELPER_SOCKET, "0").stdin(Stdio::from(theirs)).stderr(Stdio::piped());
    let mut child = helper.spawn().map_err(|error| {
        MountError::Helper(format!("mounting takes root or the program {HELPER}: {error}"))
    })?;
    drop(helper);
    let device = receive_descriptor(&ours);
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        // The helper's output is needed only for the error message.
        let _ = stderr.read_to_string(&mut said);
    }
    let status = child.wait().map_err(|e| MountError::Helper(format!("{HELPER}: {e}")))?;
    match device.map_err(socket)? {
        Some(device) if status.success() => Ok(File::from(device)),
        _ => {
            let said = said.trim().replace('\n', "; ");
            Err(MountError::Helper(if said.is_empty() {
                format!("{HELPER}: {status}")
            } else {
                said
            }))
        }
    }
}

/// The mount(2) flags that fusermount3 takes as options.
const FLAG_NAMES: [(MountFlags, &str); 7] = [
    (MountFlags::RDONLY, "ro"),
    (MountFlags::NOSUID, "nosuid"),
    (MountFlags::NODEV, "nodev"),
    (MountFlags::NOEXEC, "noexec"),
    (MountFlags::SYNCHRONOUS, "sync"),
    (MountFlags::DIRSYNC, "dirsync"),
    (MountFlags::NOATIME, "noatime"),
];

/// In the helper's list of options, a comma ends an option and a backslash escapes.
fn escaped(source: &Path) -> OsString {
    let mut bytes = Vec::new();
    for &byte in source.as_os_str().as_bytes() {
        if matches!(byte, b',' | b'\\') {
            bytes.push(b'\\');
        }
        bytes.push(byte);
    }
    std::os::unix::ffi::OsStringExt::from_vec(bytes)
}

fn receive_descriptor(socket: &OwnedFd) -> Result<Option<OwnedFd>, Errno> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut iov = [IoSliceMut::new(&mut byte)];
    loop {
        match rustix::net::recvmsg(socket, &mut iov, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
            Ok(_) => break,
        }
    }
    Ok(ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    }))
}

/// How to unmount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Fails while it is in use.
    Plainly,
    /// It disappears from the tree now and lives on for its users.
    Lazily,
    /// As plainly, but first the connection ends: requests under way fail, and what the kernel has
    /// not written back is lost. For root only.
    ByForce,
}

/// Unmounts what is mounted on `point`.
///
/// # Errors
///
/// `EBUSY` if it is in use, `EINVAL` if nothing is mounted there.
pub fn unmount(point: &Path, how: How) -> Result<(), MountError> {
    let flags = match how {
        How::Plainly => UnmountFlags::empty(),
        How::Lazily => UnmountFlags::DETACH,
        How::ByForce => UnmountFlags::FORCE,
    };
    match rustix::mount::unmount(point, flags) {
        Err(Errno::PERM) => {}
        done => return done.map_err(MountError::Kernel),
    }
    let mut helper = Command::new(HELPER);
    helper.arg("-u").args((how == How::Lazily).then_some("-z")).arg("--").arg(point);
    let output = helper.output().map_err(|e| MountError::Helper(format!("{HELPER}: {e}")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(MountError::Helper(String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ")))
}

/// Sets the flags of a mount to those of `options`, and no others.
///
/// # Errors
///
/// Those of mount(2).
pub fn remount(point: &Path, options: &MountOptions) -> Result<(), MountError> {
    rustix::mount::mount_remount(point, options.flags(), c"").map_err(MountError::Kernel)
}

/// Takes away the mount at `point`. If it is in use, it disappears from the tree and lives on for
/// its users.
pub(crate) fn detach(point: &Path) {
    if unmount(point, How::Plainly).is_err() {
        // A second failure cannot be reported.
        let _ = unmount(point, How::Lazily);
    }
}
