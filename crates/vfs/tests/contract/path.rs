//! Path resolution, POSIX.1-2024 4.16, on the reference file system.

use vfs::path::{create_dir_all, read_dir, resolve, resolve_parent, walk, write_all};
use vfs::{Creator, Errno, FileSystem, MemFs};

/// `a/b/f`, `to_a -> a`, `to_f -> /a/b/f`, `up -> ../..` in `a/b`, `loop -> loop`, `dead -> gone`.
fn house() -> MemFs {
    let fs = MemFs::new();
    let root = Creator::default();
    let b = create_dir_all(&fs, b"a/b", 0o755, root).expect("mkdir -p").ino;
    fs.create(b, b"f", 0o644, root).expect("create");
    for (name, target) in [("to_a", "a"), ("to_f", "/a/b/f"), ("loop", "loop"), ("dead", "gone")] {
        fs.symlink(1, name.as_bytes(), target.as_bytes(), root).expect("symlink");
    }
    fs.symlink(b, b"up", b"../..", root).expect("symlink");
    fs
}

fn same(fs: &MemFs, a: &str, b: &str) {
    let found = |path: &str| resolve(fs, path.as_bytes(), true).expect(path).ino;
    assert_eq!(found(a), found(b), "{a} and {b}");
}

fn error(fs: &MemFs, path: &str, follow: bool) -> Errno {
    resolve(fs, path.as_bytes(), follow).expect_err(path).errno()
}

#[test]
fn dots_slashes_and_links() {
    let fs = house();
    same(&fs, "a/b/f", "//a/./b//f");
    same(&fs, "a/b/f", "to_a/b/f");
    same(&fs, "a/b/f", "to_f");
    same(&fs, "a/b/..", "to_a/");
    same(&fs, "/..", "/");
    same(&fs, "a/b/up/a", "a");
    same(&fs, "to_a/b/up/to_a/b/../..", "/");
}

#[test]
fn the_last_link_is_followed_on_request_or_before_a_slash() {
    let fs = house();
    let kind = |path: &str, follow| resolve(&fs, path.as_bytes(), follow).expect(path).kind;
    assert_eq!(kind("to_a", false), vfs::FileKind::Symlink);
    assert_eq!(kind("to_a", true), vfs::FileKind::Directory);
    assert_eq!(kind("to_a/", false), vfs::FileKind::Directory);
}

#[test]
fn what_does_not_resolve() {
    let fs = house();
    assert_eq!(error(&fs, "", true), Errno::NOENT);
    assert_eq!(error(&fs, "a/b/f/", true), Errno::NOTDIR);
    assert_eq!(error(&fs, "to_f/", false), Errno::NOTDIR);
    assert_eq!(error(&fs, "a/b/f/..", true), Errno::NOTDIR);
    assert_eq!(error(&fs, "gone/..", true), Errno::NOENT);
    assert_eq!(error(&fs, "dead", true), Errno::NOENT);
    assert_eq!(error(&fs, "loop", true), Errno::LOOP);
    assert_eq!(error(&fs, &"n".repeat(256), true), Errno::NAMETOOLONG);
    assert_eq!(error(&fs, &"a/../".repeat(820), true), Errno::NAMETOOLONG);
}

#[test]
fn forty_links_are_followed_and_no_more() {
    let fs = MemFs::new();
    let root = Creator::default();
    fs.mkdir(1, b"l0", 0o755, root).expect("mkdir");
    for i in 1..=41 {
        let target = format!("l{}", i - 1);
        fs.symlink(1, format!("l{i}").as_bytes(), target.as_bytes(), root).expect("symlink");
    }
    same(&fs, "l40", "l0");
    assert_eq!(error(&fs, "l41", true), Errno::LOOP);
}

#[test]
fn parents() {
    let fs = house();
    let b = resolve(&fs, b"a/b", true).expect("a/b").ino;
    let of = |path| resolve_parent(&fs, path).map_err(|e| e.errno());
    assert_eq!(of(b"a/b/new"), Ok((b, b"new".as_slice())));
    assert_eq!(of(b"/to_a//b//new//"), Ok((b, b"new".as_slice())));
    assert_eq!(of(b"new"), Ok((1, b"new".as_slice())));
    assert_eq!(of(b"/"), Err(Errno::BUSY));
    assert_eq!(of(b"a/.."), Err(Errno::BUSY));
    assert_eq!(of(b"a/b/f/new"), Err(Errno::NOTDIR));
    assert_eq!(of(b"gone/new"), Err(Errno::NOENT));
    assert_eq!(of(b""), Err(Errno::NOENT));
}

#[test]
fn walking_visits_parents_first_in_name_order() {
    let fs = house();
    let mut paths = Vec::new();
    walk(&fs, 1, &mut |path, _| {
        paths.push(String::from_utf8_lossy(path).into_owned());
        Ok(())
    })
    .expect("walk");
    assert_eq!(paths, ["a", "a/b", "a/b/f", "a/b/up", "dead", "loop", "to_a", "to_f"]);
    assert_eq!(read_dir(&fs, 1).expect("read_dir").len(), 5);
}

#[test]
fn making_all_directories() {
    let fs = house();
    let root = Creator::default();
    let deep = create_dir_all(&fs, b"/to_a/x/y/z/", 0o750, root).expect("mkdir -p");
    assert_eq!(resolve(&fs, b"a/x/y/z", true).expect("made").ino, deep.ino);
    assert_eq!(create_dir_all(&fs, b"a/x/y/z", 0o750, root).expect("again").ino, deep.ino);
    let blocked = create_dir_all(&fs, b"a/b/f/x", 0o750, root).expect_err("f is a file");
    assert_eq!(blocked.errno(), Errno::NOTDIR);
}

#[test]
fn write_all_tells_a_full_volume() {
    let fs = MemFs::with_capacity(8192);
    let f = fs.create(1, b"f", 0o644, Creator::default()).expect("create").ino;
    write_all(&fs, f, 0, &[1; 8192]).expect("fits");
    assert_eq!(write_all(&fs, f, 0, &[1; 8193]).expect_err("full").errno(), Errno::NOSPC);
}
