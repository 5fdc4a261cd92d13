//! Submission and completion queue entries (NVMe base 2.0, sections 3.3.3.1 and 3.3.3.2), and the
//! status codes a completion carries.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A submission queue entry, 64 bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Sqe {
    pub(crate) opcode: u8,
    pub(crate) flags: u8,
    pub(crate) cid: U16,
    /// Of a fabrics command the first byte is its type.
    pub(crate) nsid: U32,
    pub(crate) cdw2: U32,
    pub(crate) cdw3: U32,
    pub(crate) metadata: U64,
    pub(crate) sgl: Sgl,
    pub(crate) cdw10: U32,
    pub(crate) cdw11: U32,
    pub(crate) cdw12: U32,
    pub(crate) cdw13: U32,
    pub(crate) cdw14: U32,
    pub(crate) cdw15: U32,
}

/// The SGL descriptor of a command's data, 16 bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Sgl {
    pub(crate) address: U64,
    pub(crate) length: U32,
    pub(crate) reserved: [u8; 3],
    pub(crate) kind: u8,
}

/// A completion queue entry, 16 bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Cqe {
    pub(crate) result: U64,
    pub(crate) sq_head: U16,
    pub(crate) sq_id: U16,
    pub(crate) cid: U16,
    pub(crate) status: U16,
}

const _: () = assert!(size_of::<Sqe>() == 64);
const _: () = assert!(size_of::<Cqe>() == 16);

/// Opcode of all fabrics commands.
pub(crate) const FABRICS: u8 = 0x7f;

/// SGL descriptor: data block, address is an offset in the capsule.
const SGL_IN_CAPSULE: u8 = 0x01;
/// SGL descriptor: the transport moves the data.
const SGL_TRANSPORT: u8 = 0x5a;

/// Where the host keeps a command's data, or expects it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostData {
    /// In the capsule, at this offset of its data.
    Capsule { offset: u64, length: usize },
    /// To be transferred.
    Transport { length: usize },
}

impl Sqe {
    /// `CDW10` and `CDW11` as one number: the starting LBA of most commands.
    pub(crate) fn cdw10_11(&self) -> u64 {
        u64::from(self.cdw10.get()) | u64::from(self.cdw11.get()) << 32
    }

    /// The type of a fabrics command.
    pub(crate) fn fabrics_kind(&self) -> u8 {
        self.nsid.get() as u8
    }

    /// Whether the command is well formed: not fused, data by SGL.
    pub(crate) fn check_flags(&self) -> Result<(), Status> {
        let (fused, psdt) = (self.flags & 3, self.flags >> 6);
        if fused != 0 || !matches!(psdt, 1 | 2) {
            return Err(Status::INVALID_FIELD);
        }
        Ok(())
    }

    /// Where the data is.
    pub(crate) fn host_data(&self) -> Result<HostData, Status> {
        let length = self.sgl.length.get() as usize;
        match self.sgl.kind {
            SGL_IN_CAPSULE => Ok(HostData::Capsule { offset: self.sgl.address.get(), length }),
            SGL_TRANSPORT => Ok(HostData::Transport { length }),
            _ => Err(Status::SGL_TYPE),
        }
    }
}

/// Status code type and code, as `SCT << 8 | SC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status(u16);

impl Status {
    pub(crate) const SUCCESS: Self = Self(0x000);
    pub(crate) const INVALID_OPCODE: Self = Self(0x001);
    pub(crate) const INVALID_FIELD: Self = Self(0x002);
    pub(crate) const INVALID_NAMESPACE: Self = Self(0x00b);
    pub(crate) const COMMAND_SEQUENCE: Self = Self(0x00c);
    pub(crate) const SGL_LENGTH: Self = Self(0x00f);
    pub(crate) const SGL_TYPE: Self = Self(0x011);
    pub(crate) const SGL_OFFSET: Self = Self(0x016);
    pub(crate) const TRANSPORT: Self = Self(0x022);
    pub(crate) const COMMAND_SET_PROFILE: Self = Self(0x02b);
    pub(crate) const LBA_RANGE: Self = Self(0x080);
    pub(crate) const EVENT_LIMIT: Self = Self(0x105);
    pub(crate) const INVALID_LOG_PAGE: Self = Self(0x109);
    pub(crate) const NOT_SAVEABLE: Self = Self(0x10d);
    pub(crate) const CONNECT_FORMAT: Self = Self(0x180);
    pub(crate) const CONNECT_BUSY: Self = Self(0x181);
    pub(crate) const CONNECT_PARAMETERS: Self = Self(0x182);
    pub(crate) const AUTHENTICATION_REQUIRED: Self = Self(0x191);
    pub(crate) const COMPARE: Self = Self(0x285);

    /// The completion's status field. A repeated command would fail in the same way, so hosts are
    /// told not to retry, except after transient errors.
    pub(crate) fn field(self) -> u16 {
        const DNR: u16 = 1 << 15;
        let passing =
            matches!(self, Self::SUCCESS | Self::TRANSPORT | Self::CONNECT_BUSY | Self::COMPARE);
        self.0 << 1 | if passing || self == Self::from(drive::Status::NotReady) { 0 } else { DNR }
    }
}

impl From<drive::Status> for Status {
    fn from(status: drive::Status) -> Self {
        let (kind, code) = status.code();
        Self(u16::from(kind) << 8 | u16::from(code))
    }
}
