//! Requests and replies, and how `/dev/fuse` is read and written.

use std::fs::File;
use std::io::IoSlice;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

use cores::Caller;
use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::abi::{InHeader, NOTIFY_INC_EPOCH, NOTIFY_INVAL_INODE, NotifyInvalInodeOut, OutHeader};

/// The most bytes of data in one read or write.
pub(crate) const MAX_WRITE: usize = 1 << 20;
/// Room for a request's structures and names, in addition to its data.
const HEADER_ROOM: usize = 4096;

/// The kernel's end of a mount.
pub(crate) struct Device {
    file: File,
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Where a thread keeps its present request, and the reply.
pub(crate) struct Buffers {
    request: Vec<u8>,
    reply: Vec<u8>,
}

impl Buffers {
    pub(crate) fn new() -> Self {
        Self { request: vec![0; MAX_WRITE + HEADER_ROOM], reply: vec![0; MAX_WRITE] }
    }
}

impl Device {
    pub(crate) fn new(file: File) -> Self {
        Self { file }
    }

    /// Waits for a request and lets `answer` answer it. False once the file system is unmounted.
    pub(crate) fn serve(
        &self,
        buffers: &mut Buffers,
        answer: impl FnOnce(&Request<'_>, &mut Reply<'_>) -> Option<OutHeader>,
    ) -> Result<bool, Errno> {
        let Some(len) = self.receive(&mut buffers.request)? else { return Ok(false) };
        let request = Request::whole(&buffers.request[..len])?;
        let mut reply = Reply::new(&mut buffers.reply);
        if let Some(header) = answer(&request, &mut reply) {
            let parts = [IoSlice::new(header.as_bytes()), IoSlice::new(reply.filled())];
            // ENOENT: the request was interrupted. Nothing can be done about other errors.
            let _ = rustix::io::writev(&self.file, &parts);
        }
        Ok(true)
    }

    fn receive(&self, buffer: &mut [u8]) -> Result<Option<usize>, Errno> {
        loop {
            match rustix::io::read(&self.file, &mut *buffer) {
                Ok(len) => return Ok(Some(len)),
                // ENOENT: the request was interrupted before it was read.
                Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
                Err(Errno::NODEV) => return Ok(None),
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Makes the kernel forget the attributes of a node.
    pub(crate) fn forget_attributes(&self, node: u64) {
        self.forget(NotifyInvalInodeOut { ino: node, off: -1, len: 0 });
    }

    /// Makes the kernel forget a node's contents too. It waits for readers, so another thread must
    /// be there to answer them.
    pub(crate) fn forget_contents(&self, node: u64) {
        self.forget(NotifyInvalInodeOut { ino: node, off: 0, len: 0 });
    }

    /// As [`Device::forget_contents`], of a range of bytes. What of it is dirty is written back
    /// first, which takes another thread, too.
    pub(crate) fn forget_range(&self, node: u64, range: Range<u64>) {
        let (off, len) = (range.start.cast_signed(), (range.end - range.start).cast_signed());
        self.forget(NotifyInvalInodeOut { ino: node, off, len });
    }

    fn forget(&self, body: NotifyInvalInodeOut) {
        // ENOENT: it has none.
        let _ = self.notify(NOTIFY_INVAL_INODE, body.as_bytes());
    }

    /// Makes the kernel look up every name again, also those that it knows not to exist.
    pub(crate) fn forget_names(&self) {
        // EINVAL: a kernel before 6.16, which cannot.
        let _ = self.notify(NOTIFY_INC_EPOCH, &[]);
    }

    fn notify(&self, code: i32, body: &[u8]) -> Result<usize, Errno> {
        let len = (size_of::<OutHeader>() + body.len()) as u32;
        let header = OutHeader { len, error: code, unique: 0 };
        rustix::io::write(&self.file, &[header.as_bytes(), body].concat())
    }
}

/// One request.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) header: InHeader,
    /// The operation's structure, and what follows it unless that came separately.
    body: &'a [u8],
    /// Names and data, if they came separately.
    payload: Option<&'a [u8]>,
}

impl<'a> Request<'a> {
    /// Decodes a request that came in one piece. The kernel is trusted, but may have faults.
    fn whole(bytes: &'a [u8]) -> Result<Self, Errno> {
        let (header, body) = InHeader::read_from_prefix(bytes).map_err(|_| Errno::IO)?;
        Ok(Self { header, body, payload: None })
    }

    /// A request that came in parts.
    pub(crate) fn parts(header: InHeader, body: &'a [u8], payload: &'a [u8]) -> Self {
        Self { header, body, payload: Some(payload) }
    }

    /// Who made the call; `None` if the kernel did, as it does to write back what it has collected.
    /// It shows no process of another namespace, whose root is not told from it.
    pub(crate) fn caller(&self) -> Option<Caller> {
        let InHeader { uid, gid, pid, .. } = self.header;
        (pid != 0 || uid != 0).then_some(Caller { uid, gid })
    }

    /// The operation's structure.
    pub(crate) fn args<T: FromBytes>(&self) -> Result<T, Errno> {
        Ok(self.args_and_rest()?.0)
    }

    /// The operation's structure, and the bytes after it.
    pub(crate) fn args_and_rest<T: FromBytes>(&self) -> Result<(T, &'a [u8]), Errno> {
        let (args, behind) = T::read_from_prefix(self.body).map_err(|_| Errno::IO)?;
        Ok((args, self.payload.unwrap_or(behind)))
    }

    /// All bytes of an operation that has no structure.
    fn rest(&self) -> &'a [u8] {
        self.payload.unwrap_or(self.body)
    }

    /// The name, if nothing else follows the header.
    pub(crate) fn name(&self) -> Result<&'a [u8], Errno> {
        Ok(split_name(self.rest())?.0)
    }

    /// The operation's structure, and the name after it.
    pub(crate) fn args_and_name<T: FromBytes>(&self) -> Result<(T, &'a [u8]), Errno> {
        let (args, rest) = self.args_and_rest()?;
        Ok((args, split_name(rest)?.0))
    }

    /// The operation's structure, and the two names after it.
    pub(crate) fn args_and_names<T: FromBytes>(&self) -> Result<(T, &'a [u8], &'a [u8]), Errno> {
        let (args, rest) = self.args_and_rest()?;
        let (first, rest) = split_name(rest)?;
        Ok((args, first, split_name(rest)?.0))
    }

    /// The two names, if nothing else follows the header.
    pub(crate) fn names(&self) -> Result<(&'a [u8], &'a [u8]), Errno> {
        let (first, rest) = split_name(self.rest())?;
        Ok((first, split_name(rest)?.0))
    }
}

/// Splits off a name that ends with a NUL.
pub(crate) fn split_name(bytes: &[u8]) -> Result<(&[u8], &[u8]), Errno> {
    let end = bytes.iter().position(|&b| b == 0).ok_or(Errno::IO)?;
    Ok((&bytes[..end], &bytes[end + 1..]))
}

/// A reply being put together, without its header.
pub(crate) struct Reply<'a> {
    buffer: &'a mut [u8],
    len: usize,
}

impl<'a> Reply<'a> {
    pub(crate) fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, len: 0 }
    }

    /// The header of the reply, now that the operation has ended with `result`. An error has no
    /// data.
    pub(crate) fn finish(&mut self, unique: u64, result: Result<(), Errno>) -> OutHeader {
        if result.is_err() {
            self.len = 0;
        }
        let error = result.err().map_or(0, |errno| -errno.raw_os_error());
        OutHeader { len: (size_of::<OutHeader>() + self.len) as u32, error, unique }
    }

    /// Bytes that still fit.
    pub(crate) fn room(&self) -> usize {
        self.buffer.len() - self.len
    }

    /// What is in it.
    pub(crate) fn filled(&self) -> &[u8] {
        &self.buffer[..self.len]
    }

    /// Appends a structure.
    pub(crate) fn put<T: IntoBytes + Immutable>(&mut self, value: &T) {
        self.bytes(value.as_bytes());
    }

    /// Appends bytes. What does not fit is cut off; callers prevent that.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        let len = bytes.len().min(self.room());
        self.buffer[self.len..][..len].copy_from_slice(&bytes[..len]);
        self.len += len;
    }

    /// The next `len` bytes, to be filled. [`Reply::advance`] says how many were.
    pub(crate) fn space(&mut self, len: usize) -> &mut [u8] {
        let len = len.min(self.room());
        &mut self.buffer[self.len..][..len]
    }

    /// Makes the first `len` bytes of [`Reply::space`] part of the reply.
    pub(crate) fn advance(&mut self, len: usize) {
        self.len += len.min(self.room());
    }
}
