//! What recovery brings back, and that a cut during recovery takes nothing away.

use std::sync::Arc;

use cores::Mutex;
use drive::{Command, CutPoint, DriveState, EventKind};
use f2fs::{F2fs, RecoveryReport};
use vfs::ops::{apply, parse, snapshot};
use vfs::{FileSystem, SetAttr};

use crate::harness::files::{create, read, write_synced};
use crate::harness::tagged::{PAGE, cuts_of};
use crate::harness::{Kind, checkpoint_of, findings, mount, power_on};

/// What one fsync after another does to a file: its contents move out of the inode, get nodes of
/// their own, and lose some again.
enum Edit {
    Write(usize, usize),
    Truncate(usize),
}

/// A durable file or directory whose name a new file has taken. Recovery gives the new file its
/// name and frees the former owner, but not if that still exists under another name.
const NAMES_TAKEN: [&str; 6] = [
    // xfstests generic/342
    "create x; write x 0+8192; sync; rename x y; create x; write x 0+4096; fsync x",
    "create x; write x 0+5000; sync; link x y; unlink x; create x; write x 0+100; fsync x",
    "mkdir x; create x/f; write x/f 0+8192; sync; rename x y; create x; fsync x",
    "mkdir x; create x/f; write x/f 0+8192; sync; unlink x/f; rmdir x; create x; fsync x",
    "create x; create y; sync; rename x y exchange; unlink x; create x; fsync x",
    "create x; create y; sync; link y z; rename x y; unlink y; create y; fsync y",
];

#[test]
fn a_new_file_takes_a_name_and_nothing_else() {
    for kind in Kind::ALL {
        for (options, text) in ["", "fsync_mode=strict"]
            .into_iter()
            .flat_map(|options| NAMES_TAKEN.map(|text| (options, text)))
        {
            let drive = kind.formatted(1);
            let fs = mount(&drive, options);
            for op in parse(&text.replace("; ", "\n")).unwrap() {
                apply(&fs, &op).unwrap_or_else(|e| panic!("{text}: {op}: {e:?}"));
            }
            let before = snapshot(&fs).unwrap();
            let left = power_on(&drive.survivors(1));
            let fs = mount(&left, options);
            let lost = before.diff(&snapshot(&fs).unwrap());
            assert!(lost.is_empty(), "{kind:?} -o {options}: {text}: {lost:?}");
            fs.unmount().unwrap();
            assert_eq!(findings(&left.power_off()), "", "{kind:?} -o {options}: {text}");
        }
    }
}

/// Of each node only the last version is applied, and every fsync is found as it was.
#[test]
fn each_fsync_of_a_changing_file_comes_back() {
    use Edit::{Truncate, Write};
    let steps = [
        Write(0, 100),
        Write(50, 5 * PAGE),
        Write(1000 * PAGE, 3 * PAGE),
        Write(1000 * PAGE, PAGE),
        Write(2 * PAGE, 100),
        Write(1900 * PAGE, PAGE),
        Write(1001 * PAGE, PAGE),
        Truncate(1001 * PAGE),
        Write(1500 * PAGE, 10),
        Truncate(3 * PAGE + 5),
        Write(1000 * PAGE, PAGE),
        Truncate(20),
        Write(20, 20),
        Write(900 * PAGE, 60 * PAGE),
        Write(901 * PAGE, PAGE),
    ];
    let modes = ["", "fsync_mode=strict", "fsync_mode=strict,oprw", "oprw"];
    for (kind, modes) in [(Kind::Conventional, &modes[..3]), (Kind::Zoned, &modes)] {
        for options in modes {
            let drive = kind.formatted(2);
            let fs = mount(&drive, options);
            let file = create(&fs, "f");
            let mut expected = Vec::new();
            for (n, step) in steps.iter().enumerate() {
                match *step {
                    Write(at, len) => {
                        expected.resize(expected.len().max(at + len), 0);
                        expected[at..at + len].fill(n as u8 + 1);
                        fs.write(file, at as u64, &expected[at..at + len]).unwrap();
                    }
                    Truncate(size) => {
                        expected.truncate(size);
                        let size = SetAttr { size: Some(size as u64), ..SetAttr::default() };
                        fs.setattr(file, &size).unwrap();
                    }
                }
                fs.fsync(file, false).unwrap();
                let again = mount(&power_on(&drive.survivors(n as u64)), options);
                let found = read(&again, "f");
                assert!(found.as_ref() == Some(&expected), "{kind:?} -o {options} step {n}");
            }
        }
    }
}

/// The time of a mount depends on the number of files fsynced, not of their fsyncs.
#[test]
fn what_later_fsyncs_replaced_is_not_applied() {
    let drive = Kind::Zoned.formatted(2);
    let fs = mount(&drive, "oprw");
    let file = write_synced(&fs, "f", &[1; 9 * PAGE]);
    for n in 0..100 {
        fs.write(file, n % 9 * PAGE as u64, &[n as u8; PAGE]).unwrap();
        fs.fsync(file, false).unwrap();
    }
    let report = mount(&power_on(&drive.survivors(2)), "oprw").recovery().clone();
    assert!(report.scanned_nodes >= 100 && report.replayed_nodes <= 2, "{report:?}");
}

/// The places of nodes are in blocks of a table, hundreds in each: such a block is read once, not
/// for each node.
#[test]
fn the_node_table_is_not_read_for_each_new_file() {
    let drive = Kind::Zoned.formatted(4);
    let (fs, (sb, _)) = (mount(&drive, ""), checkpoint_of(&drive.survivors(4)));
    for n in 0..300 {
        write_synced(&fs, &format!("f{n}"), b"f");
    }
    let (drive, reads) = (power_on(&drive.survivors(4)), Arc::new(Mutex::new(0)));
    let (count, table) = (Arc::clone(&reads), sb.nat_blkaddr.into()..sb.ssa_blkaddr.into());
    drive.observe(Box::new(move |event, _| {
        let EventKind::Command { command: Command::Read { lba, .. }, .. } = event.kind else {
            return;
        };
        *count.lock() += u64::from(table.contains(lba));
    }));
    let fs = mount(&drive, "");
    assert!(fs.recovery().recovered_inodes >= 300, "{:?}", fs.recovery());
    let reads = *reads.lock();
    assert!(reads < 20, "{reads} reads of the table for 300 files in a row");
}

/// `recover-no-read-ahead` and `recover-every-version` are for measuring: each makes more of one
/// kind of work, and neither changes the result.
#[test]
fn slower_ways_to_recover_find_the_same() {
    for kind in Kind::ALL {
        let drive = kind.formatted(3);
        let fs = mount(&drive, "");
        let file = write_synced(&fs, "f", &[1; 9 * PAGE]);
        for n in 0..50 {
            write_synced(&fs, &format!("g{n}"), &[n as u8; PAGE]);
            fs.write(file, n % 9 * PAGE as u64, &[n as u8; PAGE]).unwrap();
            fs.fsync(file, false).unwrap();
        }
        let (expected, left) = (snapshot(&fs).unwrap(), drive.survivors(3));
        let recover = |inject: &str| {
            let (drive, reads) = (power_on(&left), Arc::new(Mutex::new(0)));
            let count = Arc::clone(&reads);
            drive.observe(Box::new(move |event, _| {
                let read =
                    matches!(event.kind, EventKind::Command { command: Command::Read { .. }, .. });
                *count.lock() += u64::from(read);
            }));
            let fs = mount(&drive, inject);
            drive.unobserve();
            let lost = expected.diff(&snapshot(&fs).unwrap());
            assert!(lost.is_empty(), "{kind:?} -o {inject}: {lost:?}");
            let RecoveryReport { scanned_nodes, replayed_nodes, .. } = *fs.recovery();
            fs.unmount().unwrap();
            assert_eq!(findings(&drive.power_off()), "", "{kind:?} -o {inject}");
            let reads = *reads.lock();
            (scanned_nodes, replayed_nodes, reads)
        };
        let (scanned, replayed, reads) = recover("");
        assert!(scanned > 100 && replayed < 60, "{kind:?}: {replayed} of {scanned}");
        let one_by_one = recover("inject=recover-no-read-ahead");
        assert_eq!(one_by_one, (scanned, replayed, one_by_one.2), "{kind:?}");
        assert!(one_by_one.2 >= reads + scanned / 2, "{kind:?}: {} reads, {reads}", one_by_one.2);
        assert_eq!(recover("inject=recover-every-version"), (scanned, scanned, reads), "{kind:?}");
    }
}

/// A second cut, anywhere in the recovery of the first: the next recovery ends where the first one
/// would have. Under oprw a zone written since the checkpoint must not be reset or written before,
/// or old nodes would point below its new write pointer.
#[test]
fn a_cut_during_recovery_changes_nothing() {
    for (kind, options) in [
        (Kind::Conventional, "fsync_mode=strict"),
        (Kind::Zoned, "fsync_mode=strict"),
        (Kind::Zoned, "oprw"),
        (Kind::Zoned, ""),
    ] {
        let cuts = cuts_of(kind, options, 9, 17);
        let step = (cuts.len() / 6).max(1);
        for (i, cut) in cuts.iter().enumerate().step_by(step) {
            cut_again(&cut.state, options, &format!("{kind:?} -o {options} cut {i}"));
        }
    }
}

/// The same after a chain that goes on through segments the checkpoint has as free: the nodes that
/// recovery writes must not go where those are that it read.
#[test]
fn a_cut_during_the_recovery_of_a_long_chain_changes_nothing() {
    for options in ["", "fsync_mode=strict", "fsync_mode=strict,oprw"] {
        let drive = Kind::Conventional.formatted(9);
        let fs = mount(&drive, options);
        for n in 0..800 {
            write_synced(&fs, &format!("f{n}"), &[n as u8; PAGE]);
        }
        let name = format!("conventional -o {options}");
        let recovered = cut_again(&drive.survivors(9), options, &name);
        assert!(recovered.scanned_nodes >= 800, "{recovered:?}");
    }
}

fn cut_again(state: &DriveState, options: &str, name: &str) -> RecoveryReport {
    let drive = power_on(state);
    let second = Arc::new(Mutex::new(Vec::new()));
    let (sink, mut events) = (Arc::clone(&second), 0);
    drive.observe(Box::new(move |event, moment| {
        let read = matches!(event.kind, EventKind::Command { command: Command::Read { .. }, .. });
        if !read {
            events += 1;
            sink.lock().push((event.cut_point(), moment.survivors(events)));
        }
    }));
    let first = mount(&drive, options);
    drive.unobserve();
    let expected = snapshot(&first).unwrap();
    let second: Vec<(CutPoint, DriveState)> = std::mem::take(&mut *second.lock());
    // Each of them, or some dozens.
    let step = (second.len() / 60).max(1);
    for (point, state) in second.into_iter().step_by(step) {
        let again = mount(&power_on(&state), options);
        let found = snapshot(&again).unwrap();
        assert!(found == expected, "{name}, then {point:?}: {:?}", expected.diff(&found));
    }
    first.recovery().clone()
}

/// Under oprw data may be lost that nodes point to. Every mount after the cut finds that out, and
/// writes no checkpoint that would make the loss permanent.
#[test]
fn what_oprw_relies_on_does_not_depend_on_who_recovers() {
    for (kind, options) in [
        (Kind::Zoned, "oprw"),
        (Kind::Zoned, "fsync_mode=strict,oprw"),
        (Kind::Conventional, "fsync_mode=strict,oprw"),
    ] {
        let cuts = cuts_of(kind, options, 4, 1);
        let broken = |others: &str| {
            let broken = cuts
                .iter()
                .filter_map(|cut| cut.promise.broken(&mount(&power_on(&cut.state), others)));
            broken.collect::<Vec<_>>()
        };
        for others in ["", "ro", "fsync_mode=strict", "fsync_mode=nobarrier", options] {
            let broken = broken(others);
            assert!(broken.is_empty(), "{kind:?}, -o {options}, then {others}: {broken:?}");
        }
        assert!(!broken("nowp_check").is_empty(), "{kind:?}, -o {options}: nothing to find out");
    }
}

/// Unmount cannot know whether Linux mounts the volume next. Linux acknowledges fsyncs whose nodes
/// point to other data that is still in flight, so its chains are not checked.
#[test]
fn only_nodes_of_ours_are_judged() {
    let drive = Kind::Zoned.formatted(1);
    let ours = || checkpoint_of(&drive.survivors(1)).1.ours;
    assert!(!ours());
    let fs = mount(&drive, "");
    assert!(ours());
    write_synced(&fs, "f", &[1; PAGE]);
    fs.sync().unwrap();
    assert!(ours());
    fs.unmount().unwrap();
    assert!(!ours());
}

/// The space that recovery protects from overwriting must not be what is missing on a full volume:
/// the mount would fail for ever.
#[test]
fn a_long_chain_on_a_volume_nearly_full_is_recovered() {
    for (kind, options, percent) in
        [(Kind::Conventional, "mode=lfs", 80), (Kind::Zoned, "oprw", 75)]
    {
        let drive = kind.formatted(5);
        let fs = mount(&drive, options);
        let space = fs.statfs().unwrap();
        let used = |fs: &F2fs| 100 - fs.statfs().unwrap().blocks_free * 100 / space.blocks;
        let mut files = Vec::new();
        while used(&fs) < percent {
            files.push(write_synced(&fs, &format!("f{}", files.len()), &[1; 16 * PAGE]));
        }
        fs.sync().unwrap();
        let mut longest = 0;
        for n in 0..2000 {
            let file = files[n * 7 % files.len()];
            fs.write(file, (n % 16 * PAGE) as u64, &[2; PAGE]).unwrap();
            fs.fsync(file, false).unwrap();
            if n % 97 == 0 {
                let again = mount(&power_on(&drive.survivors(5)), options);
                longest = longest.max(again.recovery().scanned_nodes);
            }
        }
        assert!(longest > 300, "{kind:?}: {longest}");
    }
}

/// Not fixed in Linux: a cache that reorders may lose the first nodes of a chain and keep later
/// ones. A mount that finds no chain and goes on with the same checkpoint version writes new nodes
/// in front of the old ones, and the next recovery believes both.
#[test]
fn nodes_of_an_earlier_life_are_not_believed() {
    for seed in 0..40 {
        let drive = Kind::Conventional.formatted(1);
        let fs = mount(&drive, "");
        for i in 0..6 {
            let ino = create(&fs, &format!("f{i}"));
            fs.write(ino, 0, &[0x11; 3 * PAGE]).unwrap();
        }
        fs.sync().unwrap();
        for i in 0..6 {
            let ino = fs.lookup(fs.root(), format!("f{i}").as_bytes()).unwrap().ino;
            // Two nodes for each fsync: one may be lost alone.
            fs.write(ino, 9 * PAGE as u64, &[0x22; 30 * PAGE]).unwrap();
            fs.write(ino, 1500 * PAGE as u64, &[0x22; PAGE]).unwrap();
        }
        let promises = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&promises);
        drive.observe(Box::new(move |_, moment| {
            sink.lock().push(moment.survivors(seed));
        }));
        for i in 0..6 {
            let ino = fs.lookup(fs.root(), format!("f{i}").as_bytes()).unwrap().ino;
            fs.fsync(ino, false).unwrap();
        }
        drive.unobserve();
        let states = std::mem::take(&mut *promises.lock());
        for state in states.iter().step_by(3) {
            second_life(state, seed);
        }
    }
}

/// Mounts, fsyncs a file of its own, is cut, and expects to find all files as the first mount saw
/// them, and that one.
fn second_life(state: &DriveState, seed: u64) {
    let drive = power_on(state);
    let fs = mount(&drive, "");
    let mut expected = snapshot(&fs).unwrap();
    write_synced(&fs, "mine", &[0x33; 7 * PAGE]);
    let now = snapshot(&fs).unwrap();
    expected.0.extend(now.0.into_iter().filter(|(path, _)| path == b"mine"));
    let fs = mount(&power_on(&drive.survivors(seed)), "");
    let found = snapshot(&fs).unwrap();
    assert!(found == expected, "seed {seed}: {:?}", expected.diff(&found));
}
