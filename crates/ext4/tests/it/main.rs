//! The integration tests of this crate, in one binary: each of its own would be linked alone.

mod attributes;
mod corrupted;
mod crash;
mod data_modes;
mod directories;
mod fast;
mod flusher;
mod fsyncs;
mod full;
mod groups;
mod harness;
mod indirect;
mod judge;
mod linux;
mod mkfs;
mod model;
mod mutated;
mod neighbours;
mod orphan_file;
mod policies;
mod ranges;
mod reads;
mod records;
mod recovered;
mod small;
mod threads;
