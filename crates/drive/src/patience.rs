//! Opening what somebody else may hold for just a moment.

const TRIES: u32 = 40;
const PAUSE_NS: u64 = 25_000_000;

/// Opens, and tries again for a second while it `is_busy`. One refusal says little: udev looks at a
/// device whenever it is closed; a process that is about to execute a program has all files of the
/// one it came from until then; and the kernel takes the rings of a killed process apart, and
/// releases their device, a little after the process has ended.
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
