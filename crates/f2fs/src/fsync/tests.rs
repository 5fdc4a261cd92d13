use std::sync::Arc;

use drive::{Drive, Spec, Ssd, Timing};
use vfs::{Creator, Errno, FileSystem, Ino};

use crate::F2fs;
use crate::offline::mkfs::{MkfsOptions, format};
use crate::ondisk::Nid;

const PAGE: usize = 4096;

/// Of the changed nodes of `half` only the first gets a place, since the block of its inode is not
/// what the table of segments says. On a drive that tears blocks, recovery takes the nodes of an
/// fsync by a checksum of all nodes in front of it.
#[test]
fn what_is_fsynced_behind_half_a_write_back_of_nodes_is_recovered() {
    let spec = Spec::named("conventional-noplp").unwrap().blocks(1 << 16).tearing();
    let drive = Ssd::new(spec, Timing::Instant, 1).unwrap();
    let dynamic: Arc<dyn Drive> = drive.clone();
    format(&dynamic, &MkfsOptions::default()).unwrap();
    let mount = |drive| F2fs::mount(drive, &"".parse().unwrap()).unwrap();
    let fs = mount(dynamic);
    let create = |name: &[u8]| fs.create(fs.root(), name, 0o644, Creator::default()).unwrap().ino;
    let append = |ino: Ino, page: usize| {
        fs.write(ino, (page * PAGE) as u64, &[7; PAGE]).unwrap();
    };
    let (half, other) = (create(b"half"), create(b"other"));
    append(half, 2000);
    append(other, 0);
    fs.sync().unwrap();

    append(half, 2001);
    {
        let mut volume = fs.lock();
        let engine = &mut *volume;
        let at = engine.nat.get_mut().get(&engine.io, half as Nid).unwrap().addr;
        engine.segments.get_mut().mark_invalid(at).unwrap();
    }
    assert_eq!(fs.fsync(half, false).unwrap_err().errno(), Errno::UCLEAN);
    append(other, 1);
    let is_durable = fs.fsync(other, false).is_ok();
    let left = drive.survivors(1);
    drop(fs);

    let fs = mount(Ssd::power_on(left, Timing::Instant, 1));
    let pages = fs.getattr(other).unwrap().size / PAGE as u64;
    assert!(pages == 2 || !is_durable, "{pages} pages, and fsync returned");
}
