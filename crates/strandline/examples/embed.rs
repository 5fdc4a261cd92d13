//! Strandline inside a program: make a drive, pull its plug, find what was fsynced.

use f2fs::prelude::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let disk = dir.path().join("disk.img");
    let zoned = Spec::named("zn540-noplp")?.zone_size(2048, 1536).zones(64, 4);
    image::create(&disk, &zoned)?;
    let ssd = image::open(&disk, false, Timing::Instant)?;
    let drive: Arc<dyn Drive> = ssd.clone();
    mkfs::format(&drive, &MkfsOptions::default())?;

    let fs = F2fs::mount(drive, &"oprw".parse()?)?;
    let file = fs.create(fs.root(), b"greeting", 0o644, Creator::default())?.ino;
    fs.write(file, 0, b"durable when fsync returns")?;
    fs.fsync(file, false)?;
    ssd.cut(42); // the seed of what the drive leaves to chance
    drop((fs, ssd));

    let fs = F2fs::mount(image::open(&disk, false, Timing::Instant)?, &MountOptions::default())?;
    let file = fs.lookup(fs.root(), b"greeting")?.ino;
    println!("{}", String::from_utf8(path::read_to_vec(&fs, file)?)?);
    Ok(fs.unmount()?)
}

#[test]
fn what_was_fsynced_is_there() {
    main().unwrap();
}
