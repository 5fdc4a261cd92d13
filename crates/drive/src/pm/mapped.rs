//! Real memory: files on fsdax, `/dev/dax*`, `/dev/shm`, or any file system, mapped.
//!
//! With `MAP_SYNC` (Linux 4.15) a written-back line is durable, so the domain is
//! [`Domain::Memory`], or [`Domain::Caches`] if the region's `persistence_domain` in sysfs says so
//! (`Documentation/ABI/testing/sysfs-bus-nd`). Everything else is the page cache's or tmpfs's
//! memory: a killed process loses nothing ([`Domain::Process`]), so neither write-backs nor fences
//! are issued. The assembly keeps the order of stores, and that is what counts there.
//!
//! Space is allocated before it is mapped: a store into a hole on a full file system would be a
//! SIGBUS. Pages are touched on first use, so that opening takes no time; on tmpfs they are made
//! large, so that one fault and one place in the TLB are for 2 MiB. The file is locked against a
//! second opening; truncating it nevertheless kills this process, which a program can have
//! [explained](super::explain_lost_memory).

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, fstatfs};
use thiserror::Error;

use super::arch::{self, Flush};
use super::regions::{LARGE_PAGE, Mapping, Share};
use super::{Domain, LINE, Pm, PmAccess, PmInfo, PmNode, WORD, whole_lines};
use crate::BLOCK_SIZE;

const BLOCK: u64 = BLOCK_SIZE as u64;
/// Largest memory that is mapped: the lower half of x86-64's addresses, and some room.
const BYTES_MAX: u64 = 1 << 46;
/// Where stores are durable in the cache, longer ones go past it, which they would only empty.
/// Shorter ones do not gain by that.
const STREAM_MIN: usize = 32 << 10;

/// Why a persistent memory cannot be made or mapped.
#[derive(Debug, Error)]
pub enum PmError {
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A block device, a directory, a socket.
    #[error("{}: neither a file nor a DAX device, so it cannot be mapped", .0.display())]
    NotMemory(PathBuf),
    /// Smaller than a block, or larger than addresses go.
    #[error("{}: {bytes} bytes; expected 4096 to {BYTES_MAX}", path.display())]
    Size {
        /// Which file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// Another process has mapped it.
    #[error("{}: in use by another process", .0.display())]
    Busy(PathBuf),
}

/// Mapped persistent memory.
pub struct Mapped {
    info: PmInfo,
    mapping: Mapping,
    /// How to write back lines; none in the domain of processes.
    flush: Option<Flush>,
    /// Stores reach a file, for which `msync` may do more.
    is_file: bool,
    /// Locked while this lives.
    _files: Vec<File>,
}

impl Mapped {
    /// Makes a file of `bytes` bytes, rounded up to a block, with all its space allocated.
    pub fn create(path: &Path, bytes: u64) -> Result<(), PmError> {
        let failed = |source| PmError::Io { path: path.to_owned(), source };
        if !(1..=BYTES_MAX).contains(&bytes) {
            return Err(PmError::Size { path: path.to_owned(), bytes });
        }
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path);
        let file = file.map_err(failed)?;
        let bytes = bytes.next_multiple_of(BLOCK);
        make_large(&file, bytes);
        allocate(&file, bytes).map_err(|error| {
            // Half a file would look like a smaller memory.
            let _ = std::fs::remove_file(path);
            failed(error)
        })
    }

    /// Maps files or DAX devices one behind the other; each is a node of its own.
    pub fn open(paths: &[&Path], access: PmAccess) -> Result<Self, PmError> {
        let mut parts = Vec::new();
        let mut nodes: Vec<PmNode> = Vec::new();
        for (path, node) in paths.iter().zip(0..) {
            let (file, bytes) = open(path, access)?;
            let start = nodes.last().map_or(0, |node| node.range.end);
            nodes.push(PmNode { range: start..start + bytes, node });
            parts.push((*path, file));
        }
        let bytes = nodes.last().map_or(0, |node| node.range.end);
        let first = paths.first().map_or_else(PathBuf::new, |path| path.to_path_buf());
        if bytes > BYTES_MAX || bytes == 0 {
            return Err(PmError::Size { path: first, bytes });
        }
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| PmError::Io { path, source }
        };
        let mapping = Mapping::reserve(bytes as usize).map_err(io(&first))?;
        let share = if access == PmAccess::Write { Share::Shared } else { Share::Private };
        let mut domain = Domain::Caches;
        for ((path, file), node) in parts.iter().zip(&nodes) {
            let len = (node.range.end - node.range.start) as usize;
            let sync =
                mapping.map(node.range.start as usize, len, file, share).map_err(io(path))?;
            domain = weaker(domain, if sync { region_domain(file) } else { Domain::Process });
        }
        let flush = Flush::detect().filter(|_| domain == Domain::Memory);
        if flush.is_none() && domain == Domain::Memory {
            domain = Domain::Process;
        }
        let files = parts.into_iter().map(|(_, file)| file).collect();
        let info = PmInfo { bytes, domain, nodes };
        Ok(Self { info, mapping, flush, is_file: access == PmAccess::Write, _files: files })
    }

    /// The instruction that writes back lines, and whether it is used.
    pub fn flush_name(&self) -> &'static str {
        self.flush.map_or("none", Flush::name)
    }

    /// As if the processor's caches and the memory controller lay between the program and what
    /// survives, whatever the medium: to measure what write-backs and fences cost.
    #[must_use]
    pub fn as_memory(mut self) -> Self {
        self.flush = Flush::detect();
        if self.flush.is_some() {
            self.info.domain = Domain::Memory;
        }
        self
    }

    /// Stores the words that the bytes at `at` touch, the first and the last perhaps in part.
    #[inline]
    fn store_bytes(&self, at: u64, from: &[u8]) {
        let head = (at.next_multiple_of(WORD) - at).min(from.len() as u64) as usize;
        let (head, rest) = from.split_at(head);
        let (words, tail) = rest.split_at(rest.len() / WORD as usize * WORD as usize);
        self.store_part(at, head);
        if !words.is_empty() {
            let start = at + head.len() as u64;
            let to = self.mapping.at(start, words.len() as u64).cast();
            // SAFETY: inside the mapping, which is page-aligned, and inside `words`.
            unsafe { arch::store_words(to, words.as_ptr(), words.len() / WORD as usize) }
        }
        self.store_part(at + (head.len() + words.len()) as u64, tail);
    }

    /// Stores less than a word as the word it is part of.
    #[inline]
    fn store_part(&self, at: u64, from: &[u8]) {
        if from.is_empty() {
            return;
        }
        let (word, offset) = (at / WORD * WORD, (at % WORD) as usize);
        let mut bytes = self.load(word).to_ne_bytes();
        bytes[offset..offset + from.len()].copy_from_slice(from);
        self.store_word(word, u64::from_ne_bytes(bytes));
    }

    fn stream_lines(&self, at: u64, from: &[u8]) {
        let to = self.mapping.at(at, from.len() as u64);
        // SAFETY: inside the mapping and `from`; `at` is a multiple of 64 in an aligned mapping.
        unsafe { arch::stream_lines(to, from.as_ptr(), from.len() / LINE as usize) }
    }
}

impl Pm for Mapped {
    fn info(&self) -> &PmInfo {
        &self.info
    }

    #[inline]
    fn read(&self, at: u64, to: &mut [u8]) {
        let from = self.mapping.at(at, to.len() as u64);
        // SAFETY: inside the mapping and `to`.
        unsafe { arch::read(to.as_mut_ptr(), from, to.len()) }
    }

    #[inline]
    fn load(&self, at: u64) -> u64 {
        assert!(at.is_multiple_of(WORD), "{at:#x} is not aligned");
        // SAFETY: inside the mapping, which is page-aligned.
        unsafe { arch::load(self.mapping.at(at, WORD).cast()) }
    }

    #[inline]
    fn store(&self, at: u64, from: &[u8]) {
        self.store_bytes(at, from);
    }

    #[inline]
    fn store_word(&self, at: u64, word: u64) {
        assert!(at.is_multiple_of(WORD), "{at:#x} is not aligned");
        // SAFETY: inside the mapping, which is page-aligned.
        unsafe { arch::store_word(self.mapping.at(at, WORD).cast(), word) }
    }

    fn stream(&self, at: u64, from: &[u8]) {
        if self.info.domain != Domain::Memory && from.len() < STREAM_MIN {
            return self.store_bytes(at, from);
        }
        let lines = whole_lines(at, from.len() as u64);
        let (head, rest) = from.split_at((lines.start - at) as usize);
        let (lines_of, tail) = rest.split_at((lines.end - lines.start) as usize);
        for (at, edge) in [(at, head), (lines.end, tail)] {
            if !edge.is_empty() {
                self.store_bytes(at, edge);
                self.write_back(at, edge.len() as u64);
            }
        }
        if !lines_of.is_empty() {
            self.stream_lines(lines.start, lines_of);
        }
    }

    fn stream_cached(&self, at: u64, from: &[u8]) {
        match self.info.domain {
            Domain::Memory => self.stream(at, from),
            Domain::Caches | Domain::Process => self.store_bytes(at, from),
        }
    }

    #[inline]
    fn write_back(&self, at: u64, len: u64) {
        let Some(flush) = self.flush else { return };
        if len == 0 {
            return;
        }
        let first = at / LINE * LINE;
        for line in (first..at + len).step_by(LINE as usize) {
            // SAFETY: inside the mapping; the processor has the instruction.
            unsafe { flush.line(self.mapping.at(line, 1)) }
        }
    }

    #[inline]
    fn fence(&self) {
        if self.info.domain != Domain::Process {
            arch::fence();
        }
    }

    fn sync(&self) -> io::Result<()> {
        if self.is_file && self.info.domain == Domain::Process {
            self.mapping.sync()
        } else {
            Ok(())
        }
    }
}

fn weaker(one: Domain, other: Domain) -> Domain {
    match (one, other) {
        (Domain::Process, _) | (_, Domain::Process) => Domain::Process,
        (Domain::Memory, _) | (_, Domain::Memory) => Domain::Memory,
        _ => Domain::Caches,
    }
}

/// Opens and locks a file or DAX device; its size is in whole blocks.
fn open(path: &Path, access: PmAccess) -> Result<(File, u64), PmError> {
    let failed = |source| PmError::Io { path: path.to_owned(), source };
    let mut options = OpenOptions::new();
    let file = options.read(true).write(access == PmAccess::Write).open(path).map_err(failed)?;
    let locked = match access {
        PmAccess::Write => file.try_lock(),
        PmAccess::Private => file.try_lock_shared(),
    };
    match locked {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(PmError::Busy(path.to_owned())),
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    let metadata = file.metadata().map_err(failed)?;
    let is_dax = metadata.file_type().is_char_device();
    let bytes = if metadata.is_file() {
        metadata.len()
    } else if is_dax && let Some(text) = sysfs("char", metadata.rdev(), "size") {
        text.trim().parse().unwrap_or(0)
    } else {
        return Err(PmError::NotMemory(path.to_owned()));
    };
    let bytes = bytes / BLOCK * BLOCK;
    if !(BLOCK..=BYTES_MAX).contains(&bytes) {
        return Err(PmError::Size { path: path.to_owned(), bytes });
    }
    if metadata.is_file() && access == PmAccess::Write && metadata.blocks() * 512 < bytes {
        allocate(&file, bytes).map_err(failed)?;
    }
    Ok((file, bytes))
}

/// `TMPFS_MAGIC` of `linux/magic.h`.
const TMPFS: u64 = 0x0102_1994;

/// Gives a new file on tmpfs large pages, as far as there are any: it allocates small ones, unless
/// mounted with `huge=`, and each then costs a fault and a place in the TLB. What fails here is
/// only slower.
fn make_large(file: &File, bytes: u64) {
    let large = LARGE_PAGE as u64;
    let whole = bytes / large * large;
    if whole == 0 || !fstatfs(file).is_ok_and(|on| on.f_type as u64 == TMPFS) {
        return;
    }
    // Only what is there in part is made whole.
    let touch = |at| fallocate(file, FallocateFlags::empty(), at, BLOCK).is_ok();
    if !(0..whole).step_by(LARGE_PAGE).all(touch) {
        return;
    }
    if let Ok(mapping) = Mapping::reserve(whole as usize)
        && mapping.map(0, whole as usize, file, Share::Shared).is_ok()
    {
        let _may_have_stopped = mapping.collapse();
    }
}

/// Gives a file all its space now. A file system that cannot do that gets the length only.
fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    match fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Err(rustix::io::Errno::OPNOTSUPP) if file.metadata()?.len() < bytes => file.set_len(bytes),
        Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
        done => Ok(done?),
    }
}

/// What survives in the region that a file or device with a synchronous mapping lies on.
fn region_domain(file: &File) -> Domain {
    let Ok(metadata) = file.metadata() else { return Domain::Memory };
    let (class, number) = match metadata.file_type().is_char_device() {
        true => ("char", metadata.rdev()),
        false => ("block", metadata.dev()),
    };
    match sysfs(class, number, "persistence_domain") {
        Some(text) if text.trim() == "cpu_cache" => Domain::Caches,
        _ => Domain::Memory,
    }
}

/// The attribute of a device, or of the nearest device above it that has such an attribute.
fn sysfs(class: &str, number: u64, attribute: &str) -> Option<String> {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let device = std::fs::canonicalize(format!("/sys/dev/{class}/{major}:{minor}")).ok()?;
    device.ancestors().find_map(|above| std::fs::read_to_string(above.join(attribute)).ok())
}
