//! What the kernel has in its caches while it is changed by another way: folded names, holes, pages
//! behind asynchronous direct writes.
//!
//! Needs root, /dev/fuse, and the packages fuse3 and e2fsprogs; says so if one is missing.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use io_uring::{IoUring, opcode, types};
use rustix::fs::SeekFrom as At;
use rustix::mm::{MapFlags, ProtFlags};

use crate::mounting::{Rig, run, strandline};

/// A mounted volume whose directory `d` folds case.
fn folding() -> Rig {
    let rig = Rig::empty();
    File::create(rig.image()).unwrap().set_len(128 << 20).unwrap();
    let made = strandline(&["mkfs", "-q", "-O", "casefold", "-C", "utf8"], &rig.image());
    assert!(made.status.success(), "{made:?}");
    rig.mount(&[]);
    rig
}

#[test]
fn other_spellings_of_a_name_are_never_stale() {
    let rig = folding();
    let dir = rig.point().join("d");
    fs::create_dir(&dir).unwrap();
    let at = |name: &str| dir.join(name);
    let is_missing = |name: &str| fs::read(at(name)).unwrap_err().kind() == ErrorKind::NotFound;
    // The kernel now knows that this name does not exist.
    assert!(is_missing("FOO"));
    run("chattr", &["+F"], &dir);
    fs::write(at("foo"), "hi").unwrap();
    assert_eq!(fs::read(at("FOO")).unwrap(), b"hi");
    assert_eq!(fs::read(at("Foo")).unwrap(), b"hi");
    fs::remove_file(at("foo")).unwrap();
    assert!(["FOO", "Foo", "foo"].into_iter().all(is_missing));

    fs::create_dir(at("sub")).unwrap();
    fs::write(at("SUB/Straße"), "x").unwrap();
    assert_eq!(fs::read(at("Sub/STRASSE")).unwrap(), b"x");
    fs::rename(at("sub/strasse"), at("sub/road")).unwrap();
    assert!(is_missing("Sub/STRASSE") && is_missing("SUB/Straße"));
    fs::rename(at("sub"), at("other")).unwrap();
    assert!(is_missing("Sub/road"));
    // Listing a directory tells the kernel names, too.
    assert_eq!(fs::read_dir(at("OTHER")).unwrap().count(), 1);
    fs::hard_link(at("other/road"), at("link")).unwrap();
    fs::remove_file(at("OTHER/ROAD")).unwrap();
    assert!(is_missing("other/road"));
    assert_eq!(fs::read(at("LINK")).unwrap(), b"x");
    rig.unmount();
    rig.check();
}

/// A page of a file, mapped and changed.
pub(crate) struct Mapped(*mut std::ffi::c_void);

const PAGE: usize = 4096;

impl Mapped {
    pub(crate) fn change(file: &File, offset: u64, byte: u8) -> Self {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let shared = MapFlags::SHARED;
        // SAFETY: a new mapping of our own, at a place the kernel chooses.
        let map = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), PAGE, access, shared, file, offset).unwrap()
        };
        // SAFETY: a page of the mapping, which the file covers.
        unsafe { map.cast::<u8>().write_bytes(byte, PAGE) };
        Self(map)
    }

    /// The first byte, as it is there now.
    pub(crate) fn first(&self) -> u8 {
        // SAFETY: a page of the mapping, which the file covers; another process changes it.
        unsafe { self.0.cast::<u8>().read_volatile() }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped by `change`, and used by nobody else.
        unsafe { rustix::mm::munmap(self.0, PAGE).unwrap() };
    }
}

#[test]
fn what_a_mapping_has_changed_is_data() {
    for options in [&[][..], &["-o", "threads=1"], &["-o", "writeback"]] {
        let rig = Rig::new(options);
        let path = rig.point().join("f");
        let open = || OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let file = File::create_new(&path).unwrap();
        file.set_len(1 << 20).unwrap();
        file.sync_all().unwrap();
        drop(file);
        let mapped = Mapped::change(&open(), 512 << 10, 7);
        if options.is_empty() {
            let reader = File::open(&path).unwrap();
            assert_eq!(rustix::fs::seek(&reader, At::Hole(0)), Ok(0));
            assert_eq!(rustix::fs::seek(&reader, At::Hole(512 << 10)), Ok((512 << 10) + 4096));
            assert!(rustix::fs::seek(&reader, At::Data(600 << 10)).is_err());
        }
        let copy = rig.point().join("copy");
        run("cp", &[path.to_str().unwrap()], &copy);
        let same = fs::read(&copy).unwrap() == fs::read(&path).unwrap();
        assert!(same, "cp skips what a mapping has changed, {options:?}");
        drop(mapped);
        let data = rustix::fs::seek(open(), At::Data(0)).unwrap();
        assert!(data <= 512 << 10);
        let reader = File::open(&path).unwrap();
        if options != ["-o", "writeback"] {
            assert_eq!(rustix::fs::seek(&reader, At::Data(0)), Ok(512 << 10), "holes are back");
            assert_eq!(rustix::fs::seek(&reader, At::Hole(512 << 10)), Ok((512 << 10) + 4096));
        }
        assert!(rustix::fs::seek(&reader, At::Data(1 << 20)).is_err());
        // Bytes that only the kernel has, where its size is ahead of ours.
        let writer = open();
        writer.write_all_at(&[9; 4096], 3 << 20).unwrap();
        run("cp", &[path.to_str().unwrap()], &copy);
        assert!(fs::read(&copy).unwrap() == fs::read(&path).unwrap(), "{options:?}");
    }
}

/// Memory that begins where pages do, as `O_DIRECT` asks.
#[repr(align(4096))]
struct Aligned([u8; 640 << 10]);

fn write_direct(ring: &mut IoUring, file: &File, buffer: &Aligned) {
    let (fd, len) = (types::Fd(file.as_raw_fd()), buffer.0.len() as u32);
    let entry = opcode::Write::new(fd, buffer.0.as_ptr(), len).build();
    // SAFETY: the buffer stays where it is until the write is complete, below.
    unsafe { ring.submission().push(&entry).unwrap() };
    ring.submit_and_wait(1).unwrap();
    let written = ring.completion().next().unwrap().result();
    assert_eq!(written, len as i32);
}

fn read_until(path: &Path, stop: &AtomicBool) {
    let file = File::open(path).unwrap();
    let mut page = vec![0; 64 << 10];
    while !stop.load(Ordering::Relaxed) {
        for at in (0..640 << 10).step_by(page.len()) {
            file.read_exact_at(&mut page, at).unwrap();
        }
    }
}

#[test]
fn asynchronous_direct_writes_leave_no_stale_pages() {
    const ROUNDS: u64 = 100;
    let rig = Rig::new(&[]);
    let path = rig.point().join("f");
    let mut buffer = Box::new(Aligned([0; 640 << 10]));
    fs::write(&path, buffer.0).unwrap();
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    let file = OpenOptions::new().write(true).custom_flags(direct).open(&path).unwrap();
    let mut ring = IoUring::new(8).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let reader = {
        let (path, stop) = (path.clone(), stop.clone());
        cores::spawn("reader", None, move || read_until(&path, &stop))
    };
    let mut stale = 0;
    for round in 1..=ROUNDS {
        buffer.0.fill(round as u8);
        write_direct(&mut ring, &file, &buffer);
        stale += u32::from(fs::read(&path).unwrap() != buffer.0);
    }
    stop.store(true, Ordering::Relaxed);
    reader.join();
    assert_eq!(stale, 0, "of {ROUNDS} writes left stale pages");
}
