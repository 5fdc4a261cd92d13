//! The flags and the words of mkfs.f2fs.

use std::path::{Path, PathBuf};

use clap::builder::TypedValueParser;
use clap::{ArgAction, Args, value_parser};
use f2fs::devices::join_for_mkfs;
use f2fs::mkfs::{Encoding, MkfsOptions, format, mount_new};
use f2fs::ondisk::superblock::Features;
use serde::Serialize;
use vfs::Timespec;
use vfs::words::counted;

use super::{KINDS, caller, parse_owner, parse_uuid};
use crate::copy::{self, Copy, Counts, Host, Options, Sink, Times};
use crate::failure::{Failure, Outcome, PROBLEM};
use crate::interrupt::Interrupt;
use crate::out;
use crate::progress::Progress;
use crate::target::{Devices, ImageVolume, Opened, open_for_mkfs, parse_percent};

/// Make an F2FS volume. Options are those of mkfs.f2fs.
#[derive(Args)]
#[command(
    version,
    after_help = "\
Examples:
  strandline mkfs disk.img
  strandline mkfs -l data /dev/sdb
  strandline mkfs /dev/sdb -c /dev/nvme0n2
  strandline mkfs -f -l photos -O extra_attr,inode_checksum disk.img"
)]
pub(crate) struct Mkfs {
    /// Image of a drive, any file of the right size, or a block device
    image: PathBuf,
    /// Size of the volume in sectors
    sectors: Option<u64>,
    /// Kind of file system
    #[arg(long, alias = "fs-type", value_name = "NAME")]
    #[arg(default_value = "f2fs", value_parser = KINDS)]
    fs: String,
    /// Accepted for old scripts; has no effect
    #[arg(short = 'a', value_name = "0|1")]
    heap: Option<u8>,
    /// Block size in bytes; there is one
    #[arg(short = 'b', value_name = "4096", value_parser = ["4096"])]
    block_size: Option<String>,
    /// Casefolded directories, names compared in this encoding
    #[arg(short = 'C', value_name = "utf8[:strict]")]
    encoding: Option<Encoding>,
    /// Debug level, accepted and not used
    #[arg(short = 'd', value_name = "LEVEL")]
    debug: Option<u32>,
    /// Extensions of files that rarely change, separated by commas
    #[arg(short = 'e', value_name = "LIST", value_delimiter = ',')]
    cold: Vec<String>,
    /// Extensions of files that often change
    #[arg(short = 'E', value_name = "LIST", value_delimiter = ',')]
    hot: Vec<String>,
    /// A further device, after a conventional one; up to seven times
    #[arg(short = 'c', value_name = "DEVICE", action = ArgAction::Append)]
    devices: Vec<String>,
    /// Overwrite an existing file system
    #[arg(short = 'f')]
    force: bool,
    /// The features and options of a platform
    #[arg(short = 'g', value_name = "android", value_parser = ["android"])]
    defaults: Option<String>,
    /// A NAT bitmap that can grow
    #[arg(short = 'i')]
    large_nat_bitmap: bool,
    /// Volume label
    #[arg(short = 'l', value_name = "LABEL", default_value = "")]
    label: String,
    /// Lay the volume out for zones
    #[arg(short = 'm')]
    zoned: bool,
    /// Percentage of space kept for cleaning
    #[arg(short = 'o', value_name = "PERCENT", value_parser = parse_percent)]
    overprovision: Option<f64>,
    /// Features, separated by commas
    #[arg(short = 'O', value_name = "FEATURES", action = ArgAction::Append)]
    features: Vec<String>,
    /// Fill the volume with what is in this directory, whose attributes the root gets. With -r or
    /// -T, and -U, the same tree makes the same image, bit for bit
    #[arg(long, value_name = "DIR")]
    from: Option<PathBuf>,
    /// Say nothing
    #[arg(short = 'q')]
    quiet: bool,
    /// Same image every time: fixed checkpoint version and UUID
    #[arg(short = 'r')]
    reproducible: bool,
    /// Owner of the root directory; the caller, if not given
    #[arg(short = 'R', value_name = "UID:GID")]
    root_owner: Option<String>,
    /// Segments in a section
    #[arg(short = 's', value_name = "N", default_value_t = 1, value_parser = segments())]
    segs_per_sec: u32,
    /// Android sparse output; not supported
    #[arg(short = 'S')]
    sparse: bool,
    /// Discard the device first
    #[arg(short = 't', value_name = "0|1", default_value_t = 1)]
    trim: u8,
    /// Times of the first inodes, seconds since the epoch; -1 for now. Without it
    /// SOURCE_DATE_EPOCH counts
    #[arg(short = 'T', value_name = "SECONDS", allow_negative_numbers = true)]
    time: Option<i64>,
    /// UUID of the volume
    #[arg(short = 'U', value_name = "UUID")]
    uuid: Option<String>,
    /// Sector size in bytes
    #[arg(short = 'w', value_name = "BYTES", default_value_t = 512, value_parser = sector_size)]
    sector_size: u32,
    /// Sections in a zone
    #[arg(short = 'z', value_name = "N", default_value_t = 1, value_parser = segments())]
    secs_per_zone: u32,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Made {
    image: String,
    label: String,
    segments: u32,
    segs_per_sec: u32,
    overprovision_percent: f64,
    user_blocks: u64,
    overprovision_segments: u32,
    reserved_segments: u32,
    zones_reset: u32,
    trimmed: bool,
    from: Option<Counts>,
}

/// For clap: how many segments or sections there can be.
fn segments() -> impl TypedValueParser<Value = u32> {
    // 16 TiB.
    value_parser!(u32).range(1..=8 << 20)
}

/// For clap: a sector size.
fn sector_size(text: &str) -> Result<u32, String> {
    let known = text.parse().ok().filter(|size| [512, 1024, 2048, 4096].contains(size));
    known.ok_or_else(|| "expected 512, 1024, 2048 or 4096".into())
}

impl Mkfs {
    pub(crate) fn run(self) -> Outcome {
        let options = self.options()?;
        if let Some(from) = &self.from {
            // Checked before the old contents are gone.
            std::fs::read_dir(from).map_err(Failure::host(from))?;
        }
        let devices = Devices { others: self.others()?, ..Devices::default() };
        let join = |all| Ok(join_for_mkfs(all, &options)?);
        let opened = open_for_mkfs(&self.image, &devices, join)?;
        let images = [&self.image].into_iter().chain(&devices.others);
        let host = Host::without(images.map(PathBuf::as_path));
        if let Some(from) = &self.from {
            self.check_room(&host, from, &opened, &options)?;
        }
        // mkfs.f2fs knows success and failure only; wrong usage was found before this.
        let report = format(&opened.drive, &options).map_err(|error| Failure::Coded {
            message: format!("{}: {error}", self.image.display()),
            code: PROBLEM,
        })?;
        let identify = opened.drive.identify().clone();
        let filled = match &self.from {
            Some(from) => Some(self.fill(&host, from, opened, &options)?),
            None => {
                opened.close()?;
                None
            }
        };
        let sb = &report.superblock;
        let made = Made {
            image: self.image.display().to_string(),
            label: self.label.clone(),
            segments: sb.segment_count,
            segs_per_sec: sb.segs_per_sec,
            overprovision_percent: report.geometry.overprovision,
            user_blocks: report.geometry.user_blocks,
            overprovision_segments: report.geometry.overprov,
            reserved_segments: report.geometry.reserved,
            zones_reset: report.zones_reset,
            trimmed: report.trimmed,
            from: filled,
        };
        if self.json {
            out::json(&made)?;
        } else if !self.quiet {
            self.tell(&made, &identify)?;
        }
        Ok(if filled.is_some_and(|counts| counts.errors > 0) { PROBLEM } else { 0 })
    }

    /// Fails if the tree below `from` needs more room than the volume will have: one is made in
    /// memory, so that the old contents are still there.
    fn check_room(
        &self,
        host: &Host,
        from: &Path,
        opened: &Opened,
        options: &MkfsOptions,
    ) -> Outcome<()> {
        let trial = opened.scratch()?;
        // What is wrong with the drive or the options is told when it is really made.
        if format(&trial, options).is_err() {
            return Ok(());
        }
        let volume = mount_new(trial, Timespec::default())?;
        let free = volume.statfs().map_err(Failure::on(self.image.display()))?.blocks_free;
        let needed = copy::blocks(host, &from.to_owned());
        if needed <= free {
            return Ok(());
        }
        Err(Failure::Problem(format!(
            "{}: too small for {}, which needs about {} MiB: there would be room for {} MiB; \
             nothing was written",
            self.image.display(),
            from.display(),
            needed.div_ceil(256),
            free >> 8
        )))
    }

    /// Copies the tree below `from` to the root.
    fn fill(
        &self,
        host: &Host,
        from: &Path,
        opened: Opened,
        made: &MkfsOptions,
    ) -> Outcome<Counts> {
        let now = Timespec { secs: made.time.cast_signed(), nanos: 0 };
        let times = match (self.time, std::env::var_os("SOURCE_DATE_EPOCH")) {
            (Some(0..), _) => Times::All(now),
            (None, Some(_)) => Times::AtMost(now),
            _ => Times::Modified,
        };
        let volume = ImageVolume::new(&self.image, opened, |drive| mount_new(drive, now))?;
        let interrupt = Interrupt::watch()?;
        let options = Options { recursive: true, times, interrupt, ..Options::default() };
        let source = from.to_owned();
        let progress =
            Progress::counting("mkfs", self.json || self.quiet, || copy::count(host, &source));
        let mut copy = Copy::new(host, &volume, &options, &progress);
        let root = volume.fs.root();
        copy.copy_contents(source, &root, b"/");
        let counts = copy.counts;
        progress.finish();
        if self.root_owner.is_some() {
            let (uid, gid) = made.root_owner;
            volume.set_owner(&root, uid, gid).map_err(volume.about(b"/"))?;
        }
        volume.close_or_cut()?;
        options.interrupt.check(|| {
            let (files, image) = (counted(counts.files as usize, "file"), self.image.display());
            format!("{image} holds {files} from {}; the others are missing", from.display())
        })?;
        Ok(counts)
    }

    fn tell(&self, made: &Made, drive: &drive::Identify) -> Outcome<()> {
        let sectors = drive.blocks * 4096 / u64::from(self.sector_size);
        let mut lines = vec![
            format!("Info: Segments per section = {}", made.segs_per_sec),
            format!("Info: Sections per zone = {}", self.secs_per_zone),
            format!("Info: sector size = {}", self.sector_size),
            format!("Info: total sectors = {sectors} ({} MB)", drive.blocks >> 8),
        ];
        if let Some(zones) = &drive.zones {
            let mb = zones.size >> 8;
            let all = counted(zones.count, "zone");
            lines.push(format!("Info: Host-managed zoned drive: {all} of {mb} MB"));
            lines.push(format!("Info: {} reset", counted(made.zones_reset, "zone")));
        } else if made.trimmed {
            lines.push("Info: Discarded the whole device".into());
        }
        if !made.label.is_empty() {
            lines.push(format!("Info: Label = {}", made.label));
        }
        lines.push(format!(
            "Info: Space for files = {} MB; kept for cleaning and metadata, or beyond the zones' \
             capacity: {} MB",
            made.user_blocks >> 8,
            drive.blocks.saturating_sub(made.user_blocks) >> 8
        ));
        lines.push(format!("Info: Overprovision ratio = {:.3}%", made.overprovision_percent));
        lines.push(format!(
            "Info: Overprovision segments = {} (GC reserved = {})",
            made.overprovision_segments, made.reserved_segments
        ));
        if let Some(from) = &made.from {
            let files = counted(from.files, "file");
            let directories = counted(from.directories, "directory");
            lines.push(format!("Info: {files} and {directories} copied"));
        }
        lines.push("Info: format successful".into());
        lines.iter().try_for_each(out::line)
    }

    /// What -c names.
    fn others(&self) -> Outcome<Vec<PathBuf>> {
        let named = |name: &String| match name.split_once('@') {
            Some((_, alias)) => {
                Err(Failure::Usage(format!("-c {name}: no file can stand for a device (@{alias})")))
            }
            None => Ok(PathBuf::from(name)),
        };
        self.devices.iter().map(named).collect()
    }

    /// The devices' names in the superblock; none if there is only one.
    fn device_names(&self) -> Outcome<Vec<String>> {
        let others = self.others()?;
        if others.is_empty() {
            return Ok(Vec::new());
        }
        let name = |path: &PathBuf| match std::fs::canonicalize(path) {
            Ok(path) => Ok(path.to_string_lossy().into_owned()),
            Err(error) => Err(Failure::Problem(format!("{}: {error}", path.display()))),
        };
        std::iter::once(&self.image).chain(&others).map(name).collect()
    }

    /// Seconds for the times of new inodes.
    fn time(&self, now: u64) -> Outcome<u64> {
        let wrong = |what: String| Failure::Usage(format!("{what}: not seconds since the epoch"));
        match self.time {
            Some(-1) => Ok(now),
            Some(seconds) => seconds.try_into().map_err(|_| wrong(format!("-T {seconds}"))),
            None => match std::env::var("SOURCE_DATE_EPOCH") {
                Ok(text) => text.parse().map_err(|_| wrong(format!("SOURCE_DATE_EPOCH={text}"))),
                Err(_) if self.reproducible => Ok(0),
                Err(_) => Ok(now),
            },
        }
    }

    fn options(&self) -> Outcome<MkfsOptions> {
        if self.sparse {
            let hint = "-S: no Android sparse output here; img2simg makes it of the image";
            return Err(Failure::Usage(hint.into()));
        }
        let now = cores::wall_clock();
        let mut options = MkfsOptions {
            label: self.label.clone(),
            overprovision: self.overprovision,
            segs_per_sec: self.segs_per_sec,
            secs_per_zone: self.secs_per_zone,
            zoned: self.zoned,
            large_nat_bitmap: self.large_nat_bitmap,
            seed: if self.reproducible { 0 } else { now.as_nanos() as u64 },
            uuid: self.uuid.as_deref().map(|uuid| parse_uuid("-U", uuid)).transpose()?,
            cold_extensions: self.cold.clone(),
            hot_extensions: self.hot.clone(),
            discard: self.trim != 0,
            time: self.time(now.as_secs())?,
            sector_size: self.sector_size,
            sectors: self.sectors,
            force: self.force,
            devices: self.device_names()?,
            encoding: self.encoding.unwrap_or_default(),
            root_owner: match &self.root_owner {
                Some(owner) => parse_owner("-R", owner)?,
                None => caller(),
            },
            ..MkfsOptions::default()
        };
        if self.defaults.is_some() {
            options.set_android();
        }
        options.features.set(Features::CASEFOLD, self.encoding.is_some());
        for list in &self.features {
            options.add_features(list).map_err(|e| Failure::Usage(e.to_string()))?;
        }
        Ok(options)
    }
}
