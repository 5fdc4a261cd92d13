//! `strandline bench age`: a volume that is nearly full, overwritten again and again.

use clap::Args;
use lab::bench::Subject;
use lab::bench::age::{self, Aged, Latency};
use vfs::words::counted;

use super::Common;
use crate::failure::{Failure, Outcome};
use crate::known;
use crate::out;

/// Fill a volume, overwrite it again and again, and print what cleaning costs.
#[derive(Args)]
#[command(after_help = "\
Examples:
  strandline bench age --fill 90 --overwrite 10x --drive zn540 --machine xeon-4116
  strandline bench age --fill 80 --overwrite 2x --size 256m --fsync 64 --json")]
pub(crate) struct Age {
    /// Percent of the volume that is filled
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u64).range(1..=100))]
    fill: u64,
    /// How many times what was filled is overwritten
    #[arg(long, default_value = "10x", value_name = "TIMES")]
    overwrite: String,
    /// Writes between two fsyncs; 0 for none
    #[arg(long, default_value_t = 0)]
    fsync: u64,
    /// Room on the drive, with k, m or g
    #[arg(long, default_value = "1g", value_parser = crate::target::parse_size)]
    size: u64,
    #[arg(long, default_value = "zn540", help = format!("Drive profile: {}", known::drives()))]
    drive: String,
    /// `real`, or a machine profile to simulate
    #[arg(long, default_value = "xeon-4116")]
    machine: String,
    #[command(flatten)]
    common: Common,
}

impl Age {
    pub(super) fn run(self) -> Outcome {
        let times = self.overwrite.strip_suffix('x').unwrap_or(&self.overwrite).parse();
        let overwrite = times.ok().filter(|times: &f64| times.is_finite() && *times >= 0.0);
        let overwrite = overwrite.ok_or_else(|| {
            Failure::Usage(format!("--overwrite {}: a number of times, as 10x", self.overwrite))
        })?;
        let mount_opts = self.common.mount_opts();
        let Common { fs, seed, json, .. } = self.common;
        let aged = age::run(&age::Age {
            format: subjects::named(&fs)?,
            drive: self.drive,
            size: self.size,
            machine: self.machine,
            mount_opts,
            fill: self.fill,
            overwrite,
            fsync: self.fsync,
            seed,
        })?;
        if json {
            out::json(&aged)?;
            return Ok(0);
        }
        print(&aged)?;
        Ok(0)
    }
}

fn print(aged: &Aged) -> Result<(), Failure> {
    let Subject { drive, machine, simulated, .. } = &aged.subject;
    let time = if *simulated { "simulated" } else { "measured" };
    let Aged { fill, writes, seconds, .. } = aged;
    let mib = aged.file_bytes >> 20;
    out::line(format!(
        "{fill} % full, {mib} MiB, {} overwritten on {drive} ({machine} machine, {time}) in \
         {seconds:.1} s",
        counted(*writes, "block")
    ))?;
    let (is, form) = (aged.amplification, aged.amplification_closed_form);
    out::line(format!(
        "write amplification {is:.2}, closed form {form:.2} (u = {:.3}), ratio {:.2}; the drive \
         got {:.2} blocks per write, {} sections were cleaned",
        aged.valid_share,
        is / form,
        aged.drive_blocks_per_write,
        aged.cleanings,
    ))?;
    for (what, latency) in [("write", aged.write_us), ("read", aged.read_us)] {
        let Latency { count, p50, p99, p999, max } = latency;
        out::line(format!(
            "{what} latency µs: p50 {p50:.2}, p99 {p99:.1}, p99.9 {p999:.1}, max {max:.1} of \
             {count}"
        ))?;
    }
    Ok(())
}
