//! What mount options promise beyond POSIX: no empty file after a replacement, discards, and what
//! errors do to the volume.

use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use drive::{Drive, Fault, FaultOn, Status};
use ext4::{Ext4, MountOptions};
use vfs::kind::Volume;
use vfs::{Creator, Errno, FileSystem, Ino, RenameFlags, SetAttr, path};

use crate::harness::{Image, debugfs, tool};

fn mount(image: &Image, options: &str) -> Ext4 {
    let options: MountOptions = options.parse().unwrap();
    Ext4::mount(image.drive(), &options).unwrap_or_else(|error| panic!("mount: {error}"))
}

fn create(fs: &dyn FileSystem, name: &[u8]) -> Ino {
    fs.create(fs.root(), name, 0o644, Creator::default()).unwrap().ino
}

fn errno<T>(done: vfs::Result<T>) -> Option<Errno> {
    done.err().map(|error| error.errno())
}

/// Replaces files as careless programs do, without an fsync of the new contents, and commits. What
/// is there after a power cut.
fn replaced(options: &str) -> [Vec<u8>; 2] {
    let image = Image::new(32);
    {
        let fs = mount(&image, options);
        let (over, cut) = (create(&fs, b"over"), create(&fs, b"cut"));
        for ino in [over, cut] {
            fs.write(ino, 0, b"old").unwrap();
        }
        fs.sync().unwrap();
        let new = create(&fs, b"new");
        fs.write(new, 0, b"new").unwrap();
        fs.rename(fs.root(), b"new", fs.root(), b"over", RenameFlags::empty()).unwrap();
        fs.open(cut).unwrap();
        fs.setattr(cut, &SetAttr { size: Some(0), ..SetAttr::default() }).unwrap();
        fs.write(cut, 0, b"new").unwrap();
        fs.release(cut);
        // Another file's fsync commits all of that.
        let other = create(&fs, b"other");
        fs.fsync(other, false).unwrap();
        // No unmount: the power fails.
    }
    let fs = image.mount();
    let all = [b"over".as_slice(), b"cut"].map(|name| {
        let ino = fs.lookup(fs.root(), name).unwrap().ino;
        path::read_to_vec(&fs, ino).unwrap()
    });
    fs.unmount().unwrap();
    drop(fs);
    image.assert_clean("after the cut");
    all
}

#[test]
fn a_replaced_file_is_never_empty() {
    assert_eq!(replaced(""), [b"new", b"new"]);
    assert_eq!(replaced("noauto_da_alloc"), [b"", b""], "this test would notice");
}

#[test]
fn the_drive_is_told_what_is_free() {
    let image = Image::new(64);
    let used = || std::fs::metadata(image.name()).unwrap().blocks() * 512;
    for (options, is_told) in [("", false), ("discard", true)] {
        let fs = mount(&image, options);
        let ino = create(&fs, b"file");
        fs.write(ino, 0, &vec![7; 8 << 20]).unwrap();
        fs.sync().unwrap();
        let before = used();
        fs.unlink(fs.root(), b"file").unwrap();
        fs.sync().unwrap();
        assert_eq!(used() + (7 << 20) < before, is_told, "{options}: {before} {}", used());
        fs.unmount().unwrap();
        drop(fs);
        image.assert_clean(options);
    }
}

#[test]
fn corruption_does_what_errors_says() {
    for (options, is_stopped) in
        [("errors=continue", false), ("errors=remount-ro", true), ("", true)]
    {
        let image = Image::new(16);
        {
            let fs = image.mount();
            fs.mkdir(fs.root(), b"dir", 0o755, Creator::default()).unwrap();
            fs.unmount().unwrap();
        }
        if options.is_empty() {
            tool("tune2fs", &["-e", "remount-ro", image.name()]);
        }
        let at: u64 = debugfs(&image, &["blocks dir"]).trim().parse().unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(image.name()).unwrap();
        file.write_all_at(&[0xff; 8], at * 4096 + 64).unwrap();
        let fs = mount(&image, options);
        let dir = fs.lookup(fs.root(), b"dir").unwrap().ino;
        let made = fs.create(dir, b"new", 0o644, Creator::default());
        assert_eq!(errno(made), Some(Errno::BADMSG), "{options}");
        let next = fs.create(fs.root(), b"next", 0o644, Creator::default());
        assert_eq!(errno(next), is_stopped.then_some(Errno::ROFS), "{options}");
        assert!(fs.lookup(fs.root(), b"dir").is_ok(), "it can still be read");
        if !is_stopped {
            fs.unmount().unwrap();
            drop(fs);
            let state = debugfs(&image, &["show_super_stats -h"]);
            assert!(state.contains("with errors"), "{state}");
        }
    }
}

/// As in Linux, a volume whose list of orphans is corrupt can be mounted, and the list is let go.
#[test]
fn a_corrupt_orphan_is_no_reason_not_to_mount() {
    // The first is free, the second no inode at all; "twice" is its own successor.
    for (first, more) in [("2000", ""), ("99999", ""), ("12", "sif <12> dtime 12")] {
        for (options, is_stopped) in [("", false), ("errors=remount-ro", true)] {
            let image = Image::new(16);
            {
                let fs = image.mount();
                let ino = fs.create(fs.root(), b"orphan", 0o644, Creator::default()).unwrap().ino;
                assert_eq!(ino, 12);
                fs.write(ino, 0, &[7; 10_000]).unwrap();
                fs.unmount().unwrap();
            }
            let list = format!("ssv last_orphan {first}");
            debugfs(&image, &["unlink orphan", "sif <12> links_count 0", more, &list]);
            let fs = mount(&image, options);
            let told = Arc::new(cores::Mutex::named("told", Vec::new()));
            let tell = told.clone();
            fs.report_to(Arc::new(move |what| tell.lock().push(what.to_owned())));
            let said = told.lock().join("\n");
            assert!(said.contains("list of orphans"), "{first}: {said}");
            let made = fs.create(fs.root(), b"new", 0o644, Creator::default());
            assert_eq!(errno(made), is_stopped.then_some(Errno::ROFS), "{first} {options}");
            if !is_stopped {
                fs.unmount().unwrap();
                let said = debugfs(&image, &["show_super_stats -h"]);
                assert!(said.contains("with errors"), "{said}");
                assert!(!said.contains("First orphan inode"), "{said}");
            }
        }
    }
}

#[test]
fn a_journal_that_was_aborted_ends_writing() {
    let ram = drive::ram(8 << 10);
    let fault = Arc::new(Fault::new(ram.clone()));
    let dynamic: Arc<dyn Drive> = fault.clone();
    vfs::kind::Format::make(&ext4::Format, &dynamic).unwrap();
    let fs = Ext4::mount(dynamic, &MountOptions::default()).unwrap();
    let ino = create(&fs, b"file");
    fs.fsync(ino, false).unwrap();
    fault.fail_nth(FaultOn::Write, 0, Status::WriteFault);
    create(&fs, b"lost");
    assert_eq!(errno(fs.sync()), Some(Errno::IO), "somebody is told");
    assert_eq!(errno(fs.write(ino, 0, b"x")), Some(Errno::ROFS));
    let made = fs.create(fs.root(), b"next", 0o644, Creator::default());
    assert_eq!(errno(made), Some(Errno::ROFS));
    assert!(fs.lookup(fs.root(), b"file").is_ok(), "it can still be read");
    drop(fs);
    fault.clear();
    let fs = Ext4::mount(fault, &MountOptions::default()).unwrap();
    assert!(fs.lookup(fs.root(), b"file").is_ok() && fs.lookup(fs.root(), b"lost").is_err());
}
