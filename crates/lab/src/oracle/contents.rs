//! What must hold of a file's contents: each block, and each hole, is one that may be there.

use std::ops::Range;

use drive::{BLOCK_SIZE, Block, Lba};
use rustc_hash::FxHashMap;
use vfs::Ino;
use vfs::kind::PageAt;

use super::event::ObjId;
use super::object::BlockVersions;
use super::verdict::{Damage, Verdict};
use super::verify::Walk;

pub(super) const BLOCK: u64 = BLOCK_SIZE as u64;

/// Bytes read at a time.
const CHUNK: usize = 32 * BLOCK_SIZE;

/// Bytes of a block that are shown.
const SHOWN: usize = 16;

/// Findings kept per file; the first few tell the story.
const PER_FILE: usize = 4;

/// Pages found equal before, so as not to compare the same memory for every cut of a run.
///
/// It keeps references to them, so that an address always means the same bytes.
#[derive(Default)]
pub struct Memo {
    equal: FxHashMap<usize, (Block, Block)>,
}

impl Memo {
    /// Whether the first `len` bytes of both are the same.
    fn are_equal(&mut self, found: &Block, version: &Block, len: usize) -> bool {
        if len < BLOCK_SIZE {
            return found[..len] == version[..len];
        }
        let address = found.bytes().as_ptr() as usize;
        if self.equal.get(&address).is_some_and(|(_, known)| known.same_page(version)) {
            return true;
        }
        let equal = found == version;
        if equal {
            self.equal.insert(address, (found.clone(), version.clone()));
        }
        equal
    }
}

/// Where a page of a file was found.
enum Found {
    Memory(Block),
    Drive(Lba),
}

impl Walk<'_> {
    pub(super) fn contents(&mut self, ino: Ino, size: u64, obj: ObjId, out: &mut Vec<Verdict>) {
        // A size that no version has is already a finding: do not read terabytes of holes for it.
        let end = size.min(self.model.objects[obj].size.largest());
        let compared = self
            .pages(ino, end, obj, out)
            .and_then(|all| if all { Ok(()) } else { self.bytes(ino, end, obj, out) });
        if let Err(error) = compared {
            out.push(self.unreadable(obj, &error));
        }
        out.truncate(PER_FILE);
    }

    /// Compares page by page; false if the volume does not show its pages.
    fn pages(
        &mut self,
        ino: Ino,
        end: u64,
        obj: ObjId,
        out: &mut Vec<Verdict>,
    ) -> vfs::Result<bool> {
        let mut found = Vec::new();
        let all = self.fs.pages(ino, 0..end.div_ceil(BLOCK), &mut |index, at| {
            found.push(match at {
                PageAt::Memory(page) => (index, Found::Memory(page.clone())),
                PageAt::Drive(lba) => (index, Found::Drive(lba)),
            });
        })?;
        if !all {
            return Ok(false);
        }
        let (look, model) = (self.look, self.model);
        let mut known = model.objects[obj].blocks.iter().peekable();
        let mut next = 0;
        let mut compare = |index: u64, page: &Block| {
            self.hole(obj, next * BLOCK..index * BLOCK, out);
            next = index + 1;
            let len = (end - index * BLOCK).min(BLOCK) as usize;
            while known.next_if(|(at, _)| **at < index).is_some() {}
            let equal = known.next_if(|(at, _)| **at == index).is_some_and(|(_, block)| {
                block.versions.allowed().any(|version| self.memo.are_equal(page, version, len))
            });
            if !equal {
                out.extend(self.block(obj, index, &page[..len]));
            }
        };
        let lba = |found: &Found| if let Found::Drive(lba) = found { Some(*lba) } else { None };
        for run in found.chunk_by(|(_, one), (_, next)| lba(one).and(lba(next)).is_some()) {
            if let [(index, Found::Memory(page))] = run {
                compare(*index, page);
                continue;
            }
            let mut indexes = run.iter().map(|(index, _)| *index);
            let mut lbas = run.iter().filter_map(|(_, found)| lba(found));
            look(&mut lbas, &mut |page| indexes.by_ref().take(1).for_each(|i| compare(i, page)));
        }
        self.hole(obj, next * BLOCK..end, out);
        Ok(true)
    }

    /// Compares what can be read.
    fn bytes(&mut self, ino: Ino, end: u64, obj: ObjId, out: &mut Vec<Verdict>) -> vfs::Result<()> {
        let mut buf = vec![0; CHUNK.min(end as usize)];
        for offset in (0..end).step_by(CHUNK) {
            let want = CHUNK.min((end - offset) as usize);
            let got = self.fs.read(ino, offset, &mut buf[..want])?;
            if got < want {
                let (want, got) = (format!("{want} bytes"), format!("{got} bytes"));
                out.push(self.finding(obj, Damage::Garbage, want, got));
                break;
            }
            let blocks = buf[..want].chunks(BLOCK_SIZE);
            let found = (offset / BLOCK..).zip(blocks);
            out.extend(found.filter_map(|(index, bytes)| self.block(obj, index, bytes)));
        }
        Ok(())
    }

    /// Bytes of holes, which are zeroes without being read.
    fn hole(&self, obj: ObjId, bytes: Range<u64>, out: &mut Vec<Verdict>) {
        if bytes.is_empty() {
            return;
        }
        let blocks = bytes.start / BLOCK..bytes.end.div_ceil(BLOCK);
        let known = self.model.objects[obj].blocks.range(blocks).map(|(&index, _)| index);
        let zeroes = Block::zeroed();
        out.extend(known.filter_map(|index| {
            let left = (bytes.end - index * BLOCK).min(BLOCK);
            self.block(obj, index, &zeroes.bytes()[..left as usize])
        }));
    }

    fn block(&self, obj: ObjId, index: u64, found: &[u8]) -> Option<Verdict> {
        let object = &self.model.objects[obj];
        let Some(block) = object.blocks.get(&index) else {
            let zeroes = Block::zeroed();
            let hole = *found == zeroes.bytes()[..found.len()];
            return (!hole).then(|| Verdict {
                block: Some(index),
                ..self.finding(obj, Damage::Garbage, "a hole".into(), head(found))
            });
        };
        if block.versions.allowed().any(|v| v[..found.len()] == *found) {
            return None;
        }
        let damage = match () {
            () if block.was_once(found) => Damage::Lost,
            () if block.has_sectors(found, self.model.grain) => Damage::Torn,
            () => Damage::Garbage,
        };
        // The blocks that an fsync writes: those changed, and the first of what was a small file.
        let small = self.model.habits.small_file;
        let inline = index == 0 && object.size.durable(&self.model.calls) <= small;
        let moving = inline || block.versions.is_open();
        let (expected, shown) = told(block, found);
        Some(Verdict {
            block: Some(index),
            in_flight: moving && (object.is_syncing() || self.model.habits.maps_ahead),
            ..self.finding(obj, damage, expected, shown)
        })
    }
}

pub(super) fn head(bytes: &[u8]) -> String {
    if bytes.iter().all(|&b| b == 0) {
        return "zeroes".into();
    }
    let hex: String = bytes.iter().take(SHOWN).map(|b| format!("{b:02x}")).collect();
    format!("{hex}…")
}

/// What may be in a block and what was found, shown from the first difference on.
fn told(block: &BlockVersions, found: &[u8]) -> (String, String) {
    let differs = |v: &Block| v.bytes().iter().zip(found).position(|(one, other)| one != other);
    let at = block.versions.allowed().filter_map(differs).max().filter(|&at| at >= SHOWN);
    let show = |bytes: &[u8]| match at {
        Some(at) => format!("{} from byte {at} on", head(&bytes[at..])),
        None => head(bytes),
    };
    let mut expected: Vec<String> =
        block.versions.allowed().map(|v: &Block| show(v.bytes())).collect();
    expected.dedup();
    (expected.join(" or "), show(found))
}
