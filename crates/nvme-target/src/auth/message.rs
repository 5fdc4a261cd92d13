//! Messages of DH-HMAC-CHAP (NVMe base 2.0, section 8.13.5), byte for byte.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Types and identifiers of messages, as one number: first those of all protocols, then ours.
pub(super) mod id {
    pub(in super::super) const NEGOTIATE: u16 = 0x0000;
    pub(in super::super) const FAILURE2: u16 = 0x00f0;
    pub(in super::super) const FAILURE1: u16 = 0x00f1;
    pub(in super::super) const CHALLENGE: u16 = 0x0101;
    pub(in super::super) const REPLY: u16 = 0x0102;
    pub(in super::super) const SUCCESS1: u16 = 0x0103;
    pub(in super::super) const SUCCESS2: u16 = 0x0104;
}

/// Identifier of DH-HMAC-CHAP among protocols.
pub(super) const DH_HMAC_CHAP: u8 = 1;

/// The first 6 bytes of every message.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Header {
    kind: u8,
    identifier: u8,
    reserved: U16,
    pub(super) transaction: U16,
}

impl Header {
    pub(super) fn new(id: u16, transaction: u16) -> Self {
        let [kind, identifier] = id.to_be_bytes();
        Self { kind, identifier, reserved: 0.into(), transaction: transaction.into() }
    }

    pub(super) fn id(&self) -> u16 {
        u16::from_be_bytes([self.kind, self.identifier])
    }
}

/// The host says what it supports: 8 bytes, followed by the protocols.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Negotiate {
    pub(super) header: Header,
    /// Secure channel concatenation: TLS with the session key.
    pub(super) concatenate: u8,
    pub(super) protocols: u8,
}

/// A protocol that the host supports, 64 bytes.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Protocol {
    pub(super) identifier: u8,
    reserved: u8,
    hash_count: u8,
    group_count: u8,
    hashes: [u8; 30],
    groups: [u8; 30],
}

impl Protocol {
    pub(super) fn hashes(&self) -> Option<&[u8]> {
        self.hashes.get(..self.hash_count.into())
    }

    pub(super) fn groups(&self) -> Option<&[u8]> {
        self.groups.get(..self.group_count.into())
    }
}

/// Our challenge, 16 bytes, followed by the challenge value and our public value.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Challenge {
    pub(super) header: Header,
    pub(super) hash_len: u8,
    pub(super) reserved: u8,
    pub(super) hash: u8,
    pub(super) group: u8,
    pub(super) public_len: U16,
    pub(super) sequence: U32,
}

/// The host's answer, 16 bytes, followed by its response, its challenge for us and its public
/// value.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Reply {
    pub(super) header: Header,
    pub(super) hash_len: u8,
    reserved: u8,
    /// Bit 0: there is a challenge.
    pub(super) challenges: u8,
    reserved_too: u8,
    pub(super) public_len: U16,
    pub(super) sequence: U32,
}

/// The host has proved its identity: 16 bytes, followed by our response if there was a challenge
/// for us.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Success1 {
    pub(super) header: Header,
    pub(super) hash_len: u8,
    pub(super) reserved: u8,
    /// Bit 0: there is a response.
    pub(super) responds: u8,
    pub(super) reserved_too: [u8; 7],
}

/// One side refuses, 8 bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Failure {
    pub(super) header: Header,
    /// Always 1: authentication failed.
    pub(super) reason: u8,
    pub(super) explanation: u8,
}

const _: () = assert!(size_of::<Negotiate>() == 8 && size_of::<Protocol>() == 64);
const _: () = assert!(size_of::<Challenge>() == 16 && size_of::<Reply>() == 16);
const _: () = assert!(size_of::<Success1>() == 16 && size_of::<Failure>() == 8);

/// Why it refuses, as a failure message says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Failed = 1,
    Protocol = 2,
    Concatenation = 3,
    Hash = 4,
    Group = 5,
    Payload = 6,
    Message = 7,
}
