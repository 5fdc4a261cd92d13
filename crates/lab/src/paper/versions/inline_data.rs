//! Figure 1: files of 1 KiB, created and written one after the other, then synced.

use vfs::Creator;

use super::{Kind, Place, Row, Setup, on_volume};
use crate::{Error, Result, now_ns};

/// Bytes of a file: they fit into its inode.
const FILE: usize = 1 << 10;

/// The study's numbers of files, and how much longer they took without `inline_data`.
const RUNS: [(u64, &str, (f64, f64)); 2] =
    [(4000, "+12%", (1.08, 1.16)), (8000, "+28%", (1.22, 1.34))];

/// When the writer has its files made durable.
#[derive(Clone, Copy)]
pub(super) enum Durable {
    /// All of them, at the end.
    AtEnd,
    /// As many as this, by a sync.
    Every(u64),
    /// Each one, by its own fsync.
    Each,
}

pub(super) fn run(place: &Place, seed: u64) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (files, paper, (low, high)) in RUNS {
        let both = |durable| -> Result<(f64, f64)> {
            let with = |options| {
                let setup = Setup { options, settings: &[] };
                seconds(place, setup, files, durable, seed)
            };
            Ok((with("noinline_data")?, with("inline_data")?))
        };
        let (without, with) = both(Durable::AtEnd)?;
        let what = format!("{files} files, time without / with inline_data");
        let row = Row::new(Kind::Outcome, what, paper, without / with, "x");
        rows.push(row.within(low, high));
        // What the writer itself must take for the published ratio.
        let published = f64::midpoint(low, high) - 1.0;
        let own = ((without - with) / published - with) / files as f64;
        let what = format!("{files} files, time of the writer for that ratio");
        rows.push(Row::new(Kind::Consequence, what, "", own * 1e6, "us a file"));
        if matches!(place, Place::Real(_)) {
            continue; // A drive takes minutes for so many fsyncs.
        }
        // The study does not say when its writer syncs.
        for (durable, name) in [
            (Durable::Every(100), "a sync every 100 files"),
            (Durable::Every(10), "a sync every 10 files"),
            (Durable::Each, "an fsync of each"),
        ] {
            let (without, with) = both(durable)?;
            let what = format!("{files} files, the same with {name}");
            rows.push(Row::new(Kind::Outcome, what, "", without / with, "x"));
        }
    }
    Ok(rows)
}

/// How long it takes to create `files` files, with a sync at the end.
pub(super) fn seconds(
    place: &Place,
    setup: Setup,
    files: u64,
    durable: Durable,
    seed: u64,
) -> Result<f64> {
    on_volume(place, setup, seed, |fs| {
        let from = now_ns();
        for number in 0..files {
            let name = format!("file{number}").into_bytes();
            let made = fs.create(fs.root(), &name, 0o644, Creator::default());
            let ino = made.map_err(Error::at("create", &name))?.ino;
            fs.write(ino, 0, &[number as u8; FILE]).map_err(Error::at("write", &name))?;
            match durable {
                Durable::Each => fs.fsync(ino, false).map_err(Error::at("fsync", &name))?,
                Durable::Every(some) if number % some == 0 => {
                    fs.sync().map_err(Error::at("sync", b""))?;
                }
                Durable::Every(_) | Durable::AtEnd => {}
            }
        }
        fs.sync().map_err(Error::at("sync", b""))?;
        Ok((now_ns() - from) as f64 / 1e9)
    })
}
