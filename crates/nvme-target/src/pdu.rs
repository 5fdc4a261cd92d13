//! PDUs of NVMe/TCP (NVMe TCP Transport 1.0, section 3.6): their headers, digests, and what ends a
//! connection.
//!
//! Sizes are those of the specification. A PDU consists of header, header digest, padding, data and
//! data digest; `PLEN` counts all of it. An error in a header is [`Fatal`]: the host gets a
//! termination request and the connection ends. A wrong data digest concerns only one command.

use thiserror::Error;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a digest.
pub(crate) const DIGEST: usize = 4;
/// Bytes of the common header.
pub(crate) const COMMON: usize = 8;
/// The longest header, which is ICReq's.
pub(crate) const HEADER_MAX: usize = 128;
/// How much command data a capsule may carry: a connect's 1 KiB, or two blocks of a write.
pub(crate) const IN_CAPSULE: usize = 8192;
/// How much data a host may put into one H2CData PDU. Hosts require a multiple of 4, at least 4096.
pub(crate) const MAX_H2C_DATA: u32 = 1 << 20;
/// The most padding before data: the largest alignment that a host can ask for, and ours.
const ALIGN_MAX: usize = 128;

/// Flags of the common header.
pub(crate) mod flag {
    pub(crate) const HEADER_DIGEST: u8 = 1;
    pub(crate) const DATA_DIGEST: u8 = 2;
    pub(crate) const LAST: u8 = 4;
    pub(crate) const SUCCESS: u8 = 8;
}

/// PDU types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    IcReq,
    H2cTermReq,
    CapsuleCmd,
    H2cData,
}

/// Types of PDUs that we send.
pub(crate) mod kind {
    pub(crate) const IC_RESP: u8 = 0x01;
    pub(crate) const C2H_TERM_REQ: u8 = 0x03;
    pub(crate) const CAPSULE_RESP: u8 = 0x05;
    pub(crate) const C2H_DATA: u8 = 0x07;
    pub(crate) const R2T: u8 = 0x09;
}

/// The first 8 bytes of every PDU.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Common {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) hlen: u8,
    pub(crate) pdo: u8,
    pub(crate) plen: U32,
}

/// ICReq and ICResp, 128 bytes. `most` is MAXR2T in the one, and MAXH2CDATA in the other.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Initialize {
    pub(crate) common: Common,
    pub(crate) pfv: U16,
    /// How the sender wants data to be aligned, in dwords, counted from 0.
    pub(crate) align: u8,
    /// Bit 0 header digests, bit 1 data digests.
    pub(crate) digests: u8,
    pub(crate) most: U32,
    pub(crate) reserved: [u8; 112],
}

/// H2CData, C2HData and R2T, 24 bytes: a range of a command's data.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct DataHeader {
    pub(crate) common: Common,
    pub(crate) cid: U16,
    /// Transfer tag; reserved in C2HData.
    pub(crate) tag: U16,
    pub(crate) offset: U32,
    pub(crate) length: U32,
    pub(crate) reserved: U32,
}

/// Termination request: 24 bytes, and then a copy of the wrong header.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Terminate {
    pub(crate) common: Common,
    pub(crate) status: U16,
    pub(crate) information: U32,
    pub(crate) reserved: [u8; 10],
}

const _: () = assert!(size_of::<Common>() == COMMON);
const _: () = assert!(size_of::<Initialize>() == HEADER_MAX);
const _: () = assert!(size_of::<DataHeader>() == 24);
const _: () = assert!(size_of::<Terminate>() == 24);

/// Fatal errors of the transport, with what becomes FES and FEI of the termination request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum Fatal {
    /// A field of the header, at this offset, has a value it must not have.
    #[error("invalid PDU header field at byte {0}")]
    HeaderField(u32),
    /// Such a PDU may not come now.
    #[error("PDU sequence error")]
    Sequence,
    /// The header does not match the digest sent with it.
    #[error("header digest error, found {0:#010x}")]
    HeaderDigest(u32),
    /// Data outside the range that an R2T asked for.
    #[error("data transfer out of range")]
    DataRange,
    /// More data in a PDU, or commands in a queue, than were agreed.
    #[error("data transfer limit exceeded")]
    Limit,
    /// A parameter, at this offset, that we do not support.
    #[error("unsupported parameter at byte {0}")]
    Unsupported(u32),
}

impl Fatal {
    /// FES and FEI.
    pub(crate) fn codes(self) -> (u16, u32) {
        match self {
            Self::HeaderField(offset) => (1, offset),
            Self::Sequence => (2, 0),
            Self::HeaderDigest(found) => (3, found),
            Self::DataRange => (4, 0),
            Self::Limit => (5, 0),
            Self::Unsupported(offset) => (6, offset),
        }
    }
}

/// Which digests both sides agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Digests {
    pub(crate) header: bool,
    pub(crate) data: bool,
}

impl Digests {
    pub(crate) fn from_bits(bits: u8) -> Self {
        Self { header: bits & 1 != 0, data: bits & 2 != 0 }
    }

    pub(crate) fn bits(self) -> u8 {
        u8::from(self.header) | u8::from(self.data) << 1
    }

    /// Bytes of a header digest.
    pub(crate) fn header_len(self) -> usize {
        if self.header { DIGEST } else { 0 }
    }

    /// Bytes of a data digest.
    pub(crate) fn data_len(self) -> usize {
        if self.data { DIGEST } else { 0 }
    }
}

/// A checked header: where the parts of its PDU are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) kind: Kind,
    pub(crate) last: bool,
    /// Bytes of the header, without its digest.
    pub(crate) header: usize,
    /// Where the data starts.
    pub(crate) data_at: usize,
    /// Bytes of data.
    pub(crate) data: usize,
    /// Bytes of all of it.
    pub(crate) whole: usize,
}

const PLEN_AT: u32 = 4;
const PDO_AT: u32 = 3;
const HLEN_AT: u32 = 2;
const FLAGS_AT: u32 = 1;

impl Shape {
    /// Checks a common header by itself.
    pub(crate) fn of(common: &Common, digests: Digests) -> Result<Self, Fatal> {
        let (kind, header) = match common.kind {
            0x00 => (Kind::IcReq, HEADER_MAX),
            0x02 => (Kind::H2cTermReq, size_of::<Terminate>()),
            0x04 => (Kind::CapsuleCmd, 72),
            0x06 => (Kind::H2cData, size_of::<DataHeader>()),
            _ => return Err(Fatal::HeaderField(0)),
        };
        if usize::from(common.hlen) != header {
            return Err(Fatal::HeaderField(HLEN_AT));
        }
        let whole = common.plen.get() as usize;
        let carries = matches!(kind, Kind::CapsuleCmd | Kind::H2cData);
        let digests = if carries { digests } else { Digests::default() };
        let plain = header + digests.header_len();
        let flagged = Digests::from_bits(common.flags);
        if carries && flagged.header != digests.header {
            return Err(Fatal::HeaderField(FLAGS_AT));
        }
        let (mut data_at, mut data) = (plain, 0);
        match kind {
            Kind::IcReq if whole != header => return Err(Fatal::HeaderField(PLEN_AT)),
            Kind::H2cTermReq if !(header..=header + HEADER_MAX).contains(&whole) => {
                return Err(Fatal::HeaderField(PLEN_AT));
            }
            Kind::CapsuleCmd | Kind::H2cData if whole != plain => {
                data_at = usize::from(common.pdo);
                if data_at < plain || data_at > plain + ALIGN_MAX || data_at % 4 != 0 {
                    return Err(Fatal::HeaderField(PDO_AT));
                }
                let around = data_at + digests.data_len();
                data = whole.checked_sub(around).ok_or(Fatal::HeaderField(PLEN_AT))?;
                if data == 0 || flagged.data != digests.data {
                    let field = if data == 0 { PLEN_AT } else { FLAGS_AT };
                    return Err(Fatal::HeaderField(field));
                }
            }
            Kind::H2cData => return Err(Fatal::HeaderField(PLEN_AT)),
            _ => {}
        }
        match kind {
            Kind::CapsuleCmd if data > IN_CAPSULE => return Err(Fatal::HeaderField(PLEN_AT)),
            Kind::H2cData if data > MAX_H2C_DATA as usize => return Err(Fatal::Limit),
            _ => {}
        }
        let last = common.flags & flag::LAST != 0;
        Ok(Self { kind, last, header, data_at, data, whole })
    }
}

/// Checks the digest after the first `header` bytes of `pdu`, if one was agreed on.
pub(crate) fn check_header(pdu: &[u8], header: usize, digests: Digests) -> Result<(), Fatal> {
    if !digests.header {
        return Ok(());
    }
    let (bytes, behind) = pdu.split_at_checked(header).ok_or(Fatal::HeaderField(PLEN_AT))?;
    let (found, _) = U32::read_from_prefix(behind).map_err(|_| Fatal::HeaderField(PLEN_AT))?;
    if found.get() == crc32c::crc32c(bytes) {
        Ok(())
    } else {
        Err(Fatal::HeaderDigest(found.get()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn common(kind: u8, flags: u8, hlen: u8, pdo: u8, plen: u32) -> Common {
        Common { kind, flags, hlen, pdo, plen: plen.into() }
    }

    /// TCP transport 1.0, 3.6.2: each PDU's fields.
    #[test]
    fn wrong_headers_name_their_field() {
        let both = Digests { header: true, data: true };
        let none = Digests::default();
        let wrong = [
            (common(0x0f, 0, 72, 0, 72), none, Fatal::HeaderField(0)),
            (common(0x05, 0, 24, 0, 24), none, Fatal::HeaderField(0)),
            (common(0x00, 0, 127, 0, 128), none, Fatal::HeaderField(2)),
            (common(0x00, 0, 128, 0, 129), none, Fatal::HeaderField(4)),
            (common(0x04, 0, 72, 0, 71), none, Fatal::HeaderField(3)),
            (common(0x04, 0, 72, 72, 71), none, Fatal::HeaderField(4)),
            (common(0x04, 0, 72, 70, 80), none, Fatal::HeaderField(3)),
            (common(0x04, 0, 72, 255, 300), none, Fatal::HeaderField(3)),
            (common(0x04, 1, 72, 0, 72), none, Fatal::HeaderField(1)),
            (common(0x04, 0, 72, 0, 76), both, Fatal::HeaderField(1)),
            (common(0x04, 1, 72, 76, 84), both, Fatal::HeaderField(1)),
            (common(0x04, 3, 72, 76, 80), both, Fatal::HeaderField(4)),
            (common(0x04, 0, 72, 72, 72 + 8193), none, Fatal::HeaderField(4)),
            (common(0x06, 0, 24, 0, 24), none, Fatal::HeaderField(4)),
            (common(0x06, 0, 24, 24, 24 + (1 << 20) + 1), none, Fatal::Limit),
            (common(0x04, 0, 72, 72, u32::MAX), none, Fatal::HeaderField(4)),
        ];
        for (header, digests, fatal) in wrong {
            assert_eq!(Shape::of(&header, digests), Err(fatal), "{header:?}");
        }
    }

    #[test]
    fn shapes_of_sound_headers() {
        let both = Digests { header: true, data: true };
        let shape = Shape::of(&common(0x04, 3, 72, 76, 76 + 4096 + 4), both).expect("sound");
        assert_eq!((shape.data_at, shape.data, shape.whole), (76, 4096, 4176));
        let shape = Shape::of(&common(0x06, 4, 24, 32, 32 + 512), Digests::default());
        let shape = shape.expect("sound");
        assert_eq!((shape.data_at, shape.data, shape.last), (32, 512, true));
        let shape = Shape::of(&common(0x04, 1, 72, 0, 76), both).expect("sound");
        assert_eq!((shape.data_at, shape.data), (76, 0));
    }

    /// RFC 3720, B.4: 32 bytes of zeroes.
    #[test]
    fn the_digest_is_crc32c() {
        let mut pdu = [0; 36];
        pdu[32..].copy_from_slice(&[0xaa, 0x36, 0x91, 0x8a]);
        let digests = Digests { header: true, data: false };
        assert_eq!(check_header(&pdu, 32, digests), Ok(()));
        pdu[0] = 1;
        assert_eq!(check_header(&pdu, 32, digests), Err(Fatal::HeaderDigest(0x8a91_36aa)));
        assert!(
            check_header(&pdu, 34, digests).is_err() && check_header(&pdu, 40, digests).is_err()
        );
    }
}
