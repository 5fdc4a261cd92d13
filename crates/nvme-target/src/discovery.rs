//! The discovery log (NVMe base 2.0, section 5.16.1.23). It has one subsystem, at the address where
//! we listen.

use std::net::SocketAddr;

use crate::subsystem::Subsystem;

/// Bytes of the header, and of each entry.
const ENTRY: usize = 1024;
const TRANSPORT_TCP: u8 = 3;
const SUBTYPE_STORAGE: u8 = 2;

/// The whole log. If the server listens on all addresses, each host is told the one to which it
/// connected, `local`.
pub(crate) fn log(subsystem: &Subsystem, local: SocketAddr) -> Vec<u8> {
    let mut bytes = vec![0; 2 * ENTRY];
    let (header, entry) = bytes.split_at_mut(ENTRY);
    // The number of changes, and the number of entries.
    header[0..8].copy_from_slice(&1_u64.to_le_bytes());
    header[8..16].copy_from_slice(&1_u64.to_le_bytes());
    let listening = subsystem.address;
    let address = if listening.ip().is_unspecified() { local } else { listening };
    let family = if address.is_ipv4() { 1 } else { 2 };
    // No secure channel is required.
    entry[..4].copy_from_slice(&[TRANSPORT_TCP, family, SUBTYPE_STORAGE, 0]);
    entry[4..6].copy_from_slice(&1_u16.to_le_bytes());
    // Controllers are made when hosts connect. Admin queues have up to this many entries.
    entry[6..8].copy_from_slice(&u16::MAX.to_le_bytes());
    entry[8..10].copy_from_slice(&32_u16.to_le_bytes());
    text(&mut entry[32..64], &address.port().to_string(), b' ');
    text(&mut entry[256..512], &subsystem.options.nqn, 0);
    text(&mut entry[512..768], &address.ip().to_string(), b' ');
    bytes
}

fn text(field: &mut [u8], text: &str, padding: u8) {
    field.fill(padding);
    let len = text.len().min(field.len());
    field[..len].copy_from_slice(&text.as_bytes()[..len]);
}
