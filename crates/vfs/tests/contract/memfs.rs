//! The reference file system against the clauses it must keep: POSIX.1-2024 (XSH) by function, and
//! the Linux manual where POSIX is silent.

use vfs::{
    Creator, Errno, FallocateMode, FileKind, FileSystem, Ino, MemFs, RenameFlags, Result, Seek,
    SetAttr, XattrMode, path,
};

const ROOT_USER: Creator = Creator { uid: 0, gid: 0 };
const PAGE: u64 = 4096;

fn file(fs: &MemFs, name: &str) -> Ino {
    fs.create(fs.root(), name.as_bytes(), 0o644, ROOT_USER).expect("create").ino
}

fn dir(fs: &MemFs, parent: Ino, name: &str) -> Ino {
    fs.mkdir(parent, name.as_bytes(), 0o755, ROOT_USER).expect("mkdir").ino
}

fn errno<T: std::fmt::Debug>(result: Result<T>) -> Errno {
    result.expect_err("should fail").errno()
}

fn rename(fs: &MemFs, from: (Ino, &str), to: (Ino, &str), flags: RenameFlags) -> Result<()> {
    fs.rename(from.0, from.1.as_bytes(), to.0, to.1.as_bytes(), flags)
}

fn nlink(fs: &MemFs, ino: Ino) -> u32 {
    fs.getattr(ino).expect("getattr").nlink
}

fn set_size(fs: &MemFs, ino: Ino, size: u64) -> Result<()> {
    fs.setattr(ino, &SetAttr { size: Some(size), ..SetAttr::default() }).map(|_| ())
}

fn bytes(fs: &MemFs, ino: Ino) -> Vec<u8> {
    path::read_to_vec(fs, ino).expect("read")
}

/// open(): "[EEXIST] O_CREAT and O_EXCL are set, and the named file exists"; 4.16: a component
/// longer than {NAME_MAX} is an error; creating in what is no directory is [ENOTDIR].
#[test]
fn a_name_must_be_new_short_and_in_a_directory() {
    let fs = MemFs::new();
    let f = file(&fs, "f");
    let create = |parent, name: &[u8]| errno(fs.create(parent, name, 0o644, ROOT_USER));
    assert_eq!(create(1, b"f"), Errno::EXIST);
    assert_eq!(create(1, b"."), Errno::EXIST);
    assert_eq!(create(1, &[b'n'; 256]), Errno::NAMETOOLONG);
    assert!(fs.create(1, &[b'n'; 255], 0o644, ROOT_USER).is_ok());
    assert_eq!(create(f, b"x"), Errno::NOTDIR);
    assert_eq!(create(1, b""), Errno::NOENT);
    assert_eq!(create(1, b"a/b"), Errno::INVAL);
    assert_eq!(errno(fs.lookup(f, b"x")), Errno::NOTDIR);
    assert_eq!(errno(fs.lookup(1, &[b'n'; 256])), Errno::NAMETOOLONG);
}

/// mkdir(): the new directory has an entry for dot, and dot-dot links to the parent; rmdir():
/// "[EEXIST] or [ENOTEMPTY]", "[EINVAL] The path argument contains a last component that is dot".
#[test]
fn directories_count_their_dots() {
    let fs = MemFs::new();
    let a = dir(&fs, 1, "a");
    assert_eq!((nlink(&fs, 1), nlink(&fs, a)), (3, 2));
    dir(&fs, a, "b");
    assert_eq!(nlink(&fs, a), 3);
    assert_eq!(errno(fs.rmdir(1, b"a")), Errno::NOTEMPTY);
    assert_eq!(errno(fs.rmdir(a, b".")), Errno::INVAL);
    assert_eq!(errno(fs.rmdir(a, b"..")), Errno::NOTEMPTY);
    assert_eq!(errno(fs.unlink(a, b"b")), Errno::ISDIR);
    fs.rmdir(a, b"b").expect("empty");
    fs.rmdir(1, b"a").expect("empty");
    assert_eq!(nlink(&fs, 1), 2);
    file(&fs, "f");
    assert_eq!(errno(fs.rmdir(1, b"f")), Errno::NOTDIR);
    assert_eq!(errno(fs.rmdir(1, b"a")), Errno::NOENT);
}

/// unlink(): "If one or more processes have the file open when the last link is removed ... the
/// removal of the file contents shall be postponed until all references to the file are closed."
#[test]
fn an_open_file_outlives_its_name() {
    let fs = MemFs::new();
    let f = file(&fs, "f");
    fs.open(f).expect("open");
    fs.open(f).expect("open");
    fs.unlink(1, b"f").expect("unlink");
    assert_eq!(nlink(&fs, f), 0);
    fs.write(f, 0, b"still here").expect("write");
    fs.release(f);
    assert_eq!(bytes(&fs, f), b"still here");
    assert_eq!(errno(fs.link(f, 1, b"again")), Errno::NOENT);
    fs.release(f);
    assert_eq!(errno(fs.getattr(f)), Errno::NOENT);
    assert_eq!(fs.statfs().expect("statfs").blocks_free, (64 << 30) / PAGE);
}

/// rmdir(): a removed directory in use holds no entries "and no new entries may be created".
#[test]
fn nothing_is_made_in_a_removed_directory() {
    let fs = MemFs::new();
    let d = dir(&fs, 1, "d");
    fs.open(d).expect("open");
    fs.rmdir(1, b"d").expect("rmdir");
    assert_eq!(errno(fs.create(d, b"f", 0o644, ROOT_USER)), Errno::NOENT);
    assert_eq!(errno(fs.lookup(d, b"..")), Errno::NOENT);
    fs.release(d);
    assert_eq!(errno(fs.getattr(d)), Errno::NOENT);
}

/// link(): "[EPERM] The file named by path1 is a directory", "[EEXIST]", "[EMLINK]".
#[test]
fn hard_links() {
    let fs = MemFs::new();
    let f = file(&fs, "f");
    let d = dir(&fs, 1, "d");
    assert_eq!(fs.link(f, d, b"g").expect("link").nlink, 2);
    assert_eq!(errno(fs.link(f, d, b"g")), Errno::EXIST);
    assert_eq!(errno(fs.link(d, 1, b"e")), Errno::PERM);
    fs.write(f, 0, b"one").expect("write");
    fs.unlink(1, b"f").expect("unlink");
    let g = fs.lookup(d, b"g").expect("other name");
    assert_eq!((g.ino, g.nlink, bytes(&fs, g.ino)), (f, 1, b"one".to_vec()));
    for i in 1..MemFs::LINK_MAX {
        fs.link(f, d, format!("l{i}").as_bytes()).expect("below the limit");
    }
    assert_eq!(errno(fs.link(f, d, b"one_more")), Errno::MLINK);
}

/// rename(): "If the old argument and the new argument resolve to either the same existing
/// directory entry or different directory entries for the same existing file, rename() shall
/// return successfully and perform no other action."
#[test]
fn renaming_onto_another_link_does_nothing() {
    let fs = MemFs::new();
    let f = file(&fs, "f");
    fs.link(f, 1, b"g").expect("link");
    rename(&fs, (1, "f"), (1, "g"), RenameFlags::empty()).expect("rename");
    assert!(fs.lookup(1, b"f").is_ok() && fs.lookup(1, b"g").is_ok());
    assert_eq!(nlink(&fs, f), 2);
}

/// rename(): [EINVAL] old is an ancestor of new; [EISDIR], [ENOTDIR], [ENOTEMPTY] by what is
/// replaced; [EBUSY] for dot (Linux).
#[test]
fn rename_refuses_what_breaks_the_tree() {
    let fs = MemFs::new();
    let a = dir(&fs, 1, "a");
    let b = dir(&fs, a, "b");
    file(&fs, "f");
    let plain = |from, to| errno(rename(&fs, from, to, RenameFlags::empty()));
    assert_eq!(plain((1, "a"), (b, "c")), Errno::INVAL);
    assert_eq!(plain((1, "a"), (a, "c")), Errno::INVAL);
    assert_eq!(plain((a, "b"), (1, "a")), Errno::NOTEMPTY);
    assert_eq!(plain((1, "f"), (1, "a")), Errno::ISDIR);
    assert_eq!(plain((a, "b"), (1, "f")), Errno::NOTDIR);
    assert_eq!(plain((1, "x"), (1, "y")), Errno::NOENT);
    assert_eq!(plain((a, "."), (1, "y")), Errno::BUSY);
    assert_eq!(
        errno(rename(&fs, (1, "a"), (a, "b"), RenameFlags::EXCHANGE)),
        Errno::INVAL,
        "renameat2(2): one is an ancestor of the other"
    );
    assert_eq!(nlink(&fs, a), 3);
}

/// rename(): "If the old argument points to the pathname of a directory ... If the directory named
/// by the new argument exists, it shall be removed and old renamed to new."
#[test]
fn a_directory_replaces_an_empty_one() {
    let fs = MemFs::new();
    let (a, b) = (dir(&fs, 1, "a"), dir(&fs, 1, "b"));
    let inner = dir(&fs, a, "inner");
    let empty = dir(&fs, b, "empty");
    rename(&fs, (a, "inner"), (b, "empty"), RenameFlags::empty()).expect("rename");
    assert_eq!((nlink(&fs, 1), nlink(&fs, a), nlink(&fs, b)), (4, 2, 3));
    assert_eq!(fs.lookup(inner, b"..").expect("dot-dot").ino, b);
    assert_eq!(errno(fs.getattr(empty)), Errno::NOENT);
}

/// renameat2(2): RENAME_NOREPLACE, RENAME_EXCHANGE.
#[test]
fn rename_flags() {
    let fs = MemFs::new();
    let d = dir(&fs, 1, "d");
    let sub = dir(&fs, d, "sub");
    let f = file(&fs, "f");
    let both = RenameFlags::EXCHANGE | RenameFlags::NOREPLACE;
    assert_eq!(errno(rename(&fs, (1, "f"), (1, "g"), both)), Errno::INVAL);
    assert_eq!(errno(rename(&fs, (1, "f"), (1, "d"), RenameFlags::NOREPLACE)), Errno::EXIST);
    assert_eq!(errno(rename(&fs, (1, "f"), (1, "g"), RenameFlags::EXCHANGE)), Errno::NOENT);
    rename(&fs, (1, "f"), (d, "sub"), RenameFlags::EXCHANGE).expect("exchange");
    assert_eq!(fs.lookup(1, b"f").expect("now a directory").ino, sub);
    assert_eq!(fs.lookup(d, b"sub").expect("now a file").ino, f);
    assert_eq!((nlink(&fs, 1), nlink(&fs, d)), (4, 2));
    assert_eq!(fs.lookup(sub, b"..").expect("dot-dot").ino, 1);
}

/// symlink(): "[ENAMETOOLONG] ... the length of the path1 argument is longer than {SYMLINK_MAX}";
/// readlink(): "[EINVAL] The path argument names a file that is not a symbolic link."
#[test]
fn symbolic_links() {
    let fs = MemFs::new();
    let link = |target: &[u8]| fs.symlink(1, b"s", target, ROOT_USER);
    assert_eq!(errno(link(&[b'x'; 4096])), Errno::NAMETOOLONG);
    assert_eq!(errno(link(b"")), Errno::NOENT);
    let s = link(&[b'x'; 4095]).expect("longest");
    assert_eq!((s.kind, s.perm, s.size), (FileKind::Symlink, 0o777, 4095));
    assert_eq!(fs.readlink(s.ino).expect("target").len(), 4095);
    assert_eq!(errno(fs.readlink(1)), Errno::INVAL);
    assert_eq!(errno(fs.read(s.ino, 0, &mut [0])), Errno::INVAL);
}

/// mknod(2): devices keep their number; a directory cannot be made (EPERM).
#[test]
fn nodes() {
    let fs = MemFs::new();
    let make = |name: &[u8], kind| fs.mknod(1, name, kind, 0o600, 0x801, ROOT_USER);
    assert_eq!(make(b"b", FileKind::BlockDevice).expect("block").rdev, 0x801);
    let fifo = make(b"p", FileKind::Fifo).expect("fifo");
    assert_eq!(fifo.rdev, 0);
    assert_eq!(errno(make(b"d", FileKind::Directory)), Errno::PERM);
    assert_eq!(errno(fs.write(fifo.ino, 0, b"x")), Errno::INVAL);
    assert_eq!(
        errno(fs.fallocate(fifo.ino, FallocateMode::empty(), 0, 1)),
        Errno::SPIPE,
        "fallocate(2)"
    );
}

/// inode(7): a file made in a set-group-ID directory gets that directory's group, a directory the
/// bit too.
#[test]
fn group_inheritance() {
    let fs = MemFs::new();
    let d = dir(&fs, 1, "d");
    let set = SetAttr { perm: Some(0o2775), gid: Some(7), ..SetAttr::default() };
    fs.setattr(d, &set).expect("setattr");
    let creator = Creator { uid: 1, gid: 2 };
    let f = fs.create(d, b"f", 0o644, creator).expect("create");
    assert_eq!((f.uid, f.gid, f.perm), (1, 7, 0o644));
    let sub = fs.mkdir(d, b"s", 0o755, creator).expect("mkdir");
    assert_eq!((sub.gid, sub.perm), (7, 0o2755));
}

/// write(): bytes between the old end and the offset read as zeroes; ftruncate(): "the extended
/// area shall appear as if it were zero-filled", also where data had been before.
#[test]
fn gaps_read_as_zeroes() {
    let fs = MemFs::new();
    let f = file(&fs, "f");
    fs.write(f, 10 * PAGE + 5, b"end").expect("write");
    let attr = fs.getattr(f).expect("getattr");
    assert_eq!((attr.size, attr.blocks), (10 * PAGE + 8, 8));
    assert!(bytes(&fs, f)[..10 * 4096 + 5].iter().all(|&b| b == 0));
    set_size(&fs, f, 10 * PAGE + 6).expect("shrink");
    set_size(&fs, f, 11 * PAGE).expect("grow");
    assert_eq!(&bytes(&fs, f)[10 * 4096 + 4..][..5], b"\0e\0\0\0");
    assert_eq!(fs.read(f, 11 * PAGE, &mut [0; 10]).expect("at the end"), 0);
    assert_eq!(fs.write(f, 1 << 30, b"").expect("nothing"), 0);
    assert_eq!(fs.getattr(f).expect("getattr").size, 11 * PAGE, "write() of 0 bytes");
    assert_eq!(errno(fs.write(f, MemFs::FILE_SIZE_MAX, b"x")), Errno::FBIG);
    assert_eq!(fs.write(f, MemFs::FILE_SIZE_MAX - 1, b"xy").expect("short"), 1);
    assert_eq!(errno(set_size(&fs, f, MemFs::FILE_SIZE_MAX + 1)), Errno::FBIG);
    assert_eq!(errno(set_size(&fs, 1, 0)), Errno::ISDIR);
}

/// lseek(): SEEK_DATA and SEEK_HOLE; "[ENXIO] ... the offset is beyond the end of the file", and
/// "there is always an implied hole at the end".
#[test]
fn holes_are_found() {
    let fs = MemFs::new();
    let f = file(&fs, "f");
    fs.write(f, PAGE, &[1; 4096]).expect("write");
    fs.write(f, 4 * PAGE, b"x").expect("write");
    assert_eq!(fs.lseek(f, 0, Seek::Data).expect("data"), PAGE);
    assert_eq!(fs.lseek(f, PAGE + 7, Seek::Data).expect("data"), PAGE + 7);
    assert_eq!(fs.lseek(f, PAGE + 7, Seek::Hole).expect("hole"), 2 * PAGE);
    assert_eq!(fs.lseek(f, 0, Seek::Hole).expect("hole"), 0);
    assert_eq!(fs.lseek(f, 4 * PAGE, Seek::Hole).expect("end"), 4 * PAGE + 1);
    assert_eq!(errno(fs.lseek(f, 4 * PAGE + 1, Seek::Hole)), Errno::NXIO);
    set_size(&fs, f, 8 * PAGE).expect("grow");
    assert_eq!(errno(fs.lseek(f, 5 * PAGE, Seek::Data)), Errno::NXIO);
}

/// fallocate(2): which modes go together, and what must be aligned.
#[test]
fn fallocate_arguments() {
    let fs = MemFs::new();
    let f = file(&fs, "f");
    fs.write(f, 0, &[1; 4 * 4096]).expect("write");
    let fail = |mode, offset, len| errno(fs.fallocate(f, mode, offset, len));
    let (keep, punch) = (FallocateMode::KEEP_SIZE, FallocateMode::PUNCH_HOLE);
    let (collapse, insert) = (FallocateMode::COLLAPSE_RANGE, FallocateMode::INSERT_RANGE);
    assert_eq!(fail(FallocateMode::empty(), 0, 0), Errno::INVAL);
    assert_eq!(fail(FallocateMode::empty(), u64::MAX, 1), Errno::INVAL);
    assert_eq!(fail(FallocateMode::empty(), MemFs::FILE_SIZE_MAX, 1), Errno::FBIG);
    assert_eq!(fail(FallocateMode::empty(), 0, 1 << 43), Errno::NOSPC);
    assert_eq!(fail(punch, 0, 1), Errno::OPNOTSUPP);
    assert_eq!(fail(punch | keep | FallocateMode::ZERO_RANGE, 0, 1), Errno::OPNOTSUPP);
    assert_eq!(fail(FallocateMode::from_bits_retain(0x80), 0, 1), Errno::OPNOTSUPP);
    assert_eq!(fail(collapse | keep, 0, PAGE), Errno::INVAL);
    assert_eq!(fail(collapse, 1, PAGE), Errno::INVAL);
    assert_eq!(fail(collapse, 0, 4 * PAGE), Errno::INVAL);
    assert_eq!(fail(insert, 0, 100), Errno::INVAL);
    assert_eq!(fail(insert, 4 * PAGE, PAGE), Errno::INVAL);
    assert_eq!(errno(fs.fallocate(1, keep, 0, 1)), Errno::ISDIR);
}

/// fallocate(2): what each mode does to contents, size and blocks.
#[test]
fn fallocate_effects() {
    let fs = MemFs::new();
    let f = file(&fs, "f");
    let page = |tag: u8| [tag; 4096];
    let write_all = || {
        fs.write(f, 0, &[page(1), page(2), page(3)].concat()).expect("write");
    };
    let go = |mode, offset, len| fs.fallocate(f, mode, offset, len).expect("fallocate");
    let size_blocks = || fs.getattr(f).map(|a| (a.size / PAGE, a.blocks / 8)).expect("getattr");
    write_all();
    go(FallocateMode::KEEP_SIZE, 3 * PAGE, PAGE + 1);
    assert_eq!(size_blocks(), (3, 5));
    set_size(&fs, f, 3 * PAGE).expect("truncate");
    assert_eq!(size_blocks(), (3, 3));
    go(FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE, PAGE - 1, PAGE + 2);
    assert_eq!(size_blocks(), (3, 2));
    let holed = [&[1; 4095][..], &[0; 4098], &[3; 4095]].concat();
    assert_eq!(bytes(&fs, f), holed);
    write_all();
    go(FallocateMode::COLLAPSE_RANGE, PAGE, PAGE);
    assert_eq!(bytes(&fs, f), [page(1), page(3)].concat());
    go(FallocateMode::INSERT_RANGE, PAGE, 2 * PAGE);
    assert_eq!(bytes(&fs, f), [page(1), page(0), page(0), page(3)].concat());
    assert_eq!(size_blocks(), (4, 2));
    go(FallocateMode::ZERO_RANGE, 3 * PAGE + 1, 2 * PAGE);
    assert_eq!(size_blocks(), (5, 4));
    assert_eq!(bytes(&fs, f)[3 * 4096..][..3], [3, 0, 0]);
    go(FallocateMode::empty(), 0, 7 * PAGE);
    assert_eq!(size_blocks(), (7, 7));
    assert_eq!(errno(fs.lseek(f, 4 * PAGE, Seek::Data)), Errno::NXIO, "unwritten is a hole");
}

/// write(): "[ENOSPC] There was no free space"; a partial write says how much fitted.
#[test]
fn a_full_volume_writes_what_fits() {
    let fs = MemFs::with_capacity(2 * PAGE);
    let f = file(&fs, "f");
    assert_eq!(fs.write(f, 100, &[1; 3 * 4096]).expect("short"), 2 * 4096 - 100);
    assert_eq!(errno(fs.write(f, 2 * PAGE, b"x")), Errno::NOSPC);
    assert_eq!(fs.write(f, 0, &[2; 4096]).expect("overwriting needs nothing"), 4096);
    assert_eq!(fs.getattr(f).expect("getattr").size, 2 * PAGE);
    fs.unlink(1, b"f").expect("unlink");
    assert_eq!(fs.statfs().expect("statfs").blocks_free, 2);
}

/// xattr(7), setxattr(2): namespaces, flags, limits.
#[test]
fn extended_attributes() {
    let fs = MemFs::new();
    let f = file(&fs, "f");
    let s = fs.symlink(1, b"s", b"f", ROOT_USER).expect("symlink").ino;
    let set = |ino, name: &[u8], mode| fs.setxattr(ino, name, b"v", mode);
    assert_eq!(errno(set(f, b"user.a", XattrMode::Replace)), Errno::NODATA);
    set(f, b"user.a", XattrMode::Create).expect("create");
    assert_eq!(errno(set(f, b"user.a", XattrMode::Create)), Errno::EXIST);
    assert_eq!(errno(set(f, b"user.", XattrMode::Set)), Errno::INVAL);
    assert_eq!(errno(set(f, b"other.a", XattrMode::Set)), Errno::OPNOTSUPP);
    assert_eq!(errno(set(f, b"", XattrMode::Set)), Errno::RANGE);
    let long = [b"user.".as_slice(), &[b'x'; 251]].concat();
    assert_eq!(errno(set(f, &long, XattrMode::Set)), Errno::RANGE);
    assert_eq!(errno(fs.setxattr(f, b"user.b", &[0; 65_537], XattrMode::Set)), Errno::TOOBIG);
    assert_eq!(errno(set(s, b"user.a", XattrMode::Set)), Errno::PERM);
    assert_eq!(errno(fs.getxattr(s, b"user.a")), Errno::NODATA);
    set(s, b"trusted.a", XattrMode::Set).expect("allowed on any inode");
    assert_eq!(errno(set(s, b"system.posix_acl_access", XattrMode::Set)), Errno::OPNOTSUPP);
    assert_eq!(errno(set(f, b"system.posix_acl_default", XattrMode::Set)), Errno::ACCESS);
    set(1, b"system.posix_acl_default", XattrMode::Set).expect("directories have defaults");
    assert_eq!(fs.getxattr(f, b"user.a").expect("get"), b"v");
    assert_eq!(fs.listxattr(f).expect("list"), [b"user.a".to_vec()]);
    fs.removexattr(f, b"user.a").expect("remove");
    assert_eq!(errno(fs.removexattr(f, b"user.a")), Errno::NODATA);
    assert_eq!(errno(fs.getxattr(f, b"user.a")), Errno::NODATA);
}

/// readdir(): an entry that is neither added nor removed meanwhile is returned exactly once.
#[test]
fn reading_a_directory_that_changes() {
    let fs = MemFs::new();
    for i in 0..300 {
        file(&fs, &format!("f{i}"));
    }
    let mut seen = Vec::new();
    fs.readdir(1, 0, &mut |entry| {
        if seen.len() == 150 {
            fs.unlink(1, b"f3").expect("behind us");
            file(&fs, "new");
        }
        seen.push(entry);
        true
    })
    .expect("readdir");
    let mut names: Vec<_> = seen.iter().map(|e| e.name.clone()).collect();
    assert_eq!(&names[..2], [b".".to_vec(), b"..".to_vec()]);
    names.sort();
    names.dedup();
    assert_eq!(names.len(), seen.len(), "twice");
    assert!((0..300).all(|i| names.contains(&format!("f{i}").into_bytes())));
    let mut rest = Vec::new();
    fs.readdir(1, seen[10].next, &mut |entry| {
        rest.push(entry.name);
        rest.len() < 3
    })
    .expect("readdir");
    assert_eq!(rest, [&*seen[11].name, &seen[12].name, &seen[13].name]);
}

/// write(): "shall mark for update the last data modification and last file status change
/// timestamps"; chmod(): only the latter.
#[test]
fn times_move_as_they_should() {
    let fs = MemFs::new();
    let f = file(&fs, "f");
    let past = vfs::Timespec { secs: 1, nanos: 0 };
    let set = SetAttr { atime: Some(past), mtime: Some(past), ..SetAttr::default() };
    let a = fs.setattr(f, &set).expect("utimens");
    assert_eq!((a.atime, a.mtime), (past, past));
    let chmod = SetAttr { perm: Some(0o600), ..SetAttr::default() };
    let b = fs.setattr(f, &chmod).expect("chmod");
    assert!(b.mtime == past && b.ctime >= a.ctime);
    fs.write(f, 0, b"x").expect("write");
    let c = fs.getattr(f).expect("getattr");
    assert!(c.mtime > past && c.ctime >= b.ctime && c.crtime == a.crtime);
    assert_eq!(c.atime, past);
    fs.read(f, 0, &mut [0]).expect("read");
    assert!(fs.getattr(f).expect("getattr").atime > past, "relatime: older than the change");
}

/// The trait: after `unmount` every call fails with `EIO`.
#[test]
fn nothing_works_after_unmount() {
    let fs = MemFs::new();
    fs.unmount().expect("unmount");
    assert_eq!(errno(fs.getattr(1)), Errno::IO);
    assert_eq!(errno(fs.create(1, b"f", 0o644, ROOT_USER)), Errno::IO);
}

/// copy_file_range(2): "[EINVAL] source and destination are the same and the ranges overlap",
/// "[EOVERFLOW] The requested source or destination range is too large".
#[test]
fn copies() {
    let fs = MemFs::new();
    let (f, g) = (file(&fs, "f"), file(&fs, "g"));
    fs.write(f, 0, &[7; 300_000]).expect("write");
    assert_eq!(fs.copy_file_range(f, 100, g, 0, u64::MAX - 100).expect("to the end"), 299_900);
    assert_eq!(bytes(&fs, g), vec![7; 299_900]);
    assert_eq!(errno(fs.copy_file_range(f, 0, f, 10, 11)), Errno::INVAL);
    assert_eq!(errno(fs.copy_file_range(f, 1, g, 0, u64::MAX)), Errno::OVERFLOW);
}
