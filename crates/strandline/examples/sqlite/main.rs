//! SQLite on a Strandline volume in process: commit, pull the drive's plug, find it committed.

mod sqlite_vfs;

use std::sync::Arc;

use drive::{Drive, Spec, Ssd, Timing};
use f2fs::{F2fs, mkfs};
use vfs::FileSystem;

use sqlite_vfs::SqliteVfs;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let zoned = Spec::named("zn540-noplp")?.zone_size(2048, 1536).zones(64, 4);
    let ssd = Ssd::new(zoned, Timing::Instant, 1)?;
    let drive: Arc<dyn Drive> = ssd.clone();
    mkfs::format(&drive, &mkfs::MkfsOptions::default())?;

    let fs = Arc::new(F2fs::mount(drive, &"oprw".parse()?)?);
    let volume = SqliteVfs::register("before", fs, true)?;
    let db = volume.open("/log.db")?;
    db.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
         CREATE TABLE log (line TEXT); INSERT INTO log VALUES ('committed, so durable');",
    )?;
    let left = ssd.cut(42); // the seed of what the drive leaves to chance
    drop((db, volume));

    let fs = Arc::new(F2fs::mount(Ssd::power_on(left, Timing::Instant, 1), &"oprw".parse()?)?);
    let volume = SqliteVfs::register("after", fs.clone(), true)?;
    let db = volume.open("/log.db")?;
    println!("{}", db.query_one("SELECT line FROM log", [], |row| row.get::<_, String>(0))?);
    drop((db, volume));
    Ok(fs.unmount()?)
}

#[test]
fn a_commit_survives_the_cut() {
    main().unwrap();
}
