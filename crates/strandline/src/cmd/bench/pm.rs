//! `strandline bench pm`: what a persistent memory costs, before any file system.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use cores::{Nanos, now};
use drive::Drive;
use drive::pm::{Domain, Mapped, Pm, PmAccess, PmDrive, PmError};
use lab::bench::pm::{Floors, floors};
use serde::Serialize;
use vfs::kind::{Format, Volume};

use crate::failure::{Failure, Outcome};
use crate::out;
use crate::target::parse_size;

/// Mounts of which the shortest counts, so that a busy machine spoils none.
const ROUNDS: usize = 5;

/// Measure a persistent memory: streaming stores, written-back lines, fences; with --logs also how
/// long pmfs recovers. What it holds is lost.
#[derive(Args)]
#[command(after_help = "\
Examples:
  strandline drive create --pm --size 1g /dev/shm/m.pm && strandline bench pm /dev/shm/m.pm
  strandline drive create --pm --size 1280m n.pm && strandline bench pm --logs 1g n.pm")]
pub(crate) struct PmBench {
    /// File or DAX device
    path: PathBuf,
    /// Allow to overwrite a memory that is not empty
    #[arg(long)]
    overwrite: bool,
    /// Also how long a mount of pmfs takes: of an empty volume, and of one whose logs have so many
    /// bytes and were not unmounted
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    logs: Option<u64>,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Measured {
    path: String,
    bytes: u64,
    write_back: &'static str,
    floors: Vec<Floors>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mounts: Option<Mounts>,
}

/// How long mounts of pmfs take, with opening the memory; the shortest of some.
#[derive(Serialize)]
struct Mounts {
    inplace_empty_ns: Nanos,
    nova_empty_ns: Nanos,
    log_bytes: u64,
    entries: u64,
    recovery_ns: Nanos,
}

impl Mounts {
    /// Measures, on a memory whose contents are lost.
    fn measure(path: &Path, log_bytes: u64) -> Outcome<Self> {
        let empty = |design: &str| {
            pmfs::Format.make_with(&open_drive(path)?, design)?;
            shortest(path, |volume| Ok(volume.unmount().map_err(vfs::kind::Error::from)?))
        };
        let inplace_empty_ns = empty("design=inplace")?;
        let nova_empty_ns = empty("design=nova")?;
        let entries = pmfs::fill_logs(&open_drive(path)?, log_bytes)?;
        let recovery_ns = shortest(path, |_| Ok(()))?;
        Ok(Self { inplace_empty_ns, nova_empty_ns, log_bytes, entries, recovery_ns })
    }
}

fn open_drive(path: &Path) -> Outcome<Arc<dyn Drive>> {
    let problem = |error: PmError| Failure::Problem(error.to_string());
    let pm = Mapped::open(&[path], PmAccess::Write).map_err(problem)?;
    Ok(PmDrive::new(Arc::new(pm), PmAccess::Write))
}

/// The shortest time from opening the memory until the volume is mounted.
fn shortest(path: &Path, end: impl Fn(&dyn Volume) -> Outcome<()>) -> Outcome<Nanos> {
    let mut best = Nanos::MAX;
    for _ in 0..ROUNDS {
        let start = now();
        let volume = pmfs::Format.mount(open_drive(path)?, "rw")?;
        best = best.min(now() - start);
        end(&*volume)?;
    }
    Ok(best)
}

impl PmBench {
    pub(super) fn run(self) -> Outcome {
        let name = self.path.display().to_string();
        let open = || Mapped::open(&[&self.path], PmAccess::Write);
        let problem = |error: PmError| Failure::Problem(error.to_string());
        let pm = open().map_err(problem)?;
        let mut first = [0; 4096];
        pm.read(0, &mut first);
        if first != [0; 4096] && !self.overwrite {
            return Err(Failure::Usage(format!("{name} holds something; --overwrite loses it")));
        }
        let bytes = pm.info().bytes;
        let domain = pm.info().domain;
        let mut all = vec![floors(&pm)];
        let pm = pm.as_memory();
        if domain != Domain::Memory && pm.info().domain == Domain::Memory {
            all.push(floors(&pm));
        }
        let write_back = pm.flush_name();
        // In use by one at a time.
        drop(pm);
        let mounts = self.logs.map(|bytes| Mounts::measure(&self.path, bytes)).transpose();
        let pm = open().map_err(problem)?;
        pm.store(0, &[0; 4096]);
        pm.sync().map_err(Failure::on(&name))?;
        let mounts = mounts?;
        let measured = Measured { path: name, bytes, write_back, floors: all, mounts };
        if self.json {
            out::json(&measured)?;
            return Ok(0);
        }
        out::line(format!("{}: {} MiB, measured", measured.path, bytes >> 20))?;
        for floors in &measured.floors {
            let how = match floors.domain {
                "memory" => format!("{} and sfence", measured.write_back),
                "caches" => "sfence after streams".into(),
                _ => "program order only".into(),
            };
            out::line(format!("domain {} ({how})", floors.domain))?;
            out::line(format!(
                "  GB/s: stream {:.2}, store {:.2}, read {:.2}",
                floors.stream_bytes_per_s / 1e9,
                floors.store_bytes_per_s / 1e9,
                floors.read_bytes_per_s / 1e9
            ))?;
            out::line(format!(
                "  ns: 4 KiB streamed and fenced {:.0}, a line {:.0}, a fence {:.1}",
                floors.block_ns, floors.line_ns, floors.fence_ns
            ))?;
        }
        if let Some(mounts) = &measured.mounts {
            out::line(format!(
                "mount of an empty pmfs: inplace {:.2} ms, nova {:.2} ms",
                mounts.inplace_empty_ns as f64 / 1e6,
                mounts.nova_empty_ns as f64 / 1e6
            ))?;
            out::line(format!(
                "mount with {} MiB of logs, {} entries, to recover: {:.0} ms",
                mounts.log_bytes >> 20,
                mounts.entries,
                mounts.recovery_ns as f64 / 1e6
            ))?;
        }
        Ok(0)
    }
}
