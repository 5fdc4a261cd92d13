//! The kernel's verdicts on what we write, on what it wrote and a crash left, and on how fast we
//! are.

mod areas_in_use;
mod attributes;
mod devices;
mod ext4;
mod ext4_crash;
mod ext4_trees;
mod fast_commit;
mod guest;
mod kernel_crash;
mod our_crash;
mod quota;
mod recorded;
mod recovery_time;
mod reference;
mod round_trip;
mod speed;
mod verdict;
mod volumes;

/// The program that does what scripts in a guest want.
const AGENT: &str = env!("CARGO_BIN_EXE_strandline-agent");
