//! Persistent memory: bytes that a processor loads and stores, and that survive the power.
//!
//! A store is durable once its cache line was written back *and* the same core has fenced; until
//! then any prefix of the stores to a line may be lost, because a dirty line can be evicted at any
//! time (Intel SDM vol. 1 section 11.4.4.1, "CLWB"). Streaming (non-temporal) stores bypass the
//! cache and are ordered by nothing but a fence, not even within one line. The unit that is never
//! torn is an aligned word of 8 bytes.
//!
//! A file system reaches the memory behind its drive by [`Drive::pm`](crate::Drive::pm), as Linux
//! reaches a `dax_device` from a block device. [`Mapped`] is a mapped file or device, [`PmSim`] a
//! model of which every state that a cut allows can be listed. [`typed`] makes a missing write-back
//! or fence a type error.

mod arch;
mod block;
mod charged;
mod fault;
#[cfg(target_os = "linux")]
mod lost;
#[cfg(target_os = "linux")]
mod mapped;
mod overlay;
#[cfg(target_os = "linux")]
mod regions;
pub mod sim;
pub mod typed;
mod undo;

use std::io;
use std::ops::Range;

pub use block::PmDrive;
pub use charged::PmCharged;
pub use fault::{PmFault, PmFaulty};
#[cfg(target_os = "linux")]
pub use lost::explain_lost_memory;
#[cfg(target_os = "linux")]
pub use mapped::{Mapped, PmError};
pub use overlay::PmOverlay;
pub use sim::{Pending, PmObserver, PmSim, PmState};
pub(crate) use undo::PmUndo;

/// Bytes of a cache line, the unit of write-back.
pub const LINE: u64 = 64;
/// Bytes that a cut never tears, if they are aligned.
pub const WORD: u64 = 8;

/// What survives: how far a store must get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    /// The memory controller (ADR): write-backs and fences are needed.
    Memory,
    /// The caches, too (eADR): only streaming stores need a fence, and a core's last stores.
    Caches,
    /// The memory lives as long as the machine's power: a killed process loses nothing that it has
    /// executed, and a power cut everything. What /dev/shm offers.
    Process,
}

impl Domain {
    /// The name in JSON and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Caches => "caches",
            Self::Process => "process",
        }
    }
}

impl std::str::FromStr for Domain {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let all = [Self::Memory, Self::Caches, Self::Process];
        let found = all.into_iter().find(|domain| domain.name() == name);
        found.ok_or_else(|| format!("unknown domain '{name}'; expected memory, caches or process"))
    }
}

/// What stores do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PmAccess {
    /// They reach the medium, which no other process may have open.
    Write,
    /// They stay in this process's private view, so that recovery of a read-only mount works.
    Private,
}

/// The part of a memory that lies on one NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PmNode {
    /// Its bytes.
    pub range: Range<u64>,
    /// The node's number.
    pub node: u32,
}

/// What a persistent memory says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PmInfo {
    /// Size in bytes, a multiple of 4096.
    pub bytes: u64,
    /// How far a store must get to survive.
    pub domain: Domain,
    /// Its parts, in order and without gaps.
    pub nodes: Vec<PmNode>,
}

/// Byte-addressable persistent memory. All methods may be called from any thread; racing stores to
/// the same word leave one of them. Write-backs and fences count for the calling core only.
///
/// Addresses must lie inside the memory, and a word's must be aligned: what a structure on the
/// medium says is checked where it is decoded. Implementations panic at anything else.
pub trait Pm: Send + Sync {
    /// Size, domain, nodes.
    fn info(&self) -> &PmInfo;

    /// Copies bytes out.
    fn read(&self, at: u64, to: &mut [u8]);

    /// The aligned word at `at`.
    fn load(&self, at: u64) -> u64;

    /// Stores bytes through the cache, word by word in ascending order. A word that is only partly
    /// covered is read and stored whole, so the caller must own it.
    fn store(&self, at: u64, from: &[u8]);

    /// Stores an aligned word: the only store that a cut cannot tear.
    fn store_word(&self, at: u64, word: u64);

    /// Stores bytes past the cache. Lines at the ends that are covered in part go through the cache
    /// and are written back, so that one fence makes all of it durable.
    fn stream(&self, at: u64, from: &[u8]);

    /// As [`Pm::stream`], of bytes that the cache has or should have: they may go through it where
    /// stores are durable there.
    fn stream_cached(&self, at: u64, from: &[u8]) {
        self.stream(at, from);
    }

    /// Starts writing back the lines that hold these bytes. The caller's next fence waits for it.
    fn write_back(&self, at: u64, len: u64);

    /// Waits until all that the calling core has streamed or written back is durable.
    fn fence(&self);

    /// Makes everything survive what the [`Domain`] does not cover, if that is possible at all:
    /// `msync` for a file on a disk.
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// The part of `len` bytes at `at` that fills whole lines; empty ranges at the ends otherwise.
fn whole_lines(at: u64, len: u64) -> Range<u64> {
    let end = at + len;
    let start = at.next_multiple_of(LINE).min(end);
    start..(end / LINE * LINE).max(start)
}
