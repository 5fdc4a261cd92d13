//! How long the kernel's F2FS takes to roll fsynced nodes forward, and how that grows: Table 6.3 of
//! the OPRW thesis. Its first pass looks for the inode of each node in a list of all it has met
//! (`get_fsync_inode`), so what counts is how many inodes were fsynced, too.

use std::path::Path;

use crate::AGENT;
use linux::Guest;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The nodes of Table 6.3's first and last mount, and half the first.
const NODES: [u32; 3] = [20_396, 40_791, 57_500];
/// Files there are at the start.
const FILES: u32 = 1000;

/// As many fsyncs, of which every second is of a new file: in each turn, as in Varmail's, a file
/// goes, one comes, and another grows.
fn varmail(nodes: u32) -> String {
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(nodes.into());
    let mut files: Vec<u32> = (0..FILES).collect();
    let turns = (FILES..FILES + nodes / 2).map(|new| {
        let old = files.swap_remove(chance.random_range(0..files.len()));
        files.push(new);
        let other = files[chance.random_range(0..files.len())];
        format!(
            "unlink f{old}\ncreate f{new}\nappend f{new} 1 seed=1\nfsync f{new}
            append f{other} 1 seed=1\nfsync f{other}\n"
        )
    });
    turns.collect()
}

/// As many fsyncs of the files there are.
fn in_turn(nodes: u32) -> String {
    (0..nodes).map(|n| format!("append f{0} 1 seed=1\nfsync f{0}\n", n % FILES)).collect()
}

/// Fsyncs without a checkpoint in between: what asks for one is turned off, or far away. Then the
/// file system stops, and is mounted again.
const RUN: &str = "
    null_blk 0 16384 && mkfs.f2fs -q /dev/nullb0
    mount -t f2fs -o noatime,background_gc=off,noinline_data /dev/nullb0 /mnt
    cd /sys/fs/f2fs/nullb0
    echo 100000 >cp_interval; echo 100000 >reclaim_segments; echo 100 >dirty_nats_ratio
    cd /
    strandline-agent apply /mnt /host/made >/dev/null
    strandline-agent apply /mnt /host/$name >/dev/null
    f2fs_io shutdown 2 /mnt >/dev/null
    umount /mnt
    read before rest </proc/uptime
    mount -t f2fs -o noatime /dev/nullb0 /mnt
    read after rest </proc/uptime
    echo $before $after $(ls /mnt | wc -l)
    umount /mnt && null_blk_remove 0\n";

/// By the guest's clock, which counts instructions, a billion a second: what a wait for memory
/// costs, which a walk of a long list mostly is, is not in it.
#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn the_kernel_takes_longer_per_node_the_more_files_were_fsynced() {
    let agent = Path::new(AGENT);
    let mut guest = Guest::new().memory(3072).timeout(3000).clock_of_instructions().program(agent);
    let made = (0..FILES).map(|n| format!("create f{n}\n")).collect::<String>() + "sync\n";
    guest = guest.file("made", made);
    let mut script = String::from("set -e\nmodprobe f2fs\n");
    for nodes in NODES {
        for (load, ops) in [("turns", in_turn(nodes)), ("varmail", varmail(nodes))] {
            let name = format!("{load}-{nodes}");
            guest = guest.file(&name, ops);
            script += &RUN.replace("$name", &name);
        }
    }
    let out = guest.run(&script);
    let said: Vec<f64> = out.success().split_whitespace().map(|n| n.parse().unwrap()).collect();
    assert_eq!(said.len(), NODES.len() * 6, "{}", out.text);
    let mut per_node: [Vec<f64>; 2] = Default::default();
    for (mounts, nodes) in said.chunks(6).zip(NODES) {
        for (load, mount) in mounts.chunks(3).enumerate() {
            let &[before, after, files] = mount else { unreachable!("chunks of three") };
            // Those that were removed come back, as no fsync said that they went.
            let new = if load == 0 { 0 } else { nodes / 2 };
            assert_eq!(files, f64::from(FILES + new), "{nodes} nodes: not all were recovered");
            let seconds = after - before;
            let each = 1e6 * seconds / f64::from(nodes);
            println!("{nodes} nodes of {files} files: {seconds:.2} s, {each:.1} µs each");
            per_node[load].push(each);
        }
    }
    let growth = per_node.map(|each| each[each.len() - 1] / each[0]);
    assert!(growth[0] < 1.05 && growth[1] > 1.2, "{growth:?}");
}
