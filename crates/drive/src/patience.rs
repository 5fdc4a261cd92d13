//! Opening what another process may have open for just a moment.

const TRIES: u32 = 40;
const PAUSE_NS: u64 = 25_000_000;

/// Opens, and tries again for a second while it `is_busy`. One refusal says little. udev opens a
/// device whenever it is closed. A process that is about to execute a program keeps the files of
/// its parent open until then. And the kernel frees the rings of a killed process, with their
/// device, a little after the process has ended.
pub(crate) fn patiently<T, E>(
    is_busy: impl Fn(&E) -> bool,
    mut open: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    for _ in 1..TRIES {
        match open() {
            Err(error) if is_busy(&error) => cores::sleep(PAUSE_NS),
            opened => return opened,
        }
    }
    open()
}
