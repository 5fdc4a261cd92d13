//! Turns an inode that fails its own checks into one that passes them.
//!
//! If it carries a checksum and a single bit is wrong, that bit is found and nothing is guessed.
//! Otherwise each failed check is answered with the mildest value that satisfies it: what the
//! directory entry says, what the rest of the inode implies, or nothing. What is *derived* (blocks,
//! links, depth) is set by the walk afterwards.

use drive::Block;
use vfs::FileKind;

use super::syndrome::bit_of;
use super::{Finding, Place};
use crate::error::{Error, Result};
use crate::ondisk::inode::{
    DEFAULT_INLINE_XATTR_SLOTS, EXTRA_ISIZE, FileFlags, Inline, InodeLayout, RawInodeBlock,
};
use crate::ondisk::superblock::{Features, Superblock};
use crate::ondisk::{BlockAddr, NEW_ADDR, NULL_ADDR, Nid, SYMLINK_MAX};

/// Checks an inode can fail; each round mends one.
const ROUNDS: usize = 24;
/// Permission bits of `i_mode`.
const PERMISSIONS: u16 = 0o7777;
/// Sizes of extra attributes that exist, the usual one first.
const EXTRA_SIZES: [u16; 6] = [EXTRA_ISIZE, 24, 12, 8, 4, 0];

/// What the directory that names an inode says about it.
#[derive(Clone, Copy, Default)]
pub(super) struct Named<'a> {
    pub kind: Option<FileKind>,
    pub parent: Nid,
    pub name: &'a [u8],
}

/// Makes `block`, read from `at` as inode `ino`, pass its checks, and says what was wrong.
pub(super) fn mend_inode(
    block: &mut Block,
    sb: &Superblock,
    ino: Nid,
    at: BlockAddr,
    named: Named<'_>,
    findings: &mut Vec<Finding>,
) -> Result<InodeLayout> {
    let checked = RawInodeBlock::of(block).check(sb, ino, at);
    let lost_inline = lost_inline(RawInodeBlock::of(block), sb);
    if checked.is_ok() && lost_inline.is_none() && !has_bad_symlink(RawInodeBlock::of(block)) {
        return checked;
    }
    let mut raw = RawInodeBlock::of_mut(block.make_mut()).clone();
    if checked.is_err() && correct_bit(&mut raw, sb, ino, at) {
        findings.push(finding(ino, checked));
        *RawInodeBlock::of_mut(block.make_mut()) = raw.clone();
        return raw.check(sb, ino, at);
    }
    if let Some(inline) = lost_inline {
        let found = format!("{:#x}", raw.i.inline);
        let allowed = format!("{:#x}, as the contents are", inline.bits());
        findings.push(Finding::new(Place::Inode { ino }, "i_inline", found, allowed));
        raw.i.set_inline(inline);
    }
    for _ in 0..ROUNDS {
        match raw.check(sb, ino, at) {
            Ok(layout) => {
                mend_symlink(&mut raw, &layout, ino, findings);
                raw.seal(sb);
                *RawInodeBlock::of_mut(block.make_mut()) = raw;
                return Ok(layout);
            }
            Err(Error::Corrupt(corrupt)) => {
                let structure = corrupt.structure;
                let failed = Error::Corrupt(corrupt);
                let last = findings.last().map(|finding| finding.what);
                if last != Some(structure) && structure != "inode.i_inode_checksum"
                    || findings.is_empty()
                {
                    findings.push(finding(ino, Err(failed)));
                }
                mend_field(&mut raw, sb, structure, ino, named);
            }
            Err(other) => return Err(other),
        }
    }
    raw.check(sb, ino, at)
}

/// The inode in `block`, which fails its checks, with the one wrong bit corrected; `None` if it is
/// not one bit, or the inode carries no checksum.
pub(crate) fn correct_inode(
    block: &Block,
    sb: &Superblock,
    ino: Nid,
    at: BlockAddr,
) -> Option<Block> {
    let mut block = block.clone();
    let raw = RawInodeBlock::of_mut(block.make_mut());
    correct_bit(raw, sb, ino, at).then_some(block)
}

fn finding(ino: Nid, checked: Result<InodeLayout>) -> Finding {
    let error = checked.err().unwrap_or(Error::Posix(vfs::Errno::UCLEAN));
    Place::Inode { ino }.finding(error)
}

/// Flips the one bit that makes the checksum right and the inode sound, if there is one.
fn correct_bit(raw: &mut RawInodeBlock, sb: &Superblock, ino: Nid, at: BlockAddr) -> bool {
    use zerocopy::{FromBytes, IntoBytes};
    if !sb.features.contains(Features::INODE_CHKSUM) {
        return false;
    }
    let Some(stored) = raw.i.extra_always().inode_checksum.get().into() else { return false };
    let difference: u32 = stored ^ raw.compute_checksum(sb);
    let mut candidates: Vec<(usize, u8)> = bit_of(difference).into_iter().collect();
    if difference.is_power_of_two() {
        // The wrong bit may be in the checksum itself; then the inode is sound as it is.
        candidates.clear();
    }
    candidates.extend((0..32).map(|bit| (generation_offset() + bit / 8, 1 << (bit % 8))));
    for (byte, mask) in candidates {
        let mut bytes = raw.as_bytes().to_vec();
        let Some(wrong) = bytes.get_mut(byte) else { continue };
        *wrong ^= mask;
        let Ok(flipped) = RawInodeBlock::read_from_bytes(&bytes) else { continue };
        if flipped.has_checksum(sb) && flipped.check(sb, ino, at).is_ok() {
            *raw = flipped;
            return true;
        }
    }
    false
}

/// `i_generation` seeds its own checksum, so its bits are tried one by one.
fn generation_offset() -> usize {
    std::mem::offset_of!(crate::ondisk::inode::RawInode, generation)
}

fn mend_field(
    raw: &mut RawInodeBlock,
    sb: &Superblock,
    structure: &str,
    ino: Nid,
    named: Named<'_>,
) {
    let i = &mut raw.i;
    match structure {
        "inode.i_inline" => mend_inline_bits(raw, sb),
        "inode.i_extra_isize" => mend_extra_size(raw, sb),
        "inode.i_inline_xattr_size" => {
            if let Some(extra) = i.extra_mut() {
                extra.inline_xattr_size.set(DEFAULT_INLINE_XATTR_SLOTS);
            }
        }
        "inode.i_mode" => {
            let kind = named.kind.unwrap_or(FileKind::Regular);
            let permissions = i.mode.get() & PERMISSIONS;
            i.mode.set(kind.mode_bits() as u16 | permissions);
        }
        "inode.i_blocks" => i.blocks.set(1),
        "inode.i_namelen" => i.set_name(named.parent.max(sb.root_ino), named.name),
        "inode.i_current_depth" => i.current_depth.set(1),
        "inode.i_nid" => {
            for nid in i.nid.iter_mut().chain([&mut i.xattr_nid]) {
                if !sb.is_node_id(nid.get()) || nid.get() == ino {
                    nid.set(0);
                }
            }
        }
        "inode.i_ext" => i.ext.len.set(0),
        "inode.i_flags" => i.flags.set((i.file_flags() - FileFlags::CASEFOLD).bits()),
        "inode.i_addr[0] of inline content" => mend_inline_slot(raw, sb),
        _ => raw.seal(sb),
    }
}

/// Inline bits that do not fit the volume, the kind of file or its size.
fn mend_inline_bits(raw: &mut RawInodeBlock, sb: &Superblock) {
    let mut inline = raw.i.inline();
    inline.set(Inline::EXTRA_ATTR, sb.features.contains(Features::EXTRA_ATTR));
    if raw.i.kind() != Some(FileKind::Directory) {
        inline.remove(Inline::DENTRY);
    }
    let may_hold = matches!(raw.i.kind(), Some(FileKind::Regular | FileKind::Symlink));
    if !may_hold {
        inline.remove(Inline::DATA | Inline::DATA_EXIST);
    }
    let unchanged = inline == raw.i.inline();
    raw.i.set_inline(inline);
    if !unchanged {
        return;
    }
    // Contents of this size do not fit: one of the two is wrong. Blocks tell which.
    if raw.i.blocks.get() > 2 || raw.i.nid.iter().any(|nid| nid.get() != 0) {
        raw.i.set_inline(inline - Inline::DATA - Inline::DATA_EXIST);
        return;
    }
    let layout = layout_of(raw, sb);
    let area = &zerocopy::IntoBytes::as_bytes(raw)[layout.inline_range()];
    let size = area.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    raw.i.size.set(size as u64);
}

/// The layout the inode claims, cut to what is possible.
fn layout_of(raw: &RawInodeBlock, sb: &Superblock) -> InodeLayout {
    let extra = raw.i.extra().map_or(0, |extra| extra.extra_isize.get().min(EXTRA_ISIZE) & !3);
    let has = raw.i.inline().intersects(Inline::XATTR | Inline::DENTRY);
    let flexible = sb.features.contains(Features::FLEXIBLE_INLINE_XATTR);
    InodeLayout::new(extra, if has || flexible { DEFAULT_INLINE_XATTR_SLOTS } else { 0 })
}

/// The size of the extra attributes decides where addresses begin: the one under which most of
/// them can be addresses is right.
fn mend_extra_size(raw: &mut RawInodeBlock, sb: &Superblock) {
    let inline = raw.i.inline().intersects(Inline::DATA | Inline::DENTRY);
    let cost = |raw: &RawInodeBlock, size: u16| {
        let from = usize::from(size / 4);
        let plausible = |addr: u32| addr == NULL_ADDR || addr == NEW_ADDR || sb.in_main(addr);
        let slots = if inline { &raw.i.addr[from..=from] } else { &raw.i.addr[from..from + 64] };
        slots.iter().filter(|a| if inline { a.get() != 0 } else { !plausible(a.get()) }).count()
    };
    let best = EXTRA_SIZES.into_iter().filter(|size| *size > 0).min_by_key(|s| cost(raw, *s));
    if let Some(extra) = raw.i.extra_mut() {
        extra.extra_isize.set(best.unwrap_or(EXTRA_ISIZE));
    }
}

/// Inline contents leave slot 0 empty. An address there means that the contents are not inline,
/// if the inode has blocks.
fn mend_inline_slot(raw: &mut RawInodeBlock, sb: &Superblock) {
    let slot = layout_of(raw, sb).slot(0);
    let has_blocks = raw.i.blocks.get() > 1 && sb.in_main(raw.i.addr[slot].get());
    if has_blocks {
        let contents = Inline::DATA | Inline::DATA_EXIST | Inline::DENTRY;
        raw.i.set_inline(raw.i.inline() - contents);
    } else {
        raw.i.addr[slot].set(NULL_ADDR);
    }
}

/// The bits of an inode whose contents are inline though it does not say so: it has no block but
/// itself, nothing in slot 0, and something behind.
fn lost_inline(raw: &RawInodeBlock, sb: &Superblock) -> Option<Inline> {
    let i = &raw.i;
    let kind = i.kind()?;
    let inline = i.inline();
    let own = 1 + u64::from(i.xattr_nid.get() != 0);
    if inline.intersects(Inline::DATA | Inline::DENTRY)
        || i.blocks.get() != own
        || i.nid.iter().any(|nid| nid.get() != 0)
    {
        return None;
    }
    let bits = match kind {
        FileKind::Directory => Inline::DENTRY,
        FileKind::Regular | FileKind::Symlink => Inline::DATA | Inline::DATA_EXIST,
        _ => return None,
    };
    let mut trial = raw.clone();
    trial.i.set_inline(inline | bits);
    let layout = layout_of(&trial, sb);
    let slots = &i.addr[layout.slot(0)..layout.slot(layout.addrs() as usize)];
    let (first, rest) = slots.split_first()?;
    let fits = kind == FileKind::Directory || i.size.get() <= layout.inline_capacity() as u64;
    let holds = first.get() == 0 && rest.iter().any(|addr| addr.get() != 0);
    (fits && holds && i.size.get() > 0).then_some(inline | bits)
}

fn has_bad_symlink(raw: &RawInodeBlock) -> bool {
    raw.i.kind() == Some(FileKind::Symlink) && !(1..=SYMLINK_MAX as u64).contains(&raw.i.size.get())
}

/// A symbolic link of impossible length: its target ends at the first NUL. Without a target that
/// can be read here it becomes an empty file.
fn mend_symlink(
    raw: &mut RawInodeBlock,
    layout: &InodeLayout,
    ino: Nid,
    findings: &mut Vec<Finding>,
) {
    if !has_bad_symlink(raw) {
        return;
    }
    let size = raw.i.size.get();
    findings.push(Finding::new(
        Place::Inode { ino },
        "i_size of a symbolic link",
        size,
        "1..=4095",
    ));
    let area = &zerocopy::IntoBytes::as_bytes(&*raw)[layout.inline_range()];
    let end = area.iter().position(|&byte| byte == 0).unwrap_or(area.len());
    if raw.i.inline().contains(Inline::DATA) && end > 0 {
        raw.i.size.set(end as u64);
    } else if raw.i.blocks.get() > 1 {
        raw.i.size.set(SYMLINK_MAX as u64);
    } else {
        raw.i.mode.set(FileKind::Regular.mode_bits() as u16 | raw.i.mode.get() & PERMISSIONS);
        raw.i.size.set(0);
    }
}
