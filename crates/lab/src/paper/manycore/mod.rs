//! The many-core study's figures about hybridF2FS and the block layer, one file per figure.

mod fig_14;
mod fig_16;
mod fig_17;
#[cfg(target_os = "linux")]
mod fig_17_here;
mod fig_7;

use super::{Figure, Kind, Row};

/// Those of the study, in its order.
pub const MANYCORE: &[Figure] = &[
    Figure {
        name: "fig-7a",
        about: "overwrite and fsync of own files on 120 cores: F2FS, and with its nodes in memory",
        run: fig_7::fsyncs,
        simulated: true,
    },
    Figure {
        name: "fig-7b",
        about: "DRBM on 120 cores: all cores read one file, on F2FS and on hybridF2FS",
        run: fig_7::reads,
        simulated: true,
    },
    Figure {
        name: "fig-7c",
        about: "DWOM on 120 cores: all cores overwrite one file, with and without range locks",
        run: fig_7::overwrites,
        simulated: true,
    },
    Figure {
        name: "fig-14",
        about: "4 KiB random reads of ramdisk-mq on 120 cores, by hardware queues",
        run: fig_14::hardware_queues,
        simulated: true,
    },
    Figure {
        name: "fig-15",
        about: "4 KiB random reads of ramdisk-mq, 120 cores, 8 hardware queues, by nr_requests",
        run: fig_14::nr_requests,
        simulated: true,
    },
    Figure {
        name: "fig-16",
        about: "direct random reads of one file on a 960 Pro, with F2FS's lock around submission",
        run: fig_16::run,
        simulated: true,
    },
    Figure {
        name: "fig-17",
        about: "4 KiB random reads of a 983 ZET: jobs that each interface needs for its peak",
        run: fig_17::run,
        simulated: true,
    },
    #[cfg(target_os = "linux")]
    Figure {
        name: "fig-17-here",
        about: "the interfaces of Figure 17 on a file of this machine",
        run: fig_17_here::run,
        simulated: false,
    },
];
