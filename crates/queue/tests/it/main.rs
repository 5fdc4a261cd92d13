//! The integration tests of this crate, in one binary: each of its own would be linked alone.
//!
//! Beside it is `allocations`, which counts those of its process.

mod io;
mod queue;
mod schedules;
