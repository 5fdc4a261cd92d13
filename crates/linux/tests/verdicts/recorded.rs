//! Runs of the kernel that `dm-log-writes` records, and what a loss of power would have left of
//! them.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use linux::{Guest, Output, WriteLog};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use vfs::ops::{Op, print};

use crate::AGENT;
use crate::verdict::{Batch, copy};
use crate::volumes::{MIB, copy_slot, copy_sparse, sparse};

const LOG_MIB: u64 = 512;

/// Which runs: the first `usual` ones, or what `STRANDLINE_RUNS` says, a number of runs or a range
/// such as `20..24`, which a batch that failed can be judged with again.
pub(crate) fn runs(usual: u64) -> Range<u64> {
    let number = |text: &str| text.parse().expect("a number of runs, or FIRST..END");
    match std::env::var("STRANDLINE_RUNS") {
        Ok(asked) => match asked.split_once("..") {
            Some((first, end)) => number(first)..number(end),
            None => 0..number(&asked),
        },
        Err(_) => 0..usual,
    }
}

/// The [`runs`], in ranges of `usual` ones, which are judged at once.
pub(crate) fn shares(usual: u64) -> impl Iterator<Item = Range<u64>> {
    let all = runs(usual);
    let first = all.clone().step_by(usual as usize);
    first.map(move |first| first..all.end.min(first + usual))
}

/// What the kernel is to do on one volume.
pub(crate) struct Run {
    /// The volume before, in a file; it stays as it is.
    pub base: PathBuf,
    /// Mount options.
    pub options: String,
    pub ops: Vec<Op>,
}

/// Has the kernel do all `runs`, and adds `cuts` crashes of each to `batch`. At the end of a run,
/// the guest puts what the command `look` prints in `/host/look-N`.
pub(crate) fn record(batch: &mut Batch, runs: &[Run], cuts: u64, look: &str) -> Output {
    let log = sparse(batch.dir().join("log"), runs.len() as u64 * LOG_MIB * MIB);
    let out = run_all(batch, runs, &log, look);
    let mut from = 0;
    for (number, run) in (0..).zip(runs) {
        let one = sparse(batch.dir().join("one-log"), LOG_MIB * MIB);
        copy_slot(&log, from, &one, LOG_MIB * MIB);
        from += LOG_MIB * MIB;
        cut(batch, number, run, &WriteLog::open(&one).unwrap(), cuts);
    }
    out
}

fn run_all(batch: &Batch, runs: &[Run], log: &Path, look: &str) -> Output {
    let bytes = batch.mib() * MIB;
    let disk = sparse(batch.dir().join("disk"), runs.len() as u64 * bytes);
    let file = File::options().write(true).open(&disk).unwrap();
    let mut guest = Guest::new().timeout(900).drive(&disk).drive(log).program(Path::new(AGENT));
    let mut script = String::from("set -e\nexport DM_DISABLE_UDEV=1\nmodprobe dm-log-writes\n");
    let (fs, sectors, log_sectors) = (batch.format().name(), bytes / 512, LOG_MIB * 2048);
    for (number, Run { base, options, ops }) in (0..).zip(runs) {
        copy_sparse(base, &file, number * bytes).unwrap();
        guest = guest.file(&format!("ops-{number}"), print(ops));
        let (start, log_start) = (number * sectors, number * log_sectors);
        script += &format!(
            "dmsetup create disk --table '0 {sectors} linear /dev/vda {start}'
            dmsetup create log --table '0 {log_sectors} linear /dev/vdb {log_start}'
            dmsetup create run --table '0 {sectors} log-writes /dev/mapper/disk /dev/mapper/log'
            mount -t {fs} -o {options} /dev/mapper/run /mnt
            strandline-agent apply /mnt /host/ops-{number}
            {look} >/host/look-{number}
            umount /mnt
            dmsetup remove run && dmsetup remove disk && dmsetup remove log\n"
        );
    }
    let out = guest.run(&script);
    out.success();
    out
}

/// Half of them lose what a volatile cache may lose.
fn cut(batch: &mut Batch, number: u64, run: &Run, log: &WriteLog, cuts: u64) {
    assert!(log.len() > 100, "run {number} wrote {} times", log.len());
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(number);
    for cut in 0..cuts {
        let count = chance.random_range(1..=log.len());
        let lost = (cut % 2 == 1).then_some(cut);
        let (options, of) = (&run.options, log.len());
        let name = format!("run {number}, {options}, {count} of {of} writes, lost {lost:?}");
        let crash = batch.add(name);
        copy(&run.base, &crash, batch.mib());
        log.replay(count, lost, &File::options().write(true).open(&crash).unwrap()).unwrap();
    }
}
