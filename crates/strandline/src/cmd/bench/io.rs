//! `strandline bench io`: the interfaces to a file or device of the user's, side by side.

use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::{ArgAction, Args};
use drive::linux::interface::{Kind, Way};
use lab::bench::io::{Job, On, Pattern, lay_out};

use crate::failure::{Failure, Outcome, PROBLEM};
use crate::out;
use crate::progress::Progress;
use crate::target::parse_size;

/// Compare psync, pvsync2, libaio, io_uring and polled drives on a file or device.
///
/// Reads only, unless --rw says otherwise; then --overwrite must allow to replace what an existing
/// FILE holds. Options have fio's names.
#[derive(Args)]
#[command(after_help = interfaces())]
pub(crate) struct Io {
    /// File or block device; one that is not there is made, if --size says how large, and kept
    #[arg(required_unless_present = "drive")]
    file: Option<PathBuf>,
    /// Instead of FILE an emulated drive without zones, in memory, without the kernel, for `drive`
    /// only: conventional-noplp, 983-zet, ram, ramdisk-mq, null
    #[arg(long, value_name = "PROFILE", conflicts_with = "file")]
    drive: Option<String>,
    /// Interfaces, below; all by default. Ratios are to the first that works
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    ioengine: Vec<Kind>,
    /// randread, randwrite, read or write
    #[arg(long, default_value = "randread")]
    rw: Pattern,
    /// Bytes of a transfer, with k or m
    #[arg(long, default_value = "4k", value_parser = parse_size)]
    bs: u64,
    /// Transfers at a time and job; psync and pvsync2 make one
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=4096))]
    iodepth: u16,
    /// Threads, each on a core of its own as far as there are cores
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    numjobs: u16,
    /// Use so much of FILE, from its beginning; all of it by default
    #[arg(long, value_parser = parse_size)]
    size: Option<u64>,
    /// 1: past the page cache; 0: through it
    #[arg(long, default_value = "1", value_name = "0|1", action = ArgAction::Set)]
    #[arg(value_parser = BoolishValueParser::new(), hide_possible_values = true)]
    direct: bool,
    /// Seconds of each run; 1 by default, without limit with --number_ios
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    runtime: Option<u64>,
    /// Transfers of each job in each run
    #[arg(long = "number_ios", value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    number_ios: Option<u64>,
    /// Rounds of all interfaces in turn; figures are medians
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Allow to write to a FILE that exists: what it holds is lost
    #[arg(long)]
    overwrite: bool,
    /// Seed of places and bytes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// What the interfaces are, and examples.
fn interfaces() -> String {
    let lines = Kind::ALL.map(|kind| format!("  {:14}  {}\n", kind.name(), kind.about()));
    format!(
        "Interfaces:\n{}\n\
         Examples:\n  \
         strandline bench io /var/tmp/test.dat --size 256m\n  \
         strandline bench io /dev/nvme0n1 --ioengine libaio,io_uring,polled --numjobs 4\n  \
         strandline bench io /var/tmp/test.dat --rw randwrite --overwrite --json\n  \
         strandline bench io --drive ram",
        lines.concat()
    )
}

/// Seconds with decimals, as nanoseconds.
fn parse_seconds(text: &str) -> Result<u64, String> {
    let seconds = text.parse().ok().filter(|seconds| *seconds > 0.0 && *seconds <= 86_400.0);
    let seconds: f64 = seconds.ok_or("expected seconds, above 0 and at most 86400")?;
    Ok((seconds * 1e9) as u64)
}

impl Io {
    pub(super) fn run(mut self) -> Outcome {
        if self.ioengine.is_empty() {
            let all = Kind::ALL.into_iter();
            self.ioengine = all.filter(|&k| self.drive.is_none() || k == Kind::Drive).collect();
        }
        let on = match (&self.file, &self.drive) {
            (Some(file), _) => On::Path(file.clone()),
            (None, Some(drive)) => On::Emulated(drive.clone()),
            (None, None) => return Err(Failure::Usage("which file? see --help".into())),
        };
        self.make_or_spare()?;
        let job = Job {
            on,
            kinds: self.ioengine.clone(),
            pattern: self.rw,
            block: self.bs,
            depth: self.iodepth,
            jobs: self.numjobs,
            direct: self.direct,
            size: self.size,
            ios: self.number_ios,
            runtime_ns: match (self.runtime, self.number_ios) {
                (Some(runtime), _) => runtime,
                (None, Some(_)) => u64::MAX,
                (None, None) => 1_000_000_000,
            },
            rounds: self.rounds,
            seed: self.seed,
        };
        let progress = Progress::new(self.rounds * job.kinds.len() as u64, "bench io", self.json);
        let compared = job.run(&mut || progress.step())?;
        progress.finish();
        match self.json {
            true => out::json(&compared)?,
            false => out::text(&out::plain(compared.text()))?,
        }
        // The output says why each of them did nothing.
        Ok(if compared.interfaces.iter().any(|row| row.measured.is_some()) { 0 } else { PROBLEM })
    }

    /// Makes a file that is not there, and refuses to write to one that is, unless that is allowed.
    fn make_or_spare(&self) -> Outcome<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let there = file.try_exists().map_err(Failure::host(file))?;
        match (there, self.size) {
            (true, _) if self.rw.way == Way::Write && !self.overwrite => {
                Err(Failure::Usage(format!(
                    "{}: --rw {} destroys what it holds; --overwrite allows that",
                    file.display(),
                    self.rw
                )))
            }
            (true, _) => Ok(()),
            (false, Some(size)) => {
                lay_out(file, size, self.seed)?;
                out::complain(&format!("made {}, {size} bytes; it stays", file.display()));
                Ok(())
            }
            (false, None) => {
                let what = "no such file; --size SIZE makes one";
                Err(Failure::Problem(format!("{}: {what}", file.display())))
            }
        }
    }
}
