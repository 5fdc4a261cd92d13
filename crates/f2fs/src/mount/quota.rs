//! Quota: what each owner, group and project uses, kept in step with every change and written with
//! every checkpoint (`f2fs_quota_sync`), and the limits of those that a mount enforces.
//!
//! Invariant: an id uses as many inodes as it owns, except quota files, and the blocks of these
//! except the inodes themselves, among them inodes without a name that are still open. What can
//! tear: nothing. The blocks of a quota file are written out of place, and a checkpoint makes their
//! new places valid together with the inodes that they count. What roll-forward repeats is counted
//! by the same calls.

use cores::{Mutex, MutexGuard, Rank};
use queue::WriteSet;
use serde_json::{Map, Value, json};
use vfs::file::Write;
use vfs::{Errno, FileKind};

use crate::error::{Error, Result};
use crate::file::writeback::{Cause, WritePages};
use crate::inode::change::Change;
use crate::mount::engine::Engine;
use crate::mount::options::MountOptions;
use crate::ondisk::checkpoint::CpFlags;
use crate::ondisk::inode::RawInode;
use crate::ondisk::quota::{MAX_SIZE, QuotaFile, QuotaType, Usage};
use crate::ondisk::superblock::Features;
use crate::ondisk::{BLOCK_SIZE, Nid};

/// Whom an inode is counted for: owner, group, project.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owner([u32; 3]);

impl Owner {
    /// Whom an inode with these ids is counted for.
    pub(crate) fn new(uid: u32, gid: u32, project: u32) -> Self {
        Self([uid, gid, project])
    }

    /// Whom `inode` is counted for.
    pub(crate) fn of(inode: &RawInode) -> Self {
        Self([inode.uid.get(), inode.gid.get(), inode.projid().unwrap_or(0)])
    }
}

/// What is taken, or given back if negative.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Amount {
    pub(crate) inodes: i64,
    pub(crate) blocks: i64,
}

impl Amount {
    /// One inode, whose own block does not count.
    pub(crate) const INODE: Self = Self { inodes: 1, blocks: 0 };

    /// What an inode is counted as.
    pub(crate) fn of(inode: &RawInode) -> Self {
        Self { inodes: 1, ..Self::blocks(inode.blocks.get().saturating_sub(1)) }
    }

    /// So many blocks.
    pub(crate) fn blocks(count: u64) -> Self {
        Self { inodes: 0, blocks: i64::try_from(count).unwrap_or(i64::MAX) }
    }

    fn negated(self) -> Self {
        Self { inodes: -self.inodes, blocks: -self.blocks }
    }
}

/// The quota files of a volume.
pub(crate) struct Quotas {
    /// Whether there are any.
    pub(crate) is_on: bool,
    /// Which limits count (`usrquota`, `grpquota`, `prjquota`).
    limited: [bool; 3],
    files: Mutex<Files>,
}

/// Those that there are, by type.
struct Files {
    files: [Option<QuotaFile>; 3],
    /// Whether limits count by now: not for what recovery repeats.
    enforced: bool,
    /// Whether usage may no longer be right.
    is_broken: bool,
}

impl Quotas {
    /// None of them so far.
    pub(crate) fn new(options: &MountOptions) -> Self {
        let files = Files { files: [None, None, None], enforced: false, is_broken: false };
        Self {
            is_on: false,
            limited: options.quota_limits,
            files: Mutex::ranked(Rank::Space, "f2fs quotas", files),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Files> {
        self.files.lock()
    }

    /// From now on, limits count.
    pub(crate) fn enforce(&self) {
        self.lock().enforced = true;
    }

    /// Has `file` from now on, whatever the volume says.
    pub(crate) fn install(&mut self, kind: QuotaType, file: QuotaFile) {
        self.files.get_mut().files[kind as usize] = Some(file);
        self.is_on = true;
    }

    /// Takes `amount` for `owner`, or nothing: `EDQUOT`. No limit holds for a privileged caller
    /// (`ignore_hardlimit`).
    pub(crate) fn take(&self, owner: Owner, amount: Amount, now: u64) -> Result<()> {
        if !self.is_on {
            return Ok(());
        }
        let mut files = self.lock();
        if files.limits_hold() {
            files.check(self.limited, owner, amount, now)?;
        }
        files.add(owner, amount, now);
        Ok(())
    }

    /// Gives `amount` of `owner` back.
    pub(crate) fn give(&self, owner: Owner, amount: Amount) {
        if self.is_on {
            self.lock().add(owner, amount.negated(), 0);
        }
    }

    /// Takes `amount` from one owner for another, whose limits count only if `checked`.
    pub(crate) fn transfer(
        &self,
        from: Owner,
        to: Owner,
        amount: Amount,
        now: u64,
        checked: bool,
    ) -> Result<()> {
        if !self.is_on || from == to {
            return Ok(());
        }
        let mut files = self.lock();
        let limited = [0, 1, 2].map(|i| self.limited[i] && from.0[i] != to.0[i]);
        if files.limits_hold() && checked {
            files.check(limited, to, amount, now)?;
        }
        files.add(from, amount.negated(), now);
        files.add(to, amount, now);
        Ok(())
    }

    /// How many blocks of quota files the next checkpoint writes.
    pub(crate) fn changed(&self) -> usize {
        if !self.is_on {
            return 0;
        }
        self.lock().files.iter().flatten().map(QuotaFile::changed).sum()
    }

    /// All ids that use something or have a limit, by type.
    pub(crate) fn report(&self) -> Value {
        let files = self.lock();
        let with_files = QuotaType::ALL.into_iter().zip(&files.files);
        let reports = with_files.filter_map(|(kind, file)| {
            let all = file.as_ref()?.all().map(|(id, usage)| (id.to_string(), in_words(&usage)));
            Some((kind.name().to_owned(), Value::Object(all.collect())))
        });
        Value::Object(reports.collect::<Map<_, _>>())
    }

    /// Sets the limits of `id`.
    pub(crate) fn limit(&self, kind: QuotaType, id: u32, limits: &Usage) -> Result<()> {
        let mut files = self.lock();
        let Some(file) = &mut files.files[kind as usize] else {
            return Err(Error::usage(format!("quota: the volume has no {} quota", kind.name())));
        };
        let Usage { inodes, bytes, block_time, inode_time, .. } = file.get(id);
        file.set(id, &Usage { inodes, bytes, block_time, inode_time, ..*limits })
    }
}

fn in_words(usage: &Usage) -> Value {
    json!({
        "inodes": usage.inodes,
        "inode_soft_limit": usage.inode_soft_limit,
        "inode_hard_limit": usage.inode_hard_limit,
        "kib": usage.bytes / 1024,
        "kib_soft_limit": usage.block_soft_limit,
        "kib_hard_limit": usage.block_hard_limit,
    })
}

/// Whether `value` may grow to that under these limits (`dquot_add_inodes`, `dquot_add_space`).
fn fits(value: u64, soft: u64, hard: u64, time: u64, now: u64) -> bool {
    let over_soft = soft != 0 && value > soft;
    (hard == 0 || value <= hard) && !(over_soft && time != 0 && now >= time)
}

/// When the grace time ends, if `value` is above the soft limit.
fn grace_end(value: u64, soft: u64, time: u64, end: u64) -> u64 {
    match soft != 0 && value > soft {
        true if time == 0 => end,
        true => time,
        false => 0,
    }
}

impl Files {
    /// Whether the limits hold for whom the calling thread works for.
    fn limits_hold(&self) -> bool {
        self.enforced && !cores::caller().is_some_and(cores::Caller::is_privileged)
    }

    fn check(&self, limited: [bool; 3], owner: Owner, amount: Amount, now: u64) -> Result<()> {
        let counted = self.files.iter().zip(owner.0).zip(limited).filter(|(_, limited)| *limited);
        for ((file, id), _) in counted {
            let Some(file) = file else { continue };
            let mut usage = file.get(id);
            add(&mut usage, amount);
            let kib = usage.bytes.div_ceil(1024);
            let (soft, hard) = (usage.block_soft_limit, usage.block_hard_limit);
            let blocks_fit = amount.blocks <= 0 || fits(kib, soft, hard, usage.block_time, now);
            let (soft, hard) = (usage.inode_soft_limit, usage.inode_hard_limit);
            let inodes_fit =
                amount.inodes <= 0 || fits(usage.inodes, soft, hard, usage.inode_time, now);
            if !blocks_fit || !inodes_fit {
                return Err(Errno::DQUOT.into());
            }
        }
        Ok(())
    }

    fn add(&mut self, owner: Owner, amount: Amount, now: u64) {
        for (file, id) in self.files.iter_mut().zip(owner.0) {
            let Some(file) = file else { continue };
            let mut usage = file.get(id);
            add(&mut usage, amount);
            let [block_grace, inode_grace] = file.grace();
            let kib = usage.bytes.div_ceil(1024);
            let (soft, time) = (usage.block_soft_limit, usage.block_time);
            usage.block_time = grace_end(kib, soft, time, now.saturating_add(block_grace));
            let (soft, time) = (usage.inode_soft_limit, usage.inode_time);
            usage.inode_time = grace_end(usage.inodes, soft, time, now.saturating_add(inode_grace));
            self.is_broken |= file.set(id, &usage).is_err();
        }
    }
}

fn add(usage: &mut Usage, amount: Amount) {
    usage.inodes = usage.inodes.saturating_add_signed(amount.inodes);
    let bytes = amount.blocks.saturating_mul(BLOCK_SIZE as i64);
    usage.bytes = usage.bytes.saturating_add_signed(bytes);
}

impl Engine {
    /// Reads the quota files. One that cannot be read is left as it is, for fsck.f2fs to mend.
    pub(crate) fn load_quotas(&mut self) {
        if self.options.read_only || !self.sb.features.contains(Features::QUOTA_INO) {
            return;
        }
        for (kind, ino) in QuotaType::ALL.into_iter().zip(self.sb.quota_inos) {
            if ino == 0 {
                continue;
            }
            match self.read_quota_file(kind, ino) {
                Ok(file) => self.quotas.install(kind, file),
                Err(error) => {
                    self.report(&format!("{error}; its quota is not kept"));
                    self.checkpoint.flags |= CpFlags::QUOTA_NEED_FSCK;
                }
            }
        }
    }

    fn read_quota_file(&mut self, kind: QuotaType, ino: Nid) -> Result<QuotaFile> {
        let inode = self.inode(ino)?;
        let (size, is_file) = (inode.size.get(), inode.file_kind() == FileKind::Regular);
        drop(inode);
        if !is_file || size > MAX_SIZE {
            let found = format!("{size} bytes");
            return Err(Error::corrupt("quota inode", ino, found, "a file of at most 64 MiB"));
        }
        let mut bytes = vec![0; size as usize];
        self.read_file(ino, 0, &mut bytes)?;
        QuotaFile::parse(kind, bytes)
    }

    /// Submits what has changed in quota files. If that fails, the next checkpoint says that they
    /// are to be mended.
    pub(crate) fn write_quotas(&mut self, set: &mut WriteSet) -> Result<()> {
        if !self.quotas.is_on {
            return Ok(());
        }
        for (kind, ino) in QuotaType::ALL.into_iter().zip(self.sb.quota_inos) {
            let changed: Vec<(u64, Vec<u8>)> = match &mut self.quotas.files.get_mut().files
                [kind as usize]
            {
                Some(file) => {
                    file.take_changed().into_iter().map(|(at, data)| (at, data.to_vec())).collect()
                }
                None => continue,
            };
            for (at, data) in changed {
                if self.write_file(ino, Write::new(at, &data)).is_err() {
                    self.quotas.files.get_mut().is_broken = true;
                }
            }
            self.submit_data(ino, Cause::Sync, set)?;
        }
        if std::mem::take(&mut self.quotas.files.get_mut().is_broken) {
            self.report("quota files could not be written; fsck.f2fs mends them");
            self.checkpoint.flags |= CpFlags::QUOTA_NEED_FSCK;
        }
        Ok(())
    }

    /// Counts inode `ino` for `to` from now on.
    pub(crate) fn move_quota(&mut self, ino: Nid, to: Owner, checked: bool) -> Result<()> {
        let Some(from) = self.counted_for(ino)? else { return Ok(()) };
        let amount = Amount::of(&*self.inode(ino)?);
        self.quotas.transfer(from, to, amount, self.quota_time(), checked)
    }

    /// Whether `ino` is a quota file, which no quota counts.
    pub(crate) fn is_quota_file(&self, ino: Nid) -> bool {
        self.quotas.is_on && self.sb.quota_inos.contains(&ino)
    }

    /// The time by which grace times are counted, in seconds.
    pub(crate) fn quota_time(&self) -> u64 {
        self.clock.now().secs.cast_unsigned()
    }
}
