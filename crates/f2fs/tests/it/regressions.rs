//! Bugs that Linux's F2FS had, each with a test that this engine does not have it. The kernel named
//! is the one that fixed the bug.

use std::sync::Arc;

use cores::Mutex;
use drive::{
    BLOCK_SIZE, Block, Blocks, Command, Drive, DriveState, EventKind, Fault, FaultOn, Output, Ssd,
    Status, ZoneAction,
};
use f2fs::ondisk::node::RawNodeFooter;
use f2fs::ondisk::sit::LogType;
use f2fs::{Error, F2fs, MountOptions};
use vfs::ops::snapshot;
use vfs::{Creator, FallocateMode, FileSystem, SetAttr};

use crate::harness::files::{create, read, write_synced};
use crate::harness::tagged::{Promise, Tagged, cuts_of};
use crate::harness::{self, Kind, checkpoint_of, dump, findings, mount, power_on};
use crate::judge::{Scratch, assert_fsck_clean};

const PAGE: usize = BLOCK_SIZE;

/// Every block and every write pointer.
fn assert_same_drive(before: &DriveState, after: &DriveState, when: &str) {
    assert!(before.write_pointers().eq(after.write_pointers()), "{when}: zones changed");
    for lba in 0..before.identify().blocks {
        let (old, new) = (before.media().read(lba).unwrap(), after.media().read(lba).unwrap());
        assert!(old.same_page(&new) || old[..] == new[..], "{when}: block {lba:#x} changed");
    }
}

fn assert_clean(state: &DriveState, when: &str) {
    assert_eq!(findings(state), "", "{when}");
    let scratch = Scratch::new();
    let image = scratch.dir().join("image");
    dump(state, &image);
    assert_fsck_clean(&image);
}

/// Writes a raw block, behind the volume's back.
fn poke(drive: &Ssd, addr: u32, block: Block) {
    let data = Blocks::from_iter([block]);
    assert!(run(drive, Command::Write { lba: addr.into(), data, fua: true }).is_ok());
}

fn run(drive: &dyn Drive, command: Command) -> Result<Output, Status> {
    drive.submit(0, 0, command);
    drive.wait(0).unwrap().result
}

/// The fsync chain of what a cut left, as addresses.
fn chain_of(state: &DriveState) -> Vec<u32> {
    let (sb, checkpoint) = checkpoint_of(state);
    let at = checkpoint.curseg(LogType::WarmNode);
    let mut addr = sb.seg_start(at.segno) + u32::from(at.blkoff);
    let mut chain = Vec::new();
    while sb.in_main(addr) {
        let block = state.media().read(addr.into()).unwrap();
        let footer = RawNodeFooter::of(&block);
        if !checkpoint.owns_node(footer.cp_ver.get()) {
            break;
        }
        chain.push(addr);
        addr = footer.next_blkaddr.get();
    }
    chain
}

/// 5.15: without a flush between them a node may reach NAND before its data; after the cut the file
/// shows blocks that were never its own (ML:beac93cf4). Posix has the hole, by design, where
/// recovery does not look at the write pointers; strict does not need that.
#[test]
fn garbage_shows_in_posix_only() {
    let broken = |options: &str| -> usize {
        let cuts = (0..6).flat_map(|seed| cuts_of(Kind::Zoned, options, seed, 5));
        let broken = cuts.filter(|cut| {
            let fs = mount(&power_on(&cut.state), options);
            cut.promise.broken(&fs).is_some()
        });
        broken.count()
    };
    assert!(broken("nowp_check") > 0);
    for sound in ["", "fsync_mode=strict,nowp_check", "oprw"] {
        assert_eq!(broken(sound), 0, "-o {sound}");
    }
}

/// 5.18: blocks that fallocate reserved, fsynced before the cut, were truncated by roll-forward
/// (ML:00ecb63b6).
#[test]
fn fsynced_preallocation_survives() {
    for kind in Kind::ALL {
        for mode in [FallocateMode::empty(), FallocateMode::KEEP_SIZE] {
            let drive = kind.formatted(1);
            let fs = mount(&drive, "");
            let ino = create(&fs, "f");
            fs.sync().unwrap();
            fs.fallocate(ino, mode, 0, 100 * PAGE as u64).unwrap();
            fs.write(ino, 0, &[7; PAGE]).unwrap();
            fs.fsync(ino, false).unwrap();
            let before = fs.getattr(ino).unwrap();
            let fs = mount(&power_on(&drive.survivors(1)), "");
            let after = fs.getattr(ino).unwrap();
            assert_eq!(
                (after.size, after.blocks),
                (before.size, before.blocks),
                "{kind:?} {mode:?}"
            );
            assert!(fs.recovery().replayed_nodes > 0);
        }
    }
}

/// 5.18: a chain that leads back into itself kept recovery going for ever (ML:76f809a0a). It must
/// end, soon, in an error that says so, and change nothing.
#[test]
fn a_chain_that_loops_ends_with_an_error() {
    let drive = Kind::Conventional.formatted(1);
    let fs = mount(&drive, "");
    for i in 0..20 {
        write_synced(&fs, &format!("f{i}"), &[i; 5000]);
    }
    drop(fs);
    let cut = drive.survivors(1);
    let chain = chain_of(&cut);
    assert!(chain.len() >= 20);
    for (from, to) in [(19, 19), (19, 18), (19, 0), (7, 3)] {
        let drive = power_on(&cut);
        let mut block = cut.media().read(chain[from].into()).unwrap();
        RawNodeFooter::of_mut(block.make_mut()).next_blkaddr.set(chain[to]);
        poke(&drive, chain[from], block);
        let (before, reads) = (drive.survivors(0), drive.stats().blocks_read);
        let volume: Arc<dyn Drive> = drive.clone();
        let error = F2fs::mount(volume, &MountOptions::default()).err().expect("an error");
        assert!(matches!(error, Error::Corrupt(_)), "{from}->{to}: {error}");
        let reads = drive.stats().blocks_read - reads;
        assert!(reads < 5000, "{from}->{to}: {reads} blocks read");
        assert_same_drive(&before, &drive.survivors(0), "a failed mount");
    }
}

/// 6.7 and 6.8: write pointers were believed after an unclean unmount, and not looked at again
/// after roll-forward (ML:430759459, ML:b613ca5ff). Every log must be able to go on writing, also
/// after further cuts.
#[test]
fn logs_meet_their_zones_after_every_recovery() {
    let mut moved = 0;
    for options in ["", "fsync_mode=strict", "oprw"] {
        for cut in cuts_of(Kind::Zoned, options, 3, 11) {
            let drive = power_on(&cut.state);
            let fs = mount(&drive, options);
            moved += fs.recovery().moved_logs;
            for i in 0..30 {
                write_synced(&fs, &format!("after{i}"), &vec![i; 9 * PAGE]);
            }
            fs.mkdir(fs.root(), b"dir", 0o755, Creator::default()).unwrap();
            fs.unmount().unwrap();
            assert_eq!(findings(&drive.power_off()), "", "{options}");
        }
    }
    assert!(moved > 0, "no cut left a log beside its write pointer");
}

/// 6.9 fixed the write pointers even when recovery failed, 6.13 took that back: then the zones hold
/// what a later, successful recovery needs (ML:557ebe30b, ML:ea40d64ac). A mount that fails, at
/// whichever read, resets no zone, and the next mount finds all there was to find.
#[test]
fn a_failed_recovery_spoils_nothing() {
    for (kind, options) in [(Kind::Conventional, ""), (Kind::Zoned, "oprw"), (Kind::Zoned, "")] {
        let cut = cuts_of(kind, options, 5, 13).pop().unwrap();
        let probe = power_on(&cut.state);
        let expected = snapshot(&mount(&probe, options)).unwrap();
        let reads = probe.stats().reads;
        let (mut failed, mut untouched) = (0, 0);
        for n in 0..reads {
            let drive = power_on(&cut.state);
            let faulty = Fault::new(drive.clone());
            faulty.fail_nth(FaultOn::Read, n, Status::UnrecoveredRead);
            if F2fs::mount(Arc::new(faulty), &options.parse().unwrap()).is_ok() {
                continue;
            }
            failed += 1;
            let left = drive.survivors(n);
            assert_eq!(drive.stats().resets + drive.stats().discards, 0, "{kind:?} read {n}");
            untouched += usize::from(drive.stats().writes == 0);
            let found = snapshot(&mount(&power_on(&left), options)).unwrap();
            assert!(found == expected, "{kind:?} read {n}: {:?}", expected.diff(&found));
        }
        // Once recovery's own checkpoint is being written there are writes, to unused places.
        assert!(failed > 5 && untouched > 5, "{failed} failed, {untouched} without a write");
    }
}

/// 6.11: a zone filled in part, with valid blocks in it, was reset at the next mount
/// (ML:73f9d3ff9, ML:80d6e6255).
#[test]
fn a_zone_filled_in_part_is_kept_over_remounts() {
    let drive = Kind::Zoned.formatted(1);
    let data = vec![3; 300 * PAGE];
    for round in 0..12 {
        let fs = mount(&drive, "");
        assert_eq!(fs.recovery().reset_zones, 0, "round {round}");
        for before in 0..round {
            assert!(read(&fs, &format!("f{before}")).as_ref() == Some(&data), "f{before}");
        }
        write_synced(&fs, &format!("f{round}"), &data);
        fs.unmount().unwrap();
    }
    assert_clean(&drive.power_off(), "after the last round");
}

/// 6.12: a discard of a section that lies in a conventional zone was sent as a zone reset
/// (ML:42e070b89). Conventional zones get discards, sequential ones resets.
#[test]
fn conventional_zones_are_discarded_and_sequential_ones_reset() {
    let spec = Kind::Zoned.spec().zones(24, 14);
    let drive = Ssd::new(spec, drive::Timing::Instant, 1).unwrap();
    let dynamic: Arc<dyn Drive> = drive.clone();
    f2fs::mkfs::format(&dynamic, &harness::mkfs_options()).unwrap();
    let fs = mount(&drive, "");
    let border = 14 * 1024;
    let wrong = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&wrong);
    drive.observe(Box::new(move |event, _| {
        if let EventKind::Command { command, .. } = event.kind {
            let bad = match command {
                Command::Discard { lba, blocks } => lba + blocks > border,
                Command::ManageZone { action: ZoneAction::Reset, zone } => {
                    zone.is_none_or(|start| start < border)
                }
                _ => false,
            };
            if bad {
                sink.lock().push(format!("{command:?}"));
            }
        }
    }));
    for round in 0..6 {
        for i in 0..12 {
            write_synced(&fs, &format!("{round}-{i}"), &vec![1; 256 * PAGE]);
        }
        fs.sync().unwrap();
        for i in 0..12 {
            fs.unlink(fs.root(), format!("{round}-{i}").as_bytes()).unwrap();
        }
        fs.sync().unwrap();
    }
    assert!(drive.stats().discards > 0 && drive.stats().resets > 0, "{:?}", drive.stats());
    assert_eq!(*wrong.lock(), Vec::<String>::new());
    fs.unmount().unwrap();
    assert_clean(&drive.power_off(), "after discards and resets");
}

/// 6.15: the copy of the NAT's free bits written at unmount went wrong and took the table with it
/// (ML:81ea3a6fb).
#[test]
fn the_nat_is_intact_over_many_unmounts() {
    for kind in Kind::ALL {
        let mut drive = kind.formatted(1);
        for round in 0..40_u32 {
            let fs = mount(&drive, "");
            for i in 0..40 {
                write_synced(&fs, &format!("{round}-{i}"), &[i; 100]);
            }
            if round >= 2 {
                for i in 0..39 {
                    let name = format!("{}-{i}", round - 2);
                    assert_eq!(read(&fs, &name), Some(vec![i; 100]), "{kind:?} {name}");
                    fs.unlink(fs.root(), name.as_bytes()).unwrap();
                }
            }
            fs.unmount().unwrap();
            let state = drive.power_off();
            assert_eq!(findings(&state), "", "{kind:?} round {round}");
            drive = power_on(&state);
        }
        assert_clean(&drive.power_off(), "after forty unmounts");
    }
}

/// 6.16: cleaning a section that a log still writes to left the SIT and the summaries at odds
/// (ML:da4c50f8a). The cleaner runs between small writes, so some log is always in the middle.
#[test]
fn cleaning_beside_open_sections_keeps_summaries_true() {
    for kind in Kind::ALL {
        let drive = kind.formatted(1);
        let fs = mount(&drive, "mode=lfs");
        let mut cleaned = 0;
        for round in 0..60_u32 {
            for i in 0..8 {
                let name = format!("f{i}");
                let found = fs.lookup(fs.root(), name.as_bytes()).map(|attr| attr.ino);
                let ino = found.unwrap_or_else(|_| create(&fs, &name));
                let at = u64::from((round * 7 + i * 3) % 90) * PAGE as u64;
                fs.write(ino, at, &vec![round as u8; 20 * PAGE]).unwrap();
                fs.fsync(ino, false).unwrap();
            }
            cleaned += u32::from(fs.background_gc().unwrap());
            if round % 10 == 9 {
                fs.sync().unwrap();
                assert_eq!(findings(&drive.survivors(1)), "", "{kind:?} round {round}");
            }
        }
        assert!(cleaned > 10, "{kind:?}: {cleaned}");
        fs.unmount().unwrap();
        assert_clean(&drive.power_off(), "after cleaning");
    }
}

/// 6.19: a read-only mount silently left out an inode that was new at the fsync
/// (ML:52431056a). It is shown, and nothing is written for it.
#[test]
fn a_read_only_mount_shows_new_inodes_and_writes_nothing() {
    for (kind, options) in [(Kind::Conventional, ""), (Kind::Zoned, ""), (Kind::Zoned, "oprw")] {
        let drive = kind.formatted(1);
        let fs = mount(&drive, options);
        let old = write_synced(&fs, "old", &[1; 9000]);
        fs.sync().unwrap();
        write_synced(&fs, "new", &[2; 50_000]);
        fs.write(old, 0, &[3; 9000]).unwrap();
        fs.fsync(old, false).unwrap();
        let cut = drive.survivors(1);
        let drive = power_on(&cut);
        let fs = mount(&drive, &format!("ro,{options}"));
        assert!(read(&fs, "new") == Some(vec![2; 50_000]), "{kind:?}");
        assert!(read(&fs, "old") == Some(vec![3; 9000]), "{kind:?}");
        assert!(fs.write(old, 0, b"no").is_err());
        fs.fsync(old, false).unwrap();
        fs.sync().unwrap();
        fs.unmount().unwrap();
        let stats = drive.stats();
        let changes = stats.writes + stats.appends + stats.discards + stats.manages;
        assert_eq!(changes, 0, "{kind:?}: {stats:?}");
        assert_same_drive(&cut, &drive.survivors(0), "a read-only mount");
    }
}

/// Open in Linux: blocks that recovery cut off a file were counted as used until the next fsck
/// (ML:6102165f5). What the volume counts is what a walk over it finds.
#[test]
fn recovery_leaks_no_truncated_space() {
    for kind in Kind::ALL {
        let drive = kind.formatted(1);
        let fs = mount(&drive, "");
        let free_of_new = fs.statfs().unwrap().blocks_free;
        let ino = write_synced(&fs, "f", &vec![1; 2000 * PAGE]);
        fs.sync().unwrap();
        let free_when_full = fs.statfs().unwrap().blocks_free;
        fs.setattr(ino, &SetAttr { size: Some(10), ..SetAttr::default() }).unwrap();
        fs.fsync(ino, false).unwrap();
        let drive = power_on(&drive.survivors(1));
        let fs = mount(&drive, "");
        assert!(fs.recovery().replayed_nodes > 0);
        let free = fs.statfs().unwrap().blocks_free;
        assert!(
            free > free_when_full + 1990 && free < free_of_new,
            "{kind:?}: free {free_of_new} when new, {free_when_full} when full, {free} now"
        );
        fs.unmount().unwrap();
        let state = drive.power_off();
        assert_clean(&state, "after recovery");
        let fs = mount(&power_on(&state), "");
        assert_eq!(fs.statfs().unwrap().blocks_free, free, "{kind:?}");
    }
}

/// By design (BZ:214551): a file fsynced and then removed without a checkpoint comes back. It comes
/// back whole, or not at all.
#[test]
fn a_removed_file_comes_back_whole_or_not_at_all() {
    for kind in Kind::ALL {
        for size in [100, 50_000] {
            let drive = kind.formatted(1);
            let fs = mount(&drive, "");
            write_synced(&fs, "f", &vec![5; size]);
            fs.unlink(fs.root(), b"f").unwrap();
            write_synced(&fs, "g", &vec![6; size]);
            let drive = power_on(&drive.survivors(1));
            let fs = mount(&drive, "");
            assert_eq!(read(&fs, "g"), Some(vec![6; size]));
            if let Some(data) = read(&fs, "f") {
                assert!(data == vec![5; size], "{kind:?} {size}");
            }
            fs.unmount().unwrap();
            assert_clean(&drive.power_off(), "after the return");
        }
    }
}

/// A page that cache pressure wrote in place after a checkpoint leaves neither a dirty page nor a
/// dirty node; its fsync must flush all the same.
#[test]
fn an_fsync_after_a_write_back_in_place_flushes() {
    let drive = Kind::Conventional.formatted(1);
    let fs = mount(&drive, "cache=1m");
    // Inodes are written back in order: the file in question last, or its blocks would be on NAND.
    let other = create(&fs, "other");
    let ino = write_synced(&fs, "f", &[1; 8 * PAGE]);
    fs.sync().unwrap();
    fs.write(ino, 0, &[2; 8 * PAGE]).unwrap();
    fs.write_checkpoint().unwrap();
    fs.write(other, 0, &vec![3; 2 << 20]).unwrap();
    fs.fsync(ino, false).unwrap();
    for seed in 0..20 {
        let fs = mount(&power_on(&drive.survivors(seed)), "");
        assert!(read(&fs, "f") == Some(vec![2; 8 * PAGE]), "seed {seed}");
    }
}

/// SSR took blocks again that had been written and freed since the checkpoint; a chain that led
/// through them, or to data in them, then led astray ("newly invalidated" in `update_sit_entry`).
/// This workload reaches SSR with fsyncs and cuts but is not known to hit such a slot: it passed
/// before the fix too.
#[test]
fn slots_freed_since_the_checkpoint_are_not_taken_again() {
    let drive = Kind::Conventional.formatted(1);
    let fs = mount(&drive, "");
    let mut i = 0;
    while fs.statfs().unwrap().blocks_free > 400 {
        let ino = create(&fs, &format!("fill{i}"));
        fs.write(ino, 0, &[1; 3 * PAGE]).unwrap();
        i += 1;
    }
    for n in (0..i).step_by(5) {
        fs.unlink(fs.root(), format!("fill{n}").as_bytes()).unwrap();
    }
    fs.sync().unwrap();
    let mut work = Tagged::new(1, Promise::default());
    let cuts = work.record(&drive, 41, 1);
    let mut used_ssr = false;
    for _ in 0..10 {
        work.run(&fs, 60).unwrap();
        used_ssr |= checkpoint_of(&drive.survivors(0)).1.cursegs.iter().any(|log| log.ssr);
    }
    drive.unobserve();
    assert!(used_ssr);
    for cut in std::mem::take(&mut *cuts.lock()) {
        let fs = mount(&power_on(&cut.state), "");
        assert_eq!(cut.promise.lost(&fs), None);
        fs.unmount().unwrap();
    }
}
