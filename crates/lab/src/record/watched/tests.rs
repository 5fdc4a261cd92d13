//! What is done becomes steps.

use vfs::{FileKind, RenameFlags, SetAttr};

use super::*;

#[test]
fn what_is_done_becomes_text() {
    let fs = Watched::new();
    let (root, who) = (fs.root(), Creator::default());
    let dir = fs.mkdir(root, b"d", 0o755, who).expect("a directory").ino;
    let old = fs.create(dir, b"a b", 0o640, who).expect("a file").ino;
    fs.write(old, 0, &[1; 5000]).expect("a write");
    fs.begin();
    let new = fs.create(root, b"new", 0o644, who).expect("a file").ino;
    fs.open(old).expect("it is there");
    fs.write(new, 0, b"newer").expect("a write");
    fs.fsync(new, true).expect("a sync");
    fs.rename(root, b"new", dir, b"a b", RenameFlags::empty()).expect("a rename");
    fs.write(old, 5000, b"nobody finds this again").expect("it is open");
    fs.release(old);
    fs.setattr(new, &SetAttr { perm: Some(0o600), size: Some(3), ..SetAttr::default() })
        .expect("attributes");
    fs.unlink(root, b"new").expect_err("it is called something else now");
    fs.fsync(root, false).expect("a sync");
    let script = fs.script("a test").expect("something was done");
    let want = "\
mkdir d 755\ncreate d/a%20b 640\nwrite d/a%20b 0+5000 seed=1\nbegin\ncreate new 644\n\
write new 0+5 seed=2\nfdatasync new\nopen d/a%20b h2\nrename new d/a%20b none\n\
write #h2 5000+23 seed=3\nclose h2\nchmod d/a%20b 600\ntruncate d/a%20b 3\nfsync /\n";
    assert_eq!(script.text(), want);
    assert_eq!(Script::parse(want, "a test").expect("a script").steps(), script.steps());
}

#[test]
fn what_a_script_cannot_do_is_refused() {
    let fs = Watched::new();
    let (root, who) = (fs.root(), Creator::default());
    let errno = |result: Result<()>| result.expect_err("refused").errno();
    let odd = fs.create(root, b"\xff", 0o644, who).map(drop);
    assert_eq!(errno(odd), Errno::ILSEQ);
    let device = fs.mknod(root, b"null", FileKind::CharDevice, 0o666, 0x103, who).map(drop);
    assert_eq!(errno(device), Errno::PERM);
    fs.create(root, b"a", 0o644, who).expect("a file");
    fs.create(root, b"b", 0o644, who).expect("a file");
    let exchange = fs.rename(root, b"a", root, b"b", RenameFlags::EXCHANGE);
    assert_eq!(errno(exchange), Errno::INVAL);
    assert!(Watched::new().script("nothing").is_err());
}

#[test]
fn files_begin_without_a_name() {
    let watched = Watched::new();
    watched.begin();
    let (root, who) = (watched.root(), Creator::default());
    let kept = watched.tmpfile(root, 0o644, who).unwrap();
    assert_eq!(kept.nlink, 0);
    watched.write(kept.ino, 0, b"contents").unwrap();
    watched.fsync(kept.ino, false).unwrap();
    assert_eq!(watched.link(kept.ino, root, b"kept").unwrap().nlink, 1);
    watched.release(kept.ino);
    let dropped = watched.tmpfile(root, 0o644, who).unwrap();
    watched.write(dropped.ino, 0, b"for nobody").unwrap();
    watched.release(dropped.ino);
    let mut names = Vec::new();
    watched
        .readdir(root, 0, &mut |entry| {
            names.push(entry.name);
            true
        })
        .unwrap();
    names.retain(|name| name != b"." && name != b"..");
    assert_eq!(names, [b"kept"]);
    watched.script("test").unwrap();
}
