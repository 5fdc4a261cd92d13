//! The two machines, and what can go wrong on them.

use std::fmt;

use thiserror::Error;

use crate::sim::Preempted;
use crate::{Nanos, Profile, sim};

/// The machine on which a run takes place.
#[derive(Clone, Debug)]
pub struct Machine {
    virtual_cores: Option<Virtual>,
}

#[derive(Clone, Debug)]
struct Virtual {
    profile: Profile,
    seed: u64,
    preempted: Preempted,
}

/// Why a run did not end.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MachineError {
    /// Every thread of a virtual machine waits for another.
    #[error("{0}")]
    Deadlock(DeadlockReport),
    /// The operating system gave no stack for a virtual thread.
    #[error("no memory for the stack of thread {thread:?}: {source}")]
    Stack {
        /// The thread's name.
        thread: String,
        /// What the operating system said.
        source: std::io::Error,
    },
}

/// Which thread waits for what when none can go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadlockReport {
    /// The virtual time at which the last thread stopped.
    pub at: Nanos,
    /// Every blocked thread, in the order in which they were spawned.
    pub blocked: Vec<BlockedThread>,
}

/// One thread of a [`DeadlockReport`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockedThread {
    /// The thread's name.
    pub thread: String,
    /// Its core.
    pub core: usize,
    /// What it waits for, for example `mutex "nat"`.
    pub waits_for: String,
    /// The threads that hold what it waits for.
    pub held_by: Vec<String>,
}

impl fmt::Display for DeadlockReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "deadlock at {} ns, {} blocked:", self.at, self.blocked.len())?;
        for (i, thread) in self.blocked.iter().enumerate() {
            let comma = if i == 0 { "" } else { ";" };
            let BlockedThread { thread, core, waits_for, held_by } = thread;
            write!(f, "{comma} {thread:?} on core {core} waits for {waits_for}")?;
            if !held_by.is_empty() {
                write!(f, " held by {}", held_by.join(", "))?;
            }
        }
        Ok(())
    }
}

impl Machine {
    /// The machine the process runs on.
    pub fn real() -> Machine {
        Machine { virtual_cores: None }
    }

    /// A virtual machine as `profile` describes it; `seed` decides every tie.
    pub fn simulated(profile: &Profile, seed: u64) -> Machine {
        let (profile, preempted) = (profile.clone(), Preempted::Never);
        Machine { virtual_cores: Some(Virtual { profile, seed, preempted }) }
    }

    /// The same machine with threads that lose their core at points that the seed chooses, to
    /// explore schedules. Its times mean nothing. The real machine does this by itself.
    pub fn preempted(self) -> Machine {
        self.with(Preempted::Often)
    }

    /// As [`Machine::preempted`], but so many times at most, and each time for longer than the
    /// other threads of a short run need to finish.
    pub fn preempted_at_most(self, times: u32) -> Machine {
        self.with(Preempted::AtMost(times))
    }

    fn with(mut self, preempted: Preempted) -> Machine {
        if let Some(machine) = &mut self.virtual_cores {
            machine.preempted = preempted;
        }
        self
    }

    /// Whether figures from this machine must be labelled simulated.
    pub fn is_simulated(&self) -> bool {
        self.virtual_cores.is_some()
    }

    /// Runs `f` as the first thread, on core 0, and returns its value; panics as it did if it
    /// panicked.
    ///
    /// A virtual machine ends with its first thread, as a process does: threads that still run are
    /// unwound where they are. On the real machine they run on. Machines may run within machines,
    /// and any number of them side by side on OS threads of their own.
    ///
    /// # Errors
    ///
    /// [`MachineError::Deadlock`] when no thread can go on, [`MachineError::Stack`] when there is
    /// no memory for the first thread; virtual machines only.
    pub fn run<T>(&self, f: impl FnOnce() -> T) -> Result<T, MachineError> {
        match &self.virtual_cores {
            Some(Virtual { profile, seed, preempted }) => sim::run(profile, *seed, *preempted, f),
            None => Ok(sim::run_real(f)),
        }
    }
}

/// How often a virtual machine has switched threads so far; 0 on the real one. It is for measuring
/// the scheduler itself.
pub fn switches() -> u64 {
    sim::current().map_or(0, sim::Sim::switches)
}
