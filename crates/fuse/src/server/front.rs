//! Which server answers: when a volume that was mounted read-only becomes writable, another one
//! takes over, with the same connection and all that the kernel has cached.
//!
//! The kernel does not tell a FUSE server of a remount (`fuse_reconfigure` only syncs). So the
//! remounting process asks the server first, like any other request, and then changes the kernel's
//! flags.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cores::{PerCoreReadGuard, PerCoreRwLock};
use vfs::Errno;

use super::xattrs::put_sized;
use super::{Done, Reopened, Server};
use crate::abi::{GetxattrIn, Init, OutHeader, op};
use crate::wire::{Reply, Request};

/// Answers the requests of one mount, with the current server.
pub(crate) struct Front {
    /// Protects which server answers: requests share it, the exchange of servers is exclusive.
    /// `None` if the volume could be opened neither for writing nor again for reading.
    ///
    /// A request that waits for other requests, which share this lock, would deadlock if the
    /// exchange waited for the lock in between. It cannot: such requests wait for data to be
    /// written back, a read-only volume has none before the exchange, and there is one exchange.
    now: PerCoreRwLock<Option<Server>>,
    /// Every new request fails. Set before the lock is taken to close.
    closing: AtomicBool,
    panicked: Arc<AtomicBool>,
}

impl Front {
    pub(crate) fn new(server: Server) -> Self {
        let panicked = server.panicked.clone();
        let now = PerCoreRwLock::named("fuse front", Some(server));
        Self { now, closing: AtomicBool::new(false), panicked }
    }

    /// Serves one request. Returns the header of the reply, if the operation has a reply.
    pub(crate) fn answer(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Option<OutHeader> {
        let opcode = request.header.opcode;
        let now = self.current();
        let server = now.as_deref().and_then(Option::as_ref);
        if opcode == op::GETXATTR && server.is_some_and(|server| server.is_to_reopen(request)) {
            drop(now);
            let done = catch_unwind(AssertUnwindSafe(|| self.reopen(request, reply)));
            let done = done.unwrap_or_else(|_| {
                self.panicked.store(true, Ordering::Release);
                Err(Errno::IO)
            });
            return Some(reply.finish(request.header.unique, done));
        }
        match server {
            Some(server) => server.answer(request, reply),
            None if matches!(opcode, op::FORGET | op::BATCH_FORGET) => None,
            None => Some(reply.finish(request.header.unique, Err(Errno::IO))),
        }
    }

    /// The current server; `None` once it is to be closed, without a wait: a request under way may
    /// wait for this one's answer.
    fn current(&self) -> Option<PerCoreReadGuard<'_, Option<Server>>> {
        if self.closing.load(Ordering::Acquire) {
            return None;
        }
        match self.now.try_read() {
            Some(now) => Some(now),
            None if self.closing.load(Ordering::Acquire) => None,
            None => Some(self.now.read()),
        }
    }

    /// Ends the service: when this returns, no request is under way, and all that still come fail.
    /// No thread that answers requests may wait here.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Release);
        *self.now.write() = None;
    }

    /// Replaces the server by one of the volume mounted for writing. No request is under way
    /// meanwhile, and the old volume is closed before the new one is mounted. Answers with what
    /// prevented that; empty on success.
    fn reopen(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let args: GetxattrIn = request.args_and_name()?.0;
        let mut now = self.now.write();
        let refused = match now.take() {
            // Another caller has been faster.
            Some(server) if !server.behaviour.read_only => {
                *now = Some(server);
                None
            }
            Some(Server { fs, mut mount }) => {
                let control = mount.control.clone().ok_or(Errno::NODATA)?;
                drop(fs);
                let Reopened { volume, refused } = control.reopen();
                mount.behaviour.read_only = refused.is_some();
                *now = volume.map(|fs| Server { fs, mount });
                refused
            }
            None => return Err(Errno::IO),
        };
        put_sized(refused.unwrap_or_default().as_bytes(), args.size, reply)
    }

    /// Makes the kernel forget contents, attributes and names, because the volume has changed. What
    /// it has dirty is written to the volume first. No thread that answers requests may wait here.
    pub(crate) fn forget_all(&self) {
        let known = self.with(|server| {
            let nodes = server.nodes.changed_below();
            let nodes: Vec<u64> = nodes.into_iter().map(|ino| server.node(ino)).collect();
            (server.device.clone(), nodes)
        });
        let Some((device, nodes)) = known else { return };
        nodes.into_iter().for_each(|node| device.forget_contents(node));
        device.forget_names();
    }

    fn with<T>(&self, look: impl FnOnce(&Server) -> T) -> Option<T> {
        self.now.read().as_ref().map(look)
    }

    pub(crate) fn is_agreed(&self, what: Init) -> bool {
        self.with(|server| server.is_agreed(what)).unwrap_or(false)
    }

    /// Whether the connection is up.
    pub(crate) fn is_ready(&self) -> bool {
        self.with(Server::is_ready).unwrap_or(false)
    }

    /// Whether a request has panicked.
    pub(crate) fn has_panicked(&self) -> bool {
        self.panicked.load(Ordering::Acquire)
    }

    /// Makes sure that no cached change reaches the drive any more.
    pub(crate) fn stop_volume(&self) {
        self.with(Server::stop_volume);
    }
}
