//! Operations that fail on their way, at each read they make and for each block they lack: the
//! volume is sound, a change of names was made or not made, and a file keeps its state through an
//! fsync and a cut.

use std::sync::Arc;

use drive::{DriveState, Fault, FaultOn, Ssd, Status, Timing};
use f2fs::F2fs;
use f2fs::ondisk::node::RawNodeFooter;
use vfs::ops::{Op, Tree, apply, parse, snapshot};
use vfs::{Errno, FileSystem};

use super::{small_drive, try_mount};
use crate::harness::{Kind, checkpoint_of, findings};

/// What is there: directories in the inode and in blocks, files of all heights, attributes in the
/// inode and beside it.
const BEFORE: &str = "
    mkdir from
    mkdir to
    mkdir to/full
    mkdir to/empty
    mkdir from/dir
    mkdir from/deep
    create from/file
    write from/file 0+20000
    create from/small
    write from/small 0+100
    create from/none
    create to/victim
    write to/victim 0+30000
    create far
    write far 0+8192
    write far 3780608+8192
    write far 12132352+8192
    write far 4317143040+8192
    link from/file to/link
    create named
    setxattr named user.long 3000
    setxattr named user.short 20
    create tail
    write tail 3300000+500000
    create filler
";

/// Changes of names: made or not made.
const NAMES: &str = "
    create to/full/new
    mkdir to/full/new
    symlink target to/full/new
    link from/file to/full/new
    unlink from/small
    unlink far
    unlink named
    unlink to/link
    rmdir to/empty
    rename from/file to/full/file
    rename from/file to/victim
    rename from/dir to/dir
    rename from/deep to/full/deep
    rename from/deep to/empty
    rename from/deep to/victim exchange
    rename from/file to/full/file whiteout
    rename from/file to/victim whiteout
    rename from/small from/file
";

/// Changes of contents and attributes of the file that comes first, which may be made in part.
const CONTENTS: &str = "
    truncate far 0
    truncate far 12136448
    truncate far 5000
    truncate from/small 50000
    truncate tail 3400000
    write tail 3300100+400000
    write far 3776512+20000
    write far 4321337344+20000
    write from/small 90+5000
    write from/small 100+3900000
    fallocate far none 0+5000000
    fallocate from/small none 0+3900000
    fallocate from/small keep_size 0+3900000
    fallocate far keep_size 4317143040+5000000
    fallocate tail punch_hole|keep_size 3300100+390000
    fallocate tail zero_range 3300100+390000
    fallocate tail collapse_range 3297280+40960
    setxattr named user.longer 500
    setxattr from/file user.long 3000
    removexattr named user.long
    chmod named 600
";

/// Blocks left free. An operation that needs more has to fail.
const LEFT: u64 = 24;

fn ops(text: &str) -> Vec<Op> {
    parse(text).unwrap()
}

/// What to do, and whether it must be done completely or not at all.
fn all() -> impl Iterator<Item = (Op, bool)> {
    let of = |text, is_whole| ops(text).into_iter().map(move |op| (op, is_whole));
    of(NAMES, true).chain(of(CONTENTS, false))
}

/// Names so long that directories go over several blocks.
fn many_entries(fs: &F2fs, path: &str, count: u32) {
    for i in 0..count {
        apply(fs, &Op::Create { path: format!("{path}/{i:0200}"), perm: 0o644 }).unwrap();
    }
}

fn before() -> DriveState {
    let drive = small_drive(Kind::Conventional);
    let fs = try_mount(drive.clone(), "").unwrap();
    for op in ops(BEFORE) {
        apply(&fs, &op).unwrap_or_else(|e| panic!("{op}: {e:?}"));
    }
    for (dir, count) in [("to/full", 60), ("from", 40), ("from/deep", 20), ("to/empty", 20)] {
        many_entries(&fs, dir, count);
    }
    for i in 0..20 {
        apply(&fs, &Op::Unlink { path: format!("to/empty/{i:0200}") }).unwrap();
    }
    fs.unmount().unwrap();
    let state = drive.power_off();
    assert_eq!(findings(&state), "");
    state
}

fn power_on(state: &DriveState) -> Arc<Ssd> {
    Ssd::power_on(state.clone(), Timing::Instant, 1)
}

fn tree(fs: &F2fs) -> Tree {
    snapshot(fs).unwrap_or_else(|e| panic!("the volume cannot be read: {e}"))
}

/// What the volume is after `op`, when nothing fails.
fn after(state: &DriveState, op: &Op) -> Tree {
    let fs = try_mount(power_on(state), "").unwrap();
    apply(&fs, op).unwrap_or_else(|e| panic!("{op}: {e:?}"));
    tree(&fs)
}

/// The file whose contents `op` changes.
fn path_of(op: &Op) -> String {
    op.to_string().split_whitespace().nth(1).unwrap().into()
}

/// What is wrong after an operation that failed; nothing is, if names are all old or all new, if a
/// file is the same after fsync and cut, and if the check finds nothing.
fn judge(fs: F2fs, drive: &Ssd, op: &Op, allowed: Option<&[Tree]>) -> Vec<String> {
    let found = tree(&fs);
    let mut wrong = Vec::new();
    match allowed {
        Some(trees) if !trees.contains(&found) => wrong.extend(trees[0].diff(&found)),
        Some(_) => {}
        None => {
            let path = path_of(op);
            apply(&fs, &Op::Fsync { path: path.clone() }).unwrap();
            let cut = try_mount(power_on(&drive.survivors(1)), "").unwrap();
            let (is, was) = (tree(&cut), &found.0[path.as_bytes()]);
            if is.0.get(path.as_bytes()) != Some(was) {
                wrong.push("after fsync and cut:".into());
                wrong.extend(found.diff(&is));
            }
        }
    }
    fs.unmount().unwrap();
    wrong.extend(findings(&drive.power_off()).lines().map(str::to_owned));
    wrong
}

fn assert_nothing_wrong(wrong: &[String]) {
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn any_read_may_fail() {
    let mut wrong = Vec::new();
    let state = before();
    let old = tree(&try_mount(power_on(&state), "").unwrap());
    for (op, is_whole) in all() {
        let trees = [old.clone(), after(&state, &op)];
        for n in 0.. {
            let ssd = power_on(&state);
            let fault = Arc::new(Fault::new(ssd.clone()));
            let fs = try_mount(fault.clone(), "").unwrap();
            fault.fail_nth(FaultOn::Read, n, Status::UnrecoveredRead);
            let done = apply(&fs, &op);
            let struck = !fault.is_armed();
            fault.clear();
            assert!(matches!(done, Ok(_) | Err(Errno::IO)), "{op}, read {n}: {done:?}");
            let allowed = is_whole.then_some(&trees[..]);
            for what in judge(fs, &ssd, &op, allowed) {
                wrong.push(format!("{op}, read {n}, {done:?}: {what}"));
            }
            if !struck {
                break;
            }
        }
    }
    assert_nothing_wrong(&wrong);
}

/// Fills the volume except for this many blocks.
fn leave(fs: &F2fs, blocks: u64) {
    let grow = |pages: u64| {
        let size = fs.getattr(fs.lookup(fs.root(), b"filler").unwrap().ino).unwrap().size;
        let text = format!("fallocate filler none {size}+{}", pages * 4096);
        apply(fs, &text.parse().unwrap())
    };
    loop {
        let free = fs.statfs().unwrap().blocks_free;
        if free <= blocks {
            return;
        }
        // Nodes take some of it, too: near the end one page at a time.
        if free - blocks < 32 || grow(free - blocks - 16).is_err() {
            grow(1).unwrap();
        }
    }
}

#[test]
fn space_may_end_anywhere() {
    let mut wrong = Vec::new();
    let drive = power_on(&before());
    let fs = try_mount(drive.clone(), "").unwrap();
    leave(&fs, LEFT);
    fs.unmount().unwrap();
    let state = drive.power_off();
    for (op, is_whole) in all() {
        for left in 0..LEFT {
            let ssd = power_on(&state);
            let fs = try_mount(ssd.clone(), "").unwrap();
            leave(&fs, left);
            let old = [tree(&fs)];
            let done = apply(&fs, &op);
            assert!(matches!(done, Ok(_) | Err(Errno::NOSPC)), "{op}, {left} left: {done:?}");
            let allowed = (is_whole && done.is_err()).then_some(&old[..]);
            if allowed.is_some() || !is_whole {
                for what in judge(fs, &ssd, &op, allowed) {
                    wrong.push(format!("{op}, {left} left, {done:?}: {what}"));
                }
            }
            if done.is_ok() {
                break;
            }
        }
    }
    assert_nothing_wrong(&wrong);
}

/// There is room for all blocks, but not for the node that the last of them need.
#[test]
fn a_preallocation_may_lack_a_node() {
    for op in ops("fallocate from/none none 0+3903488\nfallocate from/none keep_size 0+3903488") {
        let drive = power_on(&before());
        let fs = try_mount(drive.clone(), "").unwrap();
        leave(&fs, 3903488 / 4096);
        assert_eq!(apply(&fs, &op), Err(Errno::NOSPC), "{op}");
        assert_nothing_wrong(&judge(fs, &drive, &op, None));
    }
}

/// A file of which a node cannot be read loses its name, and the volume can be mounted again: the
/// rest stays an orphan until it can be read.
#[test]
fn a_damaged_file_can_be_removed() {
    let state = before();
    let ssd = power_on(&state);
    let ino = tree_ino(&state, b"far");
    let (sb, _) = checkpoint_of(&state);
    let fault = Arc::new(Fault::new(ssd.clone()));
    for addr in sb.main_blkaddr..sb.main_end() {
        let block = state.media().read(addr.into()).unwrap();
        let footer = RawNodeFooter::of(&block);
        if footer.ino.get() == ino && footer.nid.get() != ino {
            let at = u64::from(addr);
            fault.fail_range(FaultOn::Read, at..at + 1, Status::UnrecoveredRead);
        }
    }
    assert!(fault.is_armed());
    let fs = try_mount(fault.clone(), "").unwrap();
    apply(&fs, &"unlink far".parse().unwrap()).unwrap();
    fs.unmount().unwrap();
    let fs = try_mount(fault.clone(), "").unwrap();
    assert_eq!(fs.recovery().orphans, 0);
    apply(&fs, &"unlink tail".parse().unwrap()).unwrap();
    fs.unmount().unwrap();
    fault.clear();
    let fs = try_mount(ssd.clone(), "").unwrap();
    assert_eq!(fs.recovery().orphans, 1);
    fs.unmount().unwrap();
    assert_eq!(findings(&ssd.power_off()), "");
}

fn tree_ino(state: &DriveState, name: &[u8]) -> u32 {
    let fs = try_mount(power_on(state), "").unwrap();
    fs.lookup(fs.root(), name).unwrap().ino.try_into().unwrap()
}
