//! Calls that read and change what is in a file.

use drive::{BLOCK_SIZE, Block};
use vfs::kind::Volume;
use vfs::ops::Op;
use vfs::{Errno, FallocateMode, InodeFlags, SetAttr};

use super::{Node, Recorder};
use crate::oracle::{Event, Meta, Model};
use crate::{Error, Result};

impl Recorder {
    /// Bytes in the file now.
    pub fn size(&self, node: Node) -> u64 {
        self.oracle.with_model(|m| m.objects[node.obj].size.current())
    }

    /// Writes `data` at `offset`.
    pub fn write(&self, node: Node, offset: u64, data: &[u8]) -> Result<()> {
        self.write_as(node, offset, data, |model| merged(model, node, offset, data))
    }

    /// Writes one whole block, sharing the page with the oracle.
    pub fn write_block(&self, node: Node, index: u64, block: &Block) -> Result<()> {
        let offset = index * BLOCK_SIZE as u64;
        self.write_as(node, offset, block.bytes(), |_| vec![block.clone()])
    }

    /// Writes past the page cache.
    pub fn write_direct(&self, node: Node, offset: u64, data: &[u8]) -> Result<()> {
        let blocks = |model: &Model| merged(model, node, offset, data);
        self.write_by(node, offset, data, blocks, |fs| fs.write_direct(node.ino, offset, data))
    }

    fn write_as(
        &self,
        node: Node,
        offset: u64,
        data: &[u8],
        blocks: impl FnOnce(&Model) -> Vec<Block>,
    ) -> Result<()> {
        self.write_by(node, offset, data, blocks, |fs| fs.write(node.ino, offset, data))
    }

    fn write_by(
        &self,
        node: Node,
        offset: u64,
        data: &[u8],
        blocks: impl FnOnce(&Model) -> Vec<Block>,
        write: impl Fn(&dyn Volume) -> vfs::Result<usize>,
    ) -> Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        self.tape(|tape, model| Op::Write {
            path: tape.path(model, node.obj),
            offset,
            len: data.len() as u64,
            seed: tape.seed(node.obj, offset, data),
        });
        let (first, end) = (offset / BLOCK_SIZE as u64, offset + data.len() as u64);
        let call = self.oracle.record_with(|model| {
            let blocks = blocks(model);
            Event::Write { obj: node.obj, first, blocks, from: offset, end }
        });
        let write = || {
            let wrote = write(&*self.fs).map_err(Error::at("write", b""))?;
            if wrote < data.len() { Err(Error::Full) } else { Ok(()) }
        };
        // To a file with this flag each write is an fsync, too.
        let flags = self.oracle.with_model(|model| model.objects[node.obj].meta.current().flags);
        let syncs = flags.contains(InodeFlags::SYNC);
        let wrote = if syncs { self.synced(Some(node.obj), None, write) } else { write() };
        self.returned(call, wrote)
    }

    /// Sets the size.
    pub fn truncate(&self, node: Node, size: u64) -> Result<()> {
        self.tape(|tape, model| Op::Truncate { path: tape.path(model, node.obj), size });
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        self.call(Event::Truncate { obj: node.obj, size }, || {
            self.fs.setattr(node.ino, &set).map(drop).map_err(Error::at("truncate", b""))
        })
    }

    /// Allocates, or makes a range read as zeroes.
    pub fn fallocate(&self, node: Node, mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
        self.tape(|tape, model| {
            let path = tape.path(model, node.obj);
            Op::Fallocate { path, mode, offset, len }
        });
        let zeroing = FallocateMode::PUNCH_HOLE | FallocateMode::ZERO_RANGE;
        if !(zeroing | FallocateMode::KEEP_SIZE).contains(mode) {
            return Err(Error::at("fallocate", b"")(Errno::OPNOTSUPP.into()));
        }
        let (obj, size, end) = (node.obj, self.size(node), offset + len);
        let mut calls = Vec::new();
        if mode.intersects(zeroing) && offset < size {
            let zeroes = vec![0; (end.min(size) - offset) as usize];
            let first = offset / BLOCK_SIZE as u64;
            calls.push(self.oracle.record_with(|model| {
                let blocks = merged(model, node, offset, &zeroes);
                Event::Write { obj, first, blocks, from: offset, end: end.min(size) }
            }));
        }
        if end > size && !mode.contains(FallocateMode::KEEP_SIZE) {
            calls.push(self.oracle.record(Event::Truncate { obj, size: end }));
        }
        if calls.is_empty() {
            // Nothing that can be read changes, but the file's times do (`file_modified`).
            calls.push(self.oracle.record_with(|model| {
                let meta = Meta { mtime: None, ..*model.objects[obj].meta.current() };
                Event::SetMeta { obj, meta }
            }));
        }
        let done = self.fs.fallocate(node.ino, mode, offset, len);
        let done = done.map_err(Error::at("fallocate", b""));
        calls.into_iter().fold(done, |done, call| self.returned(call, done))
    }

    /// Reads, to the end of the file at most.
    pub fn read(&self, node: Node, offset: u64, len: u64) -> Result<Vec<u8>> {
        let left = self.size(node).saturating_sub(offset);
        let mut bytes = vec![0; len.min(left) as usize];
        let got = self.fs.read(node.ino, offset, &mut bytes).map_err(Error::at("read", b""))?;
        bytes.truncate(got);
        Ok(bytes)
    }
}

/// The blocks a write touches, as they are after it.
fn merged(model: &Model, node: Node, offset: u64, data: &[u8]) -> Vec<Block> {
    let block = BLOCK_SIZE as u64;
    let end = offset + data.len() as u64;
    let touched = offset / block..end.div_ceil(block);
    let object = &model.objects[node.obj];
    touched
        .map(|index| {
            let (from, to) = (offset.max(index * block), end.min((index + 1) * block));
            let bytes = &data[(from - offset) as usize..(to - offset) as usize];
            if bytes.len() == BLOCK_SIZE {
                return Block::from_prefix(bytes);
            }
            let mut page = object.current_block(index);
            let at = (from - index * block) as usize;
            page.make_mut()[at..at + bytes.len()].copy_from_slice(bytes);
            page
        })
        .collect()
}
