//! The command as users get it ([`program`]), where what it does depends on the features
//! with which its dependencies were built: names that fold case, compressed files. The sessions of
//! the documents run on it, too (`it/docs/`).

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Output};

use crate::common::{program, text};
use crate::mounting::{Rig, alone, run};

fn shipped(args: &[&str]) -> Output {
    let mut command = Command::new(program());
    let out = command.args(args).output().expect("the command starts");
    assert!(!text(&out.stderr).contains("panicked"), "{args:?}: {}", text(&out.stderr));
    out
}

/// Standard output of a command that must succeed.
fn ok(args: &[&str]) -> Vec<u8> {
    let out = shipped(args);
    assert!(out.status.success(), "{args:?}: {:?} {}", out.status, text(&out.stderr));
    out.stdout
}

/// Serves the volume until it is unmounted.
fn serve(rig: &Rig) -> Child {
    let mut command = Command::new(program());
    command.arg("mount").arg("-f").arg(rig.image()).arg(rig.point());
    let server = command.spawn().expect("the command starts");
    rig.eventually("the volume is mounted", || rig.is_mounted());
    server
}

#[test]
fn names_of_every_script_fold() {
    let rig = Rig::empty();
    File::create(rig.image()).unwrap().set_len(128 << 20).unwrap();
    let image = rig.image().to_str().unwrap().to_owned();
    ok(&["mkfs", "-q", "-O", "casefold", "-C", "utf8", &image]);
    let mut server = serve(&rig);
    let dir = rig.point().join("d");
    std::fs::create_dir(&dir).unwrap();
    run("chattr", &["+F"], &dir);
    let names = ["Straße", "ÉTÉ", "Ωμέγα", "Привет", "한글", "İ", "a\u{ad}b", "\u{1fae0}"];
    for name in names {
        std::fs::write(dir.join(name), name).unwrap();
    }
    assert_eq!(std::fs::read(dir.join("STRASSE")).unwrap(), "Straße".as_bytes());
    assert_eq!(std::fs::read(dir.join("ПРИВЕТ")).unwrap(), "Привет".as_bytes());
    run("umount", &[], &rig.point());
    assert!(server.wait().unwrap().success());

    for name in names {
        let path = format!("{image}:/d/{name}");
        assert_eq!(ok(&["cat", &path]), name.as_bytes());
        ok(&["stat", &path]);
    }
    assert_eq!(ok(&["cat", &format!("{image}:/d/été")]), "ÉTÉ".as_bytes());
    ok(&["ls", &format!("{image}:/d")]);
    let host = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(host.path(), "new").unwrap();
    ok(&["cp", host.path().to_str().unwrap(), &format!("{image}:/d/ωΜΈΓΑ")]);
    assert_eq!(ok(&["cat", &format!("{image}:/d/Ωμέγα")]), b"new");
    ok(&["fsck", "-n", &image]);
    rig.check();
}

#[test]
fn compressed_files_are_read() {
    let _alone = alone();
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../f2fs/tests/data/compressed");
    let packed = std::fs::read(format!("{data}.img.zst")).unwrap();
    let mut unpacked = ruzstd::decoding::StreamingDecoder::new(&packed[..]).expect("a zstd file");
    let image = tempfile::NamedTempFile::new().unwrap();
    image.as_file().set_len(64 << 20).unwrap();
    let mut chunk = vec![0; 1 << 20];
    for at in 0..64 {
        unpacked.read_exact(&mut chunk).expect("64 MiB");
        if chunk.iter().any(|&byte| byte != 0) {
            image.as_file().write_all_at(&chunk, at << 20).unwrap();
        }
    }
    let image = image.path().to_str().unwrap();
    let sums = std::fs::read_to_string(format!("{data}.sha256")).unwrap();
    let checked = sums.lines().filter_map(|line| line.split_once("  ")).map(|(sum, path)| {
        let out = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(out.path(), ok(&["cat", &format!("{image}:/{path}")])).unwrap();
        let found = run("sha256sum", &[], out.path());
        assert_eq!(found.split(' ').next(), Some(sum), "{path}");
    });
    assert!(checked.count() > 10);
    ok(&["fsck", "-n", image]);
}
