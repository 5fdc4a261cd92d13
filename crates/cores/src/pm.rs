//! What persistent memory costs its users. A model of one charges each access here; on the real
//! machine nothing happens, since the work itself takes the time.
//!
//! The costs are the profile's (`[pm]`). Without that section the memory of the sockets stands for
//! it, of which a core that writes back waits for each line.

use crate::sim;

/// Whether a node's memory is that of the caller's own socket. True on the real machine, where it
/// is not known.
pub fn is_near(node: usize) -> bool {
    sim::current().is_none_or(|machine| machine.is_near(node))
}

/// Charges the calling core for reading so many bytes of a node.
pub fn pm_read(node: usize, bytes: u64) {
    if let Some(machine) = sim::current() {
        machine.pm_read(node, bytes);
    }
}

/// Charges the calling core for streaming so many bytes to a node.
pub fn pm_stream(node: usize, bytes: u64) {
    if let Some(machine) = sim::current() {
        machine.pm_stream(node, bytes);
    }
}

/// Charges the calling core for writing back so many lines to a node.
pub fn pm_write_back(node: usize, lines: u64) {
    if let Some(machine) = sim::current() {
        machine.pm_write_back(node, lines);
    }
}

/// Charges the calling core for a fence, which waits for what it streamed and wrote back.
pub fn pm_fence() {
    if let Some(machine) = sim::current() {
        machine.pm_fence();
    }
}
