//! The command on volumes that are on several devices, and on block devices.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        drop(std::fs::remove_dir_all(&dir));
        std::fs::create_dir_all(&dir).expect("the target directory takes files");
        Self(dir)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("an ASCII path").to_owned()
    }

    /// A conventional drive and a zoned one without conventional zones.
    fn drives(&self) -> [String; 2] {
        let drives = [self.path("a.img"), self.path("b.img")];
        ok(&format!("drive create --profile conventional-noplp --size 70m {}", drives[0]));
        let zones = "--zone-size 4m --zone-capacity 3m --zones 60";
        ok(&format!("drive create --profile zn540-noplp {zones} {}", drives[1]));
        drives
    }
}

fn run(program: &str, line: &str) -> Output {
    let out = Command::new(program).args(line.split_whitespace()).output();
    out.unwrap_or_else(|error| panic!("{program}: {error}"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Standard output of a program that must succeed.
fn succeed(program: &str, line: &str) -> String {
    let out = run(program, line);
    let said = text(&out.stdout);
    assert!(out.status.success(), "{program} {line}: {} {said}", text(&out.stderr));
    said
}

fn ok(line: &str) -> String {
    succeed(env!("CARGO_BIN_EXE_strandline"), line)
}

/// The one line a failing command says.
fn fails(line: &str) -> String {
    let out = run(env!("CARGO_BIN_EXE_strandline"), line);
    let said = text(&out.stderr);
    assert!(!out.status.success() && said.lines().count() == 1, "{line}: {said}");
    said
}

#[test]
fn a_volume_on_two_drives_is_used_by_naming_both() {
    let dir = Scratch::new("two-drives");
    let [a, b] = dir.drives();
    assert!(ok(&format!("mkfs {a} -c {b}")).ends_with("Info: format successful\n"));
    let source = dir.path("file");
    let data: Vec<u8> = (0..60_u32 << 20).map(|i| (i >> 13) as u8).collect();
    std::fs::write(&source, &data).expect("a file");
    ok(&format!("cp {source} {a}:/ --device {b}"));
    assert_eq!(ok(&format!("ls {a}:/ --device {b}")), "file\n");
    ok(&format!("cp {a}:/file {} --device {b}", dir.path("copy")));
    assert!(std::fs::read(dir.path("copy")).expect("the copy") == data);
    ok(&format!("fsck {a} --device {b}"));
    ok(&format!("fsck -n {a} --device {b}"));
    // The judge finds the second by the name in the superblock.
    succeed("fsck.f2fs", &format!("--dry-run {a}"));
    for line in [format!("ls {a}:/"), format!("fsck {a}"), format!("cat {a}:/file")] {
        let said = fails(&line);
        assert!(said.contains("the volume is on 2 devices (once /") && said.contains(&b), "{said}");
        assert!(said.ends_with(" 1 given: name the others too, with --device in that order\n"));
    }
    let said = fails(&format!("ls {b}:/ --device {a}"));
    assert!(said.contains(&b), "{said}");
    let said = fails(&format!("ls {a}:/ --device {a}"));
    assert!(said.contains("given twice"), "{said}");
}

#[test]
fn mkfs_asks_before_it_overwrites_any_of_its_devices() {
    let dir = Scratch::new("two-drives-mkfs");
    let [a, b] = dir.drives();
    let said = fails(&format!("mkfs {b}"));
    assert!(said.contains("metadata needs") && said.contains("-c"), "{said}");
    let said = fails(&format!("mkfs {a} -c {b}@alias"));
    assert!(said.contains("alias"), "{said}");
    let c = dir.path("c.img");
    std::fs::File::create(&c).and_then(|file| file.set_len(64 << 20)).expect("an image");
    ok(&format!("mkfs {c}"));
    let said = fails(&format!("mkfs {a} -c {c}"));
    assert!(said.contains("F2FS") && said.contains(&c), "{said}");
    ok(&format!("mkfs -f {a} -c {c}"));
    assert_eq!(ok(&format!("ls {a}:/ --device {c}")), "");
}

/// A loop device, taken away at the end.
struct Loop(String);

impl Drop for Loop {
    fn drop(&mut self) {
        run("losetup", &format!("--detach {}", self.0));
    }
}

#[test]
#[ignore = "needs root, for a loop device"]
fn a_loop_device_is_an_image() {
    let dir = Scratch::new("loop");
    let image = dir.path("disk");
    std::fs::File::create(&image).and_then(|file| file.set_len(128 << 20)).expect("an image");
    let device = Loop(succeed("losetup", &format!("--find --show {image}")).trim().to_owned());
    let device = &device.0;
    assert!(ok(&format!("drive info {device}")).contains("size: 128 MiB"));
    ok(&format!("mkfs -l disk {device}"));
    assert!(fails(&format!("mkfs {device}")).contains("holds F2FS"));
    let source = dir.path("tree");
    std::fs::create_dir_all(format!("{source}/below")).expect("a tree");
    std::fs::write(format!("{source}/below/file"), vec![7; 3 << 20]).expect("a file");
    ok(&format!("cp -r {source} {device}:/"));
    ok(&format!("fsck {device}"));
    ok(&format!("fsck -n {device}"));
    succeed("fsck.f2fs", &format!("--dry-run {device}"));
    ok(&format!("cp -r {device}:/tree {}", dir.path("back")));
    succeed("diff", &format!("-r {source} {}", dir.path("back")));
    assert!(fails(&format!("drive cut {device}")).contains("only an emulated drive"));
    // A lock on the file keeps others off the device, too.
    let held = std::fs::File::open(&image).expect("the image");
    held.lock().expect("a lock");
    for line in [format!("mkfs -f {device}"), format!("fsck {device}"), format!("ls {device}:/")] {
        assert!(fails(&line).contains("in use"), "{line}");
    }
    drop(held);
    succeed("mkfs.ext4", &format!("-q -F {device}"));
    std::fs::create_dir_all(dir.path("mnt")).expect("a directory");
    succeed("mount", &format!("{device} {}", dir.path("mnt")));
    for line in [format!("mkfs -f {device}"), format!("fsck {device}"), format!("ls {device}:/")] {
        assert!(fails(&line).contains("in use"), "{line}");
    }
    // Nor is the file below: the kernel takes no lock on it.
    let cp = format!("cp {source}/below/file {image}:/");
    for line in [format!("mkfs --fs ext4 -F {image}"), format!("fsck -p {image}"), cp] {
        assert!(fails(&line).contains("in use: mounted on"), "{line}");
    }
    ok(&format!("ls {image}:/"));
    ok(&format!("drive info {device}"));
    succeed("umount", &dir.path("mnt"));
}
