//! The result as FxMark's log, which its parser and plotter read, and as a drawing.

use std::fmt::Write;

use cores::LockUse;

use super::{Beside, Curve};
use crate::report;

/// FxMark's name of a RAM disk.
const MEMORY: &str = "mem";

impl Curve {
    /// FxMark's log. Lines with `###` say what ran, one with `##` begins each point: medium, file
    /// system, load, cores and kind of I/O. A lock profile follows its point, as a table that
    /// FxMark's tools do not know.
    pub fn log(&self) -> String {
        let simulated = if self.simulated { " (simulated)" } else { "" };
        let mut log = String::new();
        for (key, value) in [
            ("SYSTEM", format!("strandline {}", env!("CARGO_PKG_VERSION"))),
            ("MACHINE", format!("{}{simulated}", self.machine)),
            ("MOUNT_OPTIONS", self.mount_opts.clone()),
            ("WORKS_PER_CORE", self.ops.to_string()),
            ("SEED", self.seed.to_string()),
            ("PHYSICAL_CHIPS", self.sockets.to_string()),
            ("CORE_PER_CHIP", self.cores_per_socket.to_string()),
        ] {
            let _ = writeln!(log, "### {key:14} = {value}");
        }
        let medium = field(if self.drive == "ram" { MEMORY } else { &self.drive });
        let fs = field(&self.fs);
        let io = if self.direct { "directio" } else { "bufferedio" };
        for point in &self.points {
            let beside = point.beside.iter().flat_map(Beside::columns).collect::<Vec<_>>();
            let names: String = beside.iter().map(|(name, _)| format!(" {name}")).collect();
            let _ = write!(
                log,
                "\n## {medium}:{fs}:{}:{}:{io}\n# ncpu secs works works/sec{names}\n",
                self.load, point.cores
            );
            let works = point.works as f64;
            let _ = write!(
                log,
                "{} {:.6} {works:.6} {:.6}",
                point.cores, point.secs, point.works_per_s
            );
            for (_, value) in beside {
                let _ = write!(log, " {value:.6}");
            }
            log.push('\n');
            if !point.locks.is_empty() {
                log += &lock_table(&point.locks);
            }
        }
        let _ = write!(log, "\n### NUM_TEST_CONF  = {}\n", self.points.len());
        log
    }

    /// An SVG file of the curve.
    pub fn svg(&self) -> String {
        let points: Vec<_> = self.points.iter().map(|p| (p.cores as f64, p.works_per_s)).collect();
        let simulated = if self.simulated { ", simulated" } else { "" };
        let Self { load, fs, drive, machine, .. } = self;
        let label = format!("cores ({load}, {fs} on {drive}, {machine} machine{simulated})");
        report::curve(&points, &label, "operations/s")
    }
}

/// `text` as a field of a `##` line, which FxMark's parser splits at colons.
fn field(text: &str) -> String {
    text.replace(|c: char| c == ':' || c.is_whitespace(), "_")
}

/// What happened at the locks, those first that cost most.
fn lock_table(locks: &[LockUse]) -> String {
    let ms = |ns: u64| format!("{:.3}", ns as f64 / 1e6);
    let us = |ns: u64| format!("{:.1}", ns as f64 / 1e3);
    let mut locks: Vec<&LockUse> = locks.iter().collect();
    let cost = |lock: &LockUse| lock.spin.zip(lock.sleep).map_or(lock.wait, |(a, b)| a + b);
    locks.sort_by_key(|lock| std::cmp::Reverse(cost(lock)));
    let row = |lock: &LockUse| {
        let told = |time: Option<u64>| time.map_or_else(|| "-".to_owned(), ms);
        let (spin, sleep) = (told(lock.spin), told(lock.sleep));
        let (taken, contended) = (lock.taken.to_string(), lock.contended.to_string());
        let (wait, wait_max) = (ms(lock.wait), us(lock.wait_max));
        let (hold, hold_max) = (ms(lock.hold), us(lock.hold_max));
        let name = format!("{}, {}", lock.name, lock.kind);
        vec![name, taken, contended, wait, wait_max, spin, sleep, hold, hold_max]
    };
    let head = [
        "lock",
        "taken",
        "contended",
        "wait ms",
        "max µs",
        "spin ms",
        "sleep ms",
        "hold ms",
        "max µs",
    ];
    report::columns(&head, locks.into_iter().map(row).collect(), 1)
}
