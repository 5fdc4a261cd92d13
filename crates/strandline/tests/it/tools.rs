//! The tools beside f2fs-tools' own: `mkfs --from` and sload.f2fs, `dump` and dump.f2fs, `label`
//! and f2fslabel.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

use crate::common::manifest::{compare, make_tree, manifest, set_times};
use crate::common::{Scratch, assert_fsck_clean, fails, ok, strandline, text, tool};

const UUID: &str = "6ba7b810-9dad-41d1-80b4-00c04fd430c8";

fn image(scratch: &Scratch, name: &str, megabytes: u64) -> String {
    let path = scratch.path(name);
    fs::File::create(&path).unwrap().set_len(megabytes << 20).unwrap();
    path
}

#[test]
fn the_same_tree_makes_the_same_image() {
    let scratch = Scratch::new("mkfs-from");
    let tree = scratch.0.join("tree");
    make_tree(&tree);
    set_times(&tree);
    let was = manifest(&tree);
    let make = |name: &str, tree: &Path, options: &str| {
        let image = image(&scratch, name, 160);
        ok(&format!("mkfs -q -r -U {UUID} {options} --from {} {image}", tree.display()));
        assert_fsck_clean(&image);
        fs::read(image).unwrap()
    };
    for options in ["", "-T 1700000000", "-O extra_attr,inode_checksum,inode_crtime"] {
        assert!(make("a.img", &tree, options) == make("b.img", &tree, options), "{options}");
    }
    // The same files made in another order, in another place.
    let moved = scratch.0.join("moved");
    ok_tool(&scratch, &format!("cp -a {} {}", tree.display(), moved.display()));
    for name in ["small", "sub/large"] {
        fs::rename(moved.join(name), moved.join("aside")).unwrap();
        fs::rename(moved.join("aside"), moved.join(name)).unwrap();
    }
    ok_tool(&scratch, &format!("cp -a {}/. {}", tree.display(), moved.display()));
    assert!(make("a.img", &tree, "") == make("b.img", &moved, ""));
    ok(&format!("cp -a {}:/. {}", scratch.path("a.img"), scratch.path("back")));
    let mut is = manifest(&scratch.0.join("back"));
    // Access times are those of modification: anything else would not be reproducible.
    for (name, entry) in is.iter_mut().filter(|(_, entry)| entry.atime.is_some()) {
        // Under its second name a file has been read already, and its access time shows it.
        if entry.same_as == *name {
            assert_eq!(entry.atime, Some(entry.mtime), "{:?}", text(name));
        }
        entry.atime = was[name].atime;
    }
    compare(&was, &is);
}

fn ok_tool(scratch: &Scratch, line: &str) -> String {
    let out = tool(&scratch.0, line);
    assert!(out.status.success(), "{line}: {}", text(&out.stderr));
    text(&out.stdout)
}

/// A tree of what sload.f2fs knows: no hard links, no attributes, no holes.
fn plain_tree(tree: &Path) {
    fs::create_dir_all(tree.join("d/e")).unwrap();
    fs::write(tree.join("inline"), b"small").unwrap();
    fs::write(tree.join("large"), vec![7; 9_000_000]).unwrap();
    symlink("../inline", tree.join("d/link")).unwrap();
    for i in 0..500 {
        fs::write(tree.join(format!("d/file-{i:03}")), format!("{i}\n")).unwrap();
    }
    fs::set_permissions(tree.join("inline"), fs::Permissions::from_mode(0o4750)).unwrap();
}

#[test]
fn mkfs_from_makes_the_tree_that_sload_f2fs_makes() {
    let scratch = Scratch::new("mkfs-sload");
    let tree = scratch.0.join("tree");
    plain_tree(&tree);
    let stock = image(&scratch, "stock.img", 128);
    ok_tool(&scratch, &format!("mkfs.f2fs -q -f {stock}"));
    ok_tool(&scratch, &format!("sload.f2fs -P -f {} {stock}", tree.display()));
    let ours = image(&scratch, "ours.img", 128);
    ok(&format!("mkfs --from {} {ours}", tree.display()));
    assert_fsck_clean(&ours);
    let out = |image: &str, name: &str| {
        ok(&format!("cp -a {image}:/. {}", scratch.path(name)));
        let mut tree = manifest(&scratch.0.join(name));
        // sload.f2fs keeps whole seconds, and does not tell the times of links apart.
        for entry in tree.values_mut() {
            (entry.mtime, entry.atime) = ((entry.mtime.0, 0), None);
            if entry.mode & 0o170_000 == 0o120_000 {
                entry.mtime = (0, 0);
            }
        }
        tree.remove(&b""[..]);
        tree
    };
    let (mut theirs, mut ours) = (out(&stock, "theirs"), out(&ours, "mine"));
    for name in [&b"d"[..], b"d/e"] {
        // A directory's times are left as its filling made them.
        for tree in [&mut theirs, &mut ours] {
            tree.get_mut(name).unwrap().mtime = (0, 0);
        }
    }
    compare(&theirs, &ours);
}

#[test]
fn labels_are_those_f2fslabel_sees() {
    let scratch = Scratch::new("label");
    let image = image(&scratch, "v.img", 64);
    ok(&format!("mkfs -U {UUID} -l first -O sb_checksum,extra_attr,inode_checksum {image}"));
    assert_eq!(ok(&format!("label {image}")), "Info: volume label = first\n");
    assert_eq!(ok(&format!("label --uuid {image}")), format!("{UUID}\n"));
    ok(&format!("label {image} f\u{fc}nf-\u{1f600}"));
    let said = ok_tool(&scratch, &format!("f2fslabel {image}"));
    assert!(said.contains("volume label = f\u{fc}nf-\u{1f600}"), "{said}");
    assert_fsck_clean(&image);
    ok_tool(&scratch, &format!("f2fslabel {image} theirs"));
    assert!(ok(&format!("label --json {image}")).contains("\"label\":\"theirs\""));
    ok(&format!("label {image} {}", "x".repeat(512)));
    let (code, said) = fails(&format!("label {image} {}", "x".repeat(513)));
    assert!(code == 1 && said.contains("512"), "{said}");
    // One copy is enough, and setting the label restores the second.
    fs::File::options().write(true).open(&image).unwrap().write_all_at(&[0; 4096], 0).unwrap();
    ok(&format!("label {image} again"));
    assert_fsck_clean(&image);
}

/// `name [0x hex : decimal]` lines, by name.
fn numbers(said: &str) -> BTreeMap<String, u64> {
    let line = |line: &str| {
        let (name, rest) = line.split_once('[').filter(|(name, _)| !name.starts_with('['))?;
        let (_, decimal) = rest.strip_suffix(']')?.split_once(" : ")?;
        let (name, rest) = match name.trim_end() {
            // `i_addr[0x7]`, `i_nid[0]`, `cur_node_segno[1]`
            name if rest.contains('[') => {
                let (index, _) = rest.split_once(']')?;
                (format!("{name}[{index}]"), rest.split_once('[')?.1)
            }
            name => (name.to_owned(), rest),
        };
        let decimal =
            rest.strip_suffix(']').and_then(|r| r.rsplit_once(" : ")).map_or(decimal, |r| r.1);
        Some((name, decimal.parse().ok()?))
    };
    said.lines().filter_map(line).collect()
}

/// We show everything that dump.f2fs shows.
fn assert_covers(ours: &str, theirs: &str, what: &str) {
    let (ours, mut theirs) = (numbers(ours), numbers(theirs));
    // dump.f2fs shows a byte of the bitmaps, and text of an inline file as addresses.
    theirs.remove("sit_nat_version_bitmap[0]");
    assert!(theirs.len() > 10, "{what}: {theirs:?}");
    for (name, value) in theirs {
        assert_eq!(ours.get(&name), Some(&value), "{what}: {name} in {ours:?}");
    }
}

#[test]
fn dump_says_what_dump_f2fs_says() {
    let scratch = Scratch::new("dump");
    let tree = scratch.0.join("tree");
    plain_tree(&tree);
    let image = image(&scratch, "v.img", 128);
    ok_tool(&scratch, &format!("mkfs.f2fs -q -f -O extra_attr,inode_checksum {image}"));
    ok_tool(&scratch, &format!("sload.f2fs -P -f {} {image}", tree.display()));
    let theirs = ok_tool(&scratch, &format!("dump.f2fs -d1 {image}"));
    assert_covers(&ok(&format!("dump {image}")), &theirs, "superblock and checkpoint");
    let inodes = ok(&format!("dump {image} nat"));
    let inodes: Vec<&str> = inodes.lines().filter_map(|l| l.split(['\t', ':']).nth(1)).collect();
    assert!(inodes.len() > 500);
    for nid in inodes.iter().filter(|nid| nid.parse::<u32>().unwrap() >= 3).step_by(97) {
        let theirs = tool(&scratch.0, &format!("dump.f2fs -i {nid} {image}"));
        assert_covers(&ok(&format!("dump -i {nid} {image}")), &text(&theirs.stdout), nid);
    }
    compare_tables(&scratch, &image);
    let names: Vec<String> = ok(&format!("dump --json {image} dir 3"))
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["name"].to_string())
        .collect();
    for name in [".", "..", "d", "inline", "large"] {
        assert!(names.contains(&format!("\"{name}\"")), "{names:?}");
    }
    let attr: serde_json::Value =
        serde_json::from_str(&ok(&format!("stat --json {image}:/large"))).unwrap();
    let extents = ok(&format!("dump -M -i {} {image}", attr["ino"]));
    let blocks: u64 = extents
        .lines()
        .filter_map(|line| line.rsplit_once("\tlen:").map(|(_, len)| len.parse::<u64>().unwrap()))
        .sum();
    assert_eq!(blocks, 9_000_000_u64.div_ceil(4096));
    for wrong in ["inode 99999999", "inode many", "inode", "sit 3~1", "inodes"] {
        assert_eq!(fails(&format!("dump {image} {wrong}")).0, 2, "{wrong}");
    }
}

/// `key: value` pairs of a line.
fn pairs(line: &str) -> BTreeMap<String, String> {
    let mut words = line.split(['\t', ':', ' ']).filter(|word| !word.is_empty());
    let mut pairs = BTreeMap::new();
    while let (Some(key), Some(value)) = (words.next(), words.next()) {
        pairs.insert(key.to_owned(), value.to_owned());
    }
    pairs
}

fn compare_tables(scratch: &Scratch, image: &str) {
    let theirs = |option: &str, file: &str, head: &str| -> Vec<BTreeMap<String, String>> {
        ok_tool(scratch, &format!("dump.f2fs {option} 0~-1 {image}"));
        let text = fs::read_to_string(scratch.0.join(file)).unwrap();
        text.lines().filter(|line| line.starts_with(head)).map(pairs).collect()
    };
    let ours = |view: &str| -> Vec<BTreeMap<String, String>> {
        ok(&format!("dump {image} {view}")).lines().map(pairs).collect()
    };
    for (option, file, view, key, fields) in [
        ("-n", "dump_nat", "nat", "nid", &["ino", "blkaddr"][..]),
        ("-s", "dump_sit", "sit", "segno", &["vblocks", "seg_type"]),
    ] {
        let by_key = |rows: Vec<BTreeMap<String, String>>| -> BTreeMap<String, Vec<String>> {
            let row = |r: BTreeMap<String, String>| {
                (r[key].clone(), fields.iter().map(|f| r[*f].clone()).collect())
            };
            rows.into_iter()
                .map(row)
                .filter(|(k, _)| !(view == "nat" && k.len() == 1 && k < &"3".into()))
                .collect()
        };
        let (ours, theirs) = (by_key(ours(view)), by_key(theirs(option, file, &format!("{key}:"))));
        assert!(theirs.len() > 20, "{view}");
        assert_eq!(ours, theirs, "{view}");
    }
    let ssa = ok(&format!("dump {image} ssa 0"));
    assert!(ssa.contains("entry_type:Node") && ssa.contains("nid:3"), "{ssa}");
}

#[test]
fn a_damaged_volume_is_dumped_as_far_as_it_goes() {
    let scratch = Scratch::new("dump-damage");
    let image = image(&scratch, "v.img", 64);
    let tree = scratch.0.join("tree");
    plain_tree(&tree);
    ok(&format!("mkfs --from {} {image}", tree.display()));
    let good = fs::read(&image).unwrap();
    let mut random = 88_172_645_463_325_252_u64;
    let mut next = |below: usize| {
        // Marsaglia's xorshift64.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below as u64) as usize
    };
    for round in 0..12 {
        let mut bad = good.clone();
        for _ in 0..200 {
            // Half of it where there is metadata.
            let at = if next(2) == 0 { next(0x1010 * 4096) } else { next(bad.len()) };
            bad[at] = next(256) as u8;
        }
        let whole = next(0x1010) * 4096;
        bad[whole..whole + 4096].fill(next(256) as u8);
        fs::write(&image, &bad).unwrap();
        for view in
            ["", "superblock", "checkpoint", "nat", "sit", "ssa", "inode 3", "dir 3", "block 4096"]
        {
            let out = strandline(&format!("dump {image} {view}"));
            let said = text(&out.stderr);
            assert!(matches!(out.status.code(), Some(0 | 1)), "round {round}, {view}: {said}");
            assert!(!said.contains("panicked"), "round {round}, {view}: {said}");
        }
    }
    fs::write(&image, vec![0; 1 << 20]).unwrap();
    assert_eq!(strandline(&format!("dump {image}")).status.code(), Some(1));
}

#[test]
fn resize_and_defrag_keep_every_file() {
    let scratch = Scratch::new("resize");
    let tree = scratch.0.join("tree");
    plain_tree(&tree);
    let image = image(&scratch, "v.img", 64);
    ok(&format!("mkfs -q --from {} {image}", tree.display()));
    let was = manifest(&tree);
    fs::File::options().write(true).open(&image).unwrap().set_len(1 << 30).unwrap();
    let said = ok(&format!("resize {image}"));
    assert!(said.contains("-> 2097152 (1024 MB)"), "{said}");
    assert_fsck_clean(&image);
    assert!(ok(&format!("resize {image}")).contains("nothing to resize"));
    ok(&format!("resize -t 163840 {image}"));
    fs::File::options().write(true).open(&image).unwrap().set_len(163_840 * 512).unwrap();
    assert_fsck_clean(&image);
    let said = ok(&format!("defrag -v {image}"));
    assert!(said.contains("/large: 2,198 blocks, "), "{said}");
    let said = ok(&format!("defrag {image}"));
    assert!(said.lines().count() == 1 && said.contains(" moved, "), "{said}");
    assert_fsck_clean(&image);
    assert_eq!(fails(&format!("resize -t 99999999 {image}")).0, 1);
    assert_eq!(fails(&format!("defrag {image}:/nowhere")).0, 1);
    ok(&format!("cp -a {image}:/. {}", scratch.path("back")));
    let mut is = manifest(&scratch.0.join("back"));
    for (name, entry) in &mut is {
        entry.atime = was[name].atime;
    }
    compare(&was, &is);
}
