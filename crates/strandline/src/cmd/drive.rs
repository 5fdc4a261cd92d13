//! `strandline drive`: emulated drives in files, and what a real one is.

mod control;
mod memory;
mod serve;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand};
use drive::linux::Access;
use drive::{Identify, Spec, Ssd, Timing, image};
use lab::bench::drive::Figure;
use lab::workload::script::read_bounded;
use serde::Serialize;

use self::control::Served;
use self::memory::Memory;
use crate::failure::{Failure, Outcome};
use crate::known;
use crate::mounted::Mounted;
use crate::out;
use crate::target::{open_drive, parse_blocks};

const BLOCK: u64 = drive::BLOCK_SIZE as u64;
/// What a file is that has no zones beside it.
const PLAIN: &str = "a plain file, used as a drive without zones";
/// Longest zone report: two million zones.
const REPORT_MAX: u64 = 1 << 28;

/// Emulated drives in files (raw bytes in NAME, zones and profile in NAME.zones), and what a block
/// device is.
#[derive(Subcommand)]
#[command(after_help = "\
Examples:
  strandline drive create --zone-size 32m --zones 32 --conventional 2 disk.img
  strandline mkfs disk.img && strandline drive zones disk.img")]
pub(crate) enum Drive {
    /// Make an empty drive
    Create(Create),
    /// Make a drive from a raw dump and the output of `blkzone report`
    Import(Import),
    /// Show what a drive is
    Info(Info),
    /// List zones as `blkzone report` does
    Zones(Zones),
    /// Serve drives to real kernels, over NVMe/TCP
    Serve(serve::Serve),
    /// Cut the power
    Cut(Cut),
    /// Give a served drive its power back, or a snapshot
    Restore(control::Restore),
    /// Let a served drive hang
    Freeze(control::Freeze),
    /// Let a served drive fail
    #[command(subcommand)]
    Fault(control::Fault),
    /// Keep what served drives hold, under a name
    Snapshot(control::Snapshot),
    /// Show what a served drive has done
    Stats(control::Stats),
    /// Show what a profile promises beside what the emulated drive does
    Bench(Bench),
}

/// Make an empty drive.
#[derive(Args)]
#[command(after_help = "\
Examples:
  strandline drive create --profile zn540-noplp --zone-size 32m --zone-capacity 18m \\
      --zones 64 --conventional 2 disk.img
  strandline drive create --profile conventional-noplp --size 4g disk.img
  strandline drive create --pm --size 1g /dev/shm/m.pm")]
pub(crate) struct Create {
    /// File to make
    path: PathBuf,
    #[arg(long, default_value = "zn540-noplp", help = known::drives())]
    profile: String,
    /// A file used as persistent memory, allocated at once. Its name should end in .pm: by that it
    /// is known. In /dev/shm it survives a killed process, on DAX a power cut
    #[arg(long, requires = "size", conflicts_with_all = ["profile", "zone_size", "zones"])]
    #[arg(conflicts_with = "conventional")]
    pm: bool,
    /// Size, with k, m, g or t: a multiple of 4096 bytes; rounded up to whole zones if there are
    /// any
    #[arg(long, value_parser = parse_blocks)]
    size: Option<u64>,
    /// Zone size
    #[arg(long, value_parser = parse_blocks)]
    zone_size: Option<u64>,
    /// Bytes of a zone that can be written; the whole zone if not given
    #[arg(long, value_parser = parse_blocks, requires = "zone_size")]
    zone_capacity: Option<u64>,
    /// How many zones
    #[arg(long, conflicts_with = "size")]
    zones: Option<u32>,
    /// How many of the zones take random writes, as F2FS's metadata needs [default: none]
    #[arg(long)]
    conventional: Option<u32>,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// Make a drive from a raw dump.
#[derive(Args)]
#[command(after_help = "\
Example:
  blkzone report /dev/nvme0n2 > zones.txt; dd if=/dev/nvme0n2 of=raw.img bs=1M
  strandline drive import raw.img --zones zones.txt disk.img")]
pub(crate) struct Import {
    /// Raw bytes of a zoned drive
    raw: PathBuf,
    /// What `blkzone report` printed for it
    #[arg(long)]
    zones: PathBuf,
    /// File to make
    path: PathBuf,
}

/// Show what a drive is.
#[derive(Args)]
#[command(after_help = "\
Examples:
  strandline drive info disk.img --json
  strandline drive info /dev/nvme0n2")]
pub(crate) struct Info {
    /// Drive image, any file, or a block device
    path: PathBuf,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// List zones.
#[derive(Args)]
#[command(after_help = "\
Examples:
  strandline drive zones disk.img | head
  strandline drive zones /dev/nvme0n2")]
pub(crate) struct Zones {
    /// Drive image, or a zoned block device
    path: PathBuf,
    /// One JSON object per zone
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    which: control::Which,
}

/// Cut the power of a drive: what its write buffer held is gone.
///
/// Below a mounted volume the drive is dead from then on (EIO) until the volume is unmounted; the
/// next mount recovers. Of a served drive the controllers are lost and the connections drop; a
/// host that connects again finds what was on NAND. Otherwise the drive is a file and is cut
/// between commands, so its buffer is empty and nothing is lost; to cut it under load see
/// `strandline cp --cut-at`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  strandline drive cut disk.img
  strandline drive cut /mnt --seed 7
  strandline drive cut disk.img --within 5000 --seed 7   # while it is served")]
pub(crate) struct Cut {
    /// Drive image, directory a volume is mounted on, or control socket
    path: PathBuf,
    /// Seed of the drive's random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    served: control::CutServed,
}

/// Show the curves of a profile, simulated: latency and rate of writes by length and by zones
/// written side by side, until and beyond a full write buffer; time of a flush by dirty blocks.
/// Each beside the closed form, with the difference.
#[derive(Args)]
#[command(after_help = "\
Examples:
  strandline drive bench --profile zn540-noplp
  strandline drive bench --profile conventional-noplp --json")]
pub(crate) struct Bench {
    #[arg(long, default_value = "zn540-noplp", help = known::drives())]
    profile: String,
    /// Seed of program times
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One JSON object per figure
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct InfoJson {
    path: String,
    model: String,
    bytes: u64,
    volatile_cache: bool,
    read_only: bool,
    zoned: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    zone: Option<ZoneInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pm: Option<Memory>,
}

#[derive(Serialize)]
struct ZoneInfo {
    count: u32,
    conventional: u32,
    bytes: u64,
    capacity_bytes: u64,
    max_open: Option<u32>,
    max_active: Option<u32>,
}

impl Drive {
    pub(crate) fn run(self) -> Outcome {
        match self {
            Self::Create(create) => create.run(),
            Self::Import(import) => import.run(),
            Self::Info(info) => info.run(),
            Self::Zones(zones) => zones.run(),
            Self::Serve(serve) => serve.run(),
            Self::Cut(cut) => cut.run(),
            Self::Restore(restore) => restore.run(),
            Self::Freeze(freeze) => freeze.run(),
            Self::Fault(fault) => fault.run(),
            Self::Snapshot(snapshot) => snapshot.run(),
            Self::Stats(stats) => stats.run(),
            Self::Bench(bench) => bench.run(),
        }
    }
}

fn spec(profile: &str) -> Outcome<Spec> {
    Spec::named(profile).map_err(|e| Failure::Usage(e.to_string()))
}

impl Create {
    fn run(self) -> Outcome {
        if self.pm {
            memory::create(&self.path, self.size.unwrap_or(0))?;
            return Info { path: self.path, json: self.json }.run();
        }
        let spec = self.spec()?;
        image::create(&self.path, &spec).map_err(|e| Failure::Problem(e.to_string()))?;
        let identify = spec.identify().map_err(|e| Failure::Usage(e.to_string()))?;
        if let Some(why) = unfit(&spec)? {
            out::complain(&format!("{}: mkfs will refuse this drive: {why}", self.path.display()));
        }
        show(&self.path, &of_file(&self.path, identify), self.json)
    }

    fn spec(&self) -> Outcome<Spec> {
        let mut spec = spec(&self.profile)?;
        if let Some(size) = self.zone_size {
            spec = spec.zone_size(size / BLOCK, self.zone_capacity.unwrap_or(size) / BLOCK);
        }
        if let Some(zones) = self.zones {
            spec = spec.zones(zones, 0);
        }
        if let Some(count) = self.conventional {
            spec = spec.conventional(count);
        }
        if let Some(size) = self.size {
            spec = spec.blocks(size / BLOCK);
        }
        spec.identify().map_err(|e| Failure::Usage(e.to_string()))?;
        Ok(spec)
    }
}

/// Largest drive on which a volume is tried.
const TRIED_BYTES: u64 = 64 << 30;

/// Why no volume fits on such a drive alone, if none does: one is made in memory.
fn unfit(spec: &Spec) -> Outcome<Option<String>> {
    let problem = |error: drive::ProfileError| Failure::Usage(error.to_string());
    let identify = spec.identify().map_err(problem)?;
    if identify.blocks * BLOCK > TRIED_BYTES {
        let none = identify.zones.is_some_and(|zones| zones.conventional == 0);
        return Ok(none.then(|| "no zone takes random writes; add --conventional N".into()));
    }
    let drive: Arc<dyn drive::Drive> =
        Ssd::new(spec.clone(), Timing::Instant, 0).map_err(problem)?;
    // The first is what mkfs makes.
    Ok(subjects::ALL[0].make(&drive).err().map(|error| error.to_string()))
}

impl Bench {
    fn run(self) -> Outcome {
        let figures = lab::bench::drive::run(&self.profile, self.seed)?;
        if self.json {
            figures.iter().try_for_each(out::json)?;
            return Ok(0);
        }
        let mut last = "";
        for figure in &figures {
            if figure.curve != last {
                last = figure.curve;
                let unit = lab::report::micro(figure.unit);
                out::line(format!("{last} ({unit}), {} simulated", self.profile))?;
                out::line(format!("{:>8} {:>10} {:>12} {:>8}", "", "model", "closed form", "off"))?;
            }
            let Figure { x, model, formula, .. } = figure;
            let off = figure.off_percent();
            out::line(format!("{x:>8} {model:>10.1} {formula:>12.1} {off:>+7.1}%"))?;
        }
        let Self { profile, seed, .. } = self;
        out::line(format!("\nrepeat: strandline drive bench --profile {profile} --seed {seed}"))?;
        Ok(0)
    }
}

impl Import {
    fn run(self) -> Outcome {
        let text = read_bounded(&self.zones, REPORT_MAX)?;
        image::import(&self.raw, &text, &self.path).map_err(|e| Failure::Problem(e.to_string()))?;
        Info { path: self.path, json: false }.run()
    }
}

impl Info {
    fn run(self) -> Outcome {
        if Served::find(&self.path).is_some() {
            let path = self.path.display();
            return Err(Failure::Problem(format!(
                "{path}: it is served now; 'strandline drive zones' and 'stats' ask its server"
            )));
        }
        let opened = open_drive(&self.path, Access::Inspect)?;
        let identify = match opened.emulated() {
            [ssd] => {
                let identify = ssd.spec().identify();
                of_file(&self.path, identify.map_err(|e| Failure::Problem(e.to_string()))?)
            }
            _ => opened.drive.identify().clone(),
        };
        show(&self.path, &identify, self.json)
    }
}

/// What a drive in a file is; one without zones is a file like any other.
fn of_file(path: &Path, mut identify: Identify) -> Identify {
    if !image::zones_path(path).exists() {
        identify.model = PLAIN.into();
    }
    identify
}

fn show(path: &Path, identify: &Identify, json: bool) -> Outcome {
    let info = InfoJson {
        path: path.display().to_string(),
        model: identify.model.clone(),
        bytes: identify.blocks * BLOCK,
        volatile_cache: identify.volatile_cache,
        read_only: identify.read_only,
        zoned: identify.zones.is_some(),
        zone: identify.zones.map(|z| ZoneInfo {
            count: z.count,
            conventional: z.conventional,
            bytes: z.size * BLOCK,
            capacity_bytes: z.capacity * BLOCK,
            max_open: z.max_open,
            max_active: z.max_active,
        }),
        pm: identify.pm.as_ref().map(Memory::of),
    };
    if json {
        out::json(&info)?;
        return Ok(0);
    }
    let cache = if info.volatile_cache {
        "volatile (a power cut loses what was not flushed)"
    } else {
        "none, or protected (a power cut loses nothing that was acknowledged)"
    };
    out::line(format!("{}: {}", info.path, info.model))?;
    out::line(format!("size: {} MiB", info.bytes >> 20))?;
    if let Some(memory) = &info.pm {
        out::line(memory.tell())?;
        return Ok(0);
    }
    out::line(format!("write buffer: {cache}"))?;
    if let Some(zone) = &info.zone {
        let limit = |n: Option<u32>| n.map_or("no limit".into(), |n| n.to_string());
        out::line(format!(
            "zones: {} of {} KiB, {} KiB writable; {} conventional; open {}, active {}",
            zone.count,
            zone.bytes >> 10,
            zone.capacity_bytes >> 10,
            zone.conventional,
            limit(zone.max_open),
            limit(zone.max_active)
        ))?;
    }
    Ok(0)
}

impl Zones {
    fn run(self) -> Outcome {
        let zones = match Served::find(&self.path) {
            Some(served) => served.zones(&self.which)?,
            None if self.which.is_given() => {
                return Err(Failure::Usage("--namespace is for drives that are served".into()));
            }
            None => report(&self.path, &*open_drive(&self.path, Access::Inspect)?.drive)?,
        };
        if !self.json {
            out::text(&drive::blkzone::print(&zones))?;
            return Ok(0);
        }
        for zone in &zones {
            out::json(&serde_json::json!({
                "start": zone.start * BLOCK,
                "size": zone.size * BLOCK,
                "capacity": zone.capacity * BLOCK,
                "wp": zone.wp * BLOCK,
                "kind": format!("{:?}", zone.kind),
                "state": format!("{:?}", zone.state),
            }))?;
        }
        Ok(0)
    }
}

fn report(path: &Path, drive: &dyn drive::Drive) -> Outcome<Vec<drive::Zone>> {
    use drive::{Command, Output};
    let problem = |why: &str| Failure::Problem(format!("{}: {why}", path.display()));
    if drive.identify().zones.is_none() {
        return Err(problem("the drive has no zones"));
    }
    drive.submit(0, 0, Command::ReportZones { lba: 0, max: u32::MAX });
    match drive.wait(0).map(|done| done.result) {
        Some(Ok(Output::Zones(zones))) => Ok(zones),
        Some(Err(status)) => Err(problem(&format!("zone report: {status}"))),
        _ => Err(problem("zone report: the drive gave no answer")),
    }
}

impl Cut {
    fn run(self) -> Outcome {
        if let Some(served) = Served::find(&self.path) {
            served.ask(&self.served.request(self.seed))?;
        } else if self.served.is_asked() {
            let path = self.path.display();
            return Err(Failure::Usage(format!("{path}: that is for a drive that is served")));
        } else if let Some(mounted) = Mounted::find(&self.path) {
            mounted.ask(&format!("cut={}", self.seed))?;
        } else if self.path.is_dir() {
            let path = self.path.display();
            return Err(Failure::Problem(format!("{path}: no volume is mounted here")));
        } else {
            let opened = open_drive(&self.path, Access::Write)?;
            let [ssd] = opened.emulated() else {
                let path = self.path.display();
                return Err(Failure::Usage(format!("{path}: only an emulated drive can be cut")));
            };
            if !image::zones_path(&self.path).exists() {
                let path = self.path.display();
                return Err(Failure::Usage(format!("{path}: only an emulated drive can be cut")));
            }
            ssd.cut(self.seed);
        }
        let done = if self.served.is_later() { "power will be cut" } else { "power cut" };
        out::line(format!("{}: {done}", self.path.display()))?;
        Ok(0)
    }
}
