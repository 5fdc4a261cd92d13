//! Volumes that debugfs has broken: e2fsck finds something, and so do we.

use std::fs;

use crate::judge::{Scratch, check, debugfs, e2fsck, findings, open};

/// A command of debugfs, and a word of what we find.
const BREAKS: &[(&str, &str)] = &[
    ("set_inode_field one links_count 5", "i_links_count: found 5, should be 2"),
    ("set_inode_field dir links_count 7", "i_links_count: found 7"),
    ("set_inode_field one blocks 64", "i_blocks"),
    ("set_inode_field long size 100", "i_size"),
    ("set_inode_field dir size 100000", "i_size"),
    ("set_inode_field one mode 0170777", "i_mode"),
    ("clri one", "dirent.inode"),
    ("clri dir", "dirent.inode"),
    ("unlink one", "i_links_count"),
    ("unlink dir", "not reached"),
    ("freeb 200 3000", "block bitmap"),
    ("setb 12000 5", "block bitmap"),
    ("freei one", "inode bitmap"),
    ("seti <2000>", "inode bitmap"),
    ("set_bg 0 free_blocks_count 1", "bg_free_blocks_count"),
    ("set_bg 0 free_inodes_count 1", "bg_free_inodes_count"),
    ("set_bg 0 used_dirs_count 9", "bg_used_dirs_count"),
    ("set_bg 0 checksum 1", "bg_checksum"),
    ("ssv free_blocks_count 1", "s_free_blocks_count"),
    ("ssv free_inodes_count 1", "s_free_inodes_count"),
    ("link one dir/third", "i_links_count: found 2, should be 3"),
    ("link dir again", "a directory that has no name yet"),
    ("link <1999> nobody", "dirent.inode"),
];

#[test]
fn what_e2fsck_finds_is_found() {
    let scratch = Scratch::new();
    let tree = scratch.path("tree");
    fs::create_dir_all(tree.join("dir/below")).expect("directories");
    fs::write(tree.join("one"), "1").expect("a file");
    fs::hard_link(tree.join("one"), tree.join("dir/two")).expect("a link");
    fs::write(tree.join("long"), vec![b'x'; 300_000]).expect("a file");
    let options = ["-t", "ext4", "-b", "4096"];
    let sound = scratch.made("sound", 64, &options, Some(&tree));
    assert_eq!(findings(&check(&open(&sound))), [""; 0]);
    let image = scratch.path("image");
    // With -n it ends with 0 although it ignored something.
    let speech = |said: String| said.lines().filter(|line| line.contains("? no")).count();
    let mut wrong = Vec::new();
    for (command, expected) in BREAKS {
        fs::copy(&sound, &image).expect("a copy");
        debugfs(&image, &format!("{command}\n"));
        let found_by_e2fsck = speech(e2fsck(&image, "-n").1) > 0;
        let found = findings(&check(&open(&image)));
        if !found_by_e2fsck || !found.iter().any(|line| line.contains(expected)) {
            wrong.push((command, found_by_e2fsck, found));
        }
    }
    assert!(wrong.is_empty(), "command, found by e2fsck, found by us: {wrong:#?}");
}

/// A repair by e2fsck leaves nothing for us to find.
#[test]
fn what_e2fsck_repairs_is_sound() {
    let scratch = Scratch::new();
    let tree = scratch.path("tree");
    fs::create_dir_all(tree.join("dir/below")).expect("directories");
    fs::write(tree.join("one"), "1").expect("a file");
    fs::write(tree.join("long"), vec![b'x'; 300_000]).expect("a file");
    let image = scratch.made("image", 64, &["-t", "ext4", "-b", "1024"], Some(&tree));
    let commands = "clri dir\nset_inode_field one links_count 5\nfreeb 2000 500\n";
    debugfs(&image, commands);
    assert_ne!(findings(&check(&open(&image))), [""; 0]);
    let (status, said) = e2fsck(&image, "-y");
    assert_eq!(status, 1, "{said}");
    assert_eq!(findings(&check(&open(&image))), [""; 0]);
}
