//! Page frames: 4 KiB of aligned memory with a reference count beside it, not in front of it.
//!
//! The blocks of a RAM drive and of the page caches are by far the most memory that a run touches.
//! From the general allocator each would cost a search and, on fresh memory, a page fault of its
//! own. From 2 MiB slabs each costs a pop, 512 of them share one fault where the kernel grants huge
//! pages, and all are aligned for direct I/O. A frame goes back to the list of the thread that
//! released it last. Slabs are kept, so memory stays at its high-water mark.
//!
//! The safety argument: a [`Frame`] is one counted reference; its bytes are written only
//! through [`Frame::get_mut`], which needs the count to be one and `&mut`; a frame is on a free
//! list exactly while its count is zero.

use std::alloc::{Layout, handle_alloc_error};
use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use parking_lot::Mutex;

use crate::BLOCK_SIZE;

/// Bytes of a slab, the size of a huge page.
const SLAB_SIZE: usize = 2 << 20;
const SLAB: Layout = match Layout::from_size_align(SLAB_SIZE, SLAB_SIZE) {
    Ok(layout) => layout,
    Err(_) => panic!("a slab is aligned to its size"),
};
/// Frames in a slab.
const SLAB_FRAMES: usize = SLAB_SIZE / BLOCK_SIZE;
/// Counts in a cache line, and lines with the counts of a slab.
const LINE_COUNTS: usize = 64 / size_of::<AtomicU32>();
const COUNT_LINES: usize = SLAB_FRAMES / LINE_COUNTS;
/// So many frames are enough for an operation, most of the time.
const STOCK: usize = 64;
/// Frames a thread keeps before it gives half of them to the others.
const LOCAL_MAX: usize = 2 * SLAB_FRAMES;

type Bytes = [u8; BLOCK_SIZE];

/// A counted reference to a page of memory.
pub(crate) struct Frame {
    bytes: NonNull<Bytes>,
    count: &'static AtomicU32,
}

// SAFETY: a frame is like an `Arc<[u8; 4096]>`: shared bytes are only read, the count is atomic.
unsafe impl Send for Frame {}
// SAFETY: as above.
unsafe impl Sync for Frame {}

/// A frame to which nothing refers.
struct FreeFrame {
    bytes: NonNull<Bytes>,
    count: &'static AtomicU32,
}

// SAFETY: nothing else refers to it, so the holder of this owns the memory alone.
unsafe impl Send for FreeFrame {}

/// Not a lock of `cores`: memory belongs to the process, and no virtual machine may be charged for
/// it.
static SHARED: Mutex<Vec<FreeFrame>> = Mutex::new(Vec::new());

/// This thread's free frames. When the thread ends, all threads get them.
struct Local(Vec<FreeFrame>);

impl Drop for Local {
    fn drop(&mut self) {
        SHARED.lock().append(&mut self.0);
    }
}

thread_local! {
    static LOCAL: RefCell<Local> = const { RefCell::new(Local(Vec::new())) };
}

impl Frame {
    /// A frame whose bytes `fill` sets. It finds in them what the last user left.
    pub(crate) fn new(fill: impl FnOnce(&mut Bytes)) -> Self {
        let mut free = LOCAL
            .try_with(|local| take(&mut local.borrow_mut().0))
            .unwrap_or_else(|_| take(&mut Vec::new()));
        // SAFETY: a free frame is ours alone, and its bytes were initialised with its slab.
        fill(unsafe { free.bytes.as_mut() });
        free.count.store(1, Ordering::Relaxed);
        Self { bytes: free.bytes, count: free.count }
    }

    /// The bytes, for reading.
    pub(crate) fn get(&self) -> &Bytes {
        // SAFETY: the frame lives while this reference counts, and is not written while shared.
        unsafe { self.bytes.as_ref() }
    }

    /// The bytes, for a change, if this is the only reference.
    pub(crate) fn get_mut(&mut self) -> Option<&mut Bytes> {
        // Acquire: what the last other holder did happened before we write.
        let alone = self.count.load(Ordering::Acquire) == 1;
        // SAFETY: one reference, and it is borrowed mutably; nobody else can make another.
        if alone { Some(unsafe { self.bytes.as_mut() }) } else { None }
    }

    /// Drops this reference to bytes that were not touched for long. If it was the last, the next
    /// page that this thread makes reuses them, so the processor begins to prefetch them now, while
    /// other work goes on. Otherwise the copy would wait for one cache line after the other.
    pub(crate) fn retire(mut self) {
        if let Some(bytes) = self.get_mut() {
            fetch(bytes);
        }
    }

    /// Whether both refer to the same memory.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Clone for Frame {
    fn clone(&self) -> Self {
        let before = self.count.fetch_add(1, Ordering::Relaxed);
        assert!(before < u32::MAX / 2, "more references than memory could hold");
        Self { bytes: self.bytes, count: self.count }
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        if self.count.fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            let mut free = Some(FreeFrame { bytes: self.bytes, count: self.count });
            // A thread that is ending no longer has a list of its own.
            let _ = LOCAL.try_with(|local| give(&mut local.borrow_mut().0, free.take()));
            if free.is_some() {
                SHARED.lock().extend(free);
            }
        }
    }
}

/// Asks the processor to fetch `bytes`, if it is one that can be asked.
fn fetch(bytes: &Bytes) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes.chunks(64) {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        // SAFETY: a hint, which changes nothing, for memory that is there.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
}

fn give(local: &mut Vec<FreeFrame>, free: Option<FreeFrame>) {
    local.extend(free);
    if local.len() > LOCAL_MAX {
        SHARED.lock().extend(local.drain(..LOCAL_MAX / 2));
    }
}

fn take(local: &mut Vec<FreeFrame>) -> FreeFrame {
    if let Some(free) = local.pop() {
        return free;
    }
    refill(local);
    local.pop().expect("a slab has frames")
}

/// Adds used frames to a thread's empty list, or else a fresh slab.
fn refill(local: &mut Vec<FreeFrame>) {
    reuse(local);
    if local.is_empty() {
        local.extend(slab());
    }
}

/// Adds used frames to a thread's list, if there are any.
fn reuse(local: &mut Vec<FreeFrame>) {
    let mut shared = SHARED.lock();
    let keep = shared.len().saturating_sub(SLAB_FRAMES);
    local.extend(shared.drain(keep..));
}

/// Fills the calling thread's list with frames whose memory is mapped. To be called before a lock
/// is taken under which frames are needed: the kernel may take most of a millisecond to clear a
/// huge page.
pub(crate) fn stock() {
    let _ = LOCAL.try_with(|local| {
        let local = &mut local.borrow_mut().0;
        if local.len() < STOCK {
            restock(local);
        }
    });
}

#[cold]
fn restock(local: &mut Vec<FreeFrame>) {
    reuse(local);
    if local.len() >= STOCK {
        return;
    }
    for free in slab() {
        // Not for its value: the kernel finds memory for a page when it is first written.
        // SAFETY: a free frame is ours alone, and its memory begins with a byte.
        unsafe { free.bytes.cast::<u8>().write_volatile(0) };
        local.push(free);
    }
}

/// Fresh frames, all zero.
fn slab() -> impl Iterator<Item = FreeFrame> {
    let Some(start) = zeroed_slab() else { handle_alloc_error(SLAB) };
    let counts: &'static [AtomicU32] =
        Box::leak((0..SLAB_FRAMES).map(|_| AtomicU32::new(0)).collect());
    (0..SLAB_FRAMES).map(move |i| {
        // Neighbours are often used by two threads, so their counts are in different cache lines.
        let count = &counts[i % COUNT_LINES * LINE_COUNTS + i / COUNT_LINES];
        // SAFETY: frame `i` lies within the slab.
        let bytes = unsafe { start.add(i * BLOCK_SIZE) }.cast();
        FreeFrame { bytes, count }
    })
}

/// Zeroed memory of a slab's size, aligned to it.
#[cfg(target_os = "linux")]
fn zeroed_slab() -> Option<NonNull<u8>> {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
    // Twice the size holds an aligned slab wherever it begins; the rest is never touched.
    // SAFETY: a new mapping overlaps nothing.
    let map = unsafe {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        mmap_anonymous(std::ptr::null_mut(), 2 * SLAB_SIZE, access, MapFlags::PRIVATE)
    };
    let map = NonNull::new(map.ok()?.cast::<u8>())?;
    // SAFETY: the offset to the next multiple of the size is below it.
    let start = unsafe { map.add(map.align_offset(SLAB_SIZE)) };
    // SAFETY: advice for memory that was just mapped. Without huge pages all works, only slower.
    let _ = unsafe { madvise(start.as_ptr().cast(), SLAB_SIZE, Advice::LinuxHugepage) };
    Some(start)
}

/// Zeroed memory of a slab's size, aligned to it.
#[cfg(not(target_os = "linux"))]
fn zeroed_slab() -> Option<NonNull<u8>> {
    // SAFETY: the size is not zero.
    NonNull::new(unsafe { std::alloc::alloc_zeroed(SLAB) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_bytes_are_not_changed() {
        let mut a = Frame::new(|bytes| bytes.fill(1));
        assert!(a.get_mut().is_some());
        let b = a.clone();
        assert!(a.is(&b) && a.get_mut().is_none());
        drop(b);
        a.get_mut().expect("alone again")[0] = 2;
        assert_eq!(a.get()[..2], [2, 1]);
    }

    #[test]
    fn frames_are_used_again_and_cross_threads() {
        let first = Frame::new(|bytes| bytes.fill(7));
        let address = first.get().as_ptr();
        assert_eq!(address as usize % BLOCK_SIZE, 0);
        drop(first);
        assert_eq!(Frame::new(|_| ()).get().as_ptr(), address);
        let many: Vec<Frame> = (0..3000).map(|i| Frame::new(|b| b.fill(i as u8))).collect();
        let back = cores::spawn("reader", None, move || {
            let sum: u64 = many.iter().map(|f| u64::from(f.get()[4095])).sum();
            drop(many);
            sum
        });
        assert_eq!(back.join(), (0..3000_u64).map(|i| i % 256).sum());
    }
}
