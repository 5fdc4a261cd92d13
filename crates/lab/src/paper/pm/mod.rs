//! pNOVA (MASCOTS '20; the many-core study's Figure 13): what NOVA's lock, its log and its place
//! cost on eight nodes, and what each of pNOVA's three options takes away.
//!
//! Time is simulated: pmfs, design `nova`, on a virtual machine of 8 x Xeon E7-8870 v2 with
//! persistent memory on each node, which is DRAM as in the study. Two figures of the study are
//! given to the model (`[pm]` in the machine's profile): 1.29 GB/s of one core, and 17.15 GB/s of
//! one node. A core's part is 64 pages (256 KiB, a segment) in place of FxMark's 8 MiB, overwritten
//! once before the clock starts: the first time, pages go back to the node of the one who made
//! the files.

mod alone;
mod curves;
mod load;
mod window;

use super::Figure;

/// Those of the study, and what the options do one by one.
pub const PM: &[Figure] = &[
    Figure {
        name: "fig-13a",
        about: "DWOL on 120 cores: each core overwrites its own file (figure 13a)",
        run: curves::own_files,
        simulated: true,
    },
    Figure {
        name: "fig-13b",
        about: "DWOM on 120 cores: all cores overwrite one file (figure 13b)",
        run: curves::one_file,
        simulated: true,
    },
    Figure {
        name: "fig-13c",
        about: "one file, 75% of the cores write and 25% read (figure 13c)",
        run: curves::mostly_writers,
        simulated: true,
    },
    Figure {
        name: "fig-13d",
        about: "one file, 25% of the cores write and 75% read (figure 13d)",
        run: curves::mostly_readers,
        simulated: true,
    },
    Figure {
        name: "fig-13-options",
        about: "each of pNOVA's options by itself: the bottleneck that it takes away",
        run: alone::run,
        simulated: true,
    },
];

const MACHINE: &str = "e7-8870v2-120";
const NODES: u32 = 8;
const CORES: usize = 120;
/// GB/s of one core, and of one node.
const ONE_CORE: f64 = 1.29;
const ONE_NODE: f64 = 17.15;

/// Mount options.
#[derive(Clone, Copy)]
struct Setting {
    name: &'static str,
    options: &'static str,
}

const NOVA: Setting = Setting { name: "NOVA", options: "range_lock=inode,log=inode,place=node0" };
const PNOVA: Setting =
    Setting { name: "pNOVA", options: "range_lock=segment,log=core,place=local" };
