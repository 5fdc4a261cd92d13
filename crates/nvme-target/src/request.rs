//! What a command asks for, and where its data is.

use drive::Blocks;

use crate::admin::{self, CONNECT_LEN};
use crate::auth;
use crate::command::{HostData, Sqe, Status};
use crate::io::Task;
use crate::transfer::Transfer;

/// What a command asks for.
#[allow(clippy::large_enum_variant, reason = "a box would cost every command an allocation")]
pub(crate) enum Request {
    Connect,
    Property,
    Authenticate(auth::Transfer),
    Admin,
    AwaitEvent,
    Io(Task),
}

impl Request {
    /// How many bytes the host has to send.
    pub(crate) fn takes(&self, sqe: &Sqe) -> usize {
        match self {
            Self::Connect => CONNECT_LEN,
            Self::Admin => admin::takes(sqe),
            Self::Io(task) => task.takes(sqe.sgl.length.get() as usize),
            Self::Authenticate(transfer) => transfer.takes(),
            Self::Property | Self::AwaitEvent => 0,
        }
    }

    /// How many bytes the host wants.
    pub(crate) fn wants(&self) -> usize {
        match self {
            Self::Io(task) => task.gives(),
            Self::Authenticate(transfer) => transfer.wants(),
            _ => 0,
        }
    }

    /// The data of a command, if it is in the capsule or if there is none to send. `None` if it
    /// must be transferred.
    pub(crate) fn placed<'a>(&self, sqe: &Sqe, data: &'a [u8]) -> Result<Option<&'a [u8]>, Status> {
        let (takes, wants) = (self.takes(sqe), self.wants());
        if takes == 0 && wants == 0 {
            return Ok(Some(&[]));
        }
        match sqe.host_data()? {
            HostData::Transport { length } if wants > 0 => {
                if length < wants {
                    Err(Status::SGL_LENGTH)
                } else {
                    Ok(Some(&[]))
                }
            }
            HostData::Capsule { .. } if wants > 0 => Err(Status::SGL_TYPE),
            HostData::Transport { length } | HostData::Capsule { length, .. }
                if length != takes =>
            {
                Err(Status::SGL_LENGTH)
            }
            HostData::Transport { .. } => Ok(None),
            HostData::Capsule { offset, length } => {
                let start = usize::try_from(offset).map_err(|_| Status::SGL_OFFSET)?;
                let end = start.checked_add(length).ok_or(Status::SGL_OFFSET)?;
                Ok(Some(data.get(start..end).ok_or(Status::SGL_OFFSET)?))
            }
        }
    }
}

/// A command's data. Pages come from slabs of megabytes, and a host that only connects should not
/// need one.
pub(crate) enum Given<'a> {
    Bytes(&'a [u8]),
    Pages(Blocks),
}

impl Given<'_> {
    pub(crate) fn into_pages(self) -> Blocks {
        match self {
            Self::Bytes(bytes) => Transfer::whole(bytes).into_data(),
            Self::Pages(pages) => pages,
        }
    }
}
