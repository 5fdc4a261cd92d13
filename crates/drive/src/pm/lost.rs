//! A page of mapped memory that cannot be had: `SIGBUS`, which ends the process.

use std::io;

use libc::{SA_RESETHAND, SIGBUS, STDERR_FILENO, c_int};

const MESSAGE: &[u8] = b"error: memory was lost: a mapped file was truncated, its file system \
    is full, or the medium has failed (SIGBUS)\n";

/// Makes this process say why it ends at a `SIGBUS`, on standard error and in one line, before the
/// signal's default action ends it. For programs: a library leaves signals to its caller.
///
/// # Errors
///
/// Those of sigaction(2).
pub fn explain_lost_memory() -> io::Result<()> {
    extern "C" fn explain(_signal: c_int) {
        // SAFETY: write(2) is async-signal-safe, and the message lives as long as the process.
        // There is nobody to tell of its failure.
        unsafe { libc::write(STDERR_FILENO, MESSAGE.as_ptr().cast(), MESSAGE.len()) };
    }
    // SAFETY: all zeroes are a sigaction without flags, whose mask blocks nothing.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = explain as *const () as usize;
    // Once: the access is repeated after the handler, and then the default action ends the process.
    action.sa_flags = SA_RESETHAND;
    // SAFETY: `action` is initialised, and its handler only calls what a handler may call.
    match unsafe { libc::sigaction(SIGBUS, &raw const action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
