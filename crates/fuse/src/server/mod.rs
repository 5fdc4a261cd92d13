//! Answers requests: one method per operation of the protocol, over any [`vfs::FileSystem`].
//!
//! The kernel checks permissions (`default_permissions`), keeps locks, and caches names, attributes
//! and contents for as long as it likes, because only this mount changes the volume. The rest is
//! done here: set-id bits and capabilities that a change removes, access times, the umask.

mod attrs;
mod files;
mod front;
mod ioctl;
mod names;
mod xattrs;

use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use vfs::kind::{Shutdown, Volume};
use vfs::{Attr, Errno, Ino};

use crate::abi::{
    self, AttrOut, EntryOut, Init, InitIn, InitInExt, InitOut, OutHeader, ROOT_ID, op,
};

use crate::atime::AtimePolicy;
use crate::nodes::Nodes;
use crate::wire::{Device, MAX_WRITE, Reply, Request};

pub(crate) use front::Front;

/// How long the kernel may keep what it is told, in seconds: for ever, unless the volume changes
/// under the mount. Except for entries of directories that fold case: it would not know that a
/// change of one spelling changes all others.
const VALID_SECS: u64 = u32::MAX as u64;
/// The most background requests at once, for which no program waits, such as read-ahead.
const MAX_BACKGROUND: u16 = 64;

/// Result of an operation: its reply is complete, or this is the errno to answer with.
pub(crate) type Done = Result<(), Errno>;

/// How a file system is served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Behaviour {
    pub(crate) atime: AtimePolicy,
    /// Changes of directories are durable when they return.
    pub(crate) dirsync: bool,
    /// The kernel collects writes.
    pub(crate) writeback: bool,
    /// Access control lists are in use.
    pub(crate) acl: bool,
    pub(crate) read_only: bool,
    /// Requests come over rings, if the kernel offers that.
    pub(crate) io_uring: bool,
    /// The kernel may keep nothing.
    pub(crate) uncached: bool,
    /// A request may wait for others that the kernel makes meanwhile: there are several threads,
    /// and any of them takes them.
    pub(crate) can_wait: bool,
}

/// Lets one request at a time wait until the kernel has written back. If all did, no thread would
/// be left for what it writes.
struct WriteBacks {
    possible: bool,
    busy: AtomicBool,
}

impl WriteBacks {
    /// `None` if this request cannot wait.
    fn begin(&self) -> Option<WriteBack<'_>> {
        let is_free = self.possible && !self.busy.swap(true, Ordering::Acquire);
        is_free.then(|| WriteBack(&self.busy))
    }
}

/// While it exists, its request may wait.
struct WriteBack<'a>(&'a AtomicBool);

impl Drop for WriteBack<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// The way to the volume and the drive below a running mount.
pub trait Control: Send + Sync {
    /// Carries out `request` and returns its answer; `ENODATA` if there is no such request. Root
    /// and the mount's owner ask by reading extended attributes of the root directory, which also
    /// works on a read-only mount.
    fn ask(&self, request: &[u8]) -> Result<Vec<u8>, Errno>;

    /// Mounts a volume for writing that was mounted read-only and is closed already. Asked for as
    /// `remount=rw`, like other requests.
    fn reopen(&self) -> Reopened {
        Reopened { volume: None, refused: Some(Errno::OPNOTSUPP.to_string()) }
    }
}

/// A volume that was to become writable.
pub struct Reopened {
    /// The volume, mounted again; none if not even reading is possible.
    pub volume: Option<Arc<dyn Volume>>,
    /// Why it is still read-only.
    pub refused: Option<String>,
}

/// Answers the requests of one mount from one volume.
pub(crate) struct Server {
    fs: Arc<dyn Volume>,
    mount: Mount,
}

/// What a mount knows besides its volume.
pub(crate) struct Mount {
    device: Arc<Device>,
    control: Option<Arc<dyn Control>>,
    behaviour: Behaviour,
    nodes: Nodes,
    root: Ino,
    owner: u32,
    /// What kernel and server agreed on, [`Init`].
    agreed: AtomicU64,
    /// The next handle.
    handles: AtomicU64,
    write_backs: WriteBacks,
    /// A request has panicked: the cached state of the volume may be half changed.
    panicked: Arc<AtomicBool>,
}

impl Deref for Server {
    type Target = Mount;

    fn deref(&self) -> &Mount {
        &self.mount
    }
}

impl Server {
    pub(crate) fn new(
        fs: Arc<dyn Volume>,
        device: Arc<Device>,
        control: Option<Arc<dyn Control>>,
        behaviour: Behaviour,
    ) -> Self {
        let root = fs.root();
        let owner = rustix::process::getuid().as_raw();
        let (nodes, agreed, handles) = (Nodes::new(), AtomicU64::new(0), AtomicU64::new(0));
        // The kernel never looks up the root directory, nor forgets it.
        nodes.looked_up(root);
        let write_backs = WriteBacks { possible: behaviour.can_wait, busy: AtomicBool::new(false) };
        let panicked = Arc::new(AtomicBool::new(false));
        let mount = Mount {
            device,
            control,
            behaviour,
            nodes,
            root,
            owner,
            agreed,
            handles,
            write_backs,
            panicked,
        };
        Self { fs, mount }
    }

    /// Serves one request. Returns the header of the reply, if the operation has a reply.
    pub(crate) fn answer(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Option<OutHeader> {
        let result = match request.header.opcode {
            op::FORGET | op::BATCH_FORGET => {
                // FORGET has no reply, so a failure cannot be reported.
                let _ = self.guarded(|| self.forget(request));
                return None;
            }
            opcode => cores::acting_for(request.caller(), || {
                self.guarded(|| self.dispatch(opcode, request, reply))
            }),
        };
        Some(reply.finish(request.header.unique, result))
    }

    /// Runs an operation. If it panics it fails, and so do all others from then on. Without an
    /// answer its caller would wait for ever, and could not even be killed.
    fn guarded(&self, operation: impl FnOnce() -> Done) -> Done {
        if self.has_panicked() {
            return Err(Errno::IO);
        }
        catch_unwind(AssertUnwindSafe(operation)).unwrap_or_else(|_| {
            self.panicked.store(true, Ordering::Release);
            Err(Errno::IO)
        })
    }

    /// Whether a request has panicked.
    pub(crate) fn has_panicked(&self) -> bool {
        self.panicked.load(Ordering::Acquire)
    }

    /// Makes sure that no cached change reaches the drive any more.
    pub(crate) fn stop_volume(&self) {
        // A lock may be in a state in which this panics, too. There is nothing left to protect.
        let _ = catch_unwind(AssertUnwindSafe(|| self.fs.shut_down(Shutdown::NoSync)));
    }

    fn dispatch(&self, opcode: u32, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        match opcode {
            op::LOOKUP => self.lookup(request, reply),
            op::GETATTR => self.getattr(request, reply),
            op::SETATTR => self.setattr(request, reply),
            op::READLINK => self.readlink(request, reply),
            op::SYMLINK => self.symlink(request, reply),
            op::MKNOD => self.mknod(request, reply),
            op::MKDIR => self.mkdir(request, reply),
            op::UNLINK => self.unlink(request),
            op::RMDIR => self.rmdir(request),
            op::RENAME => self.rename(request),
            op::RENAME2 => self.rename2(request),
            op::LINK => self.link(request, reply),
            op::OPEN => self.open(request, reply),
            op::READ => self.read(request, reply),
            op::WRITE => self.write(request, reply),
            op::STATFS => self.statfs(reply),
            op::FSYNC | op::FSYNCDIR => self.fsync(request),
            op::SETXATTR => self.setxattr(request),
            op::GETXATTR => self.getxattr(request, reply),
            op::LISTXATTR => self.listxattr(request, reply),
            op::REMOVEXATTR => self.removexattr(request),
            op::READDIR => self.readdir(request, reply),
            op::READDIRPLUS => self.readdirplus(request, reply),
            op::CREATE => self.create(request, reply),
            op::FALLOCATE => self.fallocate(request),
            op::LSEEK => self.lseek(request, reply),
            op::COPY_FILE_RANGE => self.copy_file_range(request, reply),
            op::TMPFILE => self.tmpfile(request, reply),
            op::STATX => self.statx(request, reply),
            op::SYNCFS => Ok(self.fs.sync().map_err(errno)?),
            op::IOCTL => self.ioctl(request, reply),
            op::INIT => self.init(request, reply),
            op::RELEASE => self.release(request),
            op::RELEASEDIR | op::DESTROY => Ok(()),
            // On purpose, these include OPENDIR, FLUSH, ACCESS and INTERRUPT: the kernel is told
            // once that there is nothing to do for them, and stops asking.
            _ => Err(Errno::NOSYS),
        }
    }

    /// Agrees with the kernel on what the connection can do.
    fn init(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let (init, rest) = request.args_and_rest::<InitIn>()?;
        if init.major < abi::KERNEL_VERSION
            || init.major == abi::KERNEL_VERSION && init.minor < abi::MINOR_VERSION_MIN
        {
            return Err(Errno::PROTO);
        }
        let mut offered = u64::from(init.flags);
        if offered & Init::INIT_EXT.bits() != 0
            && let Ok((more, _)) = <InitInExt as zerocopy::FromBytes>::read_from_prefix(rest)
        {
            offered |= u64::from(more.flags2) << 32;
        }
        let agreed = offered & wanted(&self.behaviour).bits();
        self.agreed.store(agreed, Ordering::Relaxed);
        reply.put(&InitOut {
            major: abi::KERNEL_VERSION,
            minor: abi::KERNEL_MINOR_VERSION.min(init.minor),
            max_readahead: init.max_readahead,
            flags: agreed as u32,
            max_background: MAX_BACKGROUND,
            congestion_threshold: MAX_BACKGROUND / 4 * 3,
            max_write: MAX_WRITE as u32,
            time_gran: 1,
            max_pages: (MAX_WRITE / 4096) as u16,
            flags2: (agreed >> 32) as u32,
            ..InitOut::default()
        });
        Ok(())
    }

    pub(crate) fn is_agreed(&self, what: Init) -> bool {
        self.agreed.load(Ordering::Relaxed) & what.bits() != 0
    }

    /// Whether the connection is up.
    pub(crate) fn is_ready(&self) -> bool {
        self.agreed.load(Ordering::Relaxed) != 0
    }

    /// The inode that a request names as `node`.
    fn ino(&self, node: u64) -> Ino {
        if node == ROOT_ID { self.root } else { node }
    }

    /// The kernel's name for an inode.
    fn node(&self, ino: Ino) -> u64 {
        if ino == self.root { ROOT_ID } else { ino }
    }

    /// What the kernel is told when it learns of an inode, by a name in `dir`.
    fn entry(&self, dir: Ino, attr: &Attr) -> EntryOut {
        self.nodes.looked_up(attr.ino);
        EntryOut { entry_valid: self.names_valid(dir), ..self.entry_out(attr) }
    }

    /// How long the kernel may keep names of `dir`, in seconds.
    fn names_valid(&self, dir: Ino) -> u64 {
        if self.folds(dir) { 0 } else { self.valid_secs() }
    }

    /// How long the kernel may keep attributes, in seconds.
    fn valid_secs(&self) -> u64 {
        if self.behaviour.uncached { 0 } else { VALID_SECS }
    }

    fn entry_out(&self, attr: &Attr) -> EntryOut {
        EntryOut {
            nodeid: self.node(attr.ino),
            generation: attr.generation.into(),
            entry_valid: self.valid_secs(),
            attr_valid: self.valid_secs(),
            attr: attrs::wire(attr),
            ..EntryOut::default()
        }
    }

    /// The control of this mount, if the caller is root or mounted it.
    fn control(&self, request: &Request<'_>) -> Option<&dyn Control> {
        self.control.as_deref().filter(|_| self.is_privileged(request))
    }

    /// Whether the caller is root or mounted the volume.
    fn is_privileged(&self, request: &Request<'_>) -> bool {
        let uid = request.header.uid;
        uid == 0 || uid == self.owner
    }

    fn put_attr(&self, attr: &Attr, reply: &mut Reply<'_>) {
        let attr = attrs::wire(attr);
        reply.put(&AttrOut { attr_valid: self.valid_secs(), attr, ..AttrOut::default() });
    }
}

/// What this server can do, and asks for.
fn wanted(behaviour: &Behaviour) -> Init {
    let mut wanted = Init::ASYNC_READ
        | Init::ATOMIC_O_TRUNC
        | Init::EXPORT_SUPPORT
        | Init::BIG_WRITES
        | Init::DONT_MASK
        | Init::HAS_IOCTL_DIR
        // ASYNC_DIO is left out: after an asynchronous direct write the kernel does not drop the
        // pages that a reader has cached meanwhile (`fuse_direct_IO`).
        | Init::PARALLEL_DIROPS
        | Init::MAX_PAGES
        | Init::NO_OPENDIR_SUPPORT
        | Init::HANDLE_KILLPRIV_V2
        | Init::SETXATTR_EXT
        | Init::INIT_EXT;
    wanted.set(Init::WRITEBACK_CACHE, behaviour.writeback);
    wanted.set(Init::POSIX_ACL, behaviour.acl);
    wanted.set(Init::OVER_IO_URING, behaviour.io_uring);
    // Always, and not only when the kernel thinks that it pays. F2FS in the kernel also reads the
    // inodes of the entries that it lists (`readdir_ra`), and a tree walk asks for each of them
    // next.
    wanted.set(Init::DO_READDIRPLUS, !behaviour.uncached);
    wanted.set(Init::CACHE_SYMLINKS, !behaviour.atime.is_strict() && !behaviour.uncached);
    wanted
}

/// The number for an error in the protocol.
fn errno(error: vfs::Error) -> Errno {
    error.errno()
}
