//! What moving bytes costs: the core's own cache, its share of a socket's memory, the way between
//! sockets.
//!
//! A page in memory has a version, which changes with its contents, so a core whose cache holds
//! that version has the page. A cache is one version per page that fits, at the place that the
//! version's number says: versions are numbered one after the other, so they spread evenly.

use super::{Inner, Sim};
use crate::{Nanos, Profile};

/// Bits of a page's place that give its socket; the others give its version.
const SOCKET_BITS: u32 = 8;

/// Bytes of a page.
const PAGE: u64 = 4096;

/// The memory of all sockets and the cores' caches.
pub(super) struct Memory {
    /// When the memory of each socket has served all requests so far.
    free: Vec<Nanos>,
    /// The last version; 0 is of no page.
    version: u64,
    /// For each core the versions in its cache; empty until its first page.
    caches: Vec<Box<[u64]>>,
}

impl Memory {
    pub(super) fn new(profile: &Profile) -> Memory {
        let caches = (0..profile.cores()).map(|_| Box::default()).collect();
        Memory { free: vec![0; profile.sockets()], version: 0, caches }
    }
}

impl Sim {
    /// Charges `bytes` to the memory of the running core's socket.
    pub(crate) fn memory(&self, bytes: u64) {
        self.memory_of(self.profile.socket_of(self.current_core()), bytes);
    }

    /// Charges `bytes` to the memory of `socket`. One core has at most its own bandwidth, and all
    /// who use the socket's memory share that, one after the other.
    pub(crate) fn memory_of(&self, socket: usize, bytes: u64) {
        let inner = self.inner();
        // A machine with fewer sockets may go on with the memory of another.
        let socket = socket % self.profile.sockets();
        let alone = if socket == self.profile.socket_of(inner.core) {
            self.profile.core_memory_time(bytes)
        } else {
            self.profile.remote_memory_time(bytes)
        };
        let free = &mut inner.memory.free[socket];
        *free = (*free).max(inner.clock) + self.profile.socket_memory_time(bytes);
        let end = (*free).max(inner.clock + alone);
        self.advance(end);
    }

    /// Charges `bytes` moved from or to the page that is at `place`, and returns its place
    /// afterwards. 0 is the place of a page that was never touched.
    pub(crate) fn move_page(&self, place: u64, bytes: u64, changed: bool) -> u64 {
        let inner = self.inner();
        let (version, socket) = match place {
            0 => (0, self.profile.socket_of(inner.core)),
            _ => (place >> SOCKET_BITS, (place & ((1 << SOCKET_BITS) - 1)) as usize),
        };
        let pages = (self.profile.cache_bytes() / PAGE).max(1);
        let is_near = inner.bring(version, changed, pages);
        let now = inner.clock;
        let version = if changed || version == 0 { inner.memory.version } else { version };
        match is_near {
            true => self.advance(now + self.profile.cache_time(bytes)),
            false => self.memory_of(socket, bytes),
        }
        version << SOCKET_BITS | socket as u64
    }
}

impl Inner {
    /// Brings a page into the running core's cache, under a new version if it is `changed` or has
    /// none. Whether it was there.
    fn bring(&mut self, version: u64, changed: bool, pages: u64) -> bool {
        let Memory { version: last, caches, .. } = &mut self.memory;
        let cache = &mut caches[self.core];
        if cache.is_empty() {
            *cache = vec![0; pages as usize].into();
        }
        let was_there = version != 0 && cache[(version % pages) as usize] == version;
        let mut new = version;
        if changed || version == 0 {
            *last += 1;
            new = *last;
        }
        cache[(new % pages) as usize] = new;
        was_there
    }
}
