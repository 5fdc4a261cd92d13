//! SQLite's C interface to a VFS, <https://www.sqlite.org/c3ref/vfs.html>: each function turns its
//! pointers into references and calls `file` or `locks`.
//!
//! Safety rests on SQLite's contract: it calls with the structures that were registered here or
//! opened by [`x_open`], with buffers of the sizes it says, and one call at a time per file. A
//! `sqlite3_vfs` and its volume are leaked, so no connection outlives them. Panics do not cross
//! into C: an `extern "C"` function aborts.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use rusqlite::ffi::*;

use super::file::{Code, File, SqliteVolume};

/// Longest path, with its NUL.
const MAX_PATH: c_int = 1024;
/// Days from the start of the Julian calendar to 1970.
const UNIX_EPOCH_DAYS: f64 = 2_440_587.5;
const SECONDS_PER_DAY: f64 = 86_400.0;

/// What SQLite allocates for an open file; the head is its own.
#[repr(C)]
struct RawFile {
    head: sqlite3_file,
    volume: *const SqliteVolume,
    file: *mut File,
}

static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(x_close),
    xRead: Some(x_read),
    xWrite: Some(x_write),
    xTruncate: Some(x_truncate),
    xSync: Some(x_sync),
    xFileSize: Some(x_file_size),
    xLock: Some(x_lock),
    xUnlock: Some(x_unlock),
    xCheckReservedLock: Some(x_check_reserved_lock),
    xFileControl: Some(x_file_control),
    xSectorSize: Some(x_sector_size),
    xDeviceCharacteristics: Some(x_device_characteristics),
    xShmMap: Some(x_shm_map),
    xShmLock: Some(x_shm_lock),
    xShmBarrier: Some(x_shm_barrier),
    xShmUnmap: Some(x_shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

pub(super) fn register(name: CString, volume: Arc<SqliteVolume>) -> rusqlite::Result<()> {
    let vfs = Box::new(sqlite3_vfs {
        iVersion: 1,
        szOsFile: size_of::<RawFile>() as c_int,
        mxPathname: MAX_PATH,
        pNext: ptr::null_mut(),
        zName: name.into_raw(),
        pAppData: Arc::into_raw(volume).cast_mut().cast(),
        xOpen: Some(x_open),
        xDelete: Some(x_delete),
        xAccess: Some(x_access),
        xFullPathname: Some(x_full_pathname),
        xDlOpen: None,
        xDlError: None,
        xDlSym: None,
        xDlClose: None,
        xRandomness: Some(x_randomness),
        xSleep: Some(x_sleep),
        xCurrentTime: Some(x_current_time),
        xGetLastError: None,
        xCurrentTimeInt64: None,
        xSetSystemCall: None,
        xGetSystemCall: None,
        xNextSystemCall: None,
    });
    // SAFETY: a whole structure of version 1, and leaked, so valid for as long as SQLite is.
    match unsafe { sqlite3_vfs_register(Box::into_raw(vfs), 0) } {
        SQLITE_OK => Ok(()),
        code => Err(rusqlite::Error::SqliteFailure(Error::new(code), None)),
    }
}

pub(super) fn unregister(name: &str) {
    let Ok(name) = CString::new(name) else { return };
    // SAFETY: `name` is a string of C; only SQLite's list releases the structure that is found.
    unsafe {
        let vfs = sqlite3_vfs_find(name.as_ptr());
        if !vfs.is_null() {
            sqlite3_vfs_unregister(vfs);
        }
    }
}

/// The volume of a VFS.
///
/// # Safety
/// `vfs` is one that [`register`] made.
unsafe fn volume<'a>(vfs: *mut sqlite3_vfs) -> &'a SqliteVolume {
    // SAFETY: `register` put it there, and it is never freed.
    unsafe { &*(*vfs).pAppData.cast::<SqliteVolume>() }
}

/// The file behind a handle.
///
/// # Safety
/// `file` was opened by [`x_open`] and is not closed; SQLite makes one call at a time on it.
unsafe fn open_file<'a>(file: *mut sqlite3_file) -> &'a mut File {
    // SAFETY: `x_open` put a box there that `x_close` takes away.
    unsafe { &mut *(*file.cast::<RawFile>()).file }
}

fn result(done: Result<(), Code>) -> c_int {
    done.err().unwrap_or(SQLITE_OK)
}

unsafe extern "C" fn x_open(
    vfs: *mut sqlite3_vfs,
    name: sqlite3_filename,
    out: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let out = out.cast::<RawFile>();
    // SAFETY: `vfs` is ours, `name` a string of C or null, `out` has room for a `RawFile`.
    unsafe {
        (*out).head.pMethods = ptr::null();
        let path = (!name.is_null()).then(|| CStr::from_ptr(name).to_bytes());
        match volume(vfs).open(path, flags) {
            Err(code) => return code,
            Ok(file) => out.write(RawFile {
                head: sqlite3_file { pMethods: &METHODS },
                volume: volume(vfs),
                file: Box::into_raw(Box::new(file)),
            }),
        }
        if !out_flags.is_null() {
            *out_flags = flags;
        }
    }
    SQLITE_OK
}

unsafe extern "C" fn x_close(file: *mut sqlite3_file) -> c_int {
    let raw = file.cast::<RawFile>();
    // SAFETY: opened by `x_open`, closed once.
    unsafe {
        let file = Box::from_raw((*raw).file);
        (*raw).head.pMethods = ptr::null();
        (*(*raw).volume).close(*file);
    }
    SQLITE_OK
}

unsafe extern "C" fn x_read(
    file: *mut sqlite3_file,
    to: *mut c_void,
    amount: c_int,
    offset: sqlite3_int64,
) -> c_int {
    // SAFETY: `file` is open; SQLite gives `amount` bytes of its own, initialised or not: they are
    // written first.
    let (file, buf) = unsafe {
        ptr::write_bytes(to.cast::<u8>(), 0, amount as usize);
        (open_file(file), std::slice::from_raw_parts_mut(to.cast::<u8>(), amount as usize))
    };
    match file.read(offset as u64, buf) {
        Ok(got) if got < buf.len() => SQLITE_IOERR_SHORT_READ,
        done => result(done.map(drop)),
    }
}

unsafe extern "C" fn x_write(
    file: *mut sqlite3_file,
    from: *const c_void,
    amount: c_int,
    offset: sqlite3_int64,
) -> c_int {
    // SAFETY: `file` is open, `from` has `amount` bytes.
    let (file, data) = unsafe {
        (open_file(file), std::slice::from_raw_parts(from.cast::<u8>(), amount as usize))
    };
    result(file.write(offset as u64, data))
}

unsafe extern "C" fn x_truncate(file: *mut sqlite3_file, size: sqlite3_int64) -> c_int {
    // SAFETY: `file` is open.
    result(unsafe { open_file(file) }.truncate(size as u64))
}

unsafe extern "C" fn x_sync(file: *mut sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: `file` is open.
    result(unsafe { open_file(file) }.sync(flags))
}

unsafe extern "C" fn x_file_size(file: *mut sqlite3_file, out: *mut sqlite3_int64) -> c_int {
    // SAFETY: `file` is open, `out` an integer of SQLite's.
    result(unsafe { open_file(file).size().map(|size| *out = size as sqlite3_int64) })
}

unsafe extern "C" fn x_lock(file: *mut sqlite3_file, level: c_int) -> c_int {
    // SAFETY: `file` is open.
    let file = unsafe { open_file(file) };
    if file.shared.lock(&mut file.held, level) { SQLITE_OK } else { SQLITE_BUSY }
}

unsafe extern "C" fn x_unlock(file: *mut sqlite3_file, level: c_int) -> c_int {
    // SAFETY: `file` is open.
    let file = unsafe { open_file(file) };
    file.shared.unlock(&mut file.held, level);
    SQLITE_OK
}

unsafe extern "C" fn x_check_reserved_lock(file: *mut sqlite3_file, out: *mut c_int) -> c_int {
    // SAFETY: `file` is open, `out` an integer of SQLite's.
    unsafe { *out = open_file(file).shared.is_reserved().into() };
    SQLITE_OK
}

unsafe extern "C" fn x_file_control(file: *mut sqlite3_file, op: c_int, _: *mut c_void) -> c_int {
    // SAFETY: `file` is open.
    result(unsafe { open_file(file) }.control(op))
}

unsafe extern "C" fn x_sector_size(_: *mut sqlite3_file) -> c_int {
    drive::BLOCK_SIZE as c_int
}

/// A block is old or new after a cut, so bytes beside those written stay. Only atomic writes
/// promise more; an SQLite built without `SQLITE_ENABLE_BATCH_ATOMIC_WRITE` asks for none.
unsafe extern "C" fn x_device_characteristics(file: *mut sqlite3_file) -> c_int {
    // SAFETY: `file` is open.
    let atomic = unsafe { open_file(file) }.atomic;
    SQLITE_IOCAP_POWERSAFE_OVERWRITE | if atomic { SQLITE_IOCAP_BATCH_ATOMIC } else { 0 }
}

unsafe extern "C" fn x_shm_map(
    file: *mut sqlite3_file,
    number: c_int,
    size: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: `file` is open.
    let file = unsafe { open_file(file) };
    let region = file.shared.map(&mut file.held, number as usize, size as usize, extend != 0);
    let region = region.map_or(ptr::null(), |region| region.as_ptr());
    // SAFETY: `out` is a pointer of SQLite's. The region stays until this file has unmapped it, and
    // consists of atomics, which may be written through shared references.
    unsafe { *out = region.cast_mut().cast() };
    SQLITE_OK
}

unsafe extern "C" fn x_shm_lock(
    file: *mut sqlite3_file,
    first: c_int,
    count: c_int,
    flags: c_int,
) -> c_int {
    // SAFETY: `file` is open.
    let file = unsafe { open_file(file) };
    let locked = file.shared.lock_slots(&mut file.held, first as usize, count as usize, flags);
    if locked { SQLITE_OK } else { SQLITE_BUSY }
}

unsafe extern "C" fn x_shm_barrier(_: *mut sqlite3_file) {
    fence(Ordering::SeqCst);
}

/// The index is in memory only, so deleting it makes no difference.
unsafe extern "C" fn x_shm_unmap(file: *mut sqlite3_file, _delete: c_int) -> c_int {
    // SAFETY: `file` is open.
    let file = unsafe { open_file(file) };
    file.shared.unmap(&mut file.held);
    SQLITE_OK
}

unsafe extern "C" fn x_delete(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    sync_dir: c_int,
) -> c_int {
    // SAFETY: `vfs` is ours, `name` a string of C.
    let (volume, path) = unsafe { (volume(vfs), CStr::from_ptr(name)) };
    result(volume.delete(path.to_bytes(), sync_dir != 0))
}

unsafe extern "C" fn x_access(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    _flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: `vfs` is ours, `name` a string of C, `out` an integer of SQLite's.
    result(unsafe {
        volume(vfs).exists(CStr::from_ptr(name).to_bytes()).map(|yes| *out = yes.into())
    })
}

unsafe extern "C" fn x_full_pathname(
    _: *mut sqlite3_vfs,
    name: *const c_char,
    room: c_int,
    out: *mut c_char,
) -> c_int {
    // SAFETY: `name` is a string of C.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes_with_nul();
    let slash: &[u8] = if name.starts_with(b"/") { b"" } else { b"/" };
    let full = [slash, name].concat();
    if full.len() > room as usize {
        return SQLITE_CANTOPEN;
    }
    // SAFETY: `out` has `room` bytes, as many as `full` or more.
    unsafe { ptr::copy_nonoverlapping(full.as_ptr().cast(), out, full.len()) };
    SQLITE_OK
}

/// SQLite gets randomness from its default VFS; this one has none to add.
unsafe extern "C" fn x_randomness(_: *mut sqlite3_vfs, _: c_int, _: *mut c_char) -> c_int {
    0
}

unsafe extern "C" fn x_sleep(_: *mut sqlite3_vfs, micros: c_int) -> c_int {
    cores::sleep(micros.max(0) as u64 * 1000);
    micros
}

unsafe extern "C" fn x_current_time(_: *mut sqlite3_vfs, out: *mut f64) -> c_int {
    // SAFETY: `out` is a number of SQLite's.
    unsafe { *out = UNIX_EPOCH_DAYS + cores::wall_clock().as_secs_f64() / SECONDS_PER_DAY };
    SQLITE_OK
}
