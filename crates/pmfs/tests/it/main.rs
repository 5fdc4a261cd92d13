//! The integration tests of this crate, in one binary: each of its own would be linked alone.

mod costs;
mod damaged;
mod harness;
mod logs;
mod model;
mod shared;
mod threads;
