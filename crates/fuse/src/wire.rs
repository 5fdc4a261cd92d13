//! Requests as they are read from `/dev/fuse`, and replies as they are written to it.

use std::fs::File;

use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::abi::{InHeader, NOTIFY_INVAL_INODE, NotifyInvalInodeOut, OutHeader};

/// Most bytes of data in one read or write.
pub(crate) const MAX_WRITE: usize = 1 << 20;
/// Room for a request's structures and names beside its data.
const HEADER_ROOM: usize = 4096;
/// Bytes of an [`OutHeader`].
const OUT_HEADER: usize = size_of::<OutHeader>();

/// The kernel's end of a mount.
pub(crate) struct Device {
    file: File,
}

/// Where a thread keeps the request it works on.
pub(crate) struct InBuffer(Vec<u8>);

impl InBuffer {
    pub(crate) fn new() -> Self {
        Self(vec![0; MAX_WRITE + HEADER_ROOM])
    }
}

impl Device {
    pub(crate) fn new(file: File) -> Self {
        Self { file }
    }

    /// Waits for a request; `None` once the file system is unmounted.
    pub(crate) fn receive<'a>(&self, buffer: &'a mut InBuffer) -> Result<Option<&'a [u8]>, Errno> {
        loop {
            match rustix::io::read(&self.file, &mut buffer.0) {
                Ok(len) => return Ok(Some(&buffer.0[..len])),
                // ENOENT: the request was interrupted before it was read.
                Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
                Err(Errno::NODEV) => return Ok(None),
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Sends what `reply` holds.
    pub(crate) fn send(&self, reply: &mut Reply, unique: u64, result: Result<(), Errno>) {
        if result.is_err() {
            reply.clear();
        }
        let error = result.err().map_or(0, |errno| -errno.raw_os_error());
        let header = OutHeader { len: reply.len as u32, error, unique };
        reply.buffer[..OUT_HEADER].copy_from_slice(header.as_bytes());
        // ENOENT: nobody waits for the answer any more; nothing else can be done about any error.
        let _ = rustix::io::write(&self.file, &reply.buffer[..reply.len]);
    }

    /// Makes the kernel forget the attributes it has of a node.
    pub(crate) fn forget_attributes(&self, node: u64) {
        let body = NotifyInvalInodeOut { ino: node, off: -1, len: 0 };
        let len = (OUT_HEADER + size_of_val(&body)) as u32;
        let header = OutHeader { len, error: NOTIFY_INVAL_INODE, unique: 0 };
        // ENOENT: it has none.
        let _ = rustix::io::write(&self.file, &[header.as_bytes(), body.as_bytes()].concat());
    }
}

/// One request.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) header: InHeader,
    body: &'a [u8],
}

impl<'a> Request<'a> {
    /// Decodes the header. The kernel is trusted, but not to be free of faults.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, Errno> {
        let (header, body) = InHeader::read_from_prefix(bytes).map_err(|_| Errno::IO)?;
        Ok(Self { header, body })
    }

    /// The operation's structure.
    pub(crate) fn args<T: FromBytes>(&self) -> Result<T, Errno> {
        Ok(self.args_and_rest()?.0)
    }

    /// The operation's structure and the bytes behind it.
    pub(crate) fn args_and_rest<T: FromBytes>(&self) -> Result<(T, &'a [u8]), Errno> {
        T::read_from_prefix(self.body).map_err(|_| Errno::IO)
    }

    /// The name that is all there is behind the header.
    pub(crate) fn name(&self) -> Result<&'a [u8], Errno> {
        Ok(split_name(self.body)?.0)
    }

    /// The operation's structure and the name behind it.
    pub(crate) fn args_and_name<T: FromBytes>(&self) -> Result<(T, &'a [u8]), Errno> {
        let (args, rest) = self.args_and_rest()?;
        Ok((args, split_name(rest)?.0))
    }

    /// The operation's structure and the two names behind it.
    pub(crate) fn args_and_names<T: FromBytes>(&self) -> Result<(T, &'a [u8], &'a [u8]), Errno> {
        let (args, rest) = self.args_and_rest()?;
        let (first, rest) = split_name(rest)?;
        Ok((args, first, split_name(rest)?.0))
    }

    /// The two names that are all there is behind the header.
    pub(crate) fn names(&self) -> Result<(&'a [u8], &'a [u8]), Errno> {
        let (first, rest) = split_name(self.body)?;
        Ok((first, split_name(rest)?.0))
    }
}

/// Takes a name that ends with a NUL off the front.
pub(crate) fn split_name(bytes: &[u8]) -> Result<(&[u8], &[u8]), Errno> {
    let end = bytes.iter().position(|&b| b == 0).ok_or(Errno::IO)?;
    Ok((&bytes[..end], &bytes[end + 1..]))
}

/// A reply under construction.
pub(crate) struct Reply {
    buffer: Vec<u8>,
    len: usize,
}

impl Reply {
    pub(crate) fn new() -> Self {
        Self { buffer: vec![0; MAX_WRITE + HEADER_ROOM], len: OUT_HEADER }
    }

    /// Empties it for the next request.
    pub(crate) fn clear(&mut self) {
        self.len = OUT_HEADER;
    }

    /// Bytes that still fit.
    pub(crate) fn room(&self) -> usize {
        self.buffer.len() - self.len
    }

    /// Bytes in it, without the header.
    pub(crate) fn filled(&self) -> usize {
        self.len - OUT_HEADER
    }

    /// Appends a structure.
    pub(crate) fn put<T: IntoBytes + Immutable>(&mut self, value: &T) {
        self.bytes(value.as_bytes());
    }

    /// Appends bytes; what does not fit is cut off, which callers see to.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        let len = bytes.len().min(self.room());
        self.buffer[self.len..][..len].copy_from_slice(&bytes[..len]);
        self.len += len;
    }

    /// The next `len` bytes, to be filled; [`Reply::advance`] says how far they were.
    pub(crate) fn space(&mut self, len: usize) -> &mut [u8] {
        let len = len.min(self.room());
        &mut self.buffer[self.len..][..len]
    }

    /// Makes the first `len` bytes of [`Reply::space`] part of the reply.
    pub(crate) fn advance(&mut self, len: usize) {
        self.len += len.min(self.room());
    }
}
