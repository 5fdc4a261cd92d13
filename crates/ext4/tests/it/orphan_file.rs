//! Orphans that another mount has left in the orphan file (`mke2fs -O orphan_file`).

use std::os::unix::fs::FileExt;

use ext4::ondisk::orphan;
use ext4::ondisk::superblock::{RawSuperblock, Superblock};
use vfs::{Creator, FileSystem, SetAttr, Timespec};

use crate::harness::{Image, debugfs};

/// The number behind `word` in what debugfs said.
fn number(said: &str, word: &str) -> u64 {
    let rest = said.split(word).nth(1).and_then(|rest| rest.split_whitespace().next());
    rest.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{word}: {said}"))
}

#[test]
fn the_orphan_file_is_emptied_at_mount() {
    let image = Image::with_features(64, "orphan_file");
    let fs = image.mount();
    let before = fs.statfs().unwrap().blocks_free;
    let old = Timespec { secs: 1_600_000_000, nanos: 0 };
    for name in [b"gone", b"cut "] {
        let ino = fs.create(fs.root(), name, 0o644, Creator::default()).unwrap().ino;
        fs.write(ino, 0, &vec![7; 100_000]).unwrap();
        fs.setattr(ino, &SetAttr { mtime: Some(old), ..SetAttr::default() }).unwrap();
    }
    fs.unmount().unwrap();
    drop(fs);
    image.assert_clean("made");

    // What a kernel leaves that lost power: one without links, one with blocks behind its end.
    let inos = ["gone", "\"cut \""].map(|name| debugfs(&image, &[&format!("stat {name}")]));
    let inos = inos.map(|said| number(&said, "Inode: ") as u32);
    let cut = format!("sif <{}> size 5000", inos[1]);
    let gone = format!("sif <{}> links_count 0", inos[0]);
    debugfs(&image, &["unlink gone", &gone, &cut, "feature orphan_present"]);
    let mut first = [0; 4096];
    let file = std::fs::OpenOptions::new().read(true).write(true).open(image.name()).unwrap();
    file.read_exact_at(&mut first, 0).unwrap();
    let raw = RawSuperblock::of_first_block(&first).unwrap();
    let orphans = raw.orphan_file_inum.get();
    let sb = Superblock::parse(raw, 0).unwrap();
    let said = debugfs(&image, &[&format!("stat <{orphans}>"), &format!("blocks <{orphans}>")]);
    let generation = number(&said, "Generation: ") as u32;
    let at: u64 =
        said.lines().last().and_then(|line| line.split(' ').next()).unwrap().parse().unwrap();
    let mut block = vec![0; 4096];
    file.read_exact_at(&mut block, at * 4096).unwrap();
    orphan::set_slot(&mut block, 3, inos[0]);
    orphan::set_slot(&mut block, 900, inos[1]);
    orphan::seal(&mut block, sb.checksums.inode_seed(orphans, generation).unwrap(), at);
    file.write_all_at(&block, at * 4096).unwrap();

    let fs = image.mount();
    assert_eq!(fs.orphans(), 2);
    let cut = fs.getattr(inos[1].into()).unwrap();
    assert_eq!((cut.size, cut.blocks), (5000, 16));
    assert!(cut.mtime > old, "the truncation ended now: {:?}", cut.mtime);
    fs.sync().unwrap();
    assert_eq!(fs.statfs().unwrap().blocks_free, before - 2);
    fs.unmount().unwrap();
    drop(fs);
    image.assert_clean("emptied");
    assert_eq!(image.mount().orphans(), 0);
}
