//! `O_DIRECT` through `strandline mount`, beside readers and writers that use the page cache.
//!
//! Needs root, /dev/fuse, and the package fuse3; says so if one is missing.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use rustix::io::Errno;

use crate::mounting::Rig;

/// A buffer whose contents begin where pages do, as `O_DIRECT` asks.
struct Aligned(Vec<u8>, usize);

impl Aligned {
    fn of(bytes: usize, fill: u8) -> Self {
        let buffer = vec![fill; bytes + 4096];
        let start = buffer.as_ptr().align_offset(4096);
        Self(buffer, start)
    }

    fn get(&mut self, bytes: usize) -> &mut [u8] {
        &mut self.0[self.1..self.1 + bytes]
    }
}

#[test]
fn direct_and_cached_readers_and_writers_see_the_same() {
    const LEN: usize = 3 << 20;
    for options in [&[][..], &["-o", "writeback"]] {
        let rig = Rig::new(options);
        let path = rig.point().join("f");
        let cached =
            OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(rustix::fs::OFlags::DIRECT.bits() as i32);
        let direct = options.open(&path).unwrap();
        let mut buffer = Aligned::of(LEN, 1);
        direct.write_all_at(buffer.get(LEN), 0).unwrap();
        let mut read = vec![0; LEN];
        cached.read_exact_at(&mut read, 0).unwrap();
        assert!(read.iter().all(|byte| *byte == 1), "cached reads what was written directly");

        cached.write_all_at(b"middle", 1_500_000).unwrap();
        direct.read_exact_at(buffer.get(LEN), 0).unwrap();
        read[1_500_000..1_500_006].copy_from_slice(b"middle");
        assert!(buffer.get(LEN) == read, "direct reads what was written to the cache");
        direct.write_all_at(&buffer.get(LEN)[..4096], 1 << 20).unwrap();
        read.copy_within(..4096, 1 << 20);

        direct.write_all_at(&buffer.get(LEN)[..1024], 2048).unwrap();
        direct.read_exact_at(&mut buffer.get(LEN)[..512], 2048).unwrap();
        assert!(buffer.get(LEN)[..512] == read[..512], "whole sectors");
        read.copy_within(..1024, 2048);

        for (offset, len) in [(256, 4096), (0, 511), (1, 4096)] {
            let wrong = Err(Some(Errno::INVAL.raw_os_error()));
            let error = |done: std::io::Result<usize>| done.map_err(|e| e.raw_os_error());
            assert_eq!(error(direct.write_at(&buffer.get(LEN)[..len], offset)), wrong);
            assert_eq!(error(direct.read_at(&mut buffer.get(LEN)[..len], offset)), wrong);
        }
        direct.sync_all().unwrap();
        drop((direct, cached));
        rig.remount(&[]);
        assert!(fs::read(&path).unwrap() == read, "contents after a remount");
    }
}
