//! Figure 6.2's second half: sysbench's oltp_insert on an InnoDB-like server, one thread.
//!
//! What the server does was recorded with strace from MariaDB 10.11.19 under sysbench 1.0.20
//! (`oltp_insert`, one table of 10,000 rows, one thread, the server's defaults, which log to InnoDB
//! alone and flush at each commit): every insert adds 411 bytes to the redo log, which is written
//! in whole 4 KiB blocks from the one it ends in (91% one block, 9% two), and synced. No page of
//! the table was flushed in 11,350 inserts. The page cleaner's batches are those of the manual:
//! each second up to `innodb_io_capacity` (200) dirty pages of 16 KiB go to the doublewrite buffer
//! in one write and an fsync, then to their places and an fsync of the table. The redo log is a
//! file written full before (48 MiB, MySQL's default), through the page cache and with fsync
//! (`innodb_flush_method=fsync`, MySQL's default up to 8.3): the thesis does not say which server
//! and settings it used.
//!
//! Between two commits the server and sysbench work: 68 us of CPU an insert, measured as their user
//! and system time over 83,426 inserts with `innodb_flush_log_at_trx_commit=0` (server 54 us,
//! client 14 us) on a virtual machine with two cores, which is not the thesis's. The last row
//! leaves that out, to show the gain of the file system alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use vfs::{Creator, Ino};

use super::{Kind, PROTECTED, Row, System, VOLATILE, on_volume_of};
use crate::workload::Rng;
use crate::{Error, Result, now_ns};
use f2fs::technique;
use vfs::kind::Technique;
use vfs::kind::Volume;

const KIB: u64 = 1 << 10;
/// Redo bytes of an insert.
const REDO: u64 = 411;
/// The redo log, and what a write to it is a multiple of.
const LOG: u64 = 48 << 20;
const LOG_BLOCK: u64 = 4 * KIB;
/// A page of the table, and rows in one: rows of 209 bytes, pages 15/16 full.
const PAGE: u64 = 16 * KIB;
const ROWS: u64 = 73;
/// The table as far as it is written to, and the secondary index of its 10,000 rows.
const TABLE: u64 = 64 << 20;
const INDEX_PAGES: u64 = 10;
/// Most pages of a batch of the page cleaner, and its period.
const BATCH: u64 = 200;
const PERIOD_NS: u64 = 1_000_000_000;
/// CPU time between two commits.
pub(in crate::paper) const SERVER_NS: u64 = 68_000;
/// Inserts of a run: some batches of the page cleaner.
const INSERTS: u64 = 20_000;

/// The rows of Figure 6.2.
pub(super) fn one_thread(seed: u64) -> Result<Vec<Row>> {
    let row = |what: &str, paper: &str, ours| {
        Row::new(Kind::Outcome, format!("OLTP-insert {what}, OPRW / F2FS"), paper, ours, "x")
    };
    let volatile = gain(VOLATILE, [technique::POSIX, technique::OPRW], SERVER_NS, seed)?;
    let protected = [technique::NOBARRIER, technique::OPRW_NOBARRIER];
    let whole = gain(PROTECTED, protected, SERVER_NS, seed)?;
    let alone = gain(PROTECTED, protected, 0, seed)?;
    Ok(vec![
        row("without PLP", "about 1", volatile).within(0.95, 1.05),
        row("with PLP", "1.1", whole).within(1.05, 1.15),
        row("with PLP, no server", "", alone),
    ])
}

fn gain(
    drive: &str,
    [posix, oprw]: [&'static Technique; 2],
    server_ns: u64,
    seed: u64,
) -> Result<f64> {
    let rate = |mode: &'static Technique| {
        inserts_per_s((&f2fs::Format, mode.options), drive, server_ns, seed)
    };
    Ok(rate(oprw)? / rate(posix)?)
}

/// Inserts in a second, with `server_ns` of the server's CPU time for each.
pub(in crate::paper) fn inserts_per_s(
    system: System<'_>,
    drive: &str,
    server_ns: u64,
    seed: u64,
) -> Result<f64> {
    let footprint = 2 * (LOG + TABLE) + INSERTS * 4 * LOG_BLOCK;
    on_volume_of(system, drive, footprint, seed, |fs| {
        let server = Arc::new(Server::new(fs.clone(), seed)?);
        fs.sync().map_err(Error::at("sync", b""))?;
        let cleaner = {
            let server = server.clone();
            cores::spawn("page cleaner", None, move || server.clean(seed))
        };
        let from = now_ns();
        (0..INSERTS).try_for_each(|n| server.insert(n, server_ns))?;
        let seconds = (now_ns() - from) as f64 / 1e9;
        server.stopped.store(true, Ordering::Release);
        cleaner.join()?;
        Ok(INSERTS as f64 / seconds)
    })
}

struct Server {
    fs: Arc<dyn Volume>,
    log: Ino,
    doublewrite: Ino,
    table: Ino,
    bytes: Vec<u8>,
    /// Rows that were inserted.
    rows: AtomicU64,
    stopped: AtomicBool,
}

impl Server {
    fn new(fs: Arc<dyn Volume>, seed: u64) -> Result<Self> {
        let bytes = Rng::new(seed, 11).bytes(1 << 20);
        let full = |name: &[u8], size: u64| -> Result<Ino> {
            let file = fs.create(fs.root(), name, 0o640, Creator::default());
            let ino = file.map_err(Error::at("create", name))?.ino;
            for at in (0..size).step_by(bytes.len()) {
                fs.write(ino, at, &bytes).map_err(Error::at("write", name))?;
            }
            Ok(ino)
        };
        let log = full(b"ib_logfile0", LOG)?;
        let doublewrite = full(b"ib_doublewrite", BATCH * PAGE)?;
        let table = full(b"sbtest1.ibd", TABLE)?;
        let (rows, stopped) = (AtomicU64::new(0), AtomicBool::new(false));
        Ok(Self { fs, log, doublewrite, table, bytes, rows, stopped })
    }

    /// One insert: the server's work, its redo log record, the commit.
    fn insert(&self, n: u64, server_ns: u64) -> Result<()> {
        cores::spend(server_ns);
        let (from, to) = (n * REDO / LOG_BLOCK, ((n + 1) * REDO).div_ceil(LOG_BLOCK));
        for block in from..to {
            let at = block * LOG_BLOCK % LOG;
            let bytes = &self.bytes[..LOG_BLOCK as usize];
            self.fs.write(self.log, at, bytes).map_err(Error::at("write", b"ib_logfile0"))?;
        }
        self.fs.fsync(self.log, false).map_err(Error::at("fsync", b"ib_logfile0"))?;
        self.rows.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// The page cleaner: what became dirty, in batches, until the server stops.
    fn clean(&self, seed: u64) -> Result<()> {
        let mut rng = Rng::new(seed, 12);
        let (mut cleaned, mut at) = (0, now_ns());
        while !self.stopped.load(Ordering::Acquire) {
            at += PERIOD_NS;
            cores::sleep_until(at);
            let rows = self.rows.load(Ordering::Acquire);
            let leaves = cleaned / ROWS..=rows / ROWS;
            cleaned = rows;
            let index = (0..INDEX_PAGES).map(|_| TABLE / PAGE - 1 - rng.below(INDEX_PAGES));
            let pages: Vec<u64> = leaves.chain(index).take(BATCH as usize).collect();
            self.flush(&pages).map_err(Error::at("flush", b"sbtest1.ibd"))?;
        }
        Ok(())
    }

    fn flush(&self, pages: &[u64]) -> vfs::Result<()> {
        let page = &self.bytes[..PAGE as usize];
        for n in 0..pages.len() as u64 {
            self.fs.write(self.doublewrite, n * PAGE, page)?;
        }
        self.fs.fsync(self.doublewrite, false)?;
        for number in pages {
            self.fs.write(self.table, number * PAGE % TABLE, page)?;
        }
        self.fs.fsync(self.table, false)
    }
}
