//! The ways of F2FS to do an fsync, under the names in reports, and what each promises.

use drive::{BLOCK_SIZE, Identify};
use vfs::kind::{Promise, Technique};

/// All of them. Without OPRW, recovery behaves like Linux's and believes every pointer.
pub const ALL: [&Technique; 6] = [POSIX, STRICT, NOBARRIER, OPRW, OPRW_NOBARRIER, OPRW_STRICT];

/// Wait for data, wait for nodes, one FLUSH.
pub const POSIX: &Technique = &Technique {
    name: "posix",
    title: "F2FS-posix",
    options: "fsync_mode=posix,nowp_check",
    make: "",
    promise: |drive| promise(Way { barrier: true, strict: false, oprw: false }, drive),
    runs_on: |_| true,
};

/// A FLUSH before and after the last node.
pub const STRICT: &Technique = &Technique {
    name: "strict",
    title: "F2FS-strict",
    options: "fsync_mode=strict,nowp_check",
    make: "",
    promise: |drive| promise(Way { barrier: true, strict: true, oprw: false }, drive),
    runs_on: |_| true,
};

/// As `posix` without the FLUSH; for drives with power-loss protection.
pub const NOBARRIER: &Technique = &Technique {
    name: "nobarrier",
    title: "F2FS-nobarrier",
    options: "fsync_mode=nobarrier,nowp_check",
    make: "",
    promise: |drive| promise(Way { barrier: false, strict: false, oprw: false }, drive),
    runs_on: |_| true,
};

/// `posix` with order-preserving recovery by write pointer.
pub const OPRW: &Technique = &Technique {
    name: "oprw",
    title: "OPRW-posix",
    options: "fsync_mode=posix,oprw",
    make: "",
    promise: |drive| promise(Way { barrier: true, strict: false, oprw: true }, drive),
    runs_on: has_write_pointers,
};

/// `nobarrier` with order-preserving recovery by write pointer.
pub const OPRW_NOBARRIER: &Technique = &Technique {
    name: "oprw-nobarrier",
    title: "OPRW-nobarrier",
    options: "fsync_mode=nobarrier,oprw",
    make: "",
    promise: |drive| promise(Way { barrier: false, strict: false, oprw: true }, drive),
    runs_on: has_write_pointers,
};

/// `strict` with order-preserving recovery: atomic, with one FLUSH.
pub const OPRW_STRICT: &Technique = &Technique {
    name: "oprw-strict",
    title: "OPRW-strict",
    options: "fsync_mode=strict,oprw",
    make: "",
    promise: |drive| promise(Way { barrier: true, strict: true, oprw: true }, drive),
    runs_on: |_| true,
};

/// The properties on which the promise depends.
#[derive(Clone, Copy)]
struct Way {
    /// An fsync ends with a FLUSH.
    barrier: bool,
    /// An fsync is recovered whole or not at all.
    strict: bool,
    /// Recovery compares with the write pointers.
    oprw: bool,
}

/// OPRW compares with write pointers. Fsyncs recovered whole have checksums, and do not need write
/// pointers.
fn has_write_pointers(drive: &Identify) -> bool {
    drive.zones.is_some()
}

/// What each way promises. Without a volatile cache, DMA order is NAND order, so every way keeps
/// data ahead of nodes. With one, `posix` and `nobarrier` promise nothing about the order (the
/// thesis's section 4.1), and `nobarrier`, which sends no FLUSH, promises nothing about durability.
/// `oprw` needs write pointers, and so a zoned drive, or else checksums, which only fsyncs
/// recovered whole have. `strict` is atomic where nothing is updated in place. A block that is
/// updated in place may be torn by the drive.
fn promise(way: Way, drive: &Identify) -> Promise {
    let (volatile, zoned) = (drive.volatile_cache, drive.zones.is_some());
    Promise {
        durable: !volatile || way.barrier,
        intact: !volatile || way.strict || (way.oprw && zoned),
        atomic: way.strict && (way.oprw || zoned),
        whole: drive.atomic_write as usize >= BLOCK_SIZE || way.oprw || zoned,
        at_return: false,
    }
}
