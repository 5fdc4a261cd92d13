//! The null file system behind `fuser`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyEmpty, ReplyEntry, ReplyWrite,
    Request, WriteFlags,
};

use crate::null::{self, FILE_SIZE, MAX_WRITE, ROOT, THREADS, VALID_SECS};

struct Null;

const VALID: Duration = Duration::from_secs(VALID_SECS);

fn attr(ino: u64) -> FileAttr {
    let is_root = ino == ROOT;
    FileAttr {
        ino: INodeNo(ino),
        size: if is_root { 0 } else { FILE_SIZE },
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: if is_root { FileType::Directory } else { FileType::RegularFile },
        perm: 0o777,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Filesystem for Null {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        config.set_max_write(MAX_WRITE as u32).expect("a size it takes");
        let wanted = InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_NO_OPENDIR_SUPPORT
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2;
        config.add_capabilities(wanted).expect("a kernel that has them");
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match null::inode_of(name.as_bytes()) {
            Some(ino) => reply.entry(&VALID, &attr(ino), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&VALID, &attr(ino.0));
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        null::keep(data.len(), |pages| pages.copy_from_slice(data));
        reply.written(data.len() as u32);
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }
}

/// Mounts on `point` and serves until it is unmounted; `clone_fd` is a descriptor per thread.
pub(crate) fn serve(point: &Path, clone_fd: bool) {
    let mut config = Config::default();
    config.mount_options =
        vec![MountOption::FSName("null".into()), MountOption::DefaultPermissions];
    config.n_threads = Some(THREADS);
    config.clone_fd = clone_fd;
    fuser::mount(Null, point, &config).expect("a mount");
}
