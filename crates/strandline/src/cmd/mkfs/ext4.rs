//! The letters and the words of mke2fs.

use std::path::PathBuf;

use clap::{ArgAction, Args};
use ext4::mkfs::{FormatReport, MkfsOptions, OnError, format, plan};
use serde::Serialize;

use super::{KINDS, parse_uuid};
use crate::failure::{Failure, Outcome, PROBLEM};
use crate::out;
use crate::target::{Devices, open_for_mkfs, parse_size};

/// Make an ext4 volume. Options are those of mke2fs.
#[derive(Args)]
#[command(
    version,
    after_help = "\
Examples:
  strandline mkfs --fs ext4 disk.img
  mkfs.ext4 -L data -m 1 /dev/sdb
  mkfs.ext4 -O orphan_file,metadata_csum_seed disk.img
  mkfs.ext4 -b 1024 -J size=16 -N 20000 disk.img 512m

Blocks have 4 KiB unless -b or -T says otherwise. The features are those of Debian 12."
)]
pub(crate) struct Mkfs {
    /// Image of a drive, any file of the right size, or a block device
    image: PathBuf,
    /// Size of the volume: blocks with -b, else KiB; or with a unit, k, m, g or t
    size: Option<String>,
    /// Kind of file system
    #[arg(long, alias = "fs-type", value_name = "NAME")]
    #[arg(default_value = "ext4", value_parser = KINDS)]
    fs: String,
    /// Block size in bytes: 1024, 2048 or 4096
    #[arg(short = 'b', value_name = "BYTES")]
    block_size: Option<u32>,
    /// Look for bad blocks; not supported
    #[arg(short = 'c', action = ArgAction::Count)]
    check: u8,
    /// Cluster size, for bigalloc; not supported
    #[arg(short = 'C', value_name = "BYTES")]
    cluster_size: Option<String>,
    /// Fill the volume with what is in this directory; not supported
    #[arg(short = 'd', value_name = "DIR")]
    from: Option<PathBuf>,
    /// What the kernel does when it finds an error
    #[arg(short = 'e', value_name = "BEHAVIOUR", default_value = "continue")]
    #[arg(value_parser = ["continue", "remount-ro", "panic"])]
    on_error: String,
    /// Extended options, separated by commas: stride=, stripe_width=, resize=, lazy_itable_init=,
    /// lazy_journal_init=, root_owner=UID:GID, hash_seed=, discard, nodiscard
    #[arg(short = 'E', value_name = "OPTIONS", action = ArgAction::Append)]
    extended: Vec<String>,
    /// Overwrite an existing file system
    #[arg(short = 'F', action = ArgAction::Count)]
    force: u8,
    /// Blocks in a group
    #[arg(short = 'g', value_name = "N")]
    blocks_per_group: Option<u32>,
    /// Groups whose bitmaps and inode tables lie together, a power of two
    #[arg(short = 'G', value_name = "N", default_value_t = 16)]
    flex_groups: u32,
    /// Bytes of the volume for each inode
    #[arg(short = 'i', value_name = "BYTES")]
    inode_ratio: Option<u64>,
    /// Inode size in bytes
    #[arg(short = 'I', value_name = "BYTES", default_value_t = 256)]
    inode_size: u32,
    /// Have a journal, which is the default
    #[arg(short = 'j')]
    journal: bool,
    /// The journal: size=MIB
    #[arg(short = 'J', value_name = "OPTIONS", action = ArgAction::Append)]
    journal_options: Vec<String>,
    /// A list of bad blocks; not supported
    #[arg(short = 'l', value_name = "FILE")]
    bad_blocks: Option<PathBuf>,
    /// Volume label, up to 16 bytes
    #[arg(short = 'L', value_name = "LABEL", default_value = "")]
    label: String,
    /// Percentage of blocks that only root can use
    #[arg(short = 'm', value_name = "PERCENT", default_value_t = 5.0)]
    reserved: f64,
    /// Directory where it counts as mounted last
    #[arg(short = 'M', value_name = "DIR", default_value = "")]
    last_mounted: String,
    /// Say what would be made; write nothing
    #[arg(short = 'n')]
    dry_run: bool,
    /// Inodes
    #[arg(short = 'N', value_name = "N")]
    inodes: Option<u64>,
    /// Features, separated by commas; ^FEATURE leaves one out
    #[arg(short = 'O', value_name = "FEATURES", action = ArgAction::Append)]
    features: Vec<String>,
    /// Say nothing
    #[arg(short = 'q')]
    quiet: bool,
    /// Revision of the format; there is 1
    #[arg(short = 'r', value_name = "1", value_parser = ["1"])]
    revision: Option<String>,
    /// Write superblocks and descriptors only; not supported
    #[arg(short = 'S')]
    supers_only: bool,
    /// Kind of ext file system; there is ext4
    #[arg(short = 't', value_name = "ext4", value_parser = ["ext4"])]
    kind: Option<String>,
    /// How it will be used, as in mke2fs.conf: small, big, huge, news, largefile, largefile4
    #[arg(short = 'T', value_name = "USAGE", value_delimiter = ',')]
    usage: Vec<String>,
    /// UUID of the volume; random, clear and time are words for one
    #[arg(short = 'U', value_name = "UUID")]
    uuid: Option<String>,
    /// Say more
    #[arg(short = 'v')]
    verbose: bool,
    /// An undo file; not supported here: `strandline drive snapshot` remembers a whole drive
    #[arg(short = 'z', value_name = "FILE")]
    undo: Option<PathBuf>,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Made {
    image: String,
    label: String,
    uuid: String,
    features: String,
    block_size: u32,
    blocks: u64,
    reserved_blocks: u64,
    inodes: u32,
    groups: u32,
    journal_blocks: u64,
    backups: Vec<u64>,
    trimmed: bool,
}

impl Mkfs {
    pub(crate) fn run(self) -> Outcome {
        self.check_supported()?;
        let options = self.options()?;
        let no_join = |_| Err(vfs::kind::Error::Usage("ext4 volumes are on one device".into()));
        let opened = open_for_mkfs(&self.image, &Devices::default(), no_join)?;
        let made = match self.dry_run {
            true => plan(opened.drive.identify(), &options),
            false => format(&opened.drive, &options),
        };
        // mke2fs knows success and failure only; wrong usage was found before this.
        let report = made.map_err(|error| Failure::Coded {
            message: format!("{}: {error}", self.image.display()),
            code: PROBLEM,
        })?;
        opened.close()?;
        let made = self.made(&report);
        if self.json {
            out::json(&made)?;
        } else if !self.quiet {
            self.tell(&report, &made)?;
        }
        Ok(0)
    }

    /// What mke2fs has and this has not is said by its letter.
    fn check_supported(&self) -> Outcome<()> {
        let wanted = [
            (self.check > 0, "-c: no search for bad blocks here"),
            (self.cluster_size.is_some(), "-C: no clusters (bigalloc) here"),
            (self.from.is_some(), "-d: 'strandline cp -r' copies a tree into a volume"),
            (self.bad_blocks.is_some(), "-l: no list of bad blocks here"),
            (self.supers_only, "-S: superblocks alone are not written here; e2fsck repairs"),
            (self.undo.is_some(), "-z: 'strandline drive snapshot' remembers a whole drive"),
        ];
        match wanted.iter().find(|(asked, _)| *asked) {
            Some((_, why)) => Err(Failure::Usage((*why).into())),
            None => Ok(()),
        }
    }

    fn made(&self, report: &FormatReport) -> Made {
        let sb = &report.superblock;
        let words = [sb.compat.to_string(), sb.incompat.to_string(), sb.ro_compat.to_string()];
        Made {
            image: self.image.display().to_string(),
            label: self.label.clone(),
            uuid: uuid_text(sb.raw.uuid),
            features: words.join(" "),
            block_size: sb.block_size,
            blocks: sb.blocks,
            reserved_blocks: sb.raw.r_blocks_count(),
            inodes: sb.raw.inodes_count.get(),
            groups: sb.groups,
            journal_blocks: report.journal_blocks,
            backups: report.backups.clone(),
            trimmed: report.trimmed,
        }
    }

    fn tell(&self, report: &FormatReport, made: &Made) -> Outcome<()> {
        let sb = &report.superblock;
        let kib = made.block_size / 1024;
        let mut lines = vec![format!(
            "Creating filesystem with {} {kib}k blocks and {} inodes",
            made.blocks, made.inodes
        )];
        lines.push(format!("Filesystem UUID: {}", made.uuid));
        if self.verbose {
            lines.push(format!("Filesystem features: {}", made.features));
            lines.push(format!(
                "{} block groups: {} blocks, {} inodes per group",
                made.groups, sb.blocks_per_group, sb.inodes_per_group
            ));
            lines.push(format!("{} blocks reserved for the super user", made.reserved_blocks));
        }
        if !made.backups.is_empty() {
            let places: Vec<_> = made.backups.iter().map(u64::to_string).collect();
            lines.push(format!("Superblock backups stored on blocks: {}", places.join(", ")));
        }
        lines.push(match made.journal_blocks {
            0 => "No journal".into(),
            blocks => format!("Journal ({blocks} blocks)"),
        });
        if self.dry_run {
            lines.push("Nothing was written".into());
        }
        lines.iter().try_for_each(out::line)
    }

    /// Blocks of the volume, from the second argument.
    fn blocks(&self, block_size: u32) -> Outcome<Option<u64>> {
        let Some(text) = &self.size else { return Ok(None) };
        let wrong = |why: String| Failure::Usage(format!("size {text}: {why}"));
        let size = parse_size(text).map_err(wrong)?;
        Ok(Some(match text.bytes().all(|digit| digit.is_ascii_digit()) {
            true if self.block_size.is_some() => size,
            true => size.saturating_mul(1024) / u64::from(block_size),
            false => size / u64::from(block_size),
        }))
    }

    fn options(&self) -> Outcome<MkfsOptions> {
        let now = cores::wall_clock();
        let mut options = MkfsOptions {
            block_size: self.block_size,
            blocks_per_group: self.blocks_per_group,
            flex_groups: self.flex_groups,
            inode_size: self.inode_size,
            inode_ratio: self.inode_ratio,
            inodes: self.inodes,
            reserved_percent: self.reserved,
            label: self.label.clone(),
            last_mounted: self.last_mounted.clone(),
            on_error: match self.on_error.as_str() {
                "remount-ro" => OnError::RemountReadOnly,
                "panic" => OnError::Panic,
                _ => OnError::Continue,
            },
            uuid: match self.uuid.as_deref() {
                None | Some("random" | "time") => random_uuid(),
                Some("clear") => [0; 16],
                Some(uuid) => parse_uuid("-U", uuid)?,
            },
            hash_seed: random_uuid(),
            root_owner: (0, 0),
            force: self.force > 0,
            time: match std::env::var("SOURCE_DATE_EPOCH") {
                Ok(text) => text.parse().map_err(|_| {
                    Failure::Usage(format!("SOURCE_DATE_EPOCH={text}: not seconds"))
                })?,
                Err(_) => now.as_secs(),
            },
            ..MkfsOptions::default()
        };
        let wrong = |error: ext4::Error| Failure::Usage(error.to_string());
        self.usage.iter().try_for_each(|usage| options.set_usage(usage)).map_err(wrong)?;
        for list in &self.features {
            options.features.change(list).map_err(wrong)?;
        }
        self.extended.iter().try_for_each(|list| options.set_extended(list)).map_err(wrong)?;
        self.journal_options
            .iter()
            .try_for_each(|list| options.set_journal(list))
            .map_err(wrong)?;
        options.blocks = self.blocks(options.block_size())?;
        options.check().map_err(wrong)?;
        Ok(options)
    }
}

fn random_uuid() -> [u8; 16] {
    *uuid::Uuid::new_v4().as_bytes()
}

/// A UUID as people write it.
fn uuid_text(uuid: [u8; 16]) -> String {
    uuid::Uuid::from_bytes(uuid).to_string()
}
