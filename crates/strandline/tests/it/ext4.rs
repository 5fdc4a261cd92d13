//! The commands that look into an image, on ext4.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::common::{self, Scratch, fails, ok, text, tool};

/// An image that mke2fs filled from a tree.
fn image(scratch: &Scratch, block_size: u32) -> String {
    let (tree, image) = (scratch.path("tree"), scratch.path("disk.img"));
    fs::create_dir_all(format!("{tree}/etc")).expect("a directory");
    fs::write(format!("{tree}/etc/motd"), "hello\n").expect("a file");
    fs::write(format!("{tree}/large"), vec![b'x'; 300_000]).expect("a file");
    drop(fs::remove_file(format!("{tree}/link")));
    symlink("etc/motd", format!("{tree}/link")).expect("a link");
    fs::File::create(&image).and_then(|file| file.set_len(64 << 20)).expect("a file");
    let line = format!("mke2fs -q -F -t ext4 -b {block_size} -L first -d {tree} {image}");
    let out = tool(Path::new("/"), &line);
    assert!(out.status.success(), "{}", text(&out.stderr));
    image
}

#[test]
fn an_image_is_looked_into() {
    let scratch = Scratch::new("ext4");
    for block_size in [1024, 4096] {
        let image = image(&scratch, block_size);
        let before = fs::read(&image).expect("an image");
        assert_eq!(ok(&format!("ls {image}:/")), "etc\nlarge\nlink\nlost+found\n");
        assert_eq!(ok(&format!("cat {image}:/link")), "hello\n");
        assert!(ok(&format!("stat {image}:/large")).contains("300000"));
        assert!(ok(&format!("tree {image}:/")).contains("motd"));
        let out = scratch.path("out");
        drop(fs::remove_dir_all(&out));
        ok(&format!("cp -r {image}:/ {out}"));
        assert_eq!(fs::read(format!("{out}/large")).expect("it is copied"), vec![b'x'; 300_000]);
        assert!(ok(&format!("dump {image}")).contains("s_volume_name"));
        assert!(ok(&format!("dump {image} group 0")).contains("bg_free_blocks_count"));
        assert!(ok(&format!("dump {image} inode 2")).contains("i_links_count"));
        assert!(ok(&format!("dump {image} dir")).contains("name:lost+found"));
        for view in ["inode 0", "extents 0", "dir 999999"] {
            let (code, said) = fails(&format!("dump {image} {view}"));
            assert!(code == 2 && said.contains("there are inodes 1 to "), "{said}");
        }
        assert!(ok(&format!("dump --json {image} extents 2")).contains("\"blocks\":1"));
        assert!(ok(&format!("dump {image} journal")).contains("s_sequence"));
        assert_eq!(ok(&format!("fsck -n {image}")), "");
        assert!(ok(&format!("label {image}")).contains("first"));
        assert!(fs::read(&image).expect("an image") == before, "nothing was changed");
        ok(&format!("label {image} second"));
        assert!(ok(&format!("label --fs ext4 {image}")).contains("second"));
        let (code, said) = fails(&format!("fsck --fs f2fs -n {image}"));
        assert!(code == 8 && said.contains("this is ext4"), "{said}");
    }
}

#[test]
fn what_is_broken_is_left_to_e2fsck() {
    let scratch = Scratch::new("ext4-broken");
    let image = image(&scratch, 4096);
    fs::write(scratch.path("commands"), "clri /etc\n").expect("a file");
    let line = format!("debugfs -w -f {} {image}", scratch.path("commands"));
    assert!(tool(Path::new("/"), &line).status.success());
    let out = common::strandline(&format!("fsck -n {image}"));
    assert_eq!(out.status.code(), Some(4), "{out:?}");
    assert!(text(&out.stdout).contains("dirent.inode"), "{out:?}");
    let before = fs::read(&image).expect("an image");
    for letters in ["-y", "-p1"] {
        let out = common::strandline(&format!("fsck {letters} {image}"));
        assert_eq!(out.status.code(), Some(4), "{out:?}");
        assert!(text(&out.stdout).contains("repaired with e2fsck"), "{out:?}");
    }
    assert!(fs::read(&image).expect("an image") == before, "nothing was changed");
}

/// Called as `fsck.ext4`, it exits as e2fsck does, whatever is the matter with the volume.
#[test]
fn its_exit_status_is_that_of_e2fsck() {
    let scratch = Scratch::new("ext4-exit");
    let image = image(&scratch, 4096);
    let (clean, logged) = (scratch.path("clean"), scratch.path("logged"));
    let (broken, none) = (scratch.path("broken"), scratch.path("none"));
    for copy in [&clean, &logged, &broken] {
        fs::copy(&image, copy).expect("a copy");
    }
    fs::write(&none, vec![0; 1 << 20]).expect("a file");
    fs::write(scratch.path("block"), vec![b'y'; 4096]).expect("a file");
    let extent = ok(&format!("dump {image} extents 14"));
    let block = extent.split("\tblock:").nth(1).and_then(|rest| rest.split('\t').next());
    let block = block.unwrap_or_else(|| panic!("an extent: {extent}"));
    let log = format!("jo\njw -b {block} {}\njc\n", scratch.path("block"));
    for (image, commands) in [(&logged, log.as_str()), (&broken, "clri /etc\n")] {
        fs::write(scratch.path("commands"), commands).expect("a file");
        let line = format!("debugfs -w -f {} {image}", scratch.path("commands"));
        assert!(tool(Path::new("/"), &line).status.success());
    }
    let name = scratch.path("fsck.ext4");
    symlink(env!("CARGO_BIN_EXE_strandline"), &name).expect("a link");
    // Which of them cannot agree: what e2fsck repairs (1), we leave to it (4).
    for volume in [&clean, &logged, &broken, &none] {
        for letters in ["-n", "-fn", "-p", "-a -C0", "-y", "-fp", "-fy"] {
            let copy = scratch.path("copy");
            let run = |program: &str| {
                fs::copy(volume, &copy).expect("a copy");
                tool(Path::new("/"), &format!("{program} {letters} {copy}")).status.code()
            };
            let (ours, theirs) = (run(&name), run("e2fsck"));
            let theirs = if theirs == Some(1) { Some(4) } else { theirs };
            assert_eq!(ours, theirs, "{letters} {volume}");
        }
    }
}

#[test]
fn a_log_is_shown_and_replayed() {
    let scratch = Scratch::new("ext4-log");
    let image = image(&scratch, 4096);
    // A copy of a block of the file, changed, goes into the log.
    fs::write(scratch.path("block"), vec![b'y'; 4096]).expect("a file");
    let extent = ok(&format!("dump {image} extents 14"));
    let block = extent.split("\tblock:").nth(1).and_then(|rest| rest.split('\t').next());
    let block = block.unwrap_or_else(|| panic!("an extent: {extent}"));
    fs::write(
        scratch.path("commands"),
        format!("jo\njw -b {block} {}\njc\n", scratch.path("block")),
    )
    .expect("a file");
    let line = format!("debugfs -w -f {} {image}", scratch.path("commands"));
    assert!(tool(Path::new("/"), &line).status.success());
    let shown = ok(&format!("dump {image} journal"));
    assert!(shown.contains("images:1"), "{shown}");
    let tid = shown.split("tid:").nth(1).and_then(|rest| rest.split('\t').next()).expect("a tid");
    assert!(ok(&format!("dump {image} journal {tid}")).contains(&format!("block:{block}\t")));
    let out = ok(&format!("fsck -n {image}"));
    assert!(out.contains("recovery is due: 1 "), "{out}");
    let out = common::strandline(&format!("fsck -p {image}"));
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    assert_eq!(ok(&format!("fsck -n {image}")), "");
    let line = format!("e2fsck -fn {image}");
    assert!(tool(Path::new("/"), &line).status.success());
}

/// An image with a copy of its own block `at` in the log, as a cut leaves it: the superblock's
/// totals are stale, and recovery is due.
fn cut_image(scratch: &Scratch, at: u64) -> String {
    let image = image(scratch, 4096);
    let bytes = fs::read(&image).expect("an image");
    let start = at as usize * 4096;
    fs::write(scratch.path("block"), &bytes[start..start + 4096]).expect("a file");
    let log = format!("jo\njw -b {at} {}\njc\n", scratch.path("block"));
    debugfs(scratch, &image, &format!("{log}ssv free_blocks_count 7\nssv free_inodes_count 7\n"));
    image
}

fn debugfs(scratch: &Scratch, image: &str, commands: &str) {
    fs::write(scratch.path("commands"), commands).expect("a file");
    let line = format!("debugfs -w -f {} {image}", scratch.path("commands"));
    assert!(tool(Path::new("/"), &line).status.success());
}

/// `s_state`.
fn state(image: &str) -> u8 {
    fs::read(image).expect("an image")[1024 + 58]
}

fn is_sound_for_e2fsck(image: &str) -> bool {
    tool(Path::new("/"), &format!("e2fsck -fn {image}")).status.success()
}

/// The superblock's totals do not follow each change: after a cut they are stale, which recovery
/// mends without a word.
#[test]
fn stale_totals_are_no_error_after_a_cut() {
    let scratch = Scratch::new("ext4-stale");
    let (cut, copy, name) =
        (cut_image(&scratch, 1), scratch.path("copy"), scratch.path("fsck.ext4"));
    symlink(env!("CARGO_BIN_EXE_strandline"), &name).expect("a link");
    for letters in ["-n", "-fn", "-p", "-a", "-y", "-fy", "-f"] {
        fs::copy(&cut, &copy).expect("a copy");
        let out = tool(Path::new("/"), &format!("{name} {letters} {copy}"));
        assert_eq!(out.status.code(), Some(0), "{letters}: {out:?}");
        if letters.contains('n') {
            assert!(fs::read(&copy).expect("a copy") == fs::read(&cut).expect("it"), "{letters}");
        } else {
            assert!(is_sound_for_e2fsck(&copy), "{letters}");
            assert_eq!(ok(&format!("fsck -n {copy}")), "", "the totals are right: {letters}");
        }
    }
    // On a volume that was unmounted, they are right or wrong.
    let image = image(&scratch, 4096);
    debugfs(&scratch, &image, "ssv free_blocks_count 7\n");
    let out = common::strandline(&format!("fsck -n {image}"));
    assert_eq!(out.status.code(), Some(4), "{out:?}");
    assert!(text(&out.stdout).contains("s_free_blocks_count"), "{out:?}");
}

#[test]
fn a_mark_of_errors_goes_when_there_are_none() {
    let scratch = Scratch::new("ext4-marked");
    for state in [2, 3] {
        let image = image(&scratch, 4096);
        debugfs(&scratch, &image, &format!("ssv state {state}\nssv error_count 5\n"));
        ok(&format!("fsck -n {image}"));
        assert_eq!(self::state(&image), state);
        let out = common::strandline(&format!("fsck -p {image}"));
        assert_eq!(out.status.code(), Some(1), "{out:?}");
        assert_eq!(self::state(&image), 1);
        assert!(is_sound_for_e2fsck(&image));
    }
    // An error keeps the mark.
    let image = image(&scratch, 4096);
    debugfs(&scratch, &image, "ssv state 3\nclri /etc\n");
    let out = common::strandline(&format!("fsck -p {image}"));
    assert_eq!(out.status.code(), Some(4), "{out:?}");
    assert!(text(&out.stdout).contains("repaired with e2fsck"), "{out:?}");
    assert_eq!(state(&image), 3);
}

/// The log may have the superblock: a label that is set before recovery would be lost by it.
#[test]
fn a_label_outlives_recovery() {
    let scratch = Scratch::new("ext4-label");
    let image = cut_image(&scratch, 0);
    ok(&format!("label {image} second"));
    common::strandline(&format!("fsck -p {image}"));
    assert!(ok(&format!("label {image}")).contains("second"));
    assert!(is_sound_for_e2fsck(&image));
}

/// What e2fsprogs has and this has not is refused in one line that names their program.
#[test]
fn what_other_programs_do_is_left_to_them() {
    let scratch = Scratch::new("ext4-others");
    let (image, name) = (image(&scratch, 4096), scratch.path("fsck.ext4"));
    symlink(env!("CARGO_BIN_EXE_strandline"), &name).expect("a link");
    let before = fs::read(&image).expect("an image");
    for letters in ["-b 32768 -n", "-B4096", "-D", "-E journal_only", "-fcy"] {
        let out = tool(Path::new("/"), &format!("{name} {letters} {image}"));
        let said = text(&out.stderr);
        assert!(out.status.code() == Some(16) && said.contains("only e2fsck does that"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    let out = tool(Path::new("/"), &format!("{name} -Fkfn {image}"));
    assert!(out.status.success(), "{out:?}");
    for (command, other) in [("resize", "resize2fs"), ("defrag", "e4defrag")] {
        let (code, said) = fails(&format!("{command} {image}"));
        assert!(code == 1 && said.contains(other), "{said}");
    }
    assert!(fs::read(&image).expect("an image") == before, "nothing was changed");
    // Without a superblock, e2fsck is named; it has backups.
    let mut bytes = before;
    bytes[1024..2048].fill(0);
    fs::write(&image, bytes).expect("an image");
    let out = common::strandline(&format!("fsck --fs ext4 -n {image}"));
    assert_eq!(out.status.code(), Some(4), "{out:?}");
    assert!(text(&out.stdout).contains("e2fsck repairs it"), "{out:?}");
}

/// Small blocks may end within a block of the drive.
#[test]
fn an_image_that_ends_within_a_block_is_refused_with_what_helps() {
    let scratch = Scratch::new("ext4-tail");
    let image = image(&scratch, 1024);
    let line = format!("mke2fs -q -F -t ext4 -b 1024 {image} 20481");
    assert!(tool(Path::new("/"), &line).status.success());
    let file = fs::File::options().write(true).open(&image).expect("an image");
    file.set_len(20_481 << 10).expect("it is cut");
    let (_, said) = fails(&format!("ls {image}:/"));
    assert!(said.contains("'truncate -s %4096 FILE'"), "{said}");
    assert!(tool(Path::new("/"), &format!("truncate -s %4096 {image}")).status.success());
    assert_eq!(ok(&format!("ls {image}:/")), "lost+found\n");
}
