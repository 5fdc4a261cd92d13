//! Crash campaigns against the file systems of a real kernel.
//!
//! This process serves an emulated drive over NVMe/TCP. A machine connects to it and runs an agent:
//! a guest in QEMU, or somebody's own. The workload runs once on the kernel's file system, through
//! the agent, and while it does the drive's states after a power cut are taken, each with how far
//! the oracle's log was: what the agent had reported by then was acknowledged. Then each state is
//! put into the drive, the kernel mounts it and recovers, and the oracle reads it back through the
//! same agent. So there is one boot and one run of the workload for many cuts.
//!
//! Here and not below, because drives are served by `nvme-target` and judged by `lab`, which do not
//! know each other.

pub(crate) mod agent;
mod calls;
pub(crate) mod campaign;
pub(crate) mod cuts;
pub(crate) mod foreign;
#[cfg(test)]
mod line_tests;
pub(crate) mod link;
pub(crate) mod machine;
mod remote;
#[cfg(test)]
mod tests;
mod wire;
