//! `strandline fsck`: check, recover, say what was done. Options are those of `fsck.f2fs`, exit
//! codes those of fsck(8).

mod tell;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use drive::linux::Access;
use drive::undo::{Undo, undo};
use drive::{Drive, Timing};
use vfs::kind::{self, Checked, Format, Recovery, Repaired};
use vfs::words::counted;

use crate::failure::{Failure, Outcome};
use crate::out;
use crate::target::{Devices, Inside, Opened, open_volume};

/// fsck(8): errors corrected.
const CORRECTED: u8 = 1;
/// fsck(8): errors left uncorrected.
const UNCORRECTED: u8 = 4;
/// fsck(8): operational error.
const OPERATIONAL: u8 = 8;
/// fsck(8): usage or syntax error.
pub(crate) const USAGE: u8 = 16;

/// Check a volume, recover it after a crash, repair it.
#[derive(Args)]
#[command(after_help = "\
Examples:
  strandline fsck disk.img                     check, recover, ask before a repair
  strandline fsck -n --json disk.img           only look
  strandline fsck -y -z disk.undo disk.img     repair, and remember what was there
  strandline fsck --undo disk.undo disk.img    take that back
  strandline fsck --rescue disk.img            no checkpoint is left: build all from the nodes
  fsck.ext4 -p ext4.img                        as e2fsck calls it: replay the journal

ext4 is checked, and its journal replayed; e2fsck repairs it, also from a backup superblock (-b).
Of a damaged journal that e2fsck refuses (zjournal, ijournal, grouped), what is sound goes home.
--rescue and the levels of -p are F2FS's.

Exit status, as in fsck(8): 0 no errors, 1 errors corrected, 4 errors left, 8 operational error,
16 usage.")]
pub(crate) struct Fsck {
    /// Image of a drive, any file with a volume in it, or a block device
    image: Option<PathBuf>,
    #[command(flatten)]
    devices: Devices,
    /// Check and repair only if the volume was not unmounted cleanly or is marked as having errors
    #[arg(short = 'a', conflicts_with = "no")]
    auto: bool,
    /// Check everything and repair without asking
    #[arg(
        short = 'f',
        visible_short_alias = 'y',
        long = "force",
        conflicts_with = "no",
        overrides_with = "yes"
    )]
    yes: bool,
    /// Change nothing: recover and check a copy in memory. A pending recovery is not an error
    #[arg(short = 'n', conflicts_with = "preen")]
    no: bool,
    /// As -n, but allowed together with the options that repair
    #[arg(long)]
    dry_run: bool,
    /// As -a; with 1, check everything. Never asks
    #[arg(short = 'p', num_args = 0..=1, value_name = "0|1|2")]
    preen: Option<Option<String>>,
    /// Keep what every block held before the repair in FILE, which must not exist
    #[arg(short = 'z', long = "undo-file", value_name = "FILE")]
    undo_file: Option<PathBuf>,
    /// Restore what FILE remembers, bit for bit, and do nothing else
    #[arg(long, value_name = "FILE", conflicts_with_all = ["auto", "yes", "no", "preen", "rescue"])]
    undo: Option<PathBuf>,
    /// Trust no checkpoint, NAT or SIT: find the newest version of every node and rebuild
    /// everything from them
    #[arg(long)]
    rescue: bool,
    /// Say more: 1 counts what was found
    #[arg(short = 'd', value_name = "LEVEL", default_value_t = 0)]
    debug: u8,
    /// Show the directory tree
    #[arg(short = 't')]
    tree: bool,
    /// Print the version and exit
    #[arg(short = 'V')]
    version: bool,
    /// One JSON object
    #[arg(long)]
    json: bool,
    /// A recovery corrects no error, and a volume that is marked clean may be left alone
    #[arg(long, hide = true)]
    as_e2fsck: bool,
    #[arg(long, hide = true)]
    unless_clean: bool,
    /// A letter of e2fsck that is refused
    #[arg(long, hide = true, value_name = "LETTER", allow_hyphen_values = true)]
    e2fsck_letter: Vec<String>,
    /// Accepted for scripts: quota limits are never changed here
    #[arg(short = 'q', hide = true)]
    preserve_limits: bool,
    /// Accepted for scripts: no kernel version is looked at here
    #[arg(long = "no-kernel-check", visible_alias = "kernel-check", hide = true)]
    kernel_check: bool,
}

/// What to do about errors.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Yes,
    No,
    /// As the user at the terminal says; without a terminal, no.
    Ask,
}

impl Answer {
    fn is_yes(self) -> Outcome<bool> {
        match self {
            Self::Yes => Ok(true),
            Self::No => Ok(false),
            Self::Ask => asked(),
        }
    }
}

/// What came of a run.
#[derive(Default)]
struct Outcomes {
    report: Option<Checked>,
    recovery: Recovery,
    repair: Option<Repaired>,
    /// The volume could not even be checked or recovered.
    stopped: Vec<String>,
    skipped: bool,
    /// Only a copy in memory was recovered.
    in_copy: bool,
    /// The user declined a repair.
    declined: bool,
}

fn operational(error: impl std::fmt::Display) -> Failure {
    Failure::Coded { message: error.to_string(), code: OPERATIONAL }
}

/// Says which image a failure is about.
fn about(image: &Path) -> impl FnOnce(Failure) -> Failure {
    move |failure| match failure {
        Failure::Coded { message, code } => {
            Failure::Coded { message: format!("{}: {message}", image.display()), code }
        }
        failure => failure,
    }
}

fn usage(message: impl Into<String>) -> Failure {
    Failure::Coded { message: message.into(), code: USAGE }
}

impl Fsck {
    pub(crate) fn run(self) -> Outcome {
        if self.version {
            out::line(concat!("fsck.strandline ", env!("STRANDLINE_VERSION")))?;
            return Ok(0);
        }
        if let [letter, ..] = &self.e2fsck_letter[..] {
            return Err(usage(format!("{letter}: only e2fsck does that: 'e2fsck {letter} ...'")));
        }
        let (image, level) = self.image_and_level()?;
        if let Some(log) = &self.undo {
            return put_back(log, &image, &self.devices);
        }
        if let Some(log) = self.undo_file.as_ref().filter(|log| log.exists()) {
            return Err(operational(format!(
                "{}: exists; an undo log is a new file",
                log.display()
            )));
        }
        let answer = match () {
            () if self.no || self.dry_run => Answer::No,
            () if self.yes || self.auto || level.is_some() => Answer::Yes,
            () => Answer::Ask,
        };
        let access = if answer == Answer::No { Access::Read } else { Access::Write };
        let opened =
            open_volume(&image, &self.devices, access, Timing::Instant).map_err(operational)?;
        let drive = opened.drive.clone();
        let mut done = Outcomes { in_copy: answer == Answer::No, ..Outcomes::default() };
        let lazy = self.auto || level.is_some_and(|level| level != 1);
        let lazy = if self.as_e2fsck { self.unless_clean } else { lazy && !self.yes };
        let format = self.devices.kind.of(&drive).map_err(operational).map_err(about(&image))?;
        if lazy && !self.rescue && format.is_clean(&drive).unwrap_or(false) {
            done.skipped = true;
        } else {
            self.check(format, &opened, answer, &mut done).map_err(about(&image))?;
        }
        opened.close()?;
        let code = done.code();
        let code = match code {
            CORRECTED if self.as_e2fsck && done.repair.is_none() => 0,
            UNCORRECTED if self.as_e2fsck && done.report.is_none() => OPERATIONAL,
            code => code,
        };
        out::heard(self.tell(&image, format.log_entry(), code, &done))?;
        if self.tree && code != UNCORRECTED {
            drop((drive, opened));
            let root = Inside { image, path: b"/".to_vec() };
            out::heard(super::tree::show(&root, &self.devices, false))?;
        }
        Ok(code)
    }

    /// `-p IMAGE` means `-p` and IMAGE, as in fsck.f2fs.
    fn image_and_level(&self) -> Outcome<(PathBuf, Option<u8>)> {
        let (image, level) = match (&self.image, &self.preen) {
            (image, None) => (image.clone(), None),
            (image, Some(None)) => (image.clone(), Some(0)),
            (image, Some(Some(text))) => match (text.parse::<u8>(), image) {
                (Ok(level @ 0..=2), image) => (image.clone(), Some(level)),
                (_, None) => (Some(PathBuf::from(text)), Some(0)),
                _ => return Err(usage(format!("-p {text}: the levels are 0, 1 and 2"))),
            },
        };
        let image = image.ok_or_else(|| usage("no image named; see fsck --help"))?;
        Ok((image, level))
    }

    fn check(
        &self,
        format: &dyn Format,
        opened: &Opened,
        answer: Answer,
        done: &mut Outcomes,
    ) -> Outcome<()> {
        let drive = opened.drive.clone();
        if self.rescue {
            // It writes everything anew, on a sound volume too: not without a word from the user.
            let asks = answer == Answer::Ask;
            return match asks && !done.wants(format, answer)? {
                true => Ok(()),
                false => self.repair(format, &self.drive_to_change(opened, answer)?, done),
            };
        }
        let first = match format.check(&drive) {
            Ok(report) => report,
            Err(error) if error.is_corruption() => {
                let other = format.repaired_by().filter(|_| answer == Answer::No);
                let hint = other.map_or_else(String::new, |other| format!("; {other} repairs it"));
                done.stopped.push(format!("{}{hint}", out::plain(error)));
                return self.repair_if_wanted(format, opened, answer, done);
            }
            Err(error) => return Err(operational(error)),
        };
        done.recovery.clean = first.clean_unmount;
        let (clean, sound) = (first.clean_unmount, first.findings.is_empty());
        done.report = Some(first);
        if !sound {
            return self.repair_if_wanted(format, opened, answer, done);
        }
        if clean { Ok(()) } else { self.recover(format, opened, answer, done) }
    }

    /// Replays what fsyncs made durable, as a mount does, without asking.
    fn recover(
        &self,
        format: &dyn Format,
        opened: &Opened,
        answer: Answer,
        done: &mut Outcomes,
    ) -> Outcome<()> {
        let drive = self.drive_to_change(opened, answer)?;
        match format.recover(&drive) {
            Ok(recovery) => done.recovery = recovery,
            Err(error) => {
                done.stopped.push(out::plain(error));
                return if done.wants(format, answer)? {
                    self.repair(format, &drive, done)
                } else {
                    Ok(())
                };
            }
        }
        match format.check(&drive) {
            Ok(report) => done.report = Some(report),
            Err(error) => done.stopped.push(out::plain(error)),
        }
        Ok(())
    }

    fn repair_if_wanted(
        &self,
        format: &dyn Format,
        opened: &Opened,
        answer: Answer,
        done: &mut Outcomes,
    ) -> Outcome<()> {
        match done.wants(format, answer)? {
            true => self.repair(format, &self.drive_to_change(opened, answer)?, done),
            false => Ok(()),
        }
    }

    fn repair(
        &self,
        format: &dyn Format,
        drive: &Arc<dyn Drive>,
        done: &mut Outcomes,
    ) -> Outcome<()> {
        match format.repair(drive, self.rescue) {
            Ok(report) => {
                done.stopped.clear();
                done.report = format.check(drive).ok();
                done.recovery = report.recovery;
                done.repair = Some(report);
                Ok(())
            }
            // Another program repairs it, which the error names.
            Err(error) if error.is_corruption() || matches!(error, kind::Error::Usage(_)) => {
                done.stopped.push(out::plain(error));
                Ok(())
            }
            Err(error) => Err(operational(error)),
        }
    }

    /// The drive, or one that writes an undo log if asked for; a copy if nothing may change.
    fn drive_to_change(&self, opened: &Opened, answer: Answer) -> Outcome<Arc<dyn Drive>> {
        if answer == Answer::No {
            return opened.scratch().map_err(operational);
        }
        let drive = opened.drive.clone();
        let Some(path) = &self.undo_file else { return Ok(drive) };
        let log = std::fs::File::create_new(path)
            .map_err(|error| operational(format!("{}: {error}", path.display())))?;
        Ok(Arc::new(Undo::new(drive, log).map_err(operational)?))
    }
}

/// Asks as fsck.f2fs does; without a terminal the answer is no.
fn asked() -> Outcome<bool> {
    if !std::io::stdin().is_terminal() {
        return Ok(false);
    }
    out::text("Do you want to fix this partition? [Y/N] ")?;
    out::flush()?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).map_err(operational)?;
    Ok(line.trim().eq_ignore_ascii_case("y") || line.trim().eq_ignore_ascii_case("yes"))
}

fn put_back(log: &Path, image: &Path, devices: &Devices) -> Outcome {
    let file = std::fs::File::open(log)
        .map_err(|error| operational(format!("{}: {error}", log.display())))?;
    let opened =
        open_volume(image, devices, Access::Write, Timing::Instant).map_err(operational)?;
    let done = undo(&opened.drive, file)
        .map_err(|error| operational(format!("{}: {error}", log.display())))?;
    opened.close()?;
    let (blocks, zones) = (counted(done.blocks, "block"), counted(done.zones, "zone"));
    out::line(format!("Info: put back {blocks} and {zones}"))?;
    Ok(0)
}

impl Outcomes {
    /// Whether to repair; remembers if the answer was no. Nobody is asked about a repair that only
    /// names the program to use.
    fn wants(&mut self, format: &dyn Format, answer: Answer) -> Outcome<bool> {
        if answer == Answer::Ask && format.repaired_by().is_some() {
            return Ok(true);
        }
        let wanted = answer.is_yes()?;
        self.declined = !wanted && answer == Answer::Ask;
        Ok(wanted)
    }

    fn code(&self) -> u8 {
        match &self.report {
            _ if self.skipped => 0,
            Some(report) if self.stopped.is_empty() && report.findings.is_empty() => {
                let mends = |repair: &Repaired| repair.changed || !repair.findings.is_empty();
                let changed = self.repair.as_ref().is_some_and(mends);
                // In a copy nothing is corrected: the next mount recovers, as after any cut.
                let recovered = !self.recovery.clean && !self.in_copy;
                if changed || recovered { CORRECTED } else { 0 }
            }
            _ => UNCORRECTED,
        }
    }
}
