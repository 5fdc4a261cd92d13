//! `strandline bench`: one benchmark, one line or one JSON object.

mod age;
mod calibrate;
mod fxmark;
mod io;
mod iozone;
mod pm;

use clap::{Args, Subcommand};
use lab::bench::{self, Bench as Job, Subject};
use vfs::words::counted;

use crate::block_layer::BlockLayer;
use crate::failure::{Failure, Outcome};
use crate::known;
use crate::out;

/// Measure one kind of work on a fresh volume, how it scales with cores, or a file's interfaces.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "\
Examples:
  strandline bench fsync --drive ram --machine real
  strandline bench fsync --drive zn540 --machine xeon-4116 --mount-options fsync_mode=nobarrier,oprw
  strandline bench fsync --drive zn540-noplp --machine xeon-4116 --threads 8 -o noflush_merge
  strandline bench seqwrite --drive ram --json
  strandline bench age --fill 90 --overwrite 10x --drive zn540 --machine xeon-4116
  strandline bench fxmark DWOL --machine e7-8870v2-120 --cores 1,4,16,60,120
  strandline bench io /var/tmp/test.dat --size 256m
  strandline bench iozone --against ext4")]
pub(crate) struct Bench {
    #[command(subcommand)]
    suite: Option<Suite>,
    #[command(flatten)]
    one: Option<One>,
    #[command(flatten)]
    common: Common,
}

#[derive(Subcommand)]
enum Suite {
    Age(age::Age),
    Fxmark(fxmark::Fxmark),
    Io(io::Io),
    Iozone(iozone::Iozone),
    Pm(pm::PmBench),
    Calibrate(calibrate::Calibrate),
}

/// What all benchmarks of file systems take.
#[derive(Args)]
struct Common {
    /// File system
    #[arg(long, default_value = "f2fs")]
    fs: String,
    /// Mount options, as for mount -o
    #[arg(long = "mount-options", alias = "mount-opts", default_value = "", short = 'o')]
    #[arg(value_name = "OPTIONS", hide_default_value = true)]
    mount_opts: String,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    block_layer: BlockLayer,
}

#[derive(Args)]
struct One {
    #[arg(help = bench::Kind::ALL.map(bench::Kind::name).join(", "))]
    bench: String,
    #[arg(long, default_value = "ram", help = format!("Drive profile: {}", known::drives()))]
    drive: String,
    /// `real`, or a machine profile to simulate
    #[arg(long, default_value = "real")]
    machine: String,
    /// Operations; by default a second or two of them
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    ops: Option<u64>,
    /// Threads that share them, each with files of its own
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024))]
    threads: u64,
    /// Past the page cache, as with O_DIRECT
    #[arg(long)]
    direct: bool,
}

impl Common {
    /// Mount options, with those of the block layer.
    fn mount_opts(&self) -> String {
        let given = Some(self.mount_opts.clone()).filter(|list| !list.is_empty());
        given.into_iter().chain(self.block_layer.options()).collect::<Vec<_>>().join(",")
    }
}

impl Bench {
    pub(crate) fn run(self) -> Outcome {
        match (self.suite, self.one) {
            (Some(Suite::Age(age)), _) => age.run(),
            (Some(Suite::Fxmark(fxmark)), _) => fxmark.run(),
            (Some(Suite::Io(io)), _) => io.run(),
            (Some(Suite::Iozone(iozone)), _) => iozone.run(),
            (Some(Suite::Pm(pm)), _) => pm.run(),
            (Some(Suite::Calibrate(calibrate)), _) => calibrate.run(),
            (None, Some(one)) => one.run(self.common),
            // clap asks for the name of a benchmark.
            (None, None) => Err(Failure::Usage("which benchmark? see --help".into())),
        }
    }
}

impl One {
    fn run(self, common: Common) -> Outcome {
        let mount_opts = common.mount_opts();
        let Common { fs, seed, json, .. } = common;
        let job = Job {
            kind: self.bench.parse().map_err(|_| {
                let suites = Suite::augment_subcommands(clap::Command::new("bench"));
                known::no_benchmark(&self.bench, &suites)
            })?,
            format: subjects::named(&fs)?,
            drive: self.drive,
            machine: self.machine,
            mount_opts,
            ops: self.ops,
            threads: self.threads,
            direct: self.direct,
            seed,
        };
        let result = bench::run(&job)?;
        if json {
            out::json(&result)?;
            return Ok(0);
        }
        let Subject { bench, drive, machine, simulated, .. } = &result.subject;
        let time = if *simulated { "simulated" } else { "measured" };
        out::line(format!(
            "{bench} on {drive} ({machine} machine, {time}): {:.0} ops/s, {:.1} MB/s",
            result.ops_per_s,
            result.bytes_per_s / 1e6
        ))?;
        out::line(format!(
            "latency µs: p50 {:.2}, p99 {:.2}, p99.9 {:.2}, max {:.1}; {}",
            result.latency_us_p50,
            result.latency_us_p99,
            result.latency_us_p999,
            result.latency_us_max,
            counted(result.flushes, "flush")
        ))?;
        Ok(0)
    }
}
