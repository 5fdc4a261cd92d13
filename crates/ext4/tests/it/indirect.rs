//! Files without extents on a volume that is written: what is not built is refused, and a volume
//! with an orphan of that kind is mounted.

use vfs::{Creator, Errno, FileSystem, RenameFlags, SetAttr};

use crate::harness::{Image, debugfs};

/// A volume with such a file of 100,000 bytes, `old`.
fn made() -> Image {
    let image = Image::new(64);
    let contents = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(contents.path(), [7; 100_000]).unwrap();
    let write = format!("write {} old", contents.path().display());
    debugfs(&image, &["feature ^extent", &write, "feature extent"]);
    image.assert_clean("made");
    image
}

#[test]
fn what_is_not_built_is_refused() {
    let image = made();
    let fs = image.mount();
    let (root, old) = (fs.root(), fs.lookup(fs.root(), b"old").unwrap().ino);
    fs.create(root, b"new", 0o644, Creator::default()).unwrap();
    let refused = Errno::OPNOTSUPP;
    let cut = fs.setattr(old, &SetAttr { size: Some(0), ..SetAttr::default() });
    assert_eq!(cut.unwrap_err().errno(), refused);
    assert_eq!(fs.unlink(root, b"old").unwrap_err().errno(), refused);
    let replaced = fs.rename(root, b"new", root, b"old", RenameFlags::empty());
    assert_eq!(replaced.unwrap_err().errno(), refused);
    assert_eq!(fs.getattr(old).unwrap().size, 100_000);
    // The file stays, whatever its names.
    fs.link(old, root, b"second").unwrap();
    fs.unlink(root, b"old").unwrap();
    fs.unmount().unwrap();
    drop(fs);
    image.assert_clean("refused");
}

#[test]
fn an_orphan_that_cannot_be_freed_stays_one() {
    let image = made();
    let said = debugfs(&image, &["stat old"]);
    let ino = said.split("Inode: ").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
    let orphan = format!("sif <{ino}> links_count 0");
    debugfs(&image, &["unlink old", &orphan, &format!("ssv last_orphan {ino}")]);
    for _ in 0..2 {
        let fs = image.mount();
        assert_eq!(fs.orphans(), 1);
        fs.create(fs.root(), b"new", 0o644, Creator::default()).unwrap();
        fs.unlink(fs.root(), b"new").unwrap();
        fs.unmount().unwrap();
    }
    assert!(debugfs(&image, &["stats"]).contains(&format!("First orphan inode:       {ino}")));
}
