//! What a mounted volume knows of itself whatever its format: whether it still accepts requests,
//! and what time it is.

use crate::Timespec;

/// Whether a volume still accepts requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It does.
    Sound,
    /// A write failed. Nothing more is written, so that whatever is durable stays so. Memory and
    /// drive can still be read.
    Stopped,
    /// It was told to stop, as if the power had failed.
    Shutdown,
    /// It has been unmounted.
    Gone,
}

/// Time, as the volume sees it.
pub struct Clock {
    /// How long the volume had been mounted before this mount, in seconds.
    before: u64,
    mounted: cores::Nanos,
    frozen: Option<Timespec>,
}

impl Clock {
    /// For a volume mounted now that had been mounted for `before` seconds in its life. If the time
    /// of day is `frozen`, it stays as it is: for images that must come out the same every time.
    pub fn new(before: u64, frozen: Option<Timespec>) -> Self {
        Self { before, mounted: cores::now(), frozen }
    }

    /// When the volume was mounted.
    pub fn mounted(&self) -> cores::Nanos {
        self.mounted
    }

    /// How many seconds this volume has been mounted in its life.
    pub fn elapsed(&self) -> u64 {
        let now = if self.frozen.is_some() { self.mounted } else { cores::now() };
        self.before.saturating_add(now.saturating_sub(self.mounted) / 1_000_000_000)
    }

    /// Time of day.
    pub fn now(&self) -> Timespec {
        self.frozen.unwrap_or_else(|| {
            let now = cores::wall_clock();
            Timespec { secs: now.as_secs().cast_signed(), nanos: now.subsec_nanos() }
        })
    }
}
