//! Mount options, under their names in `mount -t ext4 -o …`, and those of this engine.

use std::fmt;
use std::str::FromStr;

use cores::Nanos;
use journal::ondisk::areas::areas_max;
use journal::policy::{Areas, FAST, GROUPED, IJOURNAL, JBD2, NONE, ZGROUPED, ZJOURNAL};
use journal::{BatchTime, Policy};
use vfs::RootReserve;
use vfs::options::{BlockLayer, Options, fault_names, put, put_number, set_faults, show_some};

use crate::error::Error;
use crate::mount::inject::Inject;
use crate::mount::linux_options::{has_no_effect, in_our_words};
use crate::ondisk::superblock::Superblock;

pub(super) const SECOND: Nanos = 1_000_000_000;
/// Shortest `commit=`.
const COMMIT_MIN: Nanos = SECOND / 10_000;
/// Blocks of the smallest area: an operation may change 64.
const AREA_MIN: u32 = 256;
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
    /// `inject=NAME[+NAME…]`: deliberate faults, each of which breaks one promise, of the journal
    /// and above it.
    pub inject: (journal::Inject, Inject),
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
            inject: (journal::Inject::empty(), Inject::empty()),
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
}

impl MountOptions {
    /// Whether there is an option of this name.
    pub(crate) fn has(name: &str) -> bool {
        OPTIONS.has(name)
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
        let (areas, inject) = (self.areas, self.inject.0);
        let (record_csum, counts_as_linux) = (self.record_csum, self.linux.is_some());
        let default = journal::Options::default();
        let batch = Some(self.batch).filter(|batch| batch.max > 0);
        journal::Options {
            policy,
            areas,
            area_min: AREA_MIN,
            record_csum,
            batch,
            counts_as_linux,
            inject,
            ..default
        }
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

/// Where new inodes and blocks go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alloc {
    /// Inodes beside their directory, directories of the root apart, blocks beside their inode
    /// (`find_group_orlov`).
    Orlov,
    /// To groups that only the calling core uses: the "low sharing" of the study of Z-Journal.
    PerCore,
}

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
}

type Row<V> = vfs::options::Row<MountOptions, V>;

const OPTIONS: Options<MountOptions> = Options {
    of: "ext4",
    table: &[
        &Row::words(&[("ro", true), ("rw", false)], |o| &mut o.read_only).shown_if(|_| true),
        &Row::words(&[("noload", true), ("norecovery", true)], |o| &mut o.no_load),
        &Row::one_of("data", MODES, |o| &mut o.data).shown_if(|o| o.data.is_some()),
        &Row::one_of("journal", POLICIES, |o| &mut o.policy).shown_if(|o| o.policy.is_some()),
        &Row::text("areas", "N", set_areas, u16::to_string, |o| &mut o.areas)
            .shown_if(|o| o.areas > 0 && o.policy.is_some_and(|how| how.areas == Areas::PerCore)),
        &Row::words(&[("record_csum", true)], |o| &mut o.record_csum),
        &Row::text("commit", "SECONDS", set_commit, show_commit, |o| &mut o.commit),
        &Row::text("min_batch_time", "USEC", set_micros, micros, |o| &mut o.batch.min),
        &Row::one_of("linux", &[("4.14", Some(Linux::V4_14)), ("6.1", Some(Linux::V6_1))], |o| {
            &mut o.linux
        })
        .implying(|o| {
            o.dioread_lock = o.linux == Some(Linux::V4_14);
            o.batch.max = 0;
        }),
        &Row::text("max_batch_time", "USEC", set_micros, micros, |o| &mut o.batch.max),
        &Row::words(&[("dioread_lock", true), ("dioread_nolock", false)], |o| &mut o.dioread_lock),
        &Row::one_of("alloc", &[("orlov", Alloc::Orlov), ("percore", Alloc::PerCore)], |o| {
            &mut o.alloc
        }),
        &Row::words(&[("auto_da_alloc", true), ("noauto_da_alloc", false)], |o| {
            &mut o.auto_da_alloc
        }),
        &Row::words(GRPID, |o| &mut o.grpid),
        &Row::text("resuid", "UID", set_id, show_some, |o| &mut o.reserved_for.0),
        &Row::text("resgid", "GID", set_id, show_some, |o| &mut o.reserved_for.1),
        &Row::words(&[("discard", true), ("nodiscard", false)], |o| &mut o.discard),
        &Row::one_of("errors", ERRORS, |o| &mut o.errors),
        &Row::cache(|o| &mut o.cache_bytes),
        &BlockLayer,
        &Row::text("inject", "NAME[+NAME...]", set_inject, show_inject, |o| &mut o.inject),
    ],
};

const MODES: &[(&str, Option<DataMode>)] = &[
    ("ordered", Some(DataMode::Ordered)),
    ("writeback", Some(DataMode::Writeback)),
    ("journal", Some(DataMode::Journal)),
];

const POLICIES: &[(&str, Option<&Policy>)] = &[
    ("jbd2", Some(&JBD2)),
    ("fast", Some(&FAST)),
    ("ijournal", Some(&IJOURNAL)),
    ("grouped", Some(&GROUPED)),
    ("none", Some(&NONE)),
    ("zjournal", Some(&ZJOURNAL)),
    ("zgrouped", Some(&ZGROUPED)),
];

const GRPID: &[(&str, Option<bool>)] = &[
    ("grpid", Some(true)),
    ("bsdgroups", Some(true)),
    ("nogrpid", Some(false)),
    ("sysvgroups", Some(false)),
];

const ERRORS: &[(&str, Option<OnError>)] = &[
    ("continue", Some(OnError::Continue)),
    ("remount-ro", Some(OnError::RemountRo)),
    ("panic", Some(OnError::Panic)),
];

fn set_areas(to: &mut u16, text: &str) -> Result<(), String> {
    put_number(to, text, 1..=MAX_AREAS, format_args!("1 to {MAX_AREAS}"))
}

fn set_commit(to: &mut Nanos, text: &str) -> Result<(), String> {
    let seconds = text.parse().ok().map(std::time::Duration::try_from_secs_f64);
    let nanos = seconds.and_then(|seconds| seconds.ok()?.as_nanos().try_into().ok());
    let nanos = match nanos {
        // The kernel's way to ask for the default.
        Some(0) => Some(MountOptions::default().commit),
        nanos => nanos.filter(|nanos| *nanos >= COMMIT_MIN),
    };
    put(to, nanos, "seconds, at least 0.0001")
}

fn show_commit(commit: &Nanos) -> String {
    (*commit as f64 / SECOND as f64).to_string()
}

fn set_id(to: &mut Option<u32>, text: &str) -> Result<(), String> {
    put(to, text.parse().ok().map(Some), "a number")
}

/// As many microseconds as a C `int` holds, as in the kernel.
fn set_micros(to: &mut Nanos, text: &str) -> Result<(), String> {
    let micros = text.parse::<u32>().ok().filter(|micros| *micros <= i32::MAX as u32);
    let nanos = micros.map(|micros| Nanos::from(micros) * 1000);
    put(to, nanos, "microseconds, at most 2147483647")
}

fn micros(nanos: &Nanos) -> String {
    (nanos / 1000).to_string()
}

type Faults = (journal::Inject, Inject);

fn set_inject(to: &mut Faults, names: &str) -> Result<(), String> {
    let names = names.to_lowercase().replace('_', "-");
    match names.split('+').all(|name| set_faults(&mut to.0, name) || set_faults(&mut to.1, name)) {
        true => Ok(()),
        false => Err(all_faults().join(", ")),
    }
}

fn show_inject((journal, above): &Faults) -> String {
    [fault_names(journal), fault_names(above)].concat().join("+")
}

/// All that the option `inject` takes.
pub(super) fn all_faults() -> Vec<String> {
    [fault_names(&journal::Inject::all()), fault_names(&Inject::all())].concat()
}

impl FromStr for MountOptions {
    type Err = Error;

    fn from_str(list: &str) -> Result<Self, Error> {
        let mut options = Self::default();
        let ours = list.split(',').filter(|given| !has_no_effect(given)).map(in_our_words);
        OPTIONS.set_list(&mut options, &ours.collect::<Vec<_>>().join(","))?;
        if options.no_load && !options.read_only {
            return Err(Error::usage("noload (norecovery): only together with ro"));
        }
        Ok(options)
    }
}

/// As the kernel would show them in `/proc/mounts`.
impl fmt::Display for MountOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.read_only {
            // What it will be written with, once it is remounted, as far as that was given.
            return f.write_str(&OPTIONS.show(self));
        }
        // What the superblock would say is not known here.
        let data = self.data.or(Some(DataMode::Ordered));
        let policy = self.policy.or(Some(&JBD2));
        f.write_str(&OPTIONS.show(&Self { data, policy, ..self.clone() }))
    }
}

#[cfg(test)]
mod tests;
