//! Where Linux once disagreed with us on the same image, as tests that need no kernel.

use drive::Timing;
use f2fs::F2fs;
use vfs::{Creator, FileSystem, Ino, SetAttr, Timespec};

use crate::harness::{Kind, mount, power_on};

fn file(fs: &F2fs, name: &[u8], data: &[u8]) -> Ino {
    let ino = fs.create(fs.root(), name, 0o644, Creator::default()).unwrap().ino;
    fs.write(ino, 0, data).unwrap();
    ino
}

/// `f2fs_getattr`: the inode's block does not count; what is inline counts by its length.
#[test]
fn blocks_are_counted_as_linux_counts_them() {
    let drive = Kind::Conventional.formatted(1);
    let fs = mount(&drive, "");
    let blocks = |ino| fs.getattr(ino).unwrap().blocks;
    assert_eq!(blocks(file(&fs, b"empty", b"")), 0);
    assert_eq!(blocks(file(&fs, b"inline", &[1; 1000])), 2);
    let block = file(&fs, b"block", &[1; 4000]);
    fs.fsync(block, false).unwrap();
    assert_eq!(blocks(block), 8);
    let dir = fs.mkdir(fs.root(), b"dir", 0o755, Creator::default()).unwrap();
    assert_eq!(dir.blocks, dir.size.div_ceil(512));
    let link = fs.symlink(fs.root(), b"link", b"inline", Creator::default()).unwrap();
    assert_eq!(link.blocks, 0);
}

#[test]
fn a_directory_that_gets_an_entry_back_has_new_times() {
    for kind in Kind::ALL {
        let drive = kind.formatted_at(2, Timing::Instant);
        let fs = mount(&drive, "");
        let old = Some(Timespec { secs: 1000, nanos: 0 });
        let set = SetAttr { mtime: old, ..SetAttr::default() };
        fs.setattr(fs.root(), &set).unwrap();
        fs.sync().unwrap();
        let after = power_on(&drive.survivors(1));
        assert_eq!(mount(&after, "").getattr(3).unwrap().mtime.secs, 1000, "nothing to recover");
        cores::sleep(2_000_000);
        let new = file(&fs, b"new", b"data");
        fs.fsync(new, false).unwrap();
        let made = fs.getattr(new).unwrap().mtime;
        let after = mount(&power_on(&drive.survivors(2)), "");
        let root = after.getattr(after.root()).unwrap();
        assert!(root.mtime >= made && root.ctime >= made, "{kind:?}: {root:?}");
        assert_eq!(after.getattr(new).unwrap().mtime, made);
    }
}

/// A symbolic link cannot be fsynced: whatever makes its name durable makes its target durable
/// (xfstests generic/348).
#[test]
fn a_link_that_is_durable_leads_where_it_should() {
    let long = vec![b'x'; 4000];
    for (kind, options) in Kind::ALL.into_iter().flat_map(|k| [(k, ""), (k, "noinline_data")]) {
        let drive = kind.formatted(3);
        let fs = mount(&drive, options);
        let dir = fs.mkdir(fs.root(), b"dir", 0o755, Creator::default()).unwrap().ino;
        for (name, target) in [(&b"long"[..], &long[..]), (b"short", b"target")] {
            fs.symlink(dir, name, target, Creator::default()).unwrap();
        }
        fs.fsync(dir, false).unwrap();
        let after = mount(&power_on(&drive.survivors(1)), options);
        for (name, target) in [(&b"long"[..], &long[..]), (b"short", b"target")] {
            let dir = after.lookup(after.root(), b"dir").unwrap().ino;
            let link = after.lookup(dir, name).unwrap().ino;
            assert!(after.readlink(link).unwrap() == target, "{kind:?} -o {options}: {name:?}");
        }
    }
}
