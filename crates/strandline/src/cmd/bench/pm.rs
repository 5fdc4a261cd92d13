//! `strandline bench pm`: what a persistent memory costs, before any file system.

use std::path::PathBuf;

use clap::Args;
use drive::pm::{Domain, Mapped, Pm, PmAccess};
use lab::bench::pm::{Floors, floors};
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::out;

/// Measure a persistent memory: streaming stores, written-back lines, fences. What it holds is
/// lost.
#[derive(Args)]
#[command(after_help = "\
Example:
  strandline drive create --pm --size 1g /dev/shm/m.pm && strandline bench pm /dev/shm/m.pm")]
pub(crate) struct PmBench {
    /// File or DAX device
    path: PathBuf,
    /// Allow to overwrite a memory that is not empty
    #[arg(long)]
    overwrite: bool,
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
}

impl PmBench {
    pub(super) fn run(self) -> Outcome {
        let name = self.path.display().to_string();
        let open = || Mapped::open(&[&self.path], PmAccess::Write);
        let problem = |error: drive::pm::PmError| Failure::Problem(error.to_string());
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
        pm.store(0, &[0; 4096]);
        pm.sync().map_err(Failure::on(&name))?;
        let measured = Measured { path: name, bytes, write_back: pm.flush_name(), floors: all };
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
        Ok(0)
    }
}
