//! The command as scripts use it: exit status, one-line errors, and what it prints.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use drive::{CutPoint, Timing};
use f2fs::F2fs;
use vfs::{Creator, FileSystem};

use crate::common::{self, Scratch, fails, ok, strandline, text};

#[test]
fn wrong_usage_is_2_and_says_why() {
    for line in [
        "",
        "frobnicate",
        "crash --modes posixly",
        "crash --workload nothing",
        "crash --drive floppy",
        "crash --cuts 0",
        "crash --max-bytes lots",
        "bench fastest",
        "bench fsync --machine abacus",
        "bench --json",
        "bench fxmark",
        "bench fxmark DWXX",
        "bench fxmark DWOL --cores 0",
        "bench fxmark DWOL --machine xeon-4116 --cores 99",
        "bench fxmark DWOL --mount /tmp --drive ram",
        "bench io",
        "bench io x --rw randrw",
        "bench io x --drive ram",
        "bench io --drive ram --ioengine spdk",
        "bench io --drive zn540",
        "bench io --drive ram --runtime 0",
        "lab run nothing",
        "advise nothing",
        "advise pattern --machine real",
        "advise pattern --drive pm",
        "advise pattern -o whatever",
        "ls disk.img",
        "cp onlyone",
        "cp a b",
    ] {
        let (code, said) = fails(line);
        assert_eq!(code, 2, "{line}: {said}");
        assert!(!said.is_empty(), "{line}");
    }
}

#[test]
fn fsck_has_the_exit_codes_of_fsck_8() {
    let scratch = Scratch::new("fsck-codes");
    let image = scratch.volume();
    for clean in ["", "-a", "-f", "-y", "-n", "--dry-run", "-p", "-p0", "-p 1", "-p2", "-q -d 1"] {
        let out = strandline(&format!("fsck {clean} {image}"));
        assert_eq!(out.status.code(), Some(0), "{clean}: {}", text(&out.stdout));
    }
    assert_eq!(ok(&format!("fsck -a {image}")), "Info: No error was reported\n");
    assert!(ok(&format!("fsck -f -t {image}")).ends_with("\n0 directories, 0 files\n"));
    assert!(ok("fsck -V").starts_with("fsck.strandline "));
    for wrong in ["fsck", "fsck --frobnicate x", "fsck -n -y x", "fsck -p 7 x"] {
        assert_eq!(fails(wrong).0, 16, "{wrong}");
    }
    assert_eq!(fails("fsck -y /nowhere.img").0, 8);
    ok(&format!("cp -r --fsync --cut-at 30 {} {image}:/", env!("CARGO_MANIFEST_DIR")));
    assert_eq!(strandline(&format!("fsck -a {image}")).status.code(), Some(1));
    assert_eq!(strandline(&format!("fsck -a {image}")).status.code(), Some(0));
}

/// Writes `bytes` over the start of each block in `blocks` of the file `image`.
fn overwrite(image: &str, blocks: std::ops::Range<u64>, bytes: &[u8]) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::options().write(true).open(image).expect("the image");
    blocks.for_each(|block| file.write_all_at(bytes, block * 4096).expect("a write"));
}

#[test]
fn a_damaged_volume_is_repaired_and_the_repair_taken_back() {
    let scratch = Scratch::new("repair");
    let (image, log) = (scratch.path("plain.img"), scratch.path("undo"));
    std::fs::File::create(&image).and_then(|f| f.set_len(64 << 20)).expect("a sparse file");
    ok(&format!("mkfs {image}"));
    ok(&format!("cp -r {} {image}:/tree", env!("CARGO_MANIFEST_DIR")));
    let tree = ok(&format!("tree --json {image}:/"));
    // The second superblock, and all of the SIT: blocks 1536 to 2560 at this size.
    overwrite(&image, 1..2, &[7; 2000]);
    overwrite(&image, 1536..2560, &[0x5a; 4096]);
    let damaged = std::fs::read(&image).expect("the image");
    for looks in ["-n", "--dry-run -y", ""] {
        let out = strandline(&format!("fsck {looks} {image}"));
        assert_eq!(out.status.code(), Some(4), "{looks}: {}", text(&out.stdout));
        assert!(text(&out.stdout).contains("[Fail]"), "{looks}");
    }
    assert!(std::fs::read(&image).expect("the image") == damaged, "a look changed the image");
    let out = strandline(&format!("fsck -y -z {log} {image}"));
    assert_eq!(out.status.code(), Some(1), "{} {}", text(&out.stdout), text(&out.stderr));
    assert!(text(&out.stdout).contains("[Fixed: set]"), "{}", text(&out.stdout));
    assert!(text(&out.stdout).contains(&format!("fsck --undo {log} {image}")));
    ok(&format!("fsck -f {image}"));
    ok(&format!("fsck -f -y {image}"));
    assert_eq!(ok(&format!("tree --json {image}:/")), tree);
    assert_eq!(fails(&format!("fsck -y -z {log} {image}")).0, 8, "the log is there already");
    assert!(ok(&format!("fsck --undo {log} {image}")).starts_with("Info: put back "));
    assert!(std::fs::read(&image).expect("the image") == damaged, "not bit for bit");
    // Both checkpoints gone as well: 512 to 1536.
    overwrite(&image, 512..1536, &[0; 4096]);
    let out = strandline(&format!("fsck -y --json {image}"));
    assert_eq!(out.status.code(), Some(1), "{}", text(&out.stdout));
    let said: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!(said["rescued"], true);
    assert_eq!(ok(&format!("tree --json {image}:/")), tree);
    let sound = std::fs::read(&image).expect("the image");
    strandline(&format!("fsck --rescue {image}"));
    assert!(std::fs::read(&image).expect("the image") == sound, "nobody said yes");
    assert_eq!(strandline(&format!("fsck -y --rescue {image}")).status.code(), Some(1));
    assert_eq!(ok(&format!("tree --json {image}:/")), tree);
    ok(&format!("fsck {image}"));
}

#[test]
fn help_has_examples() {
    for command in [
        "mkfs",
        "mkfs --fs ext4",
        "label",
        "dump",
        "resize",
        "defrag",
        "fsck",
        "ls",
        "cat",
        "cp",
        "stat",
        "tree",
        "crash",
        "advise",
        "check-program",
        "bench",
        "bench fxmark",
        "bench io",
        "lab run",
        "drive cut",
    ] {
        let help = ok(&format!("{command} --help"));
        assert!(help.contains("Example"), "{command}");
    }
}

#[test]
fn a_drive_that_cannot_be_is_refused_in_a_line() {
    let scratch = Scratch::new("no-drive");
    let image = scratch.path("disk.img");
    for (words, said) in [
        ("--zone-size 32m --zones 8 --conventional 9", "9 conventional zones, but only 8 zones"),
        ("--profile ram --size 10", "10 bytes are not a multiple of 4096"),
        ("--zone-size 1000 --zones 8", "1000 bytes are not a multiple of 4096"),
        (
            "--zone-size 32m --zone-capacity 64m --zones 8",
            "a zone of 32768 KiB has a capacity of 4 to 32768 KiB, not 65536",
        ),
        ("--zone-size 32m --zones 0", "a zoned drive has 1 to 4194304 zones"),
    ] {
        let (code, told) = fails(&format!("drive create {words} {image}"));
        assert_eq!((code, told.lines().count()), (2, 1), "{words}: {told}");
        assert!(told.contains(said), "{words}: {told}");
    }
    assert!(!std::path::Path::new(&image).exists());
}

#[test]
fn a_size_leaves_the_zones_as_asked_for() {
    let image = Scratch::new("drive-size").path("disk.img");
    let zones = "--size 1g --zone-size 32m --zone-capacity 18m --conventional 4";
    let shown = ok(&format!("drive create --profile zn540-noplp {zones} {image}"));
    assert!(
        shown.contains("zones: 32 of 32768 KiB, 18432 KiB writable; 4 conventional"),
        "{shown}"
    );
    let (code, said) = fails(&format!("drive create --profile ram --conventional 4 {image}2"));
    assert_eq!((code, said.contains("zone size")), (2, true), "{said}");
}

#[test]
fn a_drive_promises_what_it_was_made_to_promise() {
    let scratch = Scratch::new("drive-info");
    for (profile, volatile) in
        [("zn540", false), ("zn540-noplp", true), ("conventional-noplp", true), ("ram", false)]
    {
        let image = scratch.path(&format!("{profile}.img"));
        let made = ok(&format!("drive create --profile {profile} --size 64m {image}"));
        assert_eq!(ok(&format!("drive info {image}")), made);
        assert_eq!(made.contains("a power cut loses what was not flushed"), volatile, "{made}");
        let json = ok(&format!("drive info --json {image}"));
        let json: serde_json::Value = serde_json::from_str(&json).expect("an object");
        assert_eq!(json["volatile_cache"], volatile, "{profile}");
        assert_eq!(json["read_only"], false, "{profile}");
    }
    let plain = scratch.path("plain.img");
    std::fs::File::create(&plain).and_then(|file| file.set_len(64 << 20)).expect("a file");
    let shown = ok(&format!("drive info {plain}"));
    assert!(shown.contains("plain.img: a plain file, used as a drive without zones\n"), "{shown}");
}

#[test]
fn what_is_not_a_volume_is_told_in_one_line() {
    let scratch = Scratch::new("not-a-volume");
    let image = scratch.path("zeroes.img");
    std::fs::write(&image, vec![0; 1 << 20]).expect("the scratch directory takes files");
    for line in [format!("ls {image}:/"), format!("cat {image}:/x"), "ls /nowhere.img:/".into()] {
        let (code, said) = fails(&line);
        assert_eq!((code, said.lines().count()), (1, 1), "{line}: {said}");
    }
    let (code, said) = fails(&format!("fsck {image}"));
    assert!(code == 8 && said.contains("not f2fs") && said.lines().count() == 1, "{said}");
    assert_eq!(fails("fsck /nowhere.img").0, 8);
}

#[test]
fn a_volume_whose_superblocks_lost_their_magic_is_shown_by_its_name() {
    use std::os::unix::fs::FileExt;
    let scratch = Scratch::new("no-magic");
    let image = scratch.path("plain.img");
    std::fs::File::create(&image).and_then(|f| f.set_len(64 << 20)).expect("a sparse file");
    ok(&format!("mkfs -l lost {image}"));
    let file = std::fs::File::options().write(true).open(&image).expect("the image");
    [1024, 5120].iter().for_each(|at| file.write_all_at(&[0; 4], *at).expect("a write"));
    for (line, status) in [("dump", 1), ("fsck -n", 8), ("label", 1)] {
        let (code, said) = fails(&format!("{line} {image}"));
        assert_eq!((code, said.contains("not f2fs")), (status, true), "{line}: {said}");
    }
    for line in ["dump -t f2fs", "dump --fs f2fs"] {
        let shown = text(&strandline(&format!("{line} {image}")).stdout);
        for what in
            ["volume_name                   \t\t[lost]", "superblock.magic", "checkpoint_ver"]
        {
            assert!(shown.contains(what), "{what}: {shown}");
        }
    }
    assert!(ok(&format!("dump -t f2fs {image} inode 3")).contains("i_mode"));
    let out = strandline(&format!("fsck --fs f2fs -n {image}"));
    assert_eq!(out.status.code(), Some(4));
    assert!(text(&out.stdout).contains("superblock.magic at block 0x0"), "{out:?}");
    let (_, said) = fails(&format!("label -t f2fs {image}"));
    assert!(said.contains("superblock.magic"), "{said}");
    // By the program's name, as by -t.
    let link = scratch.path("fsck.f2fs");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_strandline"), &link).expect("a link");
    let out = Command::new(link).args(["-n", &image]).output().expect("it runs");
    assert_eq!(out.status.code(), Some(4), "{out:?}");
    for (line, status) in [("dump -t", 2), ("ls -t", 2), ("fsck --fs", 16), ("mount -t", 1)] {
        let (code, said) = fails(&format!("{line} f3fs {image}:/ /mnt"));
        let told = said.contains("unknown file system 'f3fs'; expected f2fs");
        assert_eq!((code, told), (status, true), "{line}: {said}");
    }
}

#[test]
fn it_answers_to_the_names_of_f2fs_tools() {
    let scratch = Scratch::new("names");
    let image = scratch.path("disk.img");
    std::fs::File::create(&image).and_then(|file| file.set_len(64 << 20)).expect("a file");
    let called = |name: &str, words: &[&str]| {
        let link = scratch.path(name);
        drop(std::fs::remove_file(&link));
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_strandline"), &link).expect("a link");
        Command::new(&link).args(words).output().expect("it runs")
    };
    assert_eq!(called("mkfs.f2fs", &["-q", "-l", "names", &image]).status.code(), Some(0));
    let shown = called("dump.f2fs", &[&image]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("volume_name"), "{shown:?}");
    // The name says what the drive should hold, not what it does hold.
    let mut ext4 = vec![0; 1 << 20];
    ext4[1024 + 56..][..2].copy_from_slice(&0xef53_u16.to_le_bytes());
    std::fs::write(&image, &ext4).expect("a file");
    for (name, words, status) in [("fsck.f2fs", vec!["-y"], 8), ("dump.f2fs", vec![], 1)] {
        let out = called(name, &[words, vec![&image]].concat());
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(status), "{name}: {said}");
        assert!(said.contains("not f2fs: this is ext4"), "{name}: {said}");
        assert!(out.stdout.is_empty() && std::fs::read(&image).expect("the image") == ext4);
    }
    assert_eq!(called("fsck.f2fs", &["--never"]).status.code(), Some(16));
    assert_eq!(called("fsck.strandline", &["--never"]).status.code(), Some(16));
    assert_eq!(called("mkfs.f3fs", &[&image]).status.code(), Some(2));
}

#[test]
fn mkfs_takes_mke2fs_letters_for_ext4() {
    let scratch = Scratch::new("mkfs-ext4");
    let image = scratch.path("disk.img");
    std::fs::File::create(&image).and_then(|file| file.set_len(64 << 20)).expect("a file");
    let clean = || {
        let out = common::tool(&scratch.0, &format!("e2fsck -fn {image}"));
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stdout));
    };
    let blank = std::fs::read(&image).expect("the image");
    assert!(ok(&format!("mkfs --fs ext4 -n {image}")).ends_with("Nothing was written\n"));
    assert!(std::fs::read(&image).expect("the image") == blank, "-n wrote");
    let made = ok(&format!("mkfs --fs=ext4 -L first -m 0 --json {image}"));
    let made: serde_json::Value = serde_json::from_str(&made).expect("an object");
    assert_eq!((&made["blocks"], &made["journal_blocks"]), (&16_384.into(), &1024.into()));
    clean();
    assert!(fails(&format!("mkfs --fs ext4 {image}")).1.contains("-F overwrites it"));
    let link = scratch.path("mkfs.ext4");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_strandline"), &link).expect("a link");
    let words = ["-F", "-q", "-b", "1024", "-O", "orphan_file,^resize_inode", &image, "20m"];
    let out = Command::new(&link).args(words).output().expect("it runs");
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    clean();
    for (words, why) in [
        ("-C 65536", "bigalloc"),
        ("-O nothing", "unknown feature nothing"),
        ("-O bigalloc", "making volumes with bigalloc"),
        ("-E packed_meta_blocks=1", "not supported: -E packed_meta_blocks"),
        ("-J device=/dev/null", "not supported: -J device"),
        ("-b 8192", "blocks of 8192 bytes"),
        ("-I 100", "inodes of 100 bytes"),
        ("-L 12345678901234567", "more than 16 bytes"),
    ] {
        let (code, said) = fails(&format!("mkfs --fs ext4 -F {words} {image}"));
        assert_eq!((code, said.contains(why)), (2, true), "{words}: {said}");
    }
    clean();
}

#[test]
fn a_tree_goes_in_and_comes_out_the_same() {
    let scratch = Scratch::new("round-trip");
    let image = scratch.volume();
    let tree = scratch.0.join("tree");
    std::fs::create_dir_all(tree.join("sub/deeper")).expect("mkdir");
    std::fs::write(tree.join("small"), b"hello\n").expect("write");
    std::fs::write(tree.join("sub/large"), vec![7; 3_000_000]).expect("write");
    std::os::unix::fs::symlink("../small", tree.join("sub/link")).expect("symlink");
    ok(&format!("cp -r {} {image}:/", tree.display()));
    assert_eq!(ok(&format!("cat {image}:/tree/small")), "hello\n");
    assert_eq!(ok(&format!("ls {image}:/tree")), "small\nsub\n");
    assert!(ok(&format!("tree {image}:/")).contains("link -> ../small"));
    assert!(ok(&format!("stat {image}:/tree/sub/large")).contains("Size: 3000000"));
    ok(&format!("fsck {image}"));
    ok(&format!("cp -r {image}:/tree {}", scratch.path("back")));
    let diff = Command::new("diff")
        .args(["-r", "--no-dereference"])
        .args([&tree, &scratch.0.join("back")])
        .output()
        .expect("diff starts");
    assert!(diff.status.success(), "{}", text(&diff.stdout));
    let times = |p: PathBuf| std::fs::metadata(p).and_then(|m| m.modified()).expect("a time");
    assert_eq!(times(tree.join("sub/large")), times(scratch.0.join("back/sub/large")));
}

#[test]
fn a_cut_copy_recovers() {
    let scratch = Scratch::new("cut");
    let image = scratch.volume();
    // Most of these commands are the mount's own.
    for n in 0..30 {
        let cut =
            format!("cp --cut-at {n} {} {image}:/early", file!().replace("crates/strandline/", ""));
        let out = strandline(&cut);
        assert_eq!(out.status.code(), Some(0), "{cut}: {}", text(&out.stderr));
        assert!(text(&out.stdout).starts_with("power cut after "), "{out:?}");
    }
    let tree = scratch.0.join("tree");
    std::fs::create_dir_all(&tree).expect("mkdir");
    for i in 0..20 {
        std::fs::write(tree.join(format!("f{i:02}")), vec![i; 20_000]).expect("write");
    }
    let copied = ok(&format!("cp -r --fsync --cut-at 60 --json {} {image}:/", tree.display()));
    assert!(copied.contains("\"power_cut\":true"), "{copied}");
    let recovered = strandline(&format!("fsck {image}"));
    assert!(matches!(recovered.status.code(), Some(0 | 1)), "{}", text(&recovered.stdout));
    assert_eq!(strandline(&format!("fsck {image}")).status.code(), Some(0));
    for name in ok(&format!("ls {image}:/tree")).lines() {
        let size = std::fs::metadata(tree.join(name)).expect("a copied file").len();
        assert_eq!(size, 20_000);
    }
}

/// Under oprw a node may reach flash before the data it points to. The check finds that out without
/// being told how the volume was mounted; a kernel, which does not look, may then mount it.
#[test]
fn fsck_finds_what_a_cut_took_from_under_oprw() {
    const BYTES: usize = 3 * 4096;
    let scratch = Scratch::new("fsck-oprw");
    let image = scratch.volume();
    // Cut between what the fsync's flush programs.
    let cut = |n: u64| {
        let drive = drive::image::open(image.as_ref(), false, Timing::Instant).expect("a drive");
        let options = "oprw".parse().expect("options");
        let fs = F2fs::mount(drive.clone(), &options).expect("it mounts");
        let file = match fs.lookup(fs.root(), b"f") {
            Ok(file) => file,
            Err(_) => fs.create(fs.root(), b"f", 0o644, Creator::default()).expect("created"),
        };
        fs.write(file.ino, 0, &[b'a'; BYTES]).expect("written");
        fs.sync().expect("synced");
        fs.write(file.ino, 0, &[b'b'; BYTES]).expect("written");
        drive.cut_at(CutPoint::Program(drive.stats().programs + n), n);
        drop(fs.fsync(file.ino, false));
        drive.cut(n);
    };
    let lost = (0..4).find(|&n| {
        cut(n);
        let out = strandline(&format!("fsck --json {image}"));
        assert_eq!(out.status.code(), Some(1), "{}", text(&out.stderr));
        text(&out.stdout).contains("\"skipped_inodes\":1")
    });
    assert!(lost.is_some(), "no cut left a node without its data");
    assert!(ok(&format!("cat {image}:/f")) == "a".repeat(BYTES));
    ok(&format!("fsck {image}"));
}

#[test]
fn a_dry_run_recovers_a_copy_only() {
    let scratch = Scratch::new("dry-run");
    let image = scratch.volume();
    let tree = env!("CARGO_MANIFEST_DIR");
    assert!(ok(&format!("cp -r --cut-at 100000 {tree} {image}:/")).starts_with("no power cut: "));
    let said = ok(&format!("fsck --dry-run {image}"));
    assert!(said.contains("[FSCK] other corrupted bugs") && !said.contains("[Fail]"), "{said}");
    assert!(ok(&format!("cp -r --fsync --cut-at 30 {tree} {image}:/again")).starts_with("power "));
    let before = std::fs::read(&image).expect("the image is there");
    for _ in 0..2 {
        let out = strandline(&format!("fsck --dry-run {image}"));
        let said = text(&out.stdout);
        // Nothing was corrected, and nothing is wrong: it is the next mount that recovers.
        assert!(said.starts_with("[FSCK] recovery is due: "), "{said}");
        assert_eq!(out.status.code(), Some(0), "{said}");
    }
    let said = ok(&format!("fsck -n --json {image}"));
    let said: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert!(said["clean"] == false && said["exit_code"] == 0, "{said}");
    assert!(std::fs::read(&image).expect("the image is there") == before);
    assert_eq!(strandline(&format!("fsck {image}")).status.code(), Some(1));
    ok(&format!("fsck {image}"));
}

#[test]
fn campaigns_answer_in_json_the_same_every_time() {
    let line = "crash --fs f2fs --drive zn540-noplp --modes strict,oprw --workload pattern \
                --cuts 20 --seed 5 --json";
    let first = ok(line);
    assert_eq!(first, ok(line));
    assert_eq!(first.lines().count(), 2);
    for line in first.lines() {
        let object: serde_json::Value = serde_json::from_str(line).expect("JSON");
        for key in [
            "mode",
            "drive",
            "workload",
            "seed",
            "cuts",
            "failed",
            "fsyncs_per_s",
            "recovery_ms_p50",
            "recovery_ms_max",
        ] {
            assert!(object.get(key).is_some(), "{key}");
        }
        assert_eq!(object["failed"], 0);
    }
}

#[test]
fn an_unknown_workload_is_answered_with_all_there_are() {
    let out = strandline("crash --workload no-such-thing");
    assert_eq!(out.status.code(), Some(2));
    let said = text(&out.stderr);
    for name in ["tree", "pattern", "varmail", "create-fsync", "gc-between"] {
        assert!(said.contains(name), "{said}");
    }
}

#[test]
fn a_broken_promise_is_exit_status_1() {
    let line = "crash --modes posix --workload random-overwrite --cuts 60 --seed 5 \
                --inject drop-flush";
    let out = strandline(line);
    assert_eq!(out.status.code(), Some(1), "{}", text(&out.stdout));
    assert!(text(&out.stdout).contains("again: strandline crash"));
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let scratch = Scratch::new("pipe");
    let image = scratch.volume();
    let mut child = Command::new(env!("CARGO_BIN_EXE_strandline"))
        .args(["drive", "zones", &image])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    drop(child.stdout.take());
    let out = child.wait_with_output().expect("it ends");
    assert!(!text(&out.stderr).contains("panicked"), "{}", text(&out.stderr));
}
