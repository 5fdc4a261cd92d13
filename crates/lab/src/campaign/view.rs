//! The files at one cut: what is there, what may be, what is lost.

use super::{Judged, Recording};
use crate::oracle::{Damage, Model, Object, Verdict};
use vfs::FileKind;

/// Cells of a view; if there are more files or blocks, several share a cell.
const CELLS: usize = 1056;
/// Up to this many files are shown block by block.
const FEW: usize = 3;

/// What became of a file or a block, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// Durable, and there.
    Kept,
    /// Written since its last fsync: old or new is right.
    Open,
    /// Gone, or back at an older version.
    Lost,
    /// Parts of different fsyncs, or of a block's old and new sectors.
    Torn,
    /// Something that was never there.
    Garbage,
    /// What cannot be read.
    Corrupt,
}

impl Fate {
    /// All, in order.
    pub const ALL: [Self; 6] =
        [Self::Kept, Self::Open, Self::Lost, Self::Torn, Self::Garbage, Self::Corrupt];

    /// What pages call it: the words of the table, and their classes.
    pub fn word(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Open => "open",
            Self::Lost => Damage::Lost.word(),
            Self::Torn => Damage::Torn.word(),
            Self::Garbage => Damage::Garbage.word(),
            Self::Corrupt => Damage::Corrupt.word(),
        }
    }

    fn of(damage: Damage) -> Self {
        match damage {
            Damage::Lost => Self::Lost,
            Damage::Torn => Self::Torn,
            Damage::Garbage => Self::Garbage,
            Damage::Corrupt => Self::Corrupt,
        }
    }
}

/// All files at one cut.
#[derive(Clone, Debug)]
pub struct View {
    /// The number of the cut: the one with most findings, or the middle one if there are none.
    pub cut: usize,
    /// When, nanoseconds since the workload started.
    pub at_ns: u64,
    /// Whether a cell is of blocks, not files.
    pub blocks: bool,
    /// Files or blocks in a cell.
    pub unit: usize,
    /// The cells, and what is in each.
    pub cells: Vec<(Fate, String)>,
    /// How many files or blocks of each fate, in the order of [`Fate`].
    pub counts: [usize; Fate::ALL.len()],
}

impl View {
    /// The view of one of the cuts that were judged.
    pub(super) fn of(recording: &Recording, judged: &[Judged]) -> Option<Self> {
        let worst = judged.iter().map(|j| j.verdicts.len()).max().filter(|most| *most > 0);
        let at = match worst {
            Some(most) => judged.iter().position(|j| j.verdicts.len() == most)?,
            None => judged.len() / 2,
        };
        let (cut, judged) = (recording.cuts.get(at)?, judged.get(at)?);
        let mut model = Model::default();
        model.advance(&recording.log, cut.position);
        let files: Vec<(usize, &Object)> = model
            .objects
            .iter()
            .enumerate()
            .filter(|(_, o)| o.kind == FileKind::Regular && !o.places.is_empty())
            .collect();
        let blocks = files.len() <= FEW;
        let fates: Vec<(Fate, String)> = files
            .iter()
            .flat_map(|(obj, object)| {
                let path = model.path(*obj);
                // A volume that does not mount shows no file.
                let of = |v: &&Verdict| v.path == path || v.is_of_the_mount();
                let verdicts: Vec<&Verdict> = judged.verdicts.iter().filter(of).collect();
                if blocks {
                    by_block(object, &path, &verdicts)
                } else {
                    vec![(file_fate(object, &verdicts), path)]
                }
            })
            .collect();
        let mut counts = [0; Fate::ALL.len()];
        fates.iter().for_each(|(fate, _)| counts[*fate as usize] += 1);
        let unit = fates.len().div_ceil(CELLS).max(1);
        let cells = fates
            .chunks(unit)
            .filter_map(|chunk| chunk.iter().max_by_key(|(fate, _)| *fate).cloned());
        Some(Self {
            cut: judged.index,
            at_ns: judged.at_ns,
            blocks,
            unit,
            cells: cells.collect(),
            counts,
        })
    }
}

fn damage(verdicts: &[&Verdict]) -> Option<Fate> {
    verdicts.iter().map(|v| Fate::of(v.damage)).max()
}

fn file_fate(object: &Object, verdicts: &[&Verdict]) -> Fate {
    let open = object.is_dirty() || object.is_syncing() || object.size.is_open();
    let undamaged = if open || !object.anchored { Fate::Open } else { Fate::Kept };
    damage(verdicts).unwrap_or(undamaged)
}

fn by_block(object: &Object, path: &str, verdicts: &[&Verdict]) -> Vec<(Fate, String)> {
    let whole: Vec<&Verdict> = verdicts.iter().filter(|v| v.block.is_none()).copied().collect();
    let cells = object.blocks.iter().map(|(index, block)| {
        let of: Vec<&Verdict> =
            verdicts.iter().filter(|v| v.block == Some(*index)).copied().collect();
        let open = block.versions.is_open();
        let undamaged = if open { Fate::Open } else { Fate::Kept };
        let fate = damage(&of).or(damage(&whole)).unwrap_or(undamaged);
        (fate, format!("{path} block {index}"))
    });
    cells.collect()
}
