//! IOzone's write and rewrite tests over its matrix of file and record sizes (Norcutt's IOzone,
//! `-i 0`), in process, with a system call's cost added, or through the kernel.
//!
//! As there, a file is made anew for `write` and written again from the front for `rewrite`; making
//! and closing it is not part of the time, and neither is what follows but the fsync of `-e`. Each
//! cell is measured several times, on all places in turn, forth and back, since each finds the
//! caches as the one before left them. A file's time is the sum of the best times of its parts of
//! [`PART`], as the memory's floors are the best of several rounds: a large file takes longer to
//! write than a busy machine lets any program run, so that no round of it is without a pause.

mod picture;
mod place;
mod table;

use cores::Nanos;
use serde::Serialize;

use place::File;
pub use place::Place;

use super::Spread;
use crate::{Result, now_ns};

const KIB: u64 = 1 << 10;
/// Sizes of files and records, in powers of two (`iozone -a`: `-n 64k -g 512m -y 4k -q 16m`).
const FILES: std::ops::RangeInclusive<u32> = 16..=29;
const RECORDS: std::ops::RangeInclusive<u32> = 12..=24;
/// Files from this size on have no records below [`RECORD_MIN`], unless asked for with `-z`.
const LARGE: u64 = 32 << 20;
const RECORD_MIN: u64 = 64 * KIB;
/// Small files are written more often: so many bytes in all, within these rounds.
const BYTES: u64 = 64 << 20;
const ROUNDS: (u64, u64) = (4, 32);
/// What is timed by itself, or a record where that is longer.
const PART: u64 = 1 << 20;

/// One cell of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// Bytes of the file.
    pub file: u64,
    /// Bytes written at a time.
    pub record: u64,
}

/// The cells of `iozone -a`: 126, or 146 with `-z`.
pub fn cells(small_records: bool) -> Vec<Cell> {
    let all = FILES
        .flat_map(|file| RECORDS.map(move |record| Cell { file: 1 << file, record: 1 << record }));
    let has = |cell: &Cell| {
        let is_small = cell.file >= LARGE && cell.record < RECORD_MIN;
        cell.record <= cell.file && (small_records || !is_small)
    };
    all.filter(has).collect()
}

/// When data must be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Durable {
    /// Whenever it pleases.
    Buffered,
    /// At the end, by an fsync that counts (`-e`).
    Fsync,
    /// With each write (`-o`, `O_SYNC`).
    Osync,
}

impl Durable {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Buffered, Self::Fsync, Self::Osync];

    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Buffered => "buffered",
            Self::Fsync => "fsync",
            Self::Osync => "O_SYNC",
        }
    }
}

/// One of the two tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Test {
    /// A new file.
    Write,
    /// One that is there.
    Rewrite,
}

/// What was measured of one cell, in bytes per second, one figure for each place.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// The cell.
    #[serde(flatten)]
    pub cell: Cell,
    /// When data must be durable.
    pub durable: Durable,
    /// Which test.
    pub test: Test,
    /// In the order of the places.
    pub bytes_per_s: Vec<f64>,
}

/// The matrix.
#[derive(Clone, Debug, Serialize)]
pub struct Matrix {
    /// `iozone`.
    pub bench: &'static str,
    /// The places that were measured, our own first.
    pub places: Vec<String>,
    /// How many are our own.
    pub ours: usize,
    /// Which of ours is compared with the others.
    pub judged: usize,
    /// Places that could not be had, and why.
    pub refused: Vec<String>,
    /// Which of ours is no file system, but streaming stores of the same records to as much memory,
    /// with a fence after each.
    pub floor: usize,
    /// All cells.
    pub cells: Vec<Measured>,
}

/// Which cells to measure.
#[derive(Clone, Debug)]
pub struct Job {
    /// The cells.
    pub cells: Vec<Cell>,
    /// When data must be durable.
    pub durable: Vec<Durable>,
}

impl Job {
    /// How often `step` will be called.
    pub fn steps(&self) -> u64 {
        (self.cells.len() * self.durable.len()) as u64
    }

    /// Measures all cells on all places, unless `step`, which is called after each, says no.
    pub fn run(&self, places: &[Place], step: &mut dyn FnMut() -> bool) -> Result<Vec<Measured>> {
        let largest = self.cells.iter().map(|cell| cell.record).max().unwrap_or(0);
        let record = vec![0x5a; largest as usize];
        let mut all = Vec::new();
        for &durable in &self.durable {
            for &cell in &self.cells {
                let record = &record[..cell.record as usize];
                let [write, rewrite] = measure(places, cell, durable, record)?;
                for (test, bytes_per_s) in [(Test::Write, write), (Test::Rewrite, rewrite)] {
                    all.push(Measured { cell, durable, test, bytes_per_s });
                }
                if !step() {
                    return Ok(all);
                }
            }
        }
        Ok(all)
    }
}

/// The rates of both tests on each place, in bytes per second.
fn measure(places: &[Place], cell: Cell, durable: Durable, record: &[u8]) -> Result<[Vec<f64>; 2]> {
    let mut best = [vec![Parts::default(); places.len()], vec![Parts::default(); places.len()]];
    for round in 0..(BYTES / cell.file).clamp(ROUNDS.0, ROUNDS.1) as usize {
        for turn in 0..places.len() {
            let at = if round.is_multiple_of(2) { turn } else { places.len() - 1 - turn };
            let file = places[at].create(durable)?;
            for best in &mut best {
                best[at].improve(&write(&file, cell.file, durable, record)?);
            }
            places[at].remove(file)?;
        }
    }
    Ok(best.map(|of| of.iter().map(|parts| per_s(cell.file, parts.sum())).collect()))
}

/// Writes a file of this size from its front; the times of its parts, and of the fsync.
fn write(file: &File<'_>, bytes: u64, durable: Durable, record: &[u8]) -> Result<Vec<Nanos>> {
    let mut took = Vec::new();
    let mut start = now_ns();
    let mut lap = |took: &mut Vec<Nanos>| {
        let end = now_ns();
        took.push(end - std::mem::replace(&mut start, end));
    };
    for at in (0..bytes).step_by(record.len()) {
        file.write(at, record)?;
        let end = at + record.len() as u64;
        if end / PART > at / PART || end == bytes {
            lap(&mut took);
        }
    }
    if durable == Durable::Fsync {
        file.fsync()?;
        lap(&mut took);
    }
    Ok(took)
}

/// The least time that each part of a file took in any round.
#[derive(Clone, Default)]
struct Parts(Vec<Nanos>);

impl Parts {
    fn improve(&mut self, round: &[Nanos]) {
        self.0.resize(round.len(), Nanos::MAX);
        self.0.iter_mut().zip(round).for_each(|(best, took)| *best = (*best).min(*took));
    }

    fn sum(&self) -> Nanos {
        self.0.iter().sum()
    }
}

fn per_s(bytes: u64, took: Nanos) -> f64 {
    bytes as f64 * 1e9 / took.max(1) as f64
}

/// How two places compare over some cells.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// Mean of the cells' ratios.
    pub mean: f64,
    /// Least and most.
    pub least: f64,
    /// The most.
    pub most: f64,
    /// Cells in which the first place is slower.
    pub below: usize,
    /// Cells in all.
    pub cells: usize,
}

impl Matrix {
    /// How place `one` compares with place `other`. `None` without cells.
    pub fn ratio(&self, durable: Durable, test: Test, one: usize, other: usize) -> Option<Ratio> {
        self.ratio_of(one, other, |cell| cell.durable == durable && cell.test == test)
    }

    fn ratio_of(&self, one: usize, other: usize, of: impl Fn(&Measured) -> bool) -> Option<Ratio> {
        let ratio =
            |cell: &Measured| Some(cell.bytes_per_s.get(one)? / cell.bytes_per_s.get(other)?);
        let cells = self.cells.iter().filter(|cell| of(cell));
        Ratio::of(cells.filter_map(ratio).collect())
    }

    /// How a place's buffered writes of [`RECORD_MIN`] and more compare with the floor.
    pub fn of_floor(&self, place: usize, test: Test) -> Option<Ratio> {
        self.ratio_of(place, self.floor, |cell| {
            let is_long = cell.cell.record >= RECORD_MIN;
            cell.test == test && cell.durable == Durable::Buffered && is_long
        })
    }
}

impl Ratio {
    fn of(all: Vec<f64>) -> Option<Self> {
        let (below, cells) = (all.iter().filter(|&&ratio| ratio < 1.0).count(), all.len());
        let mean = all.iter().sum::<f64>() / cells as f64;
        let Spread { least, most, .. } = Spread::of(all);
        (cells > 0).then_some(Self { mean, least, most, below, cells })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_matrix_is_iozones() {
        assert_eq!([cells(false).len(), cells(true).len()], [126, 146]);
        let all = cells(true);
        assert_eq!(all[0], Cell { file: 64 * KIB, record: 4 * KIB });
        assert_eq!(all[145], Cell { file: 512 << 20, record: 16 << 20 });
    }

    #[test]
    fn a_pause_in_one_round_counts_in_none() {
        let mut parts = Parts::default();
        parts.improve(&[5, 900, 7]);
        parts.improve(&[800, 6, 8]);
        assert_eq!((parts.sum(), per_s(36, parts.sum())), (18, 2e9));
    }

    #[test]
    fn parts_are_of_a_mebibyte_or_a_record() {
        use drive::pm::{Domain, PmSim, PmState};
        let pm = PmSim::power_on(PmState::new(4 << 20), Domain::Process);
        let place = Place::Memory(pm);
        let parts = |record: usize, durable| {
            let file = place.create(durable).expect("memory");
            write(&file, 4 << 20, durable, &vec![1; record]).expect("writes").len()
        };
        assert_eq!(parts(64 << 10, Durable::Buffered), 4);
        assert_eq!(parts(2 << 20, Durable::Buffered), 2);
        assert_eq!(parts(2 << 20, Durable::Fsync), 3);
    }

    #[test]
    fn a_ratio_is_of_cells_side_by_side() {
        let cell = Cell { file: 1 << 20, record: 64 * KIB };
        let measured = |test, bytes_per_s: [f64; 3]| {
            let (durable, bytes_per_s) = (Durable::Buffered, bytes_per_s.to_vec());
            Measured { cell, durable, test, bytes_per_s }
        };
        let cells = vec![
            measured(Test::Write, [3.0, 4.0, 2.0]),
            measured(Test::Write, [1.0, 4.0, 2.0]),
            measured(Test::Rewrite, [9.0, 4.0, 1.0]),
        ];
        let (places, refused) = (vec!["a".into(), "stream".into(), "b".into()], Vec::new());
        let (bench, ours, judged, floor) = ("iozone", 2, 0, 1);
        let matrix = Matrix { bench, places, ours, judged, floor, refused, cells };
        let found = matrix.ratio(Durable::Buffered, Test::Write, 0, 2);
        assert_eq!(found, Some(Ratio { mean: 1.0, least: 0.5, most: 1.5, below: 1, cells: 2 }));
        assert_eq!(matrix.ratio(Durable::Fsync, Test::Write, 0, 2), None);
        assert_eq!(matrix.of_floor(0, Test::Write).map(|share| share.least), Some(0.25));
        let text = matrix.text();
        assert!(text.contains("1.00 (0.50 to 1.50), below 1: 1"), "{text}");
        assert!(text.contains("+800%") && text.contains("64k"), "{text}");
        let picture = matrix.svg();
        assert!(picture.starts_with("<svg xmlns='http://www.w3.org/2000/svg'"), "{picture}");
        for part in ["buffered write", "+800%", "class='ahead'", "a beside b"] {
            assert!(picture.contains(part), "{part}: {picture}");
        }
    }
}
