//! `strandline cp` compared by lstat(2) and the like: into an image and out again.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{CWD, FileType, Mode, XattrFlags};

use crate::common::manifest::{compare, make_tree, manifest, set_times};
use crate::common::{Scratch, fails, ok, strandline};

#[test]
fn a_tree_goes_in_and_comes_out_the_same() {
    let scratch = Scratch::new("cp-round-trip");
    let image = scratch.volume();
    let tree = scratch.0.join("tree");
    make_tree(&tree);
    set_times(&tree);
    // Copied before the manifest is taken: reading files may change their access times.
    ok(&format!("cp -a {} {image}:/", tree.display()));
    set_times(&tree);
    let was = manifest(&tree);
    ok(&format!("fsck {image}"));
    ok(&format!("cp -a {image}:/tree {}", scratch.path("back")));
    let mut is = manifest(&scratch.0.join("back"));
    for entry in is.values_mut().filter(|entry| entry.atime.is_some()) {
        entry.atime = Some((4_000_000_000, 999_999_999));
    }
    let mut was = was;
    for entry in was.values_mut().filter(|entry| entry.atime.is_some()) {
        entry.atime = Some((4_000_000_000, 999_999_999));
    }
    compare(&was, &is);
    let sparse = fs::metadata(scratch.0.join("back/sparse")).unwrap();
    assert!(sparse.blocks() * 512 < 1 << 20, "{} bytes are allocated", sparse.blocks() * 512);
    // From image to image, and out of that one.
    let other = scratch.path("other.img");
    ok(&format!("drive create --profile ram --size 256m {other}"));
    ok(&format!("mkfs -O extra_attr,inode_crtime {other}"));
    ok(&format!("cp -a {image}:/tree/. {other}:/"));
    ok(&format!("cp -a {other}:/. {}", scratch.path("again")));
    let mut is = manifest(&scratch.0.join("again"));
    for entry in is.values_mut().filter(|entry| entry.atime.is_some()) {
        entry.atime = Some((4_000_000_000, 999_999_999));
    }
    compare(&was, &is);
}

/// The destination that is named is more than a name in the way of a tree.
#[test]
fn a_destination_is_replaced_only_if_it_is_a_file() {
    let scratch = Scratch::new("cp-destination");
    let image = scratch.volume();
    fs::write(scratch.0.join("new"), "new").unwrap();
    ok(&format!("cp {} {image}:/new", scratch.path("new")));
    let fifo = scratch.0.join("fifo");
    rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
    let (_, said) = fails(&format!("cp {image}:/new {}", fifo.display()));
    assert!(said.contains("not a regular file; 'strandline cat'"), "{said}");
    assert!(fails(&format!("cp -a {image}:/new {}", fifo.display())).1.contains("not a regular"));
    fs::write(scratch.0.join("old"), "old").unwrap();
    symlink("old", scratch.0.join("link")).unwrap();
    symlink("nowhere", scratch.0.join("dangling")).unwrap();
    ok(&format!("cp {image}:/new {}", scratch.path("link")));
    assert!(scratch.0.join("link").is_symlink());
    assert_eq!(fs::read(scratch.0.join("old")).unwrap(), b"new");
    let (_, said) = fails(&format!("cp {image}:/new {}", scratch.path("dangling")));
    assert!(said.contains("not writing through dangling symlink"), "{said}");
    ok(&format!("cp -d {image}:/new {}", scratch.path("dangling")));
    assert!(scratch.0.join("dangling").is_file());
}

/// What only root can make: devices, other owners, `security.` and `trusted.` attributes.
#[test]
fn what_needs_root_is_kept_for_root() {
    assert!(rustix::process::geteuid().is_root(), "this test makes devices: run it as root");
    let scratch = Scratch::new("cp-root");
    let image = scratch.volume();
    let tree = scratch.0.join("tree");
    fs::create_dir(&tree).unwrap();
    let null = rustix::fs::makedev(1, 3);
    rustix::fs::mknodat(CWD, tree.join("null"), FileType::CharacterDevice, Mode::RWXU, null)
        .unwrap();
    let odd = rustix::fs::makedev(4000, 70_000);
    rustix::fs::mknodat(CWD, tree.join("odd"), FileType::BlockDevice, Mode::RUSR, odd).unwrap();
    fs::write(tree.join("file"), b"owned").unwrap();
    symlink("file", tree.join("link")).unwrap();
    std::os::unix::fs::lchown(tree.join("file"), Some(1234), Some(100_000)).unwrap();
    std::os::unix::fs::lchown(tree.join("link"), Some(4321), Some(7)).unwrap();
    fs::set_permissions(tree.join("file"), fs::Permissions::from_mode(0o6755)).unwrap();
    // `cap_net_raw+ep`, revision 2.
    let mut capability = [0; 20];
    capability[..6].copy_from_slice(&[1, 0, 0, 2, 0, 0x20]);
    let set = |name: &str, value: &[u8]| {
        rustix::fs::lsetxattr(tree.join("file"), name, value, XattrFlags::empty()).unwrap();
    };
    set("security.capability", &capability);
    set("trusted.t", b"only root");
    set("system.posix_acl_access", &ACL);
    set_times(&tree);
    ok(&format!("cp -a {} {image}:/", tree.display()));
    ok(&format!("cp -a {image}:/tree {}", scratch.path("back")));
    let (mut was, mut is) = (manifest(&tree), manifest(&scratch.0.join("back")));
    for entry in was.values_mut().chain(is.values_mut()) {
        entry.atime = None;
    }
    compare(&was, &is);
}

/// `user::rwx, user:1000:r--, group::r-x, mask::r-x, other::r-x`, as setxattr(2) takes it.
const ACL: [u8; 44] = {
    let mut acl = [0xff; 44];
    let entries: [(u8, u8, Option<u16>); 5] =
        [(1, 7, None), (2, 4, Some(1000)), (4, 5, None), (0x10, 5, None), (0x20, 5, None)];
    acl[0] = 2;
    (acl[1], acl[2], acl[3]) = (0, 0, 0);
    let mut i = 0;
    while i < entries.len() {
        let (tag, perm, id) = entries[i];
        let at = 4 + 8 * i;
        (acl[at], acl[at + 1], acl[at + 2], acl[at + 3]) = (tag, 0, perm, 0);
        if let Some(id) = id {
            (acl[at + 4], acl[at + 5]) = (id as u8, (id >> 8) as u8);
            (acl[at + 6], acl[at + 7]) = (0, 0);
        }
        i += 1;
    }
    acl
};

#[test]
fn options_keep_what_they_say() {
    let scratch = Scratch::new("cp-options");
    let image = scratch.volume();
    let file = scratch.0.join("file");
    fs::write(&file, vec![0; 1 << 20]).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let old = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    fs::File::options().write(true).open(&file).unwrap().set_modified(old).unwrap();
    rustix::fs::lsetxattr(&file, "user.a", b"b", XattrFlags::empty()).unwrap();
    let shown = |name: &str| ok(&format!("stat {image}:/{name}"));
    ok(&format!("cp {} {image}:/all", file.display()));
    assert!(shown("all").contains("2001-09-09") && shown("all").contains("user.a=b"));
    ok(&format!("cp --no-preserve=timestamps,xattr {} {image}:/some", file.display()));
    assert!(!shown("some").contains("2001-09-09") && !shown("some").contains("user.a"));
    assert!(shown("some").contains("0640"));
    ok(&format!("cp -p {} {image}:/posix", file.display()));
    assert!(shown("posix").contains("2001-09-09") && !shown("posix").contains("user.a"));
    ok(&format!("cp --sparse=always --preserve=mode {} {image}:/holes", file.display()));
    assert!(!shown("holes").contains("2001-09-09"));
    let blocks = |name: &str| {
        let json: serde_json::Value =
            serde_json::from_str(&ok(&format!("stat --json {image}:/{name}"))).unwrap();
        (json["size"].as_u64().unwrap(), json["blocks"].as_u64().unwrap() * 512)
    };
    assert_eq!(blocks("holes").0, 1 << 20);
    assert!(blocks("holes").1 < 1 << 14 && blocks("all").1 >= 1 << 20);
    ok(&format!("cp --sparse=never {image}:/holes {}", scratch.path("full")));
    assert!(fs::metadata(scratch.0.join("full")).unwrap().blocks() * 512 >= 1 << 20);
    assert_eq!(fails(&format!("cp --preserve=owner {} {image}:/", file.display())).0, 2);
}

#[test]
fn conflicts_are_told_as_cp_tells_them_and_the_rest_is_copied() {
    let scratch = Scratch::new("cp-conflicts");
    let image = scratch.volume();
    let tree = scratch.0.join("tree");
    fs::create_dir_all(tree.join("b")).unwrap();
    fs::write(tree.join("a"), b"1").unwrap();
    fs::write(tree.join("c"), b"3").unwrap();
    ok(&format!("cp -r {} {image}:/", tree.display()));
    fs::remove_file(tree.join("a")).unwrap();
    fs::remove_dir(tree.join("b")).unwrap();
    fs::create_dir(tree.join("a")).unwrap();
    fs::write(tree.join("b"), b"2").unwrap();
    fs::write(tree.join("c"), b"33").unwrap();
    let told = fails(&format!("cp -r {} {image}:/", tree.display()));
    assert_eq!(told.0, 1);
    let (from, to) = (tree.display(), format!("{image}:/tree"));
    let lines: Vec<&str> = told.1.lines().collect();
    assert_eq!(
        lines,
        [
            format!(
                "strandline: cannot overwrite non-directory '{to}/a' with directory '{from}/a'"
            ),
            format!("strandline: cannot overwrite directory '{to}/b' with non-directory"),
        ]
    );
    assert_eq!(ok(&format!("cat {image}:/tree/c")), "33");
    for (line, said) in [
        (format!("cp {from} {image}:/x"), "-r not specified; omitting directory"),
        (format!("cp -r /nowhere {image}:/"), "cannot stat '/nowhere': No such file or directory"),
        (format!("cp {from}/c {from}/b {image}:/x"), "No such file or directory"),
        (format!("cp {from}/c {from}/b {image}:/tree/c"), "is not a directory"),
        (format!("cp {image}:/nowhere /tmp"), "No such file or directory"),
        (format!("cp -t {image}:/tree/c {from}/c"), "is not a directory"),
    ] {
        let told = fails(&line);
        assert!(told.0 == 1 && told.1.contains(said), "{line}: {told:?}");
    }
    // With -T the name is the copy's, a directory in the way or not.
    ok(&format!("cp -rT {from}/a {image}:/tree/b"));
    assert_eq!(strandline(&format!("ls {image}:/tree/b/a")).status.code(), Some(1));
    ok(&format!("fsck {image}"));
}
