//! Volumes that say what they cannot say: an error, never a panic, a hang or all memory.

use std::sync::Arc;

use cores::splitmix64;
use drive::pm::{Domain, Pm, PmSim, PmState};
use pmfs::Format;
use vfs::kind::{Format as _, Repaired, Volume};
use vfs::record::{Record, Value};
use vfs::{Creator, Errno, FileKind, FileSystem, Ino, RenameFlags, SetAttr, path};

use crate::harness::{Start, drive, findings, mount};

const BLOCK: u64 = 4096;
const LINE: u64 = 64;
const INODE_SIZE: u64 = 256;

/// A field of a dump's first record.
fn field(sim: &Arc<PmSim>, view: &str, which: Option<&str>, name: &str) -> u64 {
    let mut value = None;
    let mut see = |record: Record| {
        value = record.get(name).cloned();
        true
    };
    Format.dump(&drive(sim.clone()), Some(view), which, &mut see).expect("a volume");
    match value {
        Some(Value::Number(value)) => value,
        other => panic!("{name}: {other:?}"),
    }
}

fn power_on(state: &PmState) -> Arc<PmSim> {
    PmSim::power_on(state.clone(), Domain::Process)
}

fn ino(fs: &dyn FileSystem, path: &str) -> Ino {
    path::resolve(fs, path.as_bytes(), false).expect("there").ino
}

/// The place of an inode in the table.
fn inode_at(sim: &Arc<PmSim>, path: &str) -> u64 {
    let fs = mount(sim.clone()).expect("mount");
    let number = ino(&*fs, path);
    fs.unmount().expect("unmount");
    field(sim, "superblock", None, "table_at") + number * INODE_SIZE
}

#[test]
fn an_entry_for_a_free_inode_is_damage_and_not_looked_up_for_ever() {
    for design in ["inplace", "nova"] {
        let sim = power_on(&Start::new(design).state);
        let at = inode_at(&sim, "p");
        sim.store_word(at, 0);
        findings(sim.clone()).expect_err("the checker sees it");
        let fs = mount(sim).expect("mount");
        let (root, flags) = (fs.root(), RenameFlags::empty());
        let found = [
            fs.lookup(root, b"p").map(drop),
            fs.unlink(root, b"p"),
            fs.rename(root, b"p", root, b"q", flags),
            fs.rename(root, b"a", root, b"p", flags),
        ];
        for found in found {
            assert_eq!(found.expect_err("damage").errno(), Errno::UCLEAN, "{design}");
        }
    }
}

#[test]
fn directories_that_are_their_own_parents_do_not_stop_a_rename_for_ever() {
    let sim = power_on(&Start::new("inplace").state);
    let (d, f) = (inode_at(&sim, "d"), inode_at(&sim, "d/f"));
    let fs = mount(sim.clone()).expect("mount");
    let numbers = [ino(&*fs, "d"), ino(&*fs, "d/f")];
    fs.unmount().expect("unmount");
    // The word that names the directory above is the one that has its number.
    let parent = (0..16).map(|word| word * 8).find(|at| sim.load(f + at) == numbers[0]);
    let parent = parent.expect("a parent");
    sim.store_word(d + parent, numbers[1]);
    let fs = mount(sim).expect("mount");
    let moved = fs.rename(fs.root(), b"e", numbers[1], b"e", RenameFlags::empty());
    assert_eq!(moved.expect_err("damage").errno(), Errno::UCLEAN);
}

/// Fills a volume to the last block, with a file of many pieces.
fn full(design: &str) -> (Arc<dyn Volume>, Ino) {
    let fs = mount(power_on(&Start::new(design).state)).expect("mount");
    let make = |name: &[u8]| fs.create(fs.root(), name, 0o644, Creator::default()).unwrap().ino;
    let (pieces, filler) = (make(b"pieces"), make(b"filler"));
    let page = [7; BLOCK as usize];
    for n in 0..24 {
        assert_eq!(fs.write(pieces, n * 2 * BLOCK, &page).expect("space"), page.len());
        assert_eq!(fs.write(filler, n * BLOCK, &page).expect("space"), page.len());
    }
    let full = (24..).map(|n| fs.write(filler, n * BLOCK, &page)).find_map(Result::err);
    assert_eq!(full.expect("it ends").errno(), Errno::NOSPC);
    (fs, pieces)
}

#[test]
fn a_full_volume_can_be_made_less_full() {
    for design in ["inplace", "nova", "pnova"] {
        let (fs, pieces) = full(design);
        let free = || fs.statfs().expect("statfs").blocks_free;
        for pages in [22, 9, 1] {
            let (before, size) = (free(), Some(pages * 2 * BLOCK - BLOCK));
            let set = SetAttr { size, ..SetAttr::default() };
            fs.setattr(pieces, &set).unwrap_or_else(|error| panic!("{design}: {error}"));
            assert!(free() > before, "{design}: {before} blocks were free, then {}", free());
        }
        fs.unlink(fs.root(), b"filler").expect("a name goes");
        fs.unmount().expect("unmount");
    }
}

/// Everything that a program could do, to any depth that there may be.
fn use_all(fs: &dyn Volume, dir: Ino, depth: u32) {
    let mut entries = Vec::new();
    let _ = fs.readdir(dir, 0, &mut |entry| {
        entries.push(entry);
        entries.len() < 200
    });
    for entry in entries.iter().filter(|entry| entry.name != b"." && entry.name != b"..") {
        let Ok(attr) = fs.lookup(dir, &entry.name) else { continue };
        let _ = fs.listxattr(attr.ino).map(|names| {
            names.iter().for_each(|name| drop(fs.getxattr(attr.ino, name)));
        });
        match attr.kind {
            FileKind::Directory if depth < 5 => use_all(fs, attr.ino, depth + 1),
            FileKind::Regular => {
                let mut bytes = [0; 3 * BLOCK as usize];
                let _ = fs.read(attr.ino, 0, &mut bytes);
                let _ = fs.write(attr.ino, 100, &bytes[..5000]);
                let _ = fs.write(attr.ino, attr.size, &bytes[..100]);
                let set = SetAttr { size: Some(attr.size / 2), ..SetAttr::default() };
                let _ = fs.setattr(attr.ino, &set);
            }
            FileKind::Symlink => drop(fs.readlink(attr.ino)),
            _ => {}
        }
        let _ = fs.rename(dir, &entry.name, fs.root(), b"moved", RenameFlags::empty());
        let _ = fs.link(attr.ino, dir, b"another");
        let _ = fs.unlink(dir, b"another");
        let _ = fs.rmdir(dir, &entry.name);
    }
    let _ = fs.create(dir, b"new", 0o644, Creator::default());
    let _ = fs.mkdir(dir, b"new-d", 0o755, Creator::default());
}

/// Changes a byte of a log entry, and its checksum with it.
fn forge(sim: &PmSim, at: u64, random: u64) -> bool {
    let lines = (sim.load(at / 8 * 8) >> 8) & 0xff;
    let len = lines * LINE;
    if len == 0 || at % BLOCK + len > BLOCK {
        return false;
    }
    let mut bytes = vec![0; len as usize];
    sim.read(at, &mut bytes);
    let sum = |bytes: &[u8]| {
        let head = crc32c::crc32c_append(crc32c::crc32c(&bytes[..4]), &[0; 4]);
        crc32c::crc32c_append(head, &bytes[8..])
    };
    if sum(&bytes).to_le_bytes() != bytes[4..8] {
        return false;
    }
    let place = (random % len) as usize;
    bytes[place] ^= (random >> 32) as u8 | 1;
    let sum = sum(&bytes);
    bytes[4..8].copy_from_slice(&sum.to_le_bytes());
    sim.store(at, &bytes);
    true
}

/// Changes some words where metadata is: table, directories, maps, logs.
fn mutate(sim: &PmSim, table: (u64, u64), seed: u64) {
    let mut random = seed;
    let mut next = || {
        random = splitmix64(random);
        random
    };
    let bytes = sim.info().bytes;
    // A word of a line that holds something, from a random one on.
    let used = |random: u64| {
        let holds = |at: &u64| (0..8).any(|word| sim.load(at + word * 8) != 0);
        let from = BLOCK + random % (bytes - BLOCK);
        let line = (from / LINE..bytes / LINE).map(|line| line * LINE).find(holds);
        line.unwrap_or(table.0 + INODE_SIZE) + (random >> 40) % 8 * 8
    };
    for _ in 0..1 + next() % 3 {
        let at = match next() % 4 {
            // Inodes that are in use come first in the table.
            0 | 1 => table.0 + next() % (24 * INODE_SIZE),
            2 => used(next()),
            _ => {
                let from = next() % ((bytes - table.1) / LINE);
                let lines = (from..(bytes - table.1) / LINE).map(|line| table.1 + line * LINE);
                let random = next();
                if lines.into_iter().any(|at| forge(sim, at, random)) {
                    continue;
                }
                used(random)
            }
        } / 8
            * 8;
        let word = match next() % 4 {
            0 => next(),
            1 => sim.load(next() % bytes / 8 * 8),
            2 => sim.load(at) ^ 1 << (next() % 64),
            _ => sim.load(at).wrapping_add(next() % 7).wrapping_sub(3),
        };
        sim.store_word(at, word);
    }
}

fn mutated(design: &str, count: u64) {
    let start = Start::new(design);
    let sim = power_on(&start.state);
    let table = ("table_at", "data_block");
    let table = (
        field(&sim, "superblock", None, table.0),
        field(&sim, "superblock", None, table.1) * BLOCK,
    );
    let (mut mounted, mut found) = (0, 0);
    for seed in 0..count {
        let sim = power_on(&start.state);
        mutate(&sim, table, splitmix64(seed));
        found += u64::from(findings(sim.clone()).is_err());
        for view in ["superblock", "inode", "extents", "dir", "journal"] {
            let _ = Format.dump(&drive(sim.clone()), Some(view), None, &mut |_| true);
        }
        let Ok(fs) = mount(sim) else { continue };
        mounted += 1;
        use_all(&*fs, fs.root(), 0);
        let _ = fs.unmount();
    }
    println!("{design}: {count} images, {mounted} mounted, {found} with findings");
    assert!(found > count / 8 && mounted > 0, "{design}: {found} of {count}");
}

/// All of a memory.
fn contents(sim: &Arc<PmSim>) -> Vec<u8> {
    let mut bytes = vec![0; sim.info().bytes as usize];
    sim.read(0, &mut bytes);
    bytes
}

/// Repairs a volume. After that the checker has nothing to say, and all of it can be used.
fn repaired(sim: &Arc<PmSim>, what: &str) -> Option<Repaired> {
    let before = contents(sim);
    let Ok(repaired) = Format.repair(&drive(sim.clone()), false) else {
        assert!(before == contents(sim), "{what}: an error, and something has changed");
        return None;
    };
    findings(sim.clone()).unwrap_or_else(|found| panic!("{what}, repaired: {found}"));
    let fs = mount(sim.clone()).unwrap_or_else(|error| panic!("{what}, repaired: {error}"));
    use_all(&*fs, fs.root(), 0);
    fs.unmount().unwrap_or_else(|error| panic!("{what}, repaired: {error}"));
    Some(repaired)
}

fn mutated_and_repaired(design: &str, count: u64) {
    let start = Start::new(design);
    let sim = power_on(&start.state);
    let table = (
        field(&sim, "superblock", None, "table_at"),
        field(&sim, "superblock", None, "data_block") * BLOCK,
    );
    let mut refused = 0;
    for seed in 0..count {
        let sim = power_on(&start.state);
        mutate(&sim, table, splitmix64(seed));
        refused += u64::from(repaired(&sim, &format!("{design}, seed {seed}")).is_none());
    }
    assert!(refused <= count / 50, "{design}: {refused} of {count} are not repaired");
}

#[test]
fn mutated_images_are_repaired() {
    ["inplace", "nova", "pnova"].into_iter().for_each(|design| mutated_and_repaired(design, 60));
}

#[test]
#[ignore = "minutes: 30,000 images"]
fn mutated_images_are_repaired_of_many() {
    let designs = ["inplace", "nova", "pnova"].into_iter();
    designs.for_each(|design| mutated_and_repaired(design, 10_000));
}

#[test]
fn a_sound_volume_needs_no_repair() {
    for design in ["inplace", "nova"] {
        let start = Start::new(design);
        let sim = power_on(&start.state);
        let repaired = Format.repair(&drive(sim.clone()), false).expect("a volume");
        assert_eq!(repaired, Repaired::default(), "{design}");
        assert!(
            contents(&sim) == contents(&power_on(&start.state)),
            "{design}: something has changed"
        );
    }
}

/// A directory that cannot be read goes, and what was in it is in `lost+found`.
#[test]
fn what_a_directory_had_is_found_again() {
    for design in ["inplace", "nova"] {
        let sim = power_on(&Start::new(design).state);
        let (dir, b) = (inode_at(&sim, "d"), inode_at(&sim, "d/b"));
        let number = (b - inode_at(&sim, "/")) / INODE_SIZE + 1;
        let read = |fs: &dyn FileSystem, path: &str| {
            path::read_to_vec(fs, ino(fs, path)).expect("contents")
        };
        let right = {
            let fs = mount(sim.clone()).expect("mount");
            let right = read(&*fs, "d/b");
            fs.unmount().expect("unmount");
            right
        };
        // A mode of no kind.
        sim.store_word(dir, sim.load(dir) | 0o170_000);
        findings(sim.clone()).expect_err("the checker sees it");
        let repaired = Format.repair(&drive(sim.clone()), false).expect("a repair");
        assert!(repaired.changed && !repaired.findings.is_empty(), "{design}: {repaired:?}");
        let name = format!("#{number}");
        assert!(repaired.reconnected.contains(&(number, name.clone())), "{repaired:?}");
        findings(sim.clone()).expect("sound");
        let fs = mount(sim).expect("mount");
        assert!(read(&*fs, &format!("lost+found/{name}")) == right, "{design}");
        assert_eq!(fs.lookup(fs.root(), b"d").expect_err("gone").errno(), Errno::NOENT);
        let file = fs.getattr(ino(&*fs, "a")).expect("a file");
        assert_eq!(file.nlink, 1, "its other name went with the directory");
    }
}

#[test]
fn no_mutated_image_panics() {
    ["inplace", "nova", "pnova"].into_iter().for_each(|design| mutated(design, 150));
}

#[test]
#[ignore = "minutes: 30,000 images"]
fn no_mutated_image_panics_of_many() {
    ["inplace", "nova", "pnova"].into_iter().for_each(|design| mutated(design, 10_000));
}
