//! Paths on top of inode numbers: resolution as in POSIX.1-2024, 4.16 (Pathname Resolution), and a
//! few helpers that every user of a file system needs.
//!
//! A path is bytes and is resolved from the root, whether or not it begins with a slash. A trailing
//! slash counts as a trailing `/.`: what comes before it must be a directory or lead to one.

use std::collections::BTreeSet;

use crate::{Attr, Creator, DirEntry, Errno, FileKind, FileSystem, Ino, Result};

/// Longest name in a directory, in bytes.
pub const NAME_MAX: usize = 255;
/// Longest path in bytes, including the NUL that ends a C string.
pub const PATH_MAX: usize = 4096;
/// Symbolic links followed in one resolution; more is `ELOOP`, as on Linux.
pub const SYMLINKS_MAX: u32 = 40;

/// The inode `path` leads to. A symbolic link at its end is followed if `follow` says so, or if a
/// slash follows it.
pub fn resolve(fs: &dyn FileSystem, path: &[u8], follow: bool) -> Result<Attr> {
    if path.is_empty() {
        return Err(Errno::NOENT.into());
    }
    if path.len() >= PATH_MAX {
        return Err(Errno::NAMETOOLONG.into());
    }
    let mut above: Vec<Attr> = Vec::new();
    let mut here = fs.getattr(fs.root())?;
    let mut ahead: Vec<Vec<u8>> = Vec::new();
    push_components(&mut ahead, path);
    let mut links = 0;
    while let Some(name) = ahead.pop() {
        if here.kind != FileKind::Directory {
            return Err(Errno::NOTDIR.into());
        }
        match name.as_slice() {
            b"." => {}
            b".." => here = above.pop().unwrap_or(here),
            _ if name.len() > NAME_MAX => return Err(Errno::NAMETOOLONG.into()),
            _ => {
                let found = fs.lookup(here.ino, &name)?;
                if found.kind == FileKind::Symlink && (follow || !ahead.is_empty()) {
                    links += 1;
                    let target = target_of(fs, found.ino, links)?;
                    if target.starts_with(b"/") {
                        here = above.first().copied().unwrap_or(here);
                        above.clear();
                    }
                    push_components(&mut ahead, &target);
                } else {
                    above.push(std::mem::replace(&mut here, found));
                }
            }
        }
    }
    Ok(here)
}

/// The directory that holds the last component of `path`, and that component. Slashes behind it are
/// dropped: the caller knows whether a directory is meant. `EBUSY`, as rename(2) has it, if the
/// path ends in `.` or `..` or is the root. The file system checks the component's length:
/// rename(2) reports a missing old name before a new one that is too long.
pub fn resolve_parent<'p>(fs: &dyn FileSystem, path: &'p [u8]) -> Result<(Ino, &'p [u8])> {
    if path.is_empty() {
        return Err(Errno::NOENT.into());
    }
    if path.len() >= PATH_MAX {
        return Err(Errno::NAMETOOLONG.into());
    }
    let end = path.iter().rposition(|&b| b != b'/').map_or(0, |last| last + 1);
    let start = path[..end].iter().rposition(|&b| b == b'/').map_or(0, |slash| slash + 1);
    let name = &path[start..end];
    if matches!(name, b"" | b"." | b"..") {
        return Err(Errno::BUSY.into());
    }
    let parent = if start == 0 { fs.root() } else { resolve(fs, &path[..start], true)?.ino };
    Ok((parent, name))
}

/// Reads a whole file.
pub fn read_to_vec(fs: &dyn FileSystem, ino: Ino) -> Result<Vec<u8>> {
    const STEP: usize = 256 * 1024;
    let mut data = Vec::new();
    loop {
        let old = data.len();
        data.resize(old + STEP, 0);
        let got = fs.read(ino, old as u64, &mut data[old..])?;
        data.truncate(old + got);
        if got == 0 {
            return Ok(data);
        }
    }
}

/// Writes all of `data` or fails. If the volume fills up on the way, that is `ENOSPC`.
pub fn write_all(fs: &dyn FileSystem, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
    let mut done = 0;
    while done < data.len() {
        match fs.write(ino, offset + done as u64, &data[done..])? {
            0 => return Err(Errno::NOSPC.into()),
            n => done += n,
        }
    }
    Ok(())
}

/// All entries of a directory except `.` and `..`, in the file system's order.
pub fn read_dir(fs: &dyn FileSystem, ino: Ino) -> Result<Vec<DirEntry>> {
    let mut entries = Vec::new();
    fs.readdir(ino, 0, &mut |entry| {
        if !matches!(entry.name.as_slice(), b"." | b"..") {
            entries.push(entry);
        }
        true
    })?;
    Ok(entries)
}

/// Visits everything below directory `ino`, depth first, parents before children, names in byte
/// order. Paths are relative to `ino`. If it meets a directory twice, that is `EUCLEAN`, since on a
/// sound volume a directory has one parent.
pub fn walk(
    fs: &dyn FileSystem,
    ino: Ino,
    visit: &mut dyn FnMut(&[u8], &Attr) -> Result<()>,
) -> Result<()> {
    let mut met = BTreeSet::from([ino]);
    let mut ahead: Vec<(Vec<u8>, Ino)> = Vec::new();
    push_entries(fs, &mut ahead, b"", ino)?;
    while let Some((path, ino)) = ahead.pop() {
        let attr = fs.getattr(ino)?;
        visit(&path, &attr)?;
        if attr.kind == FileKind::Directory {
            if !met.insert(ino) {
                return Err(Errno::UCLEAN.into());
            }
            push_entries(fs, &mut ahead, &path, ino)?;
        }
    }
    Ok(())
}

/// Makes `path` and every missing directory above it; returns the last one.
pub fn create_dir_all(
    fs: &dyn FileSystem,
    path: &[u8],
    perm: u16,
    creator: Creator,
) -> Result<Attr> {
    match resolve(fs, path, true) {
        Ok(attr) if attr.kind == FileKind::Directory => return Ok(attr),
        Ok(_) => return Err(Errno::NOTDIR.into()),
        Err(error) if error.errno() != Errno::NOENT => return Err(error),
        Err(_) => {}
    }
    let mut here = resolve(fs, b"/", true)?;
    for end in (1..path.len()).filter(|&i| path[i] == b'/') {
        here = step_into(fs, &path[..end], perm, creator)?;
    }
    if !path.ends_with(b"/") {
        here = step_into(fs, path, perm, creator)?;
    }
    Ok(here)
}

fn step_into(fs: &dyn FileSystem, path: &[u8], perm: u16, creator: Creator) -> Result<Attr> {
    match resolve(fs, path, true) {
        Ok(attr) if attr.kind == FileKind::Directory => Ok(attr),
        Ok(_) => Err(Errno::NOTDIR.into()),
        Err(error) if error.errno() == Errno::NOENT => {
            let (parent, name) = resolve_parent(fs, path)?;
            fs.mkdir(parent, name, perm, creator)
        }
        Err(error) => Err(error),
    }
}

/// Puts the components of `path` on the stack, the first on top.
fn push_components(ahead: &mut Vec<Vec<u8>>, path: &[u8]) {
    if path.ends_with(b"/") {
        ahead.push(b".".to_vec());
    }
    ahead.extend(path.rsplit(|&b| b == b'/').filter(|c| !c.is_empty()).map(<[u8]>::to_vec));
}

fn target_of(fs: &dyn FileSystem, link: Ino, links: u32) -> Result<Vec<u8>> {
    if links > SYMLINKS_MAX {
        return Err(Errno::LOOP.into());
    }
    let target = fs.readlink(link)?;
    match target.len() {
        0 => Err(Errno::NOENT.into()),
        PATH_MAX.. => Err(Errno::NAMETOOLONG.into()),
        _ => Ok(target),
    }
}

/// Puts the entries of `dir` on the stack, the first by name on top.
fn push_entries(
    fs: &dyn FileSystem,
    ahead: &mut Vec<(Vec<u8>, Ino)>,
    path: &[u8],
    dir: Ino,
) -> Result<()> {
    let mut entries = read_dir(fs, dir)?;
    entries.sort_by(|a, b| b.name.cmp(&a.name));
    ahead.extend(entries.into_iter().map(|entry| {
        let mut child = path.to_vec();
        if !child.is_empty() {
            child.push(b'/');
        }
        child.extend_from_slice(&entry.name);
        (child, entry.ino)
    }));
    Ok(())
}
