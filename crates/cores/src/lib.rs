//! Threads, locks and clocks on two machines behind one interface, chosen at run time.
//!
//! On the *real* machine these are OS threads, `parking_lot` locks and the monotonic clock. On a
//! *virtual* machine N cores on S sockets, described by a [`Profile`], run their threads as
//! coroutines on one OS thread in virtual time, so a run is a pure function of code, profile and
//! seed. Code that is on no machine at all, a plain unit test for example, is on the real one.

mod caller;
mod clock;
mod condvar;
mod line;
pub mod lockstat;
mod machine;
mod mutex;
mod patience;
mod percore;
mod pm;
mod profile;
mod rank;
mod real;
mod residence;
mod rwlock;
mod semaphore;
mod sim;
mod splitmix;
mod stage;
mod thread;
pub mod trace;

pub use caller::{Caller, acting_for, caller};
pub use clock::{
    Nanos, core_count, current_core, is_virtual, memory, memory_of, now, sleep, sleep_until, spend,
    wall_clock, yield_now,
};
pub use condvar::Condvar;
pub use line::Line;
pub use lockstat::LockUse;
pub use machine::{BlockedThread, DeadlockReport, Machine, MachineError, switches};
pub use mutex::{Mutex, MutexGuard};
pub use percore::{PerCoreReadGuard, PerCoreRwLock, PerCoreWriteGuard, slot};
pub use pm::{is_near, pm_fence, pm_read, pm_stream, pm_write_back};
pub(crate) use profile::Toward;
pub use profile::{Profile, ProfileError};
pub use rank::{Rank, may_sleep};
pub use residence::Residence;
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use semaphore::Semaphore;
pub use splitmix::{mix, splitmix64};
pub use stage::Stage;
pub use thread::{JoinHandle, Panic, spawn, try_spawn};
pub use trace::{Span, Trace, charge, span};
