//! `strandline crash --kernel` and `strandline crash agent`: campaigns against a real kernel.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use lab::campaign::{ModeResult, Tally};
use lab::workload::Workload;
use lab::{Mode, rig};

use crate::failure::{Failure, Outcome, PROBLEM};
use crate::kernel::agent;
use crate::kernel::campaign::Campaign;
use crate::kernel::cuts::Choice;
use crate::kernel::foreign::Foreign;
use crate::kernel::machine::{Kind, Machine};
use crate::out;
use crate::progress::Progress;

/// Blocks of the smallest drive without zones: xfs wants more than our own file systems.
const SMALLEST: u64 = 512 << 8;

/// How to come by a kernel.
#[derive(Args)]
pub(crate) struct KernelArgs {
    /// Judge the Linux kernel's file system on the drive, served over NVMe/TCP, in a guest in QEMU;
    /// --fs is f2fs, ext4, xfs or btrfs. Cuts are at commands and NAND programs, all with the same
    /// odds: an emulated machine's clock does not say how long a state lasts
    #[arg(long, conflicts_with_all = ["shard", "minimise", "every_state", "print_workload"])]
    pub(crate) kernel: bool,
    /// With --kernel: the script that boots the guest; GUEST_KERNEL names another kernel's package,
    /// as for guest/prepare
    #[arg(long, value_name = "PATH", default_value = "guest/run")]
    guest: PathBuf,
    /// With --kernel: no guest, but a machine of yours, on which you run `strandline crash agent`
    /// with this address of ours. The drive is served at a port of the same address
    #[arg(long, value_name = "ADDRESS:PORT", requires = "kernel")]
    machine: Option<SocketAddr>,
    /// With --kernel: keep the drive as it was after the first cuts that failed, as images in this
    /// directory, for `strandline drive serve`
    #[arg(long, value_name = "DIR", requires = "kernel")]
    keep: Option<PathBuf>,
}

/// What a campaign is, besides the kernel.
pub(crate) struct Task<'a> {
    pub(crate) fs: &'a str,
    pub(crate) drive: &'a str,
    pub(crate) modes: Vec<Mode>,
    pub(crate) workload: Arc<dyn Workload>,
    pub(crate) choice: Choice,
    pub(crate) seed: u64,
    pub(crate) inject: Option<&'a str>,
    pub(crate) json: bool,
    pub(crate) command: String,
}

impl KernelArgs {
    /// A campaign for each mode, on one machine.
    pub(crate) fn run(&self, task: &Task<'_>) -> Outcome {
        let fs = Foreign::named(task.fs)?;
        let modes = modes(fs, &task.modes)?;
        let lies = match task.inject {
            None => false,
            Some("drop-flush") => true,
            Some(other) => {
                return Err(Failure::Usage(format!(
                    "--inject {other}: with --kernel only the drive can have a fault: drop-flush"
                )));
            }
        };
        let mut spec = rig::spec(task.drive, task.workload.footprint())?;
        let identify = spec.identify().map_err(|e| Failure::Usage(e.to_string()))?;
        if identify.zones.is_none() {
            spec = spec.blocks(identify.blocks.max(SMALLEST));
        } else if fs != Foreign::F2fs {
            return Err(Failure::Usage(format!(
                "{}: wants a drive without zones, --drive conventional-noplp",
                fs.name()
            )));
        }
        let kind = self.machine.map_or_else(|| Kind::Guest(self.guest.clone()), Kind::Own);
        let machine = Machine::start(kind).map_err(|e| Failure::Problem(e.to_string()))?;
        let machine = Arc::new(machine);
        let mut results: Vec<ModeResult> = Vec::new();
        for mode in modes {
            let campaign = Campaign {
                machine: machine.clone(),
                fs,
                mode,
                drive: task.drive.to_owned(),
                spec: spec.clone(),
                workload: task.workload.clone(),
                choice: task.choice,
                seed: task.seed,
                lies,
                keep: self.keep.clone(),
                command: self.command_line(task),
            };
            let progress = Progress::new(0, mode.name(), task.json);
            let tally: Tally = campaign.run(&|cuts| progress.step_of(cuts as u64))?;
            progress.finish();
            let result = tally.result();
            if task.json {
                out::heard(out::json(&result))?;
            }
            results.push(result);
        }
        if !task.json {
            out::heard(super::crash::tell(&results))?;
        }
        Ok(if results.iter().any(|result| result.broken > 0) { PROBLEM } else { 0 })
    }

    fn command_line(&self, task: &Task<'_>) -> String {
        let machine = self.machine.map_or_else(String::new, |at| format!(" --machine {at}"));
        format!("{} --kernel{machine}", task.command)
    }
}

/// Only F2FS has modes; the others are run once.
fn modes(fs: Foreign, wanted: &[Mode]) -> Outcome<Vec<Mode>> {
    if fs != Foreign::F2fs {
        return Ok(vec![Mode::Posix]);
    }
    match wanted.iter().find(|mode| mode.is_oprw()) {
        Some(mode) => Err(Failure::Usage(format!(
            "{mode}: the kernel has posix, strict and nobarrier; ours is run without --kernel"
        ))),
        None => Ok(wanted.to_vec()),
    }
}

/// On the machine whose kernel is judged: do what `crash --kernel --machine` asks.
///
/// It mounts, formats and runs programs as root for whoever answers at that address: on a machine
/// that can be lost, and from an address you know.
#[derive(Args)]
#[command(after_help = "\
Example:
  strandline crash --kernel --machine 192.168.7.1:4419 --modes posix,strict    # here
  strandline crash agent 192.168.7.1:4419                                      # there")]
pub(crate) struct Agent {
    /// Where the campaign waits
    #[arg(value_name = "ADDRESS:PORT")]
    address: String,
}

impl Agent {
    pub(crate) fn run(self) -> Outcome {
        agent::serve(&self.address).map_err(Failure::on(&self.address)).map(|()| 0)
    }
}
