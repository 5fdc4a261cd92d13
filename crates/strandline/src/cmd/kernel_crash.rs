//! `strandline crash --kernel` and `strandline crash agent`: campaigns against a real kernel.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use lab::campaign::{CutPoints, ModeResult, Tally};
use lab::rig;
use lab::workload::{Workload, shell_word};
use linux::agent;
use linux::campaign::{Campaign, CutsOf, Foreign};
use linux::machine::{Boot, Kind, Machine, Own};
use vfs::kind::{Format, Technique};

use crate::failure::{Failure, Outcome, PROBLEM};
use crate::out;
use crate::progress::Progress;

/// Blocks of the smallest drive without zones: xfs needs more than our own file systems.
const SMALLEST: u64 = 512 << 8;

/// The script that boots the guest, from a checkout's root.
const GUEST: &str = "guest/run";
/// Names the kernel that it boots.
const GUEST_KERNEL: &str = "GUEST_KERNEL";

/// How to get a kernel.
#[derive(Args)]
pub(crate) struct KernelArgs {
    /// Judge the Linux kernel's file system on the drive, served over NVMe/TCP, in a guest in QEMU;
    /// --fs is f2fs, ext4, xfs or btrfs. Cuts are at commands and NAND programs, all with the same
    /// odds: an emulated machine's clock does not say how long a state lasts
    #[arg(long, conflicts_with_all = [
        "only", "shard", "minimise", "every_state", "print_workload"
    ])]
    pub(crate) kernel: bool,
    /// With --kernel: the script that boots the guest; GUEST_KERNEL names another kernel's package,
    /// as for guest/prepare
    #[arg(long, value_name = "PATH", default_value = GUEST)]
    guest: PathBuf,
    /// With --kernel: no guest, but a machine of your own, on which you run `strandline crash
    /// agent` with this address of ours
    #[arg(long, value_name = "ADDRESS:PORT", requires = "kernel")]
    machine: Option<SocketAddr>,
    /// With --machine: where the drive is served [default: at the address to which the machine
    /// connects]
    #[arg(long, value_name = "ADDRESS[:PORT]", requires = "machine", value_parser = listen)]
    listen: Option<SocketAddr>,
    /// With --kernel: keep the drive as it was after the first cuts that failed, as images in this
    /// directory, for --image and `strandline drive serve`
    #[arg(long, value_name = "DIR", requires = "kernel")]
    keep: Option<PathBuf>,
    /// With --kernel: judge the drive in an image of --keep instead of running; the workload, its
    /// seed and
    /// --cuts are to be the same
    #[arg(long, value_name = "IMAGE", requires_all = ["kernel", "events"])]
    #[arg(conflicts_with = "keep")]
    image: Option<PathBuf>,
    /// With --image: how many of the workload's events came before the cut, as printed with it
    #[arg(long, value_name = "N", requires = "image")]
    events: Option<usize>,
    /// With --kernel: the workload's fsyncs become fdatasyncs, and are judged as fsyncs
    #[arg(long, requires = "kernel")]
    fdatasync: bool,
}

/// What a campaign is, besides the kernel.
pub(crate) struct Task<'a> {
    pub(crate) fs: &'a str,
    pub(crate) drive: &'a str,
    pub(crate) modes: Vec<&'static Technique>,
    pub(crate) workload: Arc<dyn Workload>,
    pub(crate) points: CutPoints,
    pub(crate) seed: u64,
    pub(crate) inject: Option<&'a str>,
    /// Mount options besides the mode's.
    pub(crate) options: &'a str,
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
        let spec = spec_for(fs, task)?;
        let machine = Arc::new(self.machine()?);
        let (mut results, mut ended): (Vec<ModeResult>, _) = (Vec::new(), None);
        for mode in modes {
            let campaign = Campaign {
                machine: machine.clone(),
                fs,
                technique: mode,
                drive: task.drive.to_owned(),
                spec: spec.clone(),
                workload: task.workload.clone(),
                cuts: match (&self.image, self.events) {
                    (Some(path), Some(events)) => CutsOf::Image { path: path.clone(), events },
                    _ => CutsOf::Run(task.points),
                },
                seed: task.seed,
                fdatasync: self.fdatasync,
                options: task.options.to_owned(),
                lies,
                keep: self.keep.clone(),
                command: self.command_line(task),
            };
            let progress = Progress::new(0, mode.name, task.json);
            let ran = campaign.run(&|cuts| progress.step_of(cuts as u64));
            progress.finish();
            // Earlier results are printed in any case.
            let (tally, early): (Tally, _) = match ran {
                Ok(found) => found,
                Err(failure) => {
                    ended = Some(failure.into());
                    break;
                }
            };
            let result = tally.result();
            if task.json {
                out::heard(out::json(&result))?;
            }
            results.push(result);
            ended = early.map(Failure::from);
            if ended.is_some() {
                break;
            }
        }
        if !task.json && !results.is_empty() {
            out::heard(super::crash::tell(&results))?;
        }
        ended.map_or(Ok(()), Err)?;
        Ok(if results.iter().any(|result| result.broken > 0) { PROBLEM } else { 0 })
    }

    fn machine(&self) -> Outcome<Machine> {
        let kind = match self.machine {
            Some(at) => Kind::Own(Own { at, listen: self.listen }),
            None => Kind::Guest(Boot {
                run: self.guest.clone(),
                program: std::env::current_exe().map_err(Failure::on("this program"))?,
                words: "crash agent".into(),
            }),
        };
        Machine::start(kind, out::complain).map_err(|e| Failure::Problem(e.to_string()))
    }

    fn command_line(&self, task: &Task<'_>) -> String {
        let mut command = format!("{} --kernel", task.command);
        if self.guest != Path::new(GUEST) {
            command += &format!(" --guest {}", shell_word(&self.guest.to_string_lossy()));
        }
        if let (None, Some(kernel)) = (&self.machine, std::env::var_os(GUEST_KERNEL)) {
            let kernel = shell_word(&kernel.to_string_lossy());
            command = format!("{GUEST_KERNEL}={kernel} {command}");
        }
        if self.fdatasync {
            command += " --fdatasync";
        }
        if let Some(at) = &self.machine {
            command += &format!(" --machine {at}");
        }
        if let Some(listen) = self.listen {
            command += &format!(" --listen {listen}");
        }
        command
    }
}

/// A file system of ours; for one that only a kernel has, the error says how to run it.
pub(super) fn ours(name: &str) -> Outcome<&'static dyn Format> {
    subjects::named(name).map_err(|error| match Foreign::named(name) {
        Ok(_) => Failure::Usage(format!("--fs {name}: only a kernel has it; add --kernel")),
        Err(_) => {
            let kernels = Foreign::ALL.map(Foreign::name).join(", ");
            Failure::Usage(format!("{error}; with --kernel {kernels}"))
        }
    })
}

/// The drive, large enough for what a kernel's `mkfs` takes.
fn spec_for(fs: Foreign, task: &Task<'_>) -> Outcome<drive::Spec> {
    let spec = rig::unkind(task.drive, task.workload.footprint())?;
    let identify = spec.identify().map_err(|e| Failure::Usage(e.to_string()))?;
    if identify.zones.is_none() {
        return Ok(spec.blocks(identify.blocks.max(SMALLEST)));
    }
    if fs != Foreign::F2fs {
        let needs = "it needs a drive without zones, such as --drive conventional-noplp";
        return Err(Failure::Usage(format!("{}: {needs}", fs.name())));
    }
    Ok(spec)
}

/// Only F2FS has modes; the others are run once.
fn modes(fs: Foreign, wanted: &[&'static Technique]) -> Outcome<Vec<&'static Technique>> {
    if fs != Foreign::F2fs {
        return Ok(wanted.iter().take(1).copied().collect());
    }
    match wanted.iter().find(|mode| fs.options(mode).is_none()) {
        Some(mode) => Err(Failure::Usage(format!(
            "{mode}: the kernel has posix, strict and nobarrier; ours is run without --kernel"
        ))),
        None => Ok(wanted.to_vec()),
    }
}

/// An address; without a port, any port.
fn listen(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse::<IpAddr>().map(|address| SocketAddr::new(address, 0));
    address
        .or_else(|_| text.parse())
        .map_err(|_| format!("'{text}': expected ADDRESS or ADDRESS:PORT"))
}

/// On the machine whose kernel is judged: do what `crash --kernel --machine` asks.
///
/// It mounts, formats and runs programs as root for the host that answers at that address: run it
/// on a machine that you can afford to lose, and only for an address you trust.
#[derive(Args)]
#[command(after_help = "\
Example:
  strandline crash --kernel --machine 192.168.7.1:4419 --modes posix,strict    # here
  strandline crash agent 192.168.7.1:4419                                      # there")]
pub(crate) struct Agent {
    /// Where the campaign waits
    #[arg(value_name = "ADDRESS:PORT")]
    at: String,
}

impl Agent {
    pub(crate) fn run(self) -> Outcome {
        agent::serve(&self.at).map_err(Failure::on(&self.at)).map(|()| 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_may_be_left_out() {
        let any = |text: &str| listen(text).map(|address| address.to_string());
        assert_eq!(any("192.168.7.1").as_deref(), Ok("192.168.7.1:0"));
        assert_eq!(any("192.168.7.1:4420").as_deref(), Ok("192.168.7.1:4420"));
        assert_eq!(any("::1").as_deref(), Ok("[::1]:0"));
        assert_eq!(any("[::1]:7").as_deref(), Ok("[::1]:7"));
        assert!(listen("there").is_err() && listen("/dev/ttyS0").is_err());
    }
}
