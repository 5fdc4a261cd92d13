//! One file system in one mode: the run, its cuts, and the kernel's recovery of each.

mod foreign;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use drive::{Drive, Spec, Ssd, Timing, image};
use lab::campaign::{
    CHECK_EVERY, Cut, CutPoints, Job, Judged, Run, Tally, Watch, compare_each, corrupt, latencies,
    with_later,
};
use lab::oracle::{Event, Memo, Model, Oracle, Verdict, verify};
use lab::workload::recorder::{FsyncSample, Recorder};
use lab::workload::{Workload, shell_word};
use nvme_target::{Options, Server, Unit};
use vfs::FileSystem;
use vfs::kind::{Recovery, Technique};
use vfs::words::counted;

pub use self::foreign::Foreign;
use crate::machine::remote::{Blocks, Remote};
use crate::machine::wire::{Answer, Ask};
use crate::machine::{Machine, Trouble};
use crate::{Error, Result};

/// Images that are kept: as many as failures are reported in full.
const KEPT_MAX: usize = 20;
/// The drive's name.
const NQN: &str = "nqn.2026-11.com.github.strandline:crash";

/// What to run.
pub struct Campaign {
    /// Whose kernel it is.
    pub machine: Arc<Machine>,
    /// What the drive is formatted with.
    pub fs: Foreign,
    /// How it is mounted.
    pub technique: &'static Technique,
    /// Name of the drive's profile.
    pub drive: String,
    /// The drive.
    pub spec: Spec,
    /// What is done on the volume.
    pub workload: Arc<dyn Workload>,
    /// Which cuts are judged.
    pub cuts: CutsOf,
    /// Of the workload and of what the cuts leave.
    pub seed: u64,
    /// The workload's fsyncs are fdatasyncs.
    pub fdatasync: bool,
    /// Mount options besides the mode's and the workload's; may be empty.
    pub options: String,
    /// The drive reports flushes that it has not done.
    pub lies: bool,
    /// Where drives are kept as they were after cuts that failed.
    pub keep: Option<PathBuf>,
    /// Command line that repeats it, up to the mode.
    pub command: String,
}

/// Where the cuts come from.
pub enum CutsOf {
    /// A run of the workload.
    Run(CutPoints),
    /// A drive that was kept, and how many of the oracle's events were before the cut.
    Image {
        /// Where it is.
        path: PathBuf,
        /// That many.
        events: usize,
    },
}

/// A drive that is served for the machine.
struct Served {
    ssd: Arc<Ssd>,
    server: Server,
    connect: Ask,
    blocks: Blocks,
}

/// A run of the workload.
struct Recording {
    log: Vec<Event>,
    cuts: Vec<Cut>,
    fsyncs: Vec<FsyncSample>,
    span_ns: u64,
}

/// What became of the cuts.
#[derive(Default)]
struct Found {
    judged: Vec<Judged>,
    /// What judges a cut again, by its number.
    again: BTreeMap<usize, String>,
    /// What ended it before all cuts were judged.
    early: Option<Error>,
}

impl Campaign {
    /// Runs it. Calls `step` after each cut with their number. If the machine was lost for good,
    /// the result also says why it is incomplete.
    pub fn run(&self, step: &dyn Fn(usize)) -> Result<(Tally, Option<Error>)> {
        let served = self.serve()?;
        let identify = served.ssd.identify().clone();
        let promise = self.fs.promise(self.technique, &identify);
        let (_, release) = self.machine.ask(&Ask::Uname, b"").map_err(problem)?;
        let kernel = String::from_utf8_lossy(&release).trim().to_owned();
        let recording = match &self.cuts {
            CutsOf::Run(points) => self.record(&served, *points)?,
            CutsOf::Image { path, events } => self.recall(path, *events)?,
        };
        let Found { judged, again, early } = self.judge_all(&served, &recording, step)?;
        let [fsync_ns_p50, fsync_ns_p99] = latencies(&recording.fsyncs);
        let run = Run {
            mode: self.mode_name().into(),
            drive: self.drive.clone(),
            workload: self.workload.name().into(),
            seed: self.seed,
            fs: format!("linux {kernel} {}", self.fs.name()),
            inject: self.lies.then(|| "drop-flush".into()),
            command: self.command.clone(),
            cuts: judged.len(),
            promise,
            fsyncs: recording.fsyncs.len(),
            span_ns: recording.span_ns,
            fsync_ns_p50,
            fsync_ns_p99,
            cleanings: 0,
            machine: Some(format!(
                "by the clock, with an emulated drive: Linux {kernel}, {}",
                self.fs.name()
            )),
        };
        let again = |cut| again.get(&cut).cloned().unwrap_or_default();
        Ok((Tally::of(run, &judged, again), early))
    }

    /// What the tables call it.
    fn mode_name(&self) -> &'static str {
        if self.fs == Foreign::F2fs { self.technique.name } else { self.fs.name() }
    }

    fn serve(&self) -> Result<Served> {
        let (address, told) = self.machine.drive_address().map_err(problem)?;
        let ssd = Ssd::new(self.spec.clone(), Timing::Paced, self.seed).map_err(problem)?;
        let unit = Unit::new("crash", ssd.clone());
        if self.lies {
            unit.drive().lie_about_flushes();
        }
        let listener = TcpListener::bind(address).map_err(Error::on(address))?;
        let server = Server::start(listener, vec![unit], Options::new(NQN));
        let server = server.map_err(Error::on(address))?;
        let port = server.address().port();
        if told.is_some() {
            let loopback = address.ip().is_loopback();
            let only =
                if loopback { ", for this machine and its guests; see --listen" } else { "" };
            (self.machine.tell)(&format!("the drive is at {}{only}", server.address()));
        }
        // Conventional zones are a namespace of their own.
        let namespaces =
            ssd.identify().zones.map_or(1, |zones| 1 + usize::from(zones.conventional > 0));
        let connect = Ask::Connect { address: told, port, nqn: NQN.into(), namespaces };
        Ok(Served { ssd, server, connect, blocks: Blocks::default() })
    }

    fn connect(&self, served: &Served) -> Result<Vec<String>, Trouble> {
        match self.machine.ask(&served.connect, b"") {
            Ok((Answer::Devices(devices), _)) if !devices.is_empty() => Ok(devices),
            Ok(_) => Err(Trouble::Start("the machine finds no drive".into())),
            Err(Trouble::Refused { what, .. }) => Err(Trouble::Start(format!(
                "the machine cannot connect to the drive at {} (has it the module nvme_tcp?): \
                 {what}",
                served.server.address()
            ))),
            Err(trouble) => Err(trouble),
        }
    }

    fn mount(&self, devices: &[String], blocks: &Blocks) -> Result<Remote, vfs::Error> {
        let of_workload = self.workload.mount_options();
        let options = self.fs.mount_options(self.technique, of_workload, &self.options);
        let device = devices.first().cloned().unwrap_or_default();
        let ask = Ask::Mount { device, kind: self.fs.name().into(), options };
        self.machine.ask(&ask, b"")?;
        let remote = Remote::new(self.machine.clone(), blocks.clone())?;
        Ok(remote.data_only(self.fdatasync))
    }

    /// The workload, once.
    fn record(&self, served: &Served, points: CutPoints) -> Result<Recording> {
        let devices = self.connect(served).map_err(problem)?;
        let argv = self.fs.mkfs(&devices);
        let (status, said) = self.machine.run(&argv).map_err(Error::on(&argv[0]))?;
        if status != 0 {
            let said = said.trim().replace('\n', "; ");
            return Err(Error::Problem(format!("{}: exit status {status}: {said}", argv[0])));
        }
        let fs = Arc::new(self.mount(&devices, &served.blocks).map_err(Error::on("mount"))?);
        let oracle = Arc::new(Oracle::new());
        let watch = Watch::live(&served.ssd, &oracle, points, self.seed);
        let recorder = Recorder::new(fs.clone(), oracle.clone());
        // An fdatasync does not promise them.
        let recorder = if self.fdatasync { recorder.without_times() } else { recorder };
        let mut begun = 0;
        let ran = self.workload.run(&recorder, self.seed, &mut || {
            begun = cores::now();
            recorder.restart();
            watch.start(begun);
        });
        let span_ns = cores::now() - begun;
        let cuts = watch.cuts();
        ran?;
        let fsyncs = recorder.fsyncs();
        drop(recorder);
        fs.unmount().map_err(Error::on("unmount"))?;
        self.machine.ask(&Ask::Disconnect, b"").map_err(problem)?;
        Ok(Recording { log: oracle.take_log(), cuts, fsyncs, span_ns })
    }

    /// The drive in an image as the one cut of a run. What a workload does depends on its seed
    /// alone, so a run on our own F2FS gives the oracle the same events as the kernel's did.
    fn recall(&self, path: &Path, events: usize) -> Result<Recording> {
        let state = image::open(path, true, Timing::Instant).map_err(problem)?.hold();
        let (workload, posix) = (self.workload.clone(), f2fs::technique::POSIX);
        let job = Job::new(&f2fs::Format, &self.drive, workload, posix, self.seed);
        let log = lab::campaign::record(&job, CutPoints::Random(1))?.log;
        if events > log.len() {
            let all = log.len();
            return Err(Error::Usage(format!("--events {events}: the workload has {all}")));
        }
        let cuts = vec![Cut::of_state(0, events, state)];
        Ok(Recording { log, cuts, fsyncs: Vec::new(), span_ns: 0 })
    }

    /// Mounts what each cut left. Consecutive cuts that left the same state are mounted once; what
    /// may be there can still differ.
    fn judge_all(
        &self,
        served: &Served,
        recording: &Recording,
        step: &dyn Fn(usize),
    ) -> Result<Found> {
        let (mut model, mut memo) = (Model::new(self.fs.habits()), Memo::default());
        let (mut all_found, mut kept) = (Found::default(), 0);
        let all = recording.cuts.len();
        let alike = recording.cuts.chunk_by(Cut::is_like);
        for (number, cuts) in alike.enumerate() {
            let check = number.is_multiple_of(CHECK_EVERY) || all == 1;
            let mut verify = |fs: &Remote, cut: &Cut| {
                model.advance(&recording.log, cut.position);
                // Blocks come with the file system's own bytes; nobody looks at the drive.
                let mut verdicts = verify(fs, &|_, _| (), &model, &mut memo);
                verdicts.extend(self.workload.inspect(fs, model.transactions));
                verdicts
            };
            let (found, trouble) = match self.judge(served, cuts, check, &mut verify) {
                Ok(found) => (found, None),
                Err(Trouble::Lost(why)) => {
                    let verdict = corrupt("kernel", "one that goes on", &why);
                    let lost = |cut| of_cut(cut, 0, vec![verdict.clone()]);
                    let found = cuts.iter().map(lost).collect();
                    let back = self.machine.restart();
                    (found, back.err().map(|trouble| format!("{}; {trouble}", Trouble::Lost(why))))
                }
                Err(trouble) => (Vec::new(), Some(trouble.to_string())),
            };
            if kept < KEPT_MAX
                && let Some(path) = self.keep(cuts, &found)?
            {
                kept += 1;
                let again = cuts.iter().map(|cut| (cut.index, self.again(&path, cut)));
                all_found.again.extend(again);
            }
            found.iter().for_each(|_| step(all));
            all_found.judged.extend(found);
            if let Some(trouble) = trouble {
                let judged = all_found.judged.len();
                let all = counted(all, "cut");
                let after = format!("{trouble}; that is after {judged} of {all}");
                all_found.early = Some(Error::Problem(after));
                break;
            }
        }
        Ok(all_found)
    }

    /// What judges a cut again whose drive is at `path`. The kernel never does exactly the same
    /// twice, so the number of the cut would not bring it back.
    fn again(&self, path: &Path, cut: &Cut) -> String {
        let (image, events) = (shell_word(&path.to_string_lossy()), cut.position);
        format!("{} --modes {} --image {image} --events {events}", self.command, self.technique)
    }

    /// The image in which the drive is, if it failed.
    fn keep(&self, cuts: &[Cut], found: &[Judged]) -> Result<Option<PathBuf>> {
        let failed = found.iter().find(|judged| !judged.verdicts.is_empty());
        let (Some(failed), Some(cut)) = (failed, cuts.first()) else { return Ok(None) };
        if let CutsOf::Image { path, .. } = &self.cuts {
            return Ok(Some(path.clone()));
        }
        let (Some(dir), Some(state)) = (&self.keep, cut.state().ssd()) else { return Ok(None) };
        std::fs::create_dir_all(dir).map_err(Error::host(dir))?;
        let path = dir.join(format!("{}-{}.img", self.mode_name(), failed.index));
        // That of a campaign before this one.
        for old in [&path, &image::zones_path(&path)] {
            match std::fs::remove_file(old) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(Error::host(old)(error));
                }
                _ => {}
            }
        }
        image::create(&path, state.spec()).map_err(problem)?;
        let ssd = image::open(&path, false, Timing::Instant).map_err(problem)?;
        ssd.power_again(Some(state.clone()), self.seed).map_err(Error::host(&path))?;
        drop(ssd.power_off());
        Ok(Some(path))
    }

    /// Judges cuts that left the same state. An error is the machine's, not the file system's.
    fn judge(
        &self,
        served: &Served,
        cuts: &[Cut],
        check: bool,
        verify: &mut dyn FnMut(&Remote, &Cut) -> Vec<Verdict>,
    ) -> Result<Vec<Judged>, Trouble> {
        let Some(first) = cuts.first() else { return Ok(Vec::new()) };
        let start = |error: std::io::Error| Trouble::Start(error.to_string());
        let state = first.state().ssd().ok_or_else(|| start(ErrorKind::Unsupported.into()))?;
        served.server.replace(std::slice::from_ref(state)).map_err(start)?;
        let devices = self.connect(served)?;
        let begun = cores::now();
        let mounted = self.mount(&devices, &served.blocks);
        let recovery_ns = cores::now() - begun;
        let mounted = mounted.as_ref();
        let found = compare_each(mounted, cuts, |fs, cut| (verify(fs, cut), false));
        let mut later = Vec::new();
        if let Ok(fs) = mounted {
            if let Err(error) = fs.unmount() {
                later.push(corrupt("unmount", "a clean unmount", &error));
            } else if check {
                let argv = self.fs.check(&devices);
                let (status, said) = self.machine.run(&argv)?;
                let complaint = self.fs.complaint(status, &said);
                later.extend(complaint.map(|said| corrupt(&argv[0], "no fault", &said)));
            }
        }
        // If the machine still answers, it is alive.
        self.machine.ask(&Ask::Disconnect, b"")?;
        let judged = cuts.iter().zip(with_later(found, &later));
        Ok(judged.map(|(cut, verdicts)| of_cut(cut, recovery_ns, verdicts)).collect())
    }
}

fn of_cut(cut: &Cut, recovery_ns: u64, verdicts: Vec<Verdict>) -> Judged {
    let Cut { index, at_ns, .. } = *cut;
    Judged { index, at_ns, recovery_ns, recovery: Recovery::default(), verdicts }
}

fn problem(error: impl std::fmt::Display) -> Error {
    Error::Problem(error.to_string())
}
