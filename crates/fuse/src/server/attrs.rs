//! Attributes: `getattr`, `statx`, `setattr`, `statfs`, access times, and the privileges that a
//! change removes.

use vfs::{Attr, FileKind, Ino, SetAttr, Timespec};

use super::{Done, Errno, Server, errno};
use crate::abi::{self, Fattr, STATX_BASIC, STATX_BTIME, SetattrIn, StatfsOut, StatxOut, SxTime};
use crate::wire::{Reply, Request};

const S_ISUID: u16 = 0o4000;
const S_ISGID: u16 = 0o2000;
const S_IXGRP: u16 = 0o010;
/// The capability's bit in a process's sets (`capability.h`).
const CAP_FSETID: u64 = 1 << 4;
/// The attribute that gives a program privileges, capabilities(7).
const CAPABILITY: &[u8] = b"security.capability";
/// Preferred size of transfers, as `stat` reports it.
const BLOCK_SIZE: u32 = 4096;

/// Attributes in the form of the protocol.
pub(super) fn wire(attr: &Attr) -> abi::Attr {
    abi::Attr {
        ino: attr.ino,
        size: attr.size,
        blocks: attr.blocks,
        atime: attr.atime.secs.cast_unsigned(),
        mtime: attr.mtime.secs.cast_unsigned(),
        ctime: attr.ctime.secs.cast_unsigned(),
        atimensec: attr.atime.nanos,
        mtimensec: attr.mtime.nanos,
        ctimensec: attr.ctime.nanos,
        mode: mode(attr),
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev as u32,
        blksize: BLOCK_SIZE,
        flags: 0,
    }
}

fn mode(attr: &Attr) -> u32 {
    attr.kind.mode_bits() | u32::from(attr.perm)
}

fn sx_time(time: Timespec) -> SxTime {
    SxTime { tv_sec: time.secs, tv_nsec: time.nanos, reserved: 0 }
}

fn time(secs: u64, nanos: u32) -> Timespec {
    Timespec { secs: secs.cast_signed(), nanos: nanos.min(999_999_999) }
}

pub(super) fn now() -> Timespec {
    let now = cores::wall_clock();
    Timespec { secs: now.as_secs().cast_signed(), nanos: now.subsec_nanos() }
}

/// What is left of permission bits when a change by somebody without `CAP_FSETID` removes set-id
/// bits (`setattr_should_drop_suidgid`). Set-group-id without group execution once meant mandatory
/// locking; it stays if the caller is in the file's group or has that capability.
fn without_set_id(perm: u16, in_group_or_capable: impl FnOnce() -> bool) -> u16 {
    let stays = perm & (S_ISGID | S_IXGRP) == S_ISGID && in_group_or_capable();
    perm & !(S_ISUID | if stays { 0 } else { S_ISGID })
}

/// Whether the caller is in a group, or may keep set-group-id without that
/// (`in_group_or_capable`). The kernel tells a server only the group that new files get; /proc has
/// the others and the capabilities.
fn in_group_or_capable(request: &Request<'_>, gid: u32) -> bool {
    let by_process = || {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", request.header.pid)).ok()?;
        let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let capable = u64::from_str_radix(field("CapEff:")?, 16).ok()? & CAP_FSETID != 0;
        Some(capable || field("Groups:")?.split_whitespace().any(|group| group.parse() == Ok(gid)))
    };
    request.header.gid == gid || by_process().unwrap_or(false)
}

/// The time that the kernel wants to set: a given one, or now.
fn wanted(valid: Fattr, given: Fattr, now: Fattr, secs: u64, nanos: u32) -> Option<Timespec> {
    if valid.contains(now) {
        Some(self::now())
    } else {
        valid.contains(given).then(|| time(secs, nanos))
    }
}

/// Whether a user gives the file other times than the present one, which append-only files do
/// not allow (`may_setattr`); writes do not count. If the kernel collects writes, it sends the
/// times of those in the same way, with a time of change.
fn sets_times(valid: Fattr) -> bool {
    let times = [(Fattr::ATIME, Fattr::ATIME_NOW), (Fattr::MTIME, Fattr::MTIME_NOW)];
    let given = |(given, now): (Fattr, Fattr)| valid.contains(given) && !valid.contains(now);
    times.into_iter().any(given) && !valid.contains(Fattr::CTIME)
}

impl Server {
    pub(super) fn getattr(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let attr = self.fs.getattr(self.ino(request.header.nodeid)).map_err(errno)?;
        self.put_attr(&attr, reply);
        Ok(())
    }

    pub(super) fn statx(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let attr = self.fs.getattr(self.ino(request.header.nodeid)).map_err(errno)?;
        // Not every format records when a file was made.
        let btime = if attr.crtime == Timespec::default() { 0 } else { STATX_BTIME };
        reply.put(&StatxOut {
            attr_valid: self.valid_secs(),
            mask: STATX_BASIC | btime,
            blksize: BLOCK_SIZE,
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            mode: mode(&attr) as u16,
            ino: attr.ino,
            size: attr.size,
            blocks: attr.blocks,
            atime: sx_time(attr.atime),
            btime: sx_time(attr.crtime),
            ctime: sx_time(attr.ctime),
            mtime: sx_time(attr.mtime),
            rdev_major: rustix::fs::major(attr.rdev),
            rdev_minor: rustix::fs::minor(attr.rdev),
            ..StatxOut::default()
        });
        Ok(())
    }

    pub(super) fn setattr(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let ino = self.ino(request.header.nodeid);
        let args: SetattrIn = request.args()?;
        let valid = Fattr::from_bits_truncate(args.valid);
        let mut set = SetAttr {
            perm: valid.contains(Fattr::MODE).then_some((args.mode & 0o7777) as u16),
            uid: valid.contains(Fattr::UID).then_some(args.uid),
            gid: valid.contains(Fattr::GID).then_some(args.gid),
            size: valid.contains(Fattr::SIZE).then_some(args.size),
            atime: wanted(valid, Fattr::ATIME, Fattr::ATIME_NOW, args.atime, args.atimensec),
            mtime: wanted(valid, Fattr::MTIME, Fattr::MTIME_NOW, args.mtime, args.mtimensec),
            ctime: valid.contains(Fattr::CTIME).then(|| time(args.ctime, args.ctimensec)),
        };
        if valid.contains(Fattr::KILL_SUIDGID) && set.perm.is_none() {
            set.perm = self.perm_without_set_id(request, ino)?;
        }
        if sets_times(valid) {
            self.check_flags(ino, 0)?;
        }
        let takes_capability = valid.intersects(Fattr::SIZE | Fattr::UID | Fattr::GID);
        if self.nodes.changed(ino) && takes_capability {
            self.drop_capability(ino)?;
        }
        let attr = self.fs.setattr(ino, &set).map_err(errno)?;
        self.put_attr(&attr, reply);
        Ok(())
    }

    pub(super) fn statfs(&self, reply: &mut Reply<'_>) -> Done {
        let stat = self.fs.statfs().map_err(errno)?;
        reply.put(&StatfsOut {
            blocks: stat.blocks,
            bfree: stat.blocks_free,
            bavail: stat.blocks_available,
            files: stat.files,
            ffree: stat.files_free,
            bsize: stat.block_size,
            namelen: stat.name_max,
            frsize: stat.block_size,
            ..StatfsOut::default()
        });
        Ok(())
    }

    /// The permission bits without set-id bits, if there are any of those to remove.
    fn perm_without_set_id(&self, request: &Request<'_>, ino: Ino) -> Result<Option<u16>, Errno> {
        let attr = self.fs.getattr(ino).map_err(errno)?;
        let perm = without_set_id(attr.perm, || in_group_or_capable(request, attr.gid));
        Ok((perm != attr.perm && attr.kind != FileKind::Directory).then_some(perm))
    }

    /// Removes the privileges that a change of contents ends: capabilities and, if `set_id` says
    /// that the caller may not keep them, set-id bits.
    pub(super) fn drop_privileges(&self, request: &Request<'_>, ino: Ino, set_id: bool) -> Done {
        if self.nodes.changed(ino) {
            self.drop_capability(ino)?;
        }
        if set_id && let Some(perm) = self.perm_without_set_id(request, ino)? {
            let set = SetAttr { perm: Some(perm), ..SetAttr::default() };
            self.fs.setattr(ino, &set).map_err(errno)?;
            // Otherwise the kernel would still execute the file with the privileges that it has
            // lost.
            self.device.forget_attributes(self.node(ino));
        }
        Ok(())
    }

    /// Removes the set-group-id bit, which the caller that set a list may not keep.
    pub(super) fn drop_sgid(&self, ino: Ino) -> Done {
        let perm = self.fs.getattr(ino).map_err(errno)?.perm;
        if perm & S_ISGID != 0 {
            let set = SetAttr { perm: Some(perm & !S_ISGID), ..SetAttr::default() };
            self.fs.setattr(ino, &set).map_err(errno)?;
        }
        Ok(())
    }

    fn drop_capability(&self, ino: Ino) -> Done {
        match self.fs.getxattr(ino, CAPABILITY).map_err(errno) {
            Ok(_) => self.fs.removexattr(ino, CAPABILITY).map_err(errno)?,
            Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
            Err(errno) => return Err(errno),
        }
        self.nodes.set_unprivileged(ino, true);
        Ok(())
    }

    /// Notes that an extended attribute is about to be set.
    pub(super) fn gains_attribute(&self, ino: Ino, name: &[u8]) {
        self.nodes.changed(ino);
        if name == CAPABILITY {
            self.nodes.set_unprivileged(ino, false);
        }
    }

    /// The attributes of `ino`, if a read now would change its access time.
    pub(super) fn is_atime_due(&self, ino: Ino) -> Result<Option<Attr>, Errno> {
        let policy = self.behaviour.atime;
        let clock = cores::now();
        if self.behaviour.read_only || policy.is_never() || self.nodes.is_atime_fresh(ino, clock) {
            return Ok(None);
        }
        let attr = self.fs.getattr(ino).map_err(errno)?;
        if policy.is_due(&attr, now()) {
            return Ok(Some(attr));
        }
        self.nodes.set_atime_fresh(ino, clock.saturating_add(policy.fresh_for()));
        Ok(None)
    }

    /// Notes that `ino` was read.
    pub(super) fn accessed(&self, ino: Ino) {
        // A read does not fail because its time could not be recorded.
        let Ok(Some(_)) = self.is_atime_due(ino) else { return };
        if self.fs.touch_atime(ino, now()).is_ok() {
            let until = cores::now().saturating_add(self.behaviour.atime.fresh_for());
            self.nodes.set_atime_fresh(ino, until);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::without_set_id;

    #[test]
    fn set_group_id_without_group_execution_stays_for_the_group() {
        for in_group in [false, true] {
            assert_eq!(without_set_id(0o6755, || in_group), 0o755);
            assert_eq!(without_set_id(0o1644, || in_group), 0o1644);
        }
        assert_eq!(without_set_id(0o6745, || true), 0o2745);
        assert_eq!(without_set_id(0o6745, || false), 0o745);
    }
}
