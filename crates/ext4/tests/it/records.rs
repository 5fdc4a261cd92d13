//! A volume whose journal has records: nobody else takes it, and afterwards it is plain ext4.

use ext4::{Ext4, MountOptions};
use vfs::{Creator, FileSystem};

use crate::harness::{Image, tool};

#[test]
fn e2fsck_refuses_a_volume_in_use_and_takes_it_afterwards() {
    for policy in ["journal=ijournal", "journal=grouped", "journal=zgrouped,areas=2"] {
        let image = Image::new(64);
        let options: MountOptions = policy.parse().unwrap();
        let fs = Ext4::mount(image.drive(), &options).unwrap();
        let dir = fs.mkdir(fs.root(), b"dir", 0o755, Creator::default()).unwrap().ino;
        let file = fs.create(dir, b"file", 0o644, Creator::default()).unwrap().ino;
        assert_eq!(fs.write(file, 0, &[7; 5000]).unwrap(), 5000);
        fs.fsync(file, false).unwrap();
        // A crash: nothing was committed, so the file is in a record only.
        drop(fs);
        let out = tool("e2fsck", &["-fy", image.name()]);
        let said = format!(
            "{:?} {:?}",
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&out.stderr)
        );
        assert!(out.status.code().is_some_and(|code| code & 8 != 0), "{policy}: {said}");
        assert!(said.contains("unknown incompatible feature"), "{policy}: {said}");

        let fs = image.mount();
        assert_eq!(fs.replay().records, 2, "the directory and the file");
        let dir = fs.lookup(fs.root(), b"dir").unwrap().ino;
        let file = fs.lookup(dir, b"file").unwrap().ino;
        let mut found = [0; 6000];
        assert_eq!(fs.read(file, 0, &mut found).unwrap(), 5000);
        assert!(found[..5000].iter().all(|byte| *byte == 7));
        fs.unmount().unwrap();
        drop(fs);
        image.assert_clean(policy);

        // So is it after a clean unmount.
        let fs = Ext4::mount(image.drive(), &options).unwrap();
        fs.unlink(fs.lookup(fs.root(), b"dir").unwrap().ino, b"file").unwrap();
        fs.unmount().unwrap();
        drop(fs);
        image.assert_clean(policy);
    }
}
