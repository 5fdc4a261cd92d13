//! Table 1: what each change of F2FS was worth, without and with it, on a load that it was made
//! for.
//!
//! The table says what improved, not by how much, so a row agrees if ours improves as well. What
//! a drive gains from knowing more free blocks is not modelled: the emulated drive does not clean
//! itself, so the rows about discards count commands, blocks and time.

use std::sync::Arc;

use vfs::kind::Volume;
use vfs::{Creator, Ino};

use super::inline_data::Durable;
use super::random_write::{fill, random_writes};
use super::{Kind, Place, Row, Setup, count, inline_data};
use crate::workload::Rng;
use crate::{Error, Result, now_ns};

const BLOCK: u64 = 4 << 10;
const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;
/// Blocks that an inode with room for attributes maps, and a direct node.
const INODE: u64 = 873;
const NODE: u64 = 1018;
/// How long a load that is left alone is left alone for.
const PAUSE: u64 = 60 * SECOND;

/// A change, its row of the table, and what is measured without and with it.
struct Change {
    name: &'static str,
    what: &'static str,
    is_better: Better,
    without: Setup,
    with: Setup,
    load: fn(Setup, u64) -> Result<f64>,
}

/// What is to happen to the measure.
#[derive(Clone, Copy)]
enum Better {
    Less,
    More,
}

const AS_IT_IS: Setup = Setup { options: "", settings: &[] };

const fn change(
    name: &'static str,
    what: &'static str,
    load: fn(Setup, u64) -> Result<f64>,
) -> Change {
    Change { name, what, is_better: Better::Less, without: AS_IT_IS, with: AS_IT_IS, load }
}

const fn options(options: &'static str) -> Setup {
    Setup { options, settings: &[] }
}

const fn tuned(settings: &'static [(&'static str, &'static str)]) -> Setup {
    Setup { options: "", settings }
}

const CLEANS_OFTEN: &[(&str, &str)] =
    &[("gc_min_sleep_time", "500"), ("gc_max_sleep_time", "500"), ("gc_no_gc_sleep_time", "500")];
const CLEANS: &[(&str, &str)] = &[
    ("gc_min_sleep_time", "2000"),
    ("gc_max_sleep_time", "2000"),
    ("gc_no_gc_sleep_time", "2000"),
];
const CLEANS_GREEDILY: &[(&str, &str)] = &[
    ("gc_min_sleep_time", "2000"),
    ("gc_max_sleep_time", "2000"),
    ("gc_no_gc_sleep_time", "2000"),
    ("gc_idle", "2"),
];
const CLEANS_AT_ONCE: &[(&str, &str)] =
    &[("gc_no_gc_sleep_time", "500"), ("gc_urgent_sleep_time", "50"), ("gc_urgent", "1")];

/// In the table's order.
const CHANGES: [Change; 14] = [
    Change {
        without: options("without=node_readahead"),
        ..change("read-ahead of nodes (3.10)", "time to read a sparse file", sparse_read)
    },
    Change {
        without: options("cache=1m,without=ram_thresh"),
        with: Setup { options: "cache=1m", settings: &[("ram_thresh", "10")] },
        ..change("ram_thresh (3.15)", "time to read a file in pieces at random", read_in_pieces)
    },
    Change {
        without: options("cache=1m,without=extent_cache"),
        with: options("cache=1m"),
        ..change("extent_cache (4.1)", "time to read a large file at random", random_read)
    },
    Change {
        without: options("without=inline_data"),
        ..change("inline_data (3.14)", "time to make 4000 files of 1 KiB", small_files)
    },
    Change {
        without: options("without=ipu_policy"),
        with: tuned(&[("ipu_policy", "2")]),
        ..change("ipu_policy (3.14)", "time to overwrite at random, 90% full", overwrite)
    },
    Change {
        without: options("without=hot_small_io"),
        ..change("hot log for small writes (4.12)", "pieces of a file written among them", pieces)
    },
    Change {
        without: options("without=min_ssr_sections+ipu_fsync"),
        with: options("without=ipu_fsync"),
        ..change("min_ssr_sections (4.15)", "time to overwrite at random, 90% full", overwrite)
    },
    Change {
        without: options("mode=lfs,without=gc_sleep_time"),
        with: Setup { options: "mode=lfs", settings: CLEANS_OFTEN },
        ..change("gc_sleep_time (3.12)", "time of bursts a minute apart", rare_bursts)
    },
    Change {
        without: Setup { options: "mode=lfs,without=gc_idle", settings: CLEANS },
        with: Setup { options: "mode=lfs", settings: CLEANS_GREEDILY },
        ..change("gc_idle (3.12)", "blocks moved in the background", moved_in_pauses)
    },
    Change {
        without: Setup { options: "mode=lfs,without=gc_urgent", settings: CLEANS_OFTEN },
        with: Setup { options: "mode=lfs", settings: CLEANS_AT_ONCE },
        ..change("gc_urgent (4.14)", "time of bursts 4 s apart", frequent_bursts)
    },
    Change {
        without: options("without=discard_granularity+async_discard+max_small_discards"),
        with: Setup {
            options: "without=discard_granularity+async_discard",
            settings: &[("max_small_discards", "0")],
        },
        ..change("max_small_discards (3.14)", "commands after every second file", commands)
    },
    Change {
        without: options("without=async_discard"),
        ..change("asynchronous discard (4.11)", "time of the sync after it", sync_time)
    },
    Change {
        without: options("without=small_discards+discard_granularity"),
        with: options("without=discard_granularity"),
        is_better: Better::More,
        ..change("small discards by default (4.12)", "free blocks told of", told)
    },
    Change {
        without: options("without=discard_granularity"),
        ..change("discard_granularity (4.14)", "commands after every second file", commands)
    },
];

pub(super) fn run(seed: u64) -> Result<Vec<Row>> {
    let rows = CHANGES.iter().map(|change| {
        let (without, with) =
            ((change.load)(change.without, seed)?, (change.load)(change.with, seed)?);
        let what = format!("{}: {}", change.name, change.what);
        let (paper, low, high) = match change.is_better {
            Better::Less => ("less", 0.0, 0.99),
            Better::More => ("more", 1.01, 1e3),
        };
        Ok(Row::new(Kind::Outcome, what, paper, with / without, "x").within(low, high))
    });
    rows.collect()
}

/// As [`super::on_prepared`], simulated: pauses of minutes take no time.
fn on_prepared<P, T>(
    setup: Setup,
    seed: u64,
    prepare: impl FnOnce(&Arc<dyn Volume>) -> Result<P>,
    job: impl FnOnce(&Arc<dyn Volume>, P) -> Result<T>,
) -> Result<T> {
    super::on_prepared(&Place::Simulated, setup, seed, prepare, job)
}

fn create(fs: &Arc<dyn Volume>, name: &str) -> Result<Ino> {
    let made = fs.create(fs.root(), name.as_bytes(), 0o644, Creator::default());
    Ok(made.map_err(Error::at("create", name.as_bytes()))?.ino)
}

fn write(fs: &Arc<dyn Volume>, ino: Ino, at: u64, bytes: &[u8]) -> Result<()> {
    fs.write(ino, at, bytes).map(drop).map_err(Error::at("write", b"file"))
}

fn sync(fs: &Arc<dyn Volume>) -> Result<()> {
    fs.sync().map_err(Error::at("sync", b""))
}

/// Seconds that `job` takes.
fn timed(job: impl FnOnce() -> Result<()>) -> Result<f64> {
    let from = now_ns();
    job()?;
    Ok((now_ns() - from) as f64 / SECOND as f64)
}

/// Reads these blocks.
fn read(fs: &Arc<dyn Volume>, ino: Ino, blocks: impl Iterator<Item = u64>) -> Result<()> {
    let mut buf = [0; BLOCK as usize];
    for block in blocks {
        fs.read(ino, block * BLOCK, &mut buf).map_err(Error::at("read", b"file"))?;
    }
    Ok(())
}

/// A file with one block under each node, read in order.
fn sparse_read(setup: Setup, seed: u64) -> Result<f64> {
    let blocks = || (0..2000).map(|node| INODE + node * NODE);
    let prepare = |fs: &Arc<dyn Volume>| {
        let ino = create(fs, "file")?;
        blocks().try_for_each(|block| write(fs, ino, block * BLOCK, &[1; BLOCK as usize]))?;
        Ok(ino)
    };
    on_prepared(setup, seed, prepare, |fs, ino| timed(|| read(fs, ino, blocks())))
}

/// A file written in order.
fn filled(fs: &Arc<dyn Volume>, name: &str, mib: u64) -> Result<Ino> {
    let ino = create(fs, name)?;
    (0..mib).try_for_each(|at| write(fs, ino, at * MIB, &[2; MIB as usize]))?;
    sync(fs)?;
    Ok(ino)
}

/// A file in one piece, of which memory cannot keep the nodes, read at random.
fn random_read(setup: Setup, seed: u64) -> Result<f64> {
    const SIZE: u64 = 400;
    let mut rng = Rng::new(seed, 11);
    let blocks: Vec<u64> = (0..3000).map(|_| rng.below(SIZE * MIB / BLOCK)).collect();
    let job = |fs: &Arc<dyn Volume>, ino| timed(|| read(fs, ino, blocks.into_iter()));
    on_prepared(setup, seed, |fs| filled(fs, "file", SIZE), job)
}

/// The same with a file in pieces of 32 KiB.
fn read_in_pieces(setup: Setup, seed: u64) -> Result<f64> {
    const PIECE: u64 = 8;
    const PIECES: u64 = 12_500;
    let mut rng = Rng::new(seed, 12);
    let prepare = |fs: &Arc<dyn Volume>| {
        let ino = create(fs, "file")?;
        for piece in (0..PIECES).map(|number| number * 7919 % PIECES) {
            let at = piece * PIECE * BLOCK;
            write(fs, ino, at, &[3; (PIECE * BLOCK) as usize])?;
            fs.fsync(ino, false).map_err(Error::at("fsync", b"file"))?;
        }
        Ok(ino)
    };
    let blocks: Vec<u64> = (0..40_000).map(|_| rng.below(PIECES * PIECE)).collect();
    on_prepared(setup, seed, prepare, |fs, ino| timed(|| read(fs, ino, blocks.into_iter())))
}

fn small_files(setup: Setup, seed: u64) -> Result<f64> {
    inline_data::seconds(&Place::Simulated, setup, 4000, Durable::AtEnd, seed)
}

/// Seconds for each MB.
fn overwrite(setup: Setup, seed: u64) -> Result<f64> {
    random_writes(&Place::Simulated, setup, seed).map(|ran| 1.0 / ran.mb_per_s)
}

/// A file that grows by 1 MiB at a time while others are made that are written once.
fn pieces(setup: Setup, seed: u64) -> Result<f64> {
    on_prepared(
        setup,
        seed,
        |_| Ok(()),
        |fs, ()| {
            let large = create(fs, "large")?;
            for round in 0..100 {
                write(fs, large, round * MIB, &[4; MIB as usize])?;
                for small in 0..10 {
                    let small = create(fs, &format!("small{round}-{small}"))?;
                    write(fs, small, 0, &[5; 2 * BLOCK as usize])?;
                }
                sync(fs)?;
            }
            let pieces = fs.defragment(large).map_err(Error::at("defragment", b"large"))?;
            Ok(pieces.extents_before as f64)
        },
    )
}

/// Overwrites 8 MiB ten times on a volume that is 90% full, with a pause before each. Of the
/// writes, 90% go to 10% of the file.
/// Returns the seconds that the writes took and how many blocks were moved in the background.
fn bursts(setup: Setup, pause: u64, seed: u64) -> Result<(f64, f64)> {
    let mut rng = Rng::new(seed, 13);
    let prepare = |fs: &Arc<dyn Volume>| {
        let ino = create(fs, "file")?;
        Ok((ino, fill(fs, ino, &[2; MIB as usize])?))
    };
    on_prepared(setup, seed, prepare, |fs, (ino, blocks)| {
        let upkeep = fs.clone().maintain();
        let mut seconds = 0.0;
        for _ in 0..10 {
            cores::sleep(pause);
            seconds += timed(|| {
                for _ in 0..8 * MIB / BLOCK {
                    let among = if rng.below(10) == 0 { blocks } else { blocks / 10 };
                    write(fs, ino, rng.below(among) * BLOCK, &[6; BLOCK as usize])?;
                }
                fs.fsync(ino, false).map_err(Error::at("fsync", b"file"))
            })?;
        }
        drop(upkeep);
        Ok((seconds, count(fs, "moved_blocks_background")?))
    })
}

fn rare_bursts(setup: Setup, seed: u64) -> Result<f64> {
    bursts(setup, PAUSE, seed).map(|(seconds, _)| seconds)
}

fn frequent_bursts(setup: Setup, seed: u64) -> Result<f64> {
    bursts(setup, 4 * SECOND, seed).map(|(seconds, _)| seconds)
}

fn moved_in_pauses(setup: Setup, seed: u64) -> Result<f64> {
    bursts(setup, PAUSE, seed).map(|(_, moved)| moved)
}

/// What discards took after every second of many files was removed.
struct Discards {
    sync_seconds: f64,
    commands: f64,
    blocks: f64,
}

fn discards(setup: Setup, seed: u64) -> Result<Discards> {
    const FILES: u64 = 4000;
    const LEN: usize = 5 * BLOCK as usize;
    let name = |number| format!("file{number}");
    let prepare = |fs: &Arc<dyn Volume>| {
        for number in 0..FILES {
            let ino = create(fs, &name(number))?;
            write(fs, ino, 0, &[7; LEN])?;
        }
        Ok(())
    };
    on_prepared(setup, seed, prepare, |fs, ()| {
        let upkeep = fs.clone().maintain();
        for number in (0..FILES).step_by(2) {
            let name = name(number);
            let removed = fs.unlink(fs.root(), name.as_bytes());
            removed.map_err(Error::at("unlink", name.as_bytes()))?;
        }
        let sync_seconds = timed(|| sync(fs))?;
        cores::sleep(10 * PAUSE);
        drop(upkeep);
        Ok(Discards {
            sync_seconds,
            commands: count(fs, "stat/discard_commands")?,
            blocks: count(fs, "stat/discarded_blocks")?,
        })
    })
}

fn sync_time(setup: Setup, seed: u64) -> Result<f64> {
    discards(setup, seed).map(|took| took.sync_seconds)
}

fn commands(setup: Setup, seed: u64) -> Result<f64> {
    discards(setup, seed).map(|took| took.commands)
}

fn told(setup: Setup, seed: u64) -> Result<f64> {
    discards(setup, seed).map(|took| took.blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `without=` in these options names.
    fn switched_off(setup: &Setup) -> Vec<&'static str> {
        let option = setup.options.split(',').find_map(|option| option.strip_prefix("without="));
        option.map_or_else(Vec::new, |names| names.split('+').collect())
    }

    /// A row is about one change.
    #[test]
    fn each_row_switches_one_change_off() {
        for change in &CHANGES {
            let (without, with) = (switched_off(&change.without), switched_off(&change.with));
            let more: Vec<_> = without.iter().filter(|name| !with.contains(name)).collect();
            assert_eq!((more.len(), without.len()), (1, with.len() + 1), "{}", change.name);
        }
    }
}
