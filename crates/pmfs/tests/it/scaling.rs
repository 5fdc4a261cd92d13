//! Overwrites by many cores on a virtual machine of eight sockets with memory of its own each
//! (pNOVA, MASCOTS 2020, figure 13a and b): what each of the three options takes away.
//!
//! Only what moves between cores and memory, and what locks and shared lines cost, takes time here;
//! the memory is the profile's DRAM. So the shapes are the paper's, and the figures are not.

use std::sync::Arc;

use cores::{Machine, Profile};
use drive::pm::{Domain, PmAccess, PmCharged, PmDrive, PmSim, PmState};
use pmfs::Format;
use pmfs::mkfs::{MkfsOptions, make};
use vfs::kind::{Format as _, Volume};
use vfs::{Creator, Ino, path};

const MACHINE: &str = "e7-8870v2-120";
const NODES: u32 = 8;
const BLOCK: u64 = 4096;
/// Pages of each core: one segment.
const PAGES: u64 = 64;
/// Writes of each core.
const WRITES: u64 = 96;
const NOVA: &str = "range_lock=inode,log=inode,place=node0";
const PNOVA: &str = "range_lock=segment,log=core,place=local";

fn volume() -> Arc<PmCharged> {
    let pm = PmSim::power_on(PmState::on_nodes(256 << 20, NODES), Domain::Process);
    let features = "design=nova,cores=120,inodes=1024".into();
    make(&*pm, &MkfsOptions { features, ..MkfsOptions::default() }).expect("mkfs");
    PmCharged::new(pm)
}

/// What a run says: bytes a second, and the share of bytes that went to another node.
#[derive(Clone, Copy, Debug)]
struct Rate {
    gb_per_s: f64,
    remote: f64,
}

/// Each core overwrites the pages of its file, or of its part of one.
fn overwrite(fs: &Arc<dyn Volume>, files: &[Ino], is_shared: bool) {
    let threads: Vec<_> = (0..)
        .zip(files)
        .map(|(core, &file)| {
            let fs = fs.clone();
            let first = if is_shared { core * PAGES } else { 0 };
            cores::spawn("writer", Some(core as usize), move || {
                for write in 0..WRITES {
                    let at = (first + write % PAGES) * BLOCK;
                    fs.write(file, at, &[write as u8; BLOCK as usize]).expect("space");
                }
            })
        })
        .collect();
    threads.into_iter().for_each(cores::JoinHandle::join);
}

/// `cores` cores overwrite pages, each of a file of its own or of its part of one.
fn rate(cores: u64, options: &str, is_shared: bool) -> Rate {
    let profile = Profile::named(MACHINE).expect("known");
    let run = || {
        let pm = volume();
        let fs = Format.mount(PmDrive::new(pm.clone(), PmAccess::Write), options).expect("mount");
        let make = |name: String, pages| -> Ino {
            let root = fs.root();
            let ino = fs.create(root, name.as_bytes(), 0o644, Creator::default()).expect("a file");
            for page in 0..pages {
                path::write_all(&*fs, ino.ino, page * BLOCK, &[1; BLOCK as usize]).expect("space");
            }
            ino.ino
        };
        let files: Vec<Ino> = match is_shared {
            true => vec![make("shared".into(), PAGES * cores); cores as usize],
            false => (0..cores).map(|core| make(format!("f{core}"), PAGES)).collect(),
        };
        // At first blocks go back to where the files were made.
        overwrite(&fs, &files, is_shared);
        let (before, start) = (pm.moved(), cores::now());
        overwrite(&fs, &files, is_shared);
        let bytes = cores * WRITES * BLOCK;
        let (local, remote) = (pm.moved().0 - before.0, pm.moved().1 - before.1);
        Rate {
            gb_per_s: bytes as f64 / (cores::now() - start) as f64,
            remote: remote as f64 / (local + remote) as f64,
        }
    };
    Machine::simulated(&profile, 1).run(run).expect("no deadlock")
}

#[test]
fn one_file_scales_with_all_three_options() {
    let of = |cores, options| rate(cores, options, true).gb_per_s;
    let (nova, pnova) = ((of(1, NOVA), of(30, NOVA)), (of(1, PNOVA), of(30, PNOVA)));
    println!("nova {nova:?}, pnova {pnova:?} GB/s");
    assert!(nova.1 < 1.5 * nova.0, "one lock: {nova:?}");
    // Two nodes have 60 GB/s each.
    assert!(pnova.1 > 15.0 * pnova.0, "no lock that all take: {pnova:?}");
}

#[test]
#[ignore = "a minute: 120 virtual cores, five settings"]
fn each_option_takes_away_its_own_bottleneck() {
    let segments = "range_lock=segment,log=inode,place=node0";
    let logs = "range_lock=segment,log=core,place=node0";
    let local = "range_lock=inode,log=inode,place=local";
    let all = [NOVA, local, segments, logs, PNOVA];
    for is_shared in [false, true] {
        for options in all {
            for cores in [1, 15, 30, 60, 120] {
                let Rate { gb_per_s, remote } = rate(cores, options, is_shared);
                let load = if is_shared { "DWOM" } else { "DWOL" };
                println!("{load} {options}: {cores} cores, {gb_per_s:.2} GB/s, remote {remote:.2}");
            }
        }
    }
    let at = |options, is_shared| rate(120, options, is_shared);
    let one = |options, is_shared| rate(1, options, is_shared).gb_per_s;
    // A file each: nothing but where the memory is limits it.
    assert!(at(PNOVA, false).gb_per_s > 3.0 * at(NOVA, false).gb_per_s);
    assert!(at(PNOVA, false).gb_per_s > 70.0 * one(PNOVA, false));
    assert!(at(NOVA, false).remote > 0.8 && at(PNOVA, false).remote < 0.1);
    // One file: the inode's lock, then the inode's log, then the one node.
    assert!(at(NOVA, true).gb_per_s < 1.5 * one(NOVA, true));
    assert!(at(segments, true).gb_per_s < at(logs, true).gb_per_s);
    assert!(at(logs, true).gb_per_s < at(PNOVA, true).gb_per_s);
    assert!(at(PNOVA, true).gb_per_s > 70.0 * one(PNOVA, true));
}
