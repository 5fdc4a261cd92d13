//! Mistakes and malice: the wrong file, a truncated one, one without end, a reader that leaves. One
//! line that says why, the right exit status, nothing left behind.

use std::fs::File;
use std::process::{Command, Stdio};

use crate::common::{Scratch, assert_fsck_clean, fails, ok, strandline, text};

/// A volume in a plain file of `bytes`.
fn plain(scratch: &Scratch, bytes: u64) -> String {
    let image = scratch.path("plain.img");
    File::create(&image).and_then(|file| file.set_len(bytes)).expect("a file");
    ok(&format!("mkfs -q {image}"));
    image
}

#[test]
fn an_image_that_was_cut_short_is_refused_or_left_as_it_is() {
    let scratch = Scratch::new("cut-short");
    let image = plain(&scratch, 64 << 20);
    for bytes in [0, 4095, 4096, 8192, 2 << 20, 67_108_863] {
        File::options().write(true).open(&image).unwrap().set_len(bytes).expect("shorter");
        let before = std::fs::read(&image).expect("the image");
        for how in ["-n", "-y"] {
            let out = strandline(&format!("fsck {how} {image}"));
            let said = text(&out.stdout) + &text(&out.stderr);
            assert_eq!(out.status.code(), Some(8), "{bytes} bytes, {how}: {said}");
            assert!(!said.contains("-y repairs"), "{bytes} bytes, {how}: {said}");
            let names_it = said.contains("the drive") || said.contains("plain.img");
            assert!(names_it, "{bytes} bytes, {how}: {said}");
        }
        let (code, said) = fails(&format!("ls {image}:/"));
        assert_eq!((code, said.lines().count()), (1, 1), "{bytes} bytes: {said}");
        assert!(std::fs::read(&image).expect("the image") == before, "{bytes} bytes: changed");
        // Sound again, for the next cut.
        drop(std::fs::remove_file(&image));
        plain(&scratch, 64 << 20);
    }
}

/// As a copy of a partition of 512-byte sectors may be.
#[test]
fn an_image_need_not_end_with_a_block() {
    let scratch = Scratch::new("odd-size");
    let image = plain(&scratch, (64 << 20) + 512);
    ok(&format!("cp {} {image}:/f", file!().replace("crates/strandline/", "")));
    assert!(ok(&format!("ls {image}:/")).contains('f'));
    ok(&format!("fsck {image}"));
    assert_fsck_clean(&image);
}

/// `cp disk.img:/f disk.img` would leave no image, and a tree may well have the image in it.
#[test]
fn an_image_is_neither_overwritten_nor_put_into_itself() {
    let scratch = Scratch::new("itself");
    let image = plain(&scratch, 64 << 20);
    let dir = scratch.path("");
    std::fs::write(scratch.path("f"), "f").expect("a file");
    ok(&format!("cp {} {image}:/plain.img", scratch.path("f")));
    for line in [
        format!("cp {image}:/plain.img {image}"),
        format!("cp {image}:/plain.img {dir}"),
        format!("cp -r {image}:/. {dir}"),
        format!("cp {image} {image}:/self"),
        format!("cp -r {dir}. {image}:/"),
    ] {
        let (code, said) = fails(&line);
        assert_eq!((code, said.lines().count()), (1, 1), "{line}: {said}");
        assert!(said.contains("plain.img': Device or resource busy"), "{line}: {said}");
    }
    // The rest of the tree is there.
    assert_eq!(ok(&format!("ls {image}:/")), "f\nplain.img\n");
    assert_eq!(fails(&format!("mkfs -f -q --from {dir} {image}")).0, 1);
    assert_eq!(ok(&format!("ls {image}:/")), "f\n");
    assert_fsck_clean(&image);
}

#[test]
fn what_is_to_be_copied_has_to_be_there_before_a_volume_is_overwritten() {
    let scratch = Scratch::new("from-nothing");
    let image = plain(&scratch, 64 << 20);
    std::fs::write(scratch.path("f"), "f").expect("a file");
    ok(&format!("cp {} {image}:/kept", scratch.path("f")));
    for from in [scratch.path("nothing"), scratch.path("f")] {
        let (code, said) = fails(&format!("mkfs -f --from {from} {image}"));
        assert_eq!((code, said.contains(&from)), (1, true), "{said}");
    }
    assert_eq!(ok(&format!("ls {image}:/")), "kept\n");
}

#[test]
fn a_tree_that_does_not_fit_leaves_the_old_volume_alone() {
    let scratch = Scratch::new("from-too-large");
    let image = plain(&scratch, 64 << 20);
    std::fs::create_dir(scratch.path("tree")).expect("a directory");
    std::fs::write(scratch.path("tree/large"), vec![1; 60 << 20]).expect("a file");
    ok(&format!("cp {} {image}:/kept", file!().replace("crates/strandline/", "")));
    let before = std::fs::read(&image).expect("the image");
    let (code, said) = fails(&format!("mkfs -f --from {} {image}", scratch.path("tree")));
    assert_eq!((code, said.lines().count()), (1, 1), "{said}");
    assert!(said.contains("needs about 61 MiB: there would be room for "), "{said}");
    assert!(std::fs::read(&image).expect("the image") == before, "it was formatted");
}

#[test]
fn what_mkfs_cannot_mean_is_wrong_usage() {
    let scratch = Scratch::new("mkfs-usage");
    let image = scratch.path("plain.img");
    File::create(&image).and_then(|file| file.set_len(64 << 20)).expect("a file");
    for (words, allowed) in [
        ("-o 100", "above 0 and below 100"),
        ("-o lots", "above 0 and below 100"),
        ("-w 1000", "512, 1024, 2048 or 4096"),
        ("-s 0", "1..="),
        ("-z 0", "1..="),
    ] {
        let (code, said) = fails(&format!("mkfs {words} {image}"));
        assert_eq!((code, said.contains(allowed)), (2, true), "{words}: {said}");
    }
    let (code, said) = fails(&format!("mkfs {image}.nowhere"));
    assert!(code == 1 && said.contains("'strandline drive create' makes a drive"), "{said}");
    let (code, said) = fails(&format!("ls {image}.nowhere:/"));
    assert!(code == 1 && said.ends_with("nowhere: No such file or directory\n"), "{said}");
}

#[test]
fn a_copy_within_an_image_is_not_said_to_be_anothers() {
    let scratch = Scratch::new("within");
    let image = plain(&scratch, 64 << 20);
    let (code, said) = fails(&format!("cp {image}:/a {image}:/b"));
    assert_eq!((code, said.lines().count()), (2, 1), "{said}");
    assert!(said.contains("both sides are inside this image"), "{said}");
}

#[test]
fn what_a_volume_does_not_have_is_not_shown_as_nothing() {
    let scratch = Scratch::new("dump-beyond");
    let image = plain(&scratch, 64 << 20);
    for (words, why) in [
        ("nat 99999999", "99999999: the NAT's entries are 0 to "),
        ("sit 5000~-1", "5000: the segments are 0 to "),
        ("ssa 5000", "5000: the segments are 0 to "),
        ("inode 99999999", "99999999: the numbers of nodes are 3 to "),
        ("node 1", "1: the numbers of nodes are 3 to "),
        ("block 0x4000", "0x4000: the drive's blocks are 0 to 0x3fff"),
        ("superblock 3", "superblock 3: both copies are shown"),
        ("checkpoint 1", "checkpoint 1: both copies are shown"),
    ] {
        let (code, said) = fails(&format!("dump {image} {words}"));
        assert_eq!((code, said.lines().count()), (2, 1), "{words}: {said}");
        assert!(said.contains(why) && !said.contains("corrupt"), "{words}: {said}");
    }
    assert!(ok(&format!("dump {image} sit 0~-1")).contains("segno"));
}

#[test]
fn what_has_no_end_is_not_read_to_it() {
    let scratch = Scratch::new("endless");
    let image = plain(&scratch, 64 << 20);
    let new = scratch.path("new.img");
    for (line, status) in [
        (format!("drive import {image} --zones /dev/zero {new}"), 2),
        (format!("drive serve {image} --listen 127.0.0.1:0 --dhchap-key-file /dev/zero"), 2),
        (format!("fsck --undo /dev/zero {image}"), 8),
        ("crash --workload file:/dev/zero".into(), 2),
        ("crash merge /dev/zero".into(), 2),
    ] {
        let (code, said) = fails(&line);
        assert_eq!((code, said.lines().count()), (status, 1), "{line}: {said}");
        assert!(said.contains("/dev/zero"), "{line}: {said}");
    }
    assert!(!std::path::Path::new(&new).exists());
}

/// Runs a command whose standard output is closed.
fn unheard(line: &str) -> Option<i32> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_strandline"));
    command.args(line.split_whitespace()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("the command starts");
    drop(child.stdout.take());
    child.wait().expect("it ends").code()
}

#[test]
fn a_verdict_does_not_depend_on_who_reads_it() {
    let scratch = Scratch::new("unheard");
    let image = plain(&scratch, 64 << 20);
    assert_eq!(unheard(&format!("fsck -n {image}")), Some(0));
    let file = File::options().write(true).open(&image).expect("the image");
    // The newer checkpoint and the older one.
    [512_u64, 1024].iter().for_each(|block| {
        use std::os::unix::fs::FileExt;
        file.write_all_at(&[1; 4096], block * 4096).expect("a write");
    });
    assert_eq!(unheard(&format!("fsck -n {image}")), Some(4));
    let cuts = "--modes oprw --cuts 300 --seed 1 --inject skip-wp-check";
    for how in ["", "--json", "--shard 1/1"] {
        assert_eq!(unheard(&format!("crash {cuts} {how}")), Some(1), "{how}");
    }
    let share = scratch.path("share.jsonl");
    let shown = strandline(&format!("crash {cuts} --shard 1/1")).stdout;
    std::fs::write(&share, shown).expect("a file");
    assert_eq!(unheard(&format!("crash merge {share}")), Some(1));
}

#[test]
fn what_cannot_be_defragmented_is_left_in_good_order() {
    let scratch = Scratch::new("defrag-nothing");
    let image = plain(&scratch, 64 << 20);
    let (code, said) = fails(&format!("defrag {image}:/nothing"));
    assert_eq!((code, said.contains("/nothing: No such file")), (1, true), "{said}");
    assert_eq!(unheard(&format!("defrag {image}")), Some(0));
    // Not even a recovery is left to do.
    let said = ok(&format!("fsck -n {image}"));
    assert!(!said.contains("recovery is due"), "{said}");
}

/// A shard that was killed before it printed anything.
#[test]
fn nothing_is_no_share_of_a_campaign() {
    let scratch = Scratch::new("no-share");
    let empty = scratch.path("empty.jsonl");
    File::create(&empty).expect("a file");
    let (code, said) = fails(&format!("crash merge {empty}"));
    assert_eq!((code, said.contains("no share")), (2, true), "{said}");
}

#[test]
fn a_report_that_cannot_be_written_is_not_waited_for() {
    let scratch = Scratch::new("no-report");
    let file = scratch.path("file");
    File::create(&file).expect("a file");
    let (code, said) = fails(&format!("lab run table-6.2 --cuts 100000 --out {file}/out"));
    assert_eq!((code, said.contains(&file)), (1, true), "{said}");
}

#[test]
fn a_device_given_twice_is_not_said_to_be_in_use() {
    let scratch = Scratch::new("twice");
    let image = plain(&scratch, 64 << 20);
    let (code, said) = fails(&format!("mkfs -f -c {image} {image}"));
    assert_eq!((code, said.lines().count()), (1, 1), "{said}");
    assert!(said.contains("given twice"), "{said}");
}

#[test]
fn a_table_that_cannot_be_written_is_known_before_the_work() {
    let (code, said) = fails("lab explore --length 3 --table /nowhere/outcomes.md");
    assert_eq!((code, said.lines().count()), (1, 1), "{said}");
    assert!(said.contains("/nowhere/outcomes.md"), "{said}");
}

#[test]
fn a_message_says_what_to_do_next() {
    let scratch = Scratch::new("next-step");
    let (image, dir) = (plain(&scratch, 64 << 20), scratch.path(""));
    let lock = File::open(&image).expect("the image");
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).expect("a lock");
    let us = format!("in use by process {}", std::process::id());
    for (line, next) in [
        (format!("fsck {image}"), &*us),
        (format!("label {image}"), &*us),
        (format!("ls {dir}:/"), "a file or a block device is needed"),
        ("monut a b".into(), "similar subcommands exist: 'umount', 'mount'"),
        ("fsck --resuce x".into(), "a similar argument exists: '--rescue'"),
        ("mount a b -o fsync_mod=strict".into(), "did you mean fsync_mode?"),
        (format!("mkfs -f {}", small(&scratch)), "the least is "),
    ] {
        let (_, said) = fails(&line);
        assert_eq!(said.lines().count(), 1, "{line}: {said}");
        assert!(said.contains(next), "{line}: {said}");
    }
}

#[test]
fn a_wrong_mount_option_is_said_to_be_of_the_file_system_there() {
    let scratch = Scratch::new("whose-option");
    let (image, dir) = (scratch.path("ext4.img"), scratch.path(""));
    File::create(&image).and_then(|file| file.set_len(64 << 20)).expect("a file");
    ok(&format!("mkfs -q --fs ext4 {image}"));
    let f2fs = plain(&scratch, 64 << 20);
    for (line, said_of_it) in [
        (format!("mount -o nonsense {image} {dir}"), "nonsense: not a mount option of ext4"),
        (format!("mount -o oprw {image} {dir}"), "oprw: not a mount option of ext4"),
        (format!("mount -o data=none {image} {dir}"), "expected ordered, writeback or journal"),
        (format!("mount -o nonsense {f2fs} {dir}"), "nonsense: not a mount option of f2fs"),
        (format!("mount -t ext4 -o nonsense {dir}none {dir}"), "not a mount option of ext4"),
        (format!("mount -o data=ordered {f2fs} {dir}"), "data=ordered: not a mount option of f2fs"),
        ("crash --fs ext4 --cuts 1 --mount-options nonsense".into(), "mount option of ext4"),
        ("crash --fs ext4 --cuts 1 --mount-options data=none".into(), "expected ordered, write"),
    ] {
        let (_, said) = fails(&line);
        assert_eq!(said.lines().count(), 1, "{line}: {said}");
        assert!(said.contains(said_of_it), "{line}: {said}");
    }
}

/// A file that is too small for a volume.
fn small(scratch: &Scratch) -> String {
    let path = scratch.path("small.img");
    File::create(&path).and_then(|file| file.set_len(8 << 20)).expect("a file");
    path
}

#[test]
fn names_that_are_not_utf_8_are_names() {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let scratch = Scratch::new("not-utf-8");
    let image = plain(&scratch, 64 << 20);
    let name = b"caf\xe9 \n";
    let file = scratch.0.join(std::ffi::OsStr::from_bytes(name));
    std::fs::write(&file, "there").expect("a file");
    let run = |words: &[&[u8]]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_strandline"));
        let words = words.iter().map(|word| std::ffi::OsString::from_vec(word.to_vec()));
        let out = command.args(words).output().expect("the command starts");
        assert!(out.status.success(), "{}", text(&out.stderr));
        out.stdout
    };
    let inside = [image.as_bytes(), b":/", name].concat();
    run(&[b"cp", file.as_os_str().as_bytes(), &inside]);
    assert_eq!(run(&[b"cat", &inside]), b"there");
    let root = [image.as_bytes(), b":/"].concat();
    assert_eq!(run(&[b"ls", &root]), [name, &b"\n"[..]].concat());
    assert!(run(&[b"stat", &inside]).starts_with(&[b"  File: /", &name[..], b"\n"].concat()));
    assert!(run(&[b"tree", &root]).windows(name.len()).any(|part| part == name));
    let listed: serde_json::Value =
        serde_json::from_slice(&run(&[b"ls", &root, b"--json"])).expect("JSON");
    assert_eq!(listed["name_hex"], "636166e9200a");
    let walked: serde_json::Value =
        serde_json::from_slice(&run(&[b"tree", &root, b"--json"])).expect("JSON");
    assert_eq!(walked["path_hex"], "636166e9200a");
}
