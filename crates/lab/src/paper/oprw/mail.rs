//! Figures 6.2 and 6.3: Filebench's Varmail, on one thread and on more.

use std::sync::Arc;

use cores::Semaphore;

use super::{Kind, PROTECTED, Row, System, VOLATILE, on_volume_of};
use crate::oracle::Oracle;
use crate::workload::Varmail;
use crate::workload::recorder::Recorder;
use crate::{Result, now_ns};
use f2fs::technique;
use vfs::kind::Technique;
use vfs::kind::Volume;
use vfs::words::counted;

/// Mails of a thread: its share of Filebench's 1,000, or 100 if that is more.
const MAILS: u64 = 1000;
const MAILS_MIN: u64 = 100;
/// Turns of Filebench's loop, all threads together.
const TURNS: u64 = 1600;
/// Threads of Figure 6.3.
const THREADS: [u64; 6] = [1, 2, 4, 8, 16, 32];

/// Figure 6.2.
pub(super) fn one_thread(seed: u64) -> Result<Vec<Row>> {
    let protected = gain(PROTECTED, [technique::NOBARRIER, technique::OPRW_NOBARRIER], 1, seed)?;
    let volatile = gain(VOLATILE, [technique::POSIX, technique::OPRW], 1, seed)?;
    let row = |what: &str, paper: &str, ours| Row::new(Kind::Outcome, what, paper, ours, "x");
    Ok(vec![
        row("Varmail without PLP, OPRW / F2FS", "about 1", volatile).within(0.95, 1.05),
        row("Varmail with PLP, OPRW / F2FS", "1.2", protected).within(1.15, 1.25),
    ])
}

/// Figure 6.3: the gain shrinks: with two threads and more there is still a gain, but a smaller one
/// than with one thread.
pub(super) fn more_threads(seed: u64) -> Result<Vec<Row>> {
    let mut rows: Vec<Row> = Vec::new();
    for threads in THREADS {
        let ours =
            gain(PROTECTED, [technique::NOBARRIER, technique::OPRW_NOBARRIER], threads, seed)?;
        let row = |paper: &str| {
            let what = format!("{}, OPRW / F2FS", counted(threads, "thread"));
            Row::new(Kind::Outcome, what, paper, ours, "x")
        };
        let row = match rows.first() {
            None => row("1.2").within(1.15, 1.25),
            Some(one) => row("a gain that shrinks").within(1.0, one.ours),
        };
        rows.push(row);
    }
    Ok(rows)
}

fn gain(
    drive: &str,
    [posix, oprw]: [&'static Technique; 2],
    threads: u64,
    seed: u64,
) -> Result<f64> {
    let rate =
        |mode: &'static Technique| turns_per_s((&f2fs::Format, mode.options), drive, threads, seed);
    Ok(rate(oprw)? / rate(posix)?)
}

/// Turns of Filebench's loop in a second.
pub(in crate::paper) fn turns_per_s(
    system: System<'_>,
    drive: &str,
    threads: u64,
    seed: u64,
) -> Result<f64> {
    let files = (MAILS / threads).max(MAILS_MIN);
    let turns = TURNS / threads;
    let mailbox = Varmail { mailbox: 0, files, turns, mean: 16 << 10 };
    let footprint = threads * crate::workload::Workload::footprint(&mailbox);
    on_volume_of(system, drive, footprint, seed, |fs| {
        let (ready, go) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let workers: Vec<_> = (0..threads)
            .map(|n| {
                let (fs, ready, go) = (fs.clone(), ready.clone(), go.clone());
                let mailbox = Varmail { mailbox: n, ..mailbox };
                cores::spawn(&format!("mail {n}"), None, move || {
                    worker(&fs, &mailbox, seed + n, &ready, &go)
                })
            })
            .collect();
        ready.acquire(threads as usize);
        let from = now_ns();
        go.release(threads as usize);
        workers.into_iter().try_for_each(cores::JoinHandle::join)?;
        let seconds = (now_ns() - from) as f64 / 1e9;
        Ok((threads * turns) as f64 / seconds)
    })
}

/// One thread of the mail server. It starts when all have filled their mailboxes.
fn worker(
    fs: &Arc<dyn Volume>,
    mailbox: &Varmail,
    seed: u64,
    ready: &Semaphore,
    go: &Semaphore,
) -> Result<()> {
    let fs = Recorder::new(fs.clone(), Arc::new(Oracle::new())).without_times();
    crate::workload::Workload::run(mailbox, &fs, seed, &mut || {
        ready.release(1);
        go.acquire(1);
    })
}
