//! Figure 1: files of 1 KiB, created and written one after the other, then synced.

use vfs::Creator;

use super::{Kind, Row, on_volume};
use crate::{Error, Result, now_ns};

/// Bytes of a file: they fit into its inode.
const FILE: usize = 1 << 10;

/// The study's numbers of files, and how much longer they took without `inline_data`.
const RUNS: [(u64, &str, (f64, f64)); 2] =
    [(4000, "+12%", (1.08, 1.16)), (8000, "+28%", (1.22, 1.34))];

pub(super) fn run(seed: u64) -> Result<Vec<Row>> {
    let rows = RUNS.into_iter().map(|(files, paper, (low, high))| {
        let ours = seconds("noinline_data", files, seed)? / seconds("inline_data", files, seed)?;
        let what = format!("{files} files, time without / with inline_data");
        Ok(Row::new(Kind::Outcome, what, paper, ours, "x").within(low, high))
    });
    rows.collect()
}

/// How long it takes to create `files` files and sync.
fn seconds(options: &str, files: u64, seed: u64) -> Result<f64> {
    on_volume(options, &[], seed, |fs| {
        let from = now_ns();
        for number in 0..files {
            let name = format!("file{number}").into_bytes();
            let made = fs.create(fs.root(), &name, 0o644, Creator::default());
            let ino = made.map_err(Error::at("create", &name))?.ino;
            fs.write(ino, 0, &[number as u8; FILE]).map_err(Error::at("write", &name))?;
        }
        fs.sync().map_err(Error::at("sync", b""))?;
        Ok((now_ns() - from) as f64 / 1e9)
    })
}
