//! The integration tests of this crate, in one binary: each of its own would be linked alone.

mod chains;
mod client;
mod cuts;
mod explorer;
mod judges;
mod recovery;
mod threads;
mod traps;
mod written;
