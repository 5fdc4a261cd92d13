//! Mount options, under their names in `mount -t ext4 -o …`, and those of this engine.

use std::fmt;
use std::str::FromStr;

use cores::Nanos;
use journal::ondisk::areas::areas_max;
use journal::policy::{Areas, FAST, GROUPED, IJOURNAL, JBD2, NONE, ZGROUPED, ZJOURNAL};
use journal::{BatchTime, Policy};
use vfs::RootReserve;
use vfs::options::{
    Choice, MountOption, Options, Value, block_layer, parse_size, show_block_layer,
};

use crate::error::Error;
use crate::mount::inject::{Inject, NAMES};
use crate::mount::linux_options::{has_no_effect, in_our_words};
use crate::ondisk::superblock::Superblock;

/// Smallest page cache that still holds all pages of one operation.
const CACHE_BYTES_MIN: u64 = 1 << 20;
pub(super) const SECOND: Nanos = 1_000_000_000;
/// Shortest `commit=`.
const COMMIT_MIN: Nanos = SECOND / 10_000;
/// Most areas that a journal is divided into.
const MAX_AREAS: u16 = areas_max(drive::BLOCK_SIZE) as u16;

/// How a volume is mounted.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// `ro`: nothing is written.
    pub read_only: bool,
    /// `noload`: the journal is not replayed, with `ro` only.
    pub no_load: bool,
    /// `data=`: how contents are ordered with what says where they are; `None` for what the
    /// superblock says.
    pub data: Option<DataMode>,
    /// `journal=`: what an fsync closes and waits for; `None` for what the volume is made for: fast
    /// commits if it has room for them, or else the transaction.
    pub policy: Option<&'static Policy>,
    /// `areas=N`: logs of `journal=zjournal` and `zgrouped`; 0 for one a core.
    pub areas: u16,
    /// `cache=BYTES` (with k, m, g): page cache limit.
    pub cache_bytes: u64,
    /// `commit=SECONDS`: how old changes may become before they are durable. Fractions are for
    /// virtual machines, where five seconds are long.
    pub commit: Nanos,
    /// `min_batch_time=`, `max_batch_time=` (microseconds): how long an fsync waits for those of
    /// other threads to share a commit with; `max_batch_time=0`: not at all.
    pub batch: BatchTime,
    /// `linux=`: which kernel's ways of starting transactions, if not our own.
    pub linux: Option<Linux>,
    /// `dioread_lock`: `data=ordered` gives pages blocks before these have their contents, and the
    /// commit waits for those, as before Linux 5.6. Otherwise blocks are mapped once the drive has
    /// their contents.
    pub dioread_lock: bool,
    /// `record_csum`: records have checksums of their files' data, and go to the drive together
    /// with it: an fsync needs one flush.
    pub record_csum: bool,
    /// `alloc=`: where new inodes and blocks go.
    pub alloc: Alloc,
    /// `auto_da_alloc`: what replaces a file, by rename or after a truncation, has its blocks
    /// before the old contents are gone.
    pub auto_da_alloc: bool,
    /// `grpid`: what is made in a directory belongs to its group; `None` for what the superblock
    /// says.
    pub grpid: Option<bool>,
    /// `resuid=`, `resgid=`: who may have the blocks that are kept for root; `None` for what the
    /// superblock says.
    pub reserved_for: (Option<u32>, Option<u32>),
    /// `discard`: the drive is told what a commit has freed.
    pub discard: bool,
    /// `errors=`: what corruption does; `None` for what the superblock says.
    pub errors: Option<OnError>,
    /// The block layer.
    pub queue: queue::Options,
    /// `inject=NAME[+NAME…]`: deliberate faults, each of which breaks one promise.
    pub inject: journal::Inject,
    /// The same, above the journal.
    pub mistakes: Inject,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            no_load: false,
            data: None,
            policy: None,
            areas: 0,
            cache_bytes: 256 << 20,
            commit: 5 * SECOND,
            batch: BatchTime { min: 0, max: 15 * SECOND / 1000 },
            linux: None,
            dioread_lock: false,
            record_csum: false,
            alloc: Alloc::Orlov,
            auto_da_alloc: true,
            grpid: None,
            reserved_for: (None, None),
            discard: false,
            errors: None,
            queue: queue::Options::default(),
            inject: journal::Inject::empty(),
            mistakes: Inject::empty(),
        }
    }
}

/// How a file's contents are ordered with what says where they are (`data=`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataMode {
    /// Not at all: after a power cut, blocks that no fsync waited for may have what was there
    /// before.
    Writeback,
    /// Contents come first: a file never shows what was not written to it.
    Ordered,
    /// They are in the journal, too: a block is old or new as a whole.
    Journal,
}

impl DataMode {
    /// What the superblock's `s_default_mount_opts` says (`EXT4_DEFM_JMODE`).
    pub(crate) fn of(stored: u32) -> Self {
        match stored & 0x60 {
            0x20 => Self::Journal,
            0x60 => Self::Writeback,
            _ => Self::Ordered,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Writeback => "writeback",
            Self::Ordered => "ordered",
            Self::Journal => "journal",
        }
    }
}

const MODES: [Choice<MountOptions>; 3] = [
    Choice { name: "ordered", set: |o| o.data = Some(DataMode::Ordered) },
    Choice { name: "writeback", set: |o| o.data = Some(DataMode::Writeback) },
    Choice { name: "journal", set: |o| o.data = Some(DataMode::Journal) },
];

impl MountOptions {
    /// Whether there is an option of this name.
    pub(crate) fn has(name: &str) -> bool {
        OPTIONS.table.iter().chain(OPTIONS.block_layer).any(|option| option.name == name)
    }

    /// Blocks that not everyone gets on this volume.
    pub(crate) fn reserve(&self, sb: &Superblock) -> RootReserve {
        let (uid, gid) = self.reserved_for;
        RootReserve {
            blocks: sb.raw.r_blocks_count(),
            uid: uid.unwrap_or(sb.raw.def_resuid.get().into()),
            gid: gid.unwrap_or(sb.raw.def_resgid.get().into()),
        }
    }

    /// How the journal works, with this policy.
    pub(crate) fn journal(&self, policy: &'static Policy) -> journal::Options {
        let (areas, inject) = (self.areas, self.inject);
        let (record_csum, counts_as_linux) = (self.record_csum, self.linux.is_some());
        let default = journal::Options::default();
        let batch = Some(self.batch).filter(|batch| batch.max > 0);
        journal::Options { policy, areas, record_csum, batch, counts_as_linux, inject, ..default }
    }
}

impl AsMut<queue::Options> for MountOptions {
    fn as_mut(&mut self) -> &mut queue::Options {
        &mut self.queue
    }
}

/// A kernel whose ways of starting transactions are taken, for comparisons: handles are counted in
/// lines that all cores share ([`journal::Options::counts_as_linux`]), an fsync commits at once
/// (`max_batch_time=0`: `jbd2_complete_transaction`), and 4.14 has `dioread_lock`, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linux {
    /// Each page that is written starts a transaction's handle, and logs the inode with its times
    /// (`ext4_da_write_begin` before 5.15, cc883236b792; `ext4_dirty_inode`).
    V4_14,
    /// Each page by which a write makes its file longer starts one (`ext4_dirty_inode`); an
    /// overwrite of pages in memory starts none.
    V6_1,
}

const LINUX: [Choice<MountOptions>; 2] = [
    Choice { name: "4.14", set: |o| set_linux(o, Linux::V4_14) },
    Choice { name: "6.1", set: |o| set_linux(o, Linux::V6_1) },
];

fn set_linux(options: &mut MountOptions, linux: Linux) {
    options.linux = Some(linux);
    options.dioread_lock = linux == Linux::V4_14;
    options.batch.max = 0;
}

/// Where new inodes and blocks go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alloc {
    /// Inodes beside their directory, directories of the root apart, blocks beside their inode
    /// (`find_group_orlov`).
    Orlov,
    /// To groups that only the calling core uses: the "low sharing" of the study of Z-Journal.
    PerCore,
}

const ALLOC: [Choice<MountOptions>; 2] = [
    Choice { name: "orlov", set: |o| o.alloc = Alloc::Orlov },
    Choice { name: "percore", set: |o| o.alloc = Alloc::PerCore },
];

/// What a structure that is corrupt does to the volume (`s_errors`). A journal that was aborted
/// always ends writing, as in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// The call fails, and nothing else changes.
    Continue,
    /// Nothing is written any more.
    RemountRo,
    /// The process ends.
    Panic,
}

impl OnError {
    /// What the superblock's `s_errors` says.
    pub(crate) fn of(stored: u16) -> Self {
        match stored {
            2 => Self::RemountRo,
            3 => Self::Panic,
            _ => Self::Continue,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Continue => "continue",
            Self::RemountRo => "remount-ro",
            Self::Panic => "panic",
        }
    }
}

const ERRORS: [Choice<MountOptions>; 3] = [
    Choice { name: "continue", set: |o| o.errors = Some(OnError::Continue) },
    Choice { name: "remount-ro", set: |o| o.errors = Some(OnError::RemountRo) },
    Choice { name: "panic", set: |o| o.errors = Some(OnError::Panic) },
];

const POLICIES: [Choice<MountOptions>; 7] = [
    Choice { name: "jbd2", set: |o| o.policy = Some(&JBD2) },
    Choice { name: "fast", set: |o| o.policy = Some(&FAST) },
    Choice { name: "ijournal", set: |o| o.policy = Some(&IJOURNAL) },
    Choice { name: "grouped", set: |o| o.policy = Some(&GROUPED) },
    Choice { name: "none", set: |o| o.policy = Some(&NONE) },
    Choice { name: "zjournal", set: |o| o.policy = Some(&ZJOURNAL) },
    Choice { name: "zgrouped", set: |o| o.policy = Some(&ZGROUPED) },
];

const OPTIONS: Options<MountOptions> = Options {
    of: "ext4",
    table: &[
        MountOption { name: "ro", value: Value::None { set: |o| o.read_only = true } },
        MountOption { name: "rw", value: Value::None { set: |o| o.read_only = false } },
        MountOption { name: "noload", value: Value::None { set: |o| o.no_load = true } },
        MountOption { name: "norecovery", value: Value::None { set: |o| o.no_load = true } },
        MountOption { name: "data", value: Value::OneOf(&MODES) },
        MountOption { name: "journal", value: Value::OneOf(&POLICIES) },
        MountOption {
            name: "auto_da_alloc",
            value: Value::None { set: |o| o.auto_da_alloc = true },
        },
        MountOption {
            name: "noauto_da_alloc",
            value: Value::None { set: |o| o.auto_da_alloc = false },
        },
        MountOption { name: "grpid", value: Value::None { set: |o| o.grpid = Some(true) } },
        MountOption { name: "bsdgroups", value: Value::None { set: |o| o.grpid = Some(true) } },
        MountOption { name: "nogrpid", value: Value::None { set: |o| o.grpid = Some(false) } },
        MountOption { name: "sysvgroups", value: Value::None { set: |o| o.grpid = Some(false) } },
        MountOption { name: "resuid", value: Value::Text { form: "UID", set: set_resuid } },
        MountOption { name: "resgid", value: Value::Text { form: "GID", set: set_resgid } },
        MountOption { name: "discard", value: Value::None { set: |o| o.discard = true } },
        MountOption { name: "nodiscard", value: Value::None { set: |o| o.discard = false } },
        MountOption { name: "errors", value: Value::OneOf(&ERRORS) },
        MountOption { name: "linux", value: Value::OneOf(&LINUX) },
        MountOption { name: "dioread_lock", value: Value::None { set: |o| o.dioread_lock = true } },
        MountOption {
            name: "dioread_nolock",
            value: Value::None { set: |o| o.dioread_lock = false },
        },
        MountOption { name: "record_csum", value: Value::None { set: |o| o.record_csum = true } },
        MountOption { name: "alloc", value: Value::OneOf(&ALLOC) },
        MountOption { name: "areas", value: Value::Text { form: "N", set: set_areas } },
        MountOption { name: "cache", value: Value::Text { form: "BYTES", set: set_cache } },
        MountOption { name: "commit", value: Value::Text { form: "SECONDS", set: set_commit } },
        MountOption {
            name: "min_batch_time",
            value: Value::Text { form: "USEC", set: set_batch_min },
        },
        MountOption {
            name: "max_batch_time",
            value: Value::Text { form: "USEC", set: set_batch_max },
        },
        MountOption {
            name: "inject",
            value: Value::Text { form: "NAME[+NAME...]", set: set_inject },
        },
    ],
    block_layer: block_layer(),
};

fn set_cache(options: &mut MountOptions, text: &str) -> Result<(), String> {
    let bytes = parse_size(text).filter(|bytes| *bytes >= CACHE_BYTES_MIN);
    options.cache_bytes = bytes.ok_or("at least 1m, with k, m or g")?;
    Ok(())
}

fn set_areas(options: &mut MountOptions, text: &str) -> Result<(), String> {
    let areas = text.parse().ok().filter(|areas| (1..=MAX_AREAS).contains(areas));
    options.areas = areas.ok_or_else(|| format!("1 to {MAX_AREAS}"))?;
    Ok(())
}

fn set_commit(options: &mut MountOptions, text: &str) -> Result<(), String> {
    let seconds = text.parse().ok().map(std::time::Duration::try_from_secs_f64);
    let nanos = seconds.and_then(|seconds| seconds.ok()?.as_nanos().try_into().ok());
    let nanos = match nanos {
        // The kernel's way to ask for the default.
        Some(0) => Some(MountOptions::default().commit),
        nanos => nanos.filter(|nanos| *nanos >= COMMIT_MIN),
    };
    options.commit = nanos.ok_or("seconds, at least 0.0001")?;
    Ok(())
}

fn set_resuid(options: &mut MountOptions, text: &str) -> Result<(), String> {
    options.reserved_for.0 = Some(text.parse().map_err(|_| "a number")?);
    Ok(())
}

fn set_resgid(options: &mut MountOptions, text: &str) -> Result<(), String> {
    options.reserved_for.1 = Some(text.parse().map_err(|_| "a number")?);
    Ok(())
}

fn set_batch_min(options: &mut MountOptions, text: &str) -> Result<(), String> {
    options.batch.min = micros(text)?;
    Ok(())
}

fn set_batch_max(options: &mut MountOptions, text: &str) -> Result<(), String> {
    options.batch.max = micros(text)?;
    Ok(())
}

/// As many microseconds as a C `int` holds, as in the kernel.
fn micros(text: &str) -> Result<Nanos, String> {
    let micros = text.parse::<u32>().ok().filter(|micros| *micros <= i32::MAX as u32);
    Ok(Nanos::from(micros.ok_or("microseconds, at most 2147483647")?) * 1000)
}

fn set_inject(options: &mut MountOptions, names: &str) -> Result<(), String> {
    for name in names.split('+') {
        let flag = name.to_uppercase().replace('-', "_");
        if let Some(mistake) = Inject::from_name(&flag) {
            options.mistakes |= mistake;
            continue;
        }
        let fault = journal::Inject::from_name(&flag);
        options.inject |= fault.ok_or_else(|| NAMES.join(", "))?;
    }
    Ok(())
}

/// Names of faults, as the option has them.
fn faults(journal: journal::Inject, above: Inject) -> Vec<String> {
    let names = journal.iter_names().map(|(name, _)| name);
    let names = names.chain(above.iter_names().map(|(name, _)| name));
    names.map(|name| name.to_lowercase().replace('_', "-")).collect()
}

impl FromStr for MountOptions {
    type Err = Error;

    fn from_str(list: &str) -> Result<Self, Error> {
        let mut options = Self::default();
        let ours = list.split(',').filter(|given| !has_no_effect(given)).map(in_our_words);
        OPTIONS.set_list(&mut options, &ours.collect::<Vec<_>>().join(","))?;
        if options.no_load && !options.read_only {
            return Err(Error::usage("noload: only together with ro"));
        }
        Ok(options)
    }
}

/// As the kernel would show them in `/proc/mounts`.
impl fmt::Display for MountOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = Self::default();
        if self.read_only {
            return f.write_str(if self.no_load { "ro,noload" } else { "ro" });
        }
        let data = self.data.unwrap_or(DataMode::Ordered).name();
        let policy = self.policy.unwrap_or(&JBD2);
        write!(f, "rw,data={data},journal={}", policy.name)?;
        if self.areas != default.areas && policy.areas == Areas::PerCore {
            write!(f, ",areas={}", self.areas)?;
        }
        if self.record_csum {
            f.write_str(",record_csum")?;
        }
        if self.commit != default.commit {
            write!(f, ",commit={}", self.commit as f64 / SECOND as f64)?;
        }
        if self.batch.min != default.batch.min {
            write!(f, ",min_batch_time={}", self.batch.min / 1000)?;
        }
        match self.linux {
            Some(Linux::V4_14) => f.write_str(",linux=4.14")?,
            Some(Linux::V6_1) => f.write_str(",linux=6.1")?,
            None => {}
        }
        let batch_max = if self.linux.is_some() { 0 } else { default.batch.max };
        if self.batch.max != batch_max {
            write!(f, ",max_batch_time={}", self.batch.max / 1000)?;
        }
        match (self.linux == Some(Linux::V4_14), self.dioread_lock) {
            (false, true) => f.write_str(",dioread_lock")?,
            (true, false) => f.write_str(",dioread_nolock")?,
            _ => {}
        }
        if self.alloc != default.alloc {
            f.write_str(",alloc=percore")?;
        }
        if !self.auto_da_alloc {
            f.write_str(",noauto_da_alloc")?;
        }
        match self.grpid {
            Some(true) => f.write_str(",grpid")?,
            Some(false) => f.write_str(",nogrpid")?,
            None => {}
        }
        if let Some(uid) = self.reserved_for.0 {
            write!(f, ",resuid={uid}")?;
        }
        if let Some(gid) = self.reserved_for.1 {
            write!(f, ",resgid={gid}")?;
        }
        if self.discard {
            f.write_str(",discard")?;
        }
        if let Some(errors) = self.errors {
            write!(f, ",errors={}", errors.name())?;
        }
        if self.cache_bytes != default.cache_bytes {
            write!(f, ",cache={}", self.cache_bytes)?;
        }
        show_block_layer(&self.queue).fmt(f)?;
        let faults = faults(self.inject, self.mistakes);
        if faults.is_empty() { Ok(()) } else { write!(f, ",inject={}", faults.join("+")) }
    }
}

#[cfg(test)]
mod tests;
