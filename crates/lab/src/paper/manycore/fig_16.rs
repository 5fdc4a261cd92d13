//! Figure 16 and Table 4: direct random reads of one file, where F2FS took a lock around handing a
//! read to the block layer.
//!
//! The lock is the inode's, an rwsem taken for writing: `do_blockdev_direct_IO` with `DIO_LOCKING`
//! took it for reads too and kept it until they were submitted. Waiters spin in `osq_lock`, in
//! line, except the first, which watches the holder. The study's change, and ext4, take none.
//!
//! The load is fio's as in Figure 14, on jobs that the kernel spreads over the sockets. The drive
//! is NVMeVirt's Samsung 970 PRO, whose 16 dies do 447,000 reads of 35.76 us a second; the data
//! sheet of the study's 960 Pro says 440,000.
//!
//! Two costs are inputs, chosen so that 8 jobs with the lock are the study's: [`WITHIN`] for its
//! rate, [`OUTSIDE`] for its share of CPU. What 15 jobs do, and all without the lock, follows. Of
//! the fall to 150.6 KIOPS less than half does. It is not the queue of waiters that makes it, for a
//! queued lock changes hands at about the same cost however many wait, but that 15 cores share 8
//! hardware queues, whose data moves between sockets under the inode's lock. With the profile's 4
//! lines per lock, 15 jobs do 234 KIOPS, with none 278, with 16 158; 8 jobs the same each time.

use std::collections::VecDeque;
use std::sync::Arc;

use cores::{Mutex, Nanos, Stage};
use drive::{Command, Spec, Ssd, Timing};
use queue::{BlockQueue, Linux, Options};

use super::fig_14::{MACHINE, UNDER_WAY, reap};
use super::{Kind, Row, fig_17};
use crate::workload::Rng;
use crate::{Error, Result, machine_named, now_ns};

/// The 970 PRO with the queues that Linux gives the 960 Pro.
const DRIVE: &str = "conventional-noplp:queues=8:queue_depth=1023";

/// Sockets over which jobs are spread, and cores of each.
const SOCKETS: u64 = 8;
const OF_SOCKET: u64 = 15;

/// What a read costs between lock and unlock, besides looking up its block and its way through the
/// block layer: `bio`, pages, `dio`. Input: with it 8 jobs do 287.6 KIOPS.
const WITHIN: Nanos = 1_700;
/// What a read costs a job besides system calls: fio, libaio, interrupts. Input: with it the share
/// of `osq_lock` at 8 jobs is 54.2%.
const OUTSIDE: Nanos = 4_300;

const BLOCKS: u64 = 16 << 10;
const READS: u64 = 1_500;
const LOCK: &str = "inode rwsem";

/// What came out of one run.
#[derive(Clone, Copy)]
struct Found {
    kiops: f64,
    /// Percent of CPU time.
    osq_lock: f64,
}

pub(super) fn run(seed: u64) -> Result<Vec<Row>> {
    let at = |jobs, locked| found(jobs, locked, seed);
    let mut rows = Vec::new();
    let (eight, fifteen) = (at(8, true)?, at(15, true)?);
    let kiops = |kind, what: &str, paper: &str, ours| Row::new(kind, what, paper, ours, "KIOPS");
    let share = |kind, what: &str, paper: &str, ours| Row::new(kind, what, paper, ours, "%");
    use Kind::{Consequence, Input};
    rows.push(kiops(Input, "locked, 8 jobs", "287.6", eight.kiops).near(287.6, 0.25));
    rows.push(kiops(Consequence, "locked, 15 jobs", "150.6", fifteen.kiops).near(150.6, 0.25));
    let (of_eight, of_fifteen) = (eight.osq_lock, fifteen.osq_lock);
    rows.push(share(Input, "osq_lock, 8 jobs", "54.2", of_eight).within(44.2, 64.2));
    rows.push(share(Consequence, "osq_lock, 15 jobs", "72.1", of_fifteen).within(62.1, 82.1));
    let mut most = 0.0;
    for jobs in [1, 4, 15, 30] {
        let free = at(jobs, false)?.kiops;
        most = f64::max(most, free);
        rows.push(kiops(Consequence, &format!("no lock, {jobs} jobs"), "", free));
    }
    let free = at(8, false)?.kiops;
    rows.push(kiops(Consequence, "no lock, 8 jobs", "full speed", free).near(most, 0.10));
    Ok(rows)
}

fn found(jobs: u64, locked: bool, seed: u64) -> Result<Found> {
    machine_named(MACHINE, seed)?.run(|| {
        let spec = Spec::named(DRIVE).map_err(|e| Error::Usage(e.to_string()))?;
        let drive = Ssd::new(spec.blocks(BLOCKS), Timing::Virtual, seed);
        let drive = drive.map_err(|e| Error::Usage(e.to_string()))?;
        fig_17::fill(&drive, BLOCKS)?;
        let options = Options { linux: Linux::V4, ..Options::default() };
        let queue = Arc::new(BlockQueue::with(drive, options));
        // Protects nothing here; F2FS's keeps truncation away.
        let inode = Arc::new(Mutex::named(LOCK, ()));
        cores::lockstat::start();
        let begun = now_ns();
        let spawn = |job: u64| {
            let (queue, inode, chance) = (queue.clone(), inode.clone(), Rng::new(seed, job));
            let core = job % SOCKETS * OF_SOCKET + job / SOCKETS;
            let read = move || read(&queue, locked.then_some(&*inode), chance);
            cores::spawn("fio", Some(core as usize), read)
        };
        let threads: Vec<_> = (0..jobs).map(spawn).collect();
        threads.into_iter().try_for_each(cores::JoinHandle::join)?;
        let nanos = now_ns() - begun;
        let locks = cores::lockstat::finish();
        let of_inode = locks.iter().find(|lock| lock.name == LOCK && lock.taken > 0);
        // The first in line waits for one hold outside of `osq_lock`.
        let in_line = of_inode
            .map_or(0, |lock| lock.wait.saturating_sub(lock.contended * (lock.hold / lock.taken)));
        Ok(Found {
            kiops: (jobs * READS) as f64 / nanos as f64 * 1e6,
            osq_lock: in_line as f64 / (jobs * nanos) as f64 * 100.0,
        })
    })?
}

/// One job.
fn read(queue: &BlockQueue, inode: Option<&Mutex<()>>, mut chance: Rng) -> Result<()> {
    let mut under_way = VecDeque::with_capacity(UNDER_WAY);
    for _ in 0..READS {
        let lba = chance.below(BLOCKS);
        let _span = cores::span(Stage::Syscall);
        let guard = inode.map(Mutex::lock);
        let span = cores::span(Stage::MapBlock);
        cores::spend(WITHIN);
        drop(span);
        under_way.push_back(queue.submit(Command::Read { lba, blocks: 1 }));
        drop(guard);
        cores::spend(OUTSIDE);
        if under_way.len() == UNDER_WAY
            && let Some(oldest) = under_way.pop_front()
        {
            reap(queue, oldest)?;
        }
    }
    under_way.into_iter().try_for_each(|ticket| reap(queue, ticket))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_but_the_fall_comes_out() {
        let rows = run(1).expect("it runs");
        let off = rows.iter().filter(|row| row.agrees == Some(false));
        let off: Vec<_> = off.map(|row| row.what.as_str()).collect();
        assert_eq!(off, ["locked, 15 jobs"]);
    }
}
