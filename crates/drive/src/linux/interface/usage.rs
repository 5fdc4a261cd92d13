//! What a process has used of the machine.

/// CPU time and context switches of this process so far, with all its threads: also those the
/// kernel runs for its rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time in the program, nanoseconds.
    pub user_ns: u64,
    /// CPU time in the kernel, nanoseconds. What an interrupt takes counts to whom it interrupts.
    pub system_ns: u64,
    /// Context switches because a thread had to wait.
    pub switches: u64,
}

impl Usage {
    /// As `getrusage` tells it; zeroes if it refuses.
    pub fn now() -> Self {
        // SAFETY: all-zero bytes are a valid `rusage`.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel fills the structure.
        if unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) } != 0 {
            return Self::default();
        }
        let ns =
            |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
        Self {
            user_ns: ns(usage.ru_utime),
            system_ns: ns(usage.ru_stime),
            switches: usage.ru_nvcsw as u64,
        }
    }

    /// What was used since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            user_ns: self.user_ns.saturating_sub(earlier.user_ns),
            system_ns: self.system_ns.saturating_sub(earlier.system_ns),
            switches: self.switches.saturating_sub(earlier.switches),
        }
    }
}
