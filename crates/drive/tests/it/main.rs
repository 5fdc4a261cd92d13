//! The integration tests of this crate, in one binary: each of its own would be linked alone.

mod pm;
mod pm_patterns;
