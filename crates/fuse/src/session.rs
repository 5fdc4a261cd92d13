//! One mount from beginning to end: the threads that answer, and the signals that end it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use cores::{JoinHandle, Nanos};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use vfs::kind::Volume;

use crate::abi::Init;
use crate::busy_poll;
use crate::mount::{self, MountError};
use crate::options::MountOptions;
use crate::ring;
use crate::server::{Control, Front, Server};
use crate::wire::{Buffers, Device};

/// Threads besides one for each core, because some wait for the drive.
const SPARE_THREADS: usize = 2;

/// A mount that is being served.
pub struct Session {
    point: PathBuf,
    threads: Vec<JoinHandle<Result<(), Errno>>>,
    signals: Signals,
    rings: usize,
    server: Arc<Front>,
}

/// What the kernel has cached of a mount; nothing once that has ended.
#[derive(Clone)]
pub struct KernelCache {
    server: Weak<Front>,
}

impl KernelCache {
    /// Makes the kernel write back and forget all of it: the volume has changed below
    /// ([`MountOptions::uncached`]). Not to be called by the volume while it answers, because the
    /// kernel waits for that.
    pub fn forget(&self) {
        if let Some(server) = self.server.upgrade() {
            server.forget_all();
        }
    }
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By `umount`.
    Unmounted,
    /// By SIGTERM, SIGINT or SIGHUP.
    Signalled,
    /// By a panic while a request was answered. The mount is still in the tree, and everything
    /// fails there with `EIO`; once the process has ended, with `ENOTCONN`. The volume was shut
    /// down: it is as a crash would leave it, and mounting it again recovers it.
    Panicked,
}

impl Session {
    /// Mounts `fs` on the directory `point` and serves it. Mount tables show `source` as the
    /// device.
    ///
    /// When this returns, the mount is there and its requests are answered.
    ///
    /// # Errors
    ///
    /// See [`MountError`]; nothing is mounted then.
    pub fn start(
        fs: Arc<dyn Volume>,
        control: Option<Arc<dyn Control>>,
        source: &Path,
        point: &Path,
        options: &MountOptions,
    ) -> Result<Self, MountError> {
        let point = std::fs::canonicalize(point).map_err(MountError::Point)?;
        let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(MountError::Device)?;
        let device = Arc::new(Device::new(mount::attach(source, &point, options)?));
        let server = Server::new(fs, device.clone(), control, options.behaviour());
        let server = Arc::new(Front::new(server));
        if let Err(error) = shake_hands(&device, &server) {
            mount::detach(&point);
            return Err(error);
        }
        let readers = options.threads.unwrap_or(cores::core_count() + SPARE_THREADS);
        let rings = if server.is_agreed(Init::OVER_IO_URING) { ring::count() } else { 0 };
        let poll_time = match options.busy_poll {
            Some(micros) => u64::from(micros) * 1000,
            None => busy_poll::fitting_time(),
        };
        let left = Arc::new(AtomicUsize::new(readers + rings));
        let last_out = || LastOut { left: left.clone(), handle: signals.handle() };
        let alarm = || Alarm { server: server.clone(), handle: signals.handle() };
        let readers = (0..readers).map(|n| {
            let (device, alarm, last) = (device.clone(), alarm(), last_out());
            cores::spawn(&format!("fuse {n}"), None, move || {
                let _last = last;
                serve(&device, &alarm, poll_time)
            })
        });
        let of_rings = (0..rings).map(|cpu| {
            let (device, alarm, last) = (device.clone(), alarm(), last_out());
            cores::spawn(&format!("fuse ring {cpu}"), Some(cpu), move || {
                let _last = last;
                ring::serve(cpu, &device, &alarm.server, || alarm.check())
            })
        });
        let threads = readers.chain(of_rings).collect();
        mount::widen_read_ahead(&point);
        Ok(Self { point, threads, signals, rings, server })
    }

    /// What the kernel has cached of it.
    pub fn kernel_cache(&self) -> KernelCache {
        KernelCache { server: Arc::downgrade(&self.server) }
    }

    /// Whether requests come over rings: they were asked for, and the kernel offers them.
    pub fn has_rings(&self) -> bool {
        self.rings > 0
    }

    /// Serves until the file system is unmounted, a signal ends it, or a request panics. Except for
    /// the last, it is then no longer in the tree, the file system has everything that users wrote,
    /// and nothing calls it any more.
    ///
    /// # Errors
    ///
    /// The errno with which the connection failed.
    pub fn wait(mut self) -> Result<Ended, Errno> {
        let signalled = self.signals.forever().next().is_some();
        if self.server.has_panicked() {
            return Ok(Ended::Panicked);
        }
        if signalled {
            // Makes the kernel write back what is in its page cache. A dead drive may refuse that.
            let _ = std::fs::File::open(&self.point).map(rustix::fs::syncfs);
            // Since 6.18 the kernel does not wait for FUSE there (`SB_I_NO_DATA_INTEGRITY`), but
            // for each file that it is to forget.
            self.server.forget_all();
            mount::detach(&self.point);
            // Files that are still open keep the connection up. What their users do from here on
            // fails, and once we are gone with ENOTCONN: an fsync that succeeded while the volume
            // is closed could be lost.
            self.server.close();
            return Ok(Ended::Signalled);
        }
        for thread in self.threads {
            thread.join()?;
        }
        Ok(Ended::Unmounted)
    }
}

/// Ends [`Session::wait`] when the last thread is done, however it ended.
struct LastOut {
    left: Arc<AtomicUsize>,
    handle: Handle,
}

impl Drop for LastOut {
    fn drop(&mut self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.handle.close();
        }
    }
}

/// Ends [`Session::wait`] when a request has panicked.
struct Alarm {
    server: Arc<Front>,
    handle: Handle,
}

impl Alarm {
    /// To be called when an answer is on its way.
    fn check(&self) {
        if self.server.has_panicked() {
            self.handle.close();
            self.server.stop_volume();
        }
    }
}

fn shake_hands(device: &Device, server: &Front) -> Result<(), MountError> {
    let mut buffers = Buffers::new();
    while !server.is_ready() {
        let served = device.serve(&mut buffers, |request, reply| server.answer(request, reply));
        if !served.map_err(MountError::Connection)? {
            return Err(MountError::Connection(Errno::NOTCONN));
        }
    }
    Ok(())
}

fn serve(device: &Device, alarm: &Alarm, poll_time: Nanos) -> Result<(), Errno> {
    let mut buffers = Buffers::new();
    while device.serve(&mut buffers, |request, reply| alarm.server.answer(request, reply))? {
        alarm.check();
        busy_poll::wait(device, poll_time);
    }
    Ok(())
}
