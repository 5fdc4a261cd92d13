//! The real machine: the process's clock and the cores it may run on.
//!
//! Cores are numbered 0.. over the processors the process is allowed to use, so per-core structures
//! have no gaps under `taskset` or in a container.

use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

#[cfg(target_os = "linux")]
pub(crate) use affinity::{core_count, current_core, pin};
#[cfg(not(target_os = "linux"))]
pub(crate) use anywhere::{core_count, current_core, pin};

use crate::Nanos;

/// The latest that timers of an unloaded Linux wake (50 us of timer slack plus the wake-up).
const TIMER_SLACK: Nanos = 80_000;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

pub(crate) fn now() -> Nanos {
    START.elapsed().as_nanos() as Nanos
}

pub(crate) fn wall_clock() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

pub(crate) fn sleep_until(deadline: Nanos) {
    let left = deadline.saturating_sub(now());
    if left > TIMER_SLACK {
        std::thread::sleep(Duration::from_nanos(left - TIMER_SLACK));
    }
    while now() < deadline {
        std::hint::spin_loop();
    }
}

/// Where threads run, on Linux.
#[cfg(target_os = "linux")]
mod affinity {
    use std::num::NonZero;
    use std::sync::OnceLock;

    use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

    /// The processors of this process, and for each processor its index among them.
    struct Cores {
        processors: Vec<usize>,
        index: Vec<usize>,
    }

    fn cores() -> &'static Cores {
        static CORES: OnceLock<Cores> = OnceLock::new();
        CORES.get_or_init(|| {
            let processors: Vec<usize> = match sched_getaffinity(None) {
                Ok(set) => (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect(),
                Err(_) => {
                    (0..std::thread::available_parallelism().map_or(1, NonZero::get)).collect()
                }
            };
            let mut index = vec![0; processors.last().map_or(1, |last| last + 1)];
            for (core, &processor) in processors.iter().enumerate() {
                index[processor] = core;
            }
            Cores { processors, index }
        })
    }

    pub(crate) fn core_count() -> usize {
        cores().processors.len().max(1)
    }

    pub(crate) fn current_core() -> usize {
        cores().index.get(sched_getcpu()).copied().unwrap_or(0)
    }

    /// Keeps the calling thread on `core`, counted modulo the number of cores. If the system
    /// refuses, the thread stays free: placement affects speed only.
    pub(crate) fn pin(core: usize) {
        let processors = &cores().processors;
        if let Some(&processor) = processors.get(core % processors.len().max(1)) {
            let mut set = CpuSet::new();
            set.set(processor);
            let _ = sched_setaffinity(None, &set);
        }
    }
}

/// Where threads run, on systems that do not tell: all of them seem to be on the first core.
#[cfg(not(target_os = "linux"))]
mod anywhere {
    use std::num::NonZero;

    pub(crate) fn core_count() -> usize {
        std::thread::available_parallelism().map_or(1, NonZero::get)
    }

    pub(crate) fn current_core() -> usize {
        0
    }

    pub(crate) fn pin(_: usize) {}
}
