//! One fsync, as it happened: what the CPU did, what it waited for, what the drive did meanwhile.
//!
//! The file system runs on the virtual machine over the emulated drive; its spans show the CPU, the
//! commands between host and drive the DMA, and the drive's events the NAND. A command is drawn
//! from its submission to the moment the host takes its completion; the end of a program is known,
//! and its beginning is as long before as the profile says a program takes.

use std::sync::Arc;

use cores::{Mutex, Nanos, Stage};
use drive::{Command, Completion, Drive, EventKind, Identify, Timing};
use serde::Serialize;
use vfs::Creator;

use crate::workload::Rng;
use crate::{Error, Result, machine, rig};
use vfs::kind::Technique;

/// The file that is overwritten, and overwrites before the one that is drawn.
const FILE: u64 = 4 << 20;
const BEFORE: usize = 40;
const BLOCK: u64 = 4096;

/// What a bar is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// Data: prepared, transferred or waited for.
    Data,
    /// Nodes.
    Node,
    /// A flush.
    Flush,
    /// Anything else.
    Other,
    /// A NAND program.
    Program,
}

/// Part of a lane, in nanoseconds from the start of the fsync.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bar {
    /// What it is about.
    pub what: What,
    /// When it begins.
    pub from: Nanos,
    /// When it ends.
    pub to: Nanos,
}

/// The fsync of one mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Timeline {
    /// Short name of the mode.
    pub mode: String,
    /// The drive's profile.
    pub drive: String,
    /// How long it took.
    pub took: Nanos,
    /// What the CPU did.
    pub cpu: Vec<Bar>,
    /// What it waited for.
    pub wait: Vec<Bar>,
    /// Commands under way.
    pub dma: Vec<Bar>,
    /// Programs under way; they may go on after it returned.
    pub nand: Vec<Bar>,
}

/// A command from its submission to its completion.
struct Sent {
    queue: u16,
    cid: u16,
    flush: bool,
    from: Nanos,
    to: Option<Nanos>,
}

/// Records when commands go and come.
struct Wire<D> {
    below: D,
    sent: Mutex<Vec<Sent>>,
}

impl<D> Wire<D> {
    fn done(&self, queue: u16, completion: Option<Completion>) -> Option<Completion> {
        if let Some(done) = &completion {
            let mut sent = self.sent.lock();
            let is_it = |s: &&mut Sent| (s.queue, s.cid, s.to) == (queue, done.cid, None);
            if let Some(sent) = sent.iter_mut().rev().find(is_it) {
                sent.to = Some(crate::now_ns());
            }
        }
        completion
    }
}

impl<D: Drive> Drive for Wire<D> {
    fn identify(&self) -> &Identify {
        self.below.identify()
    }

    fn submit(&self, queue: u16, cid: u16, command: Command) {
        let flush = match &command {
            Command::Flush => Some(true),
            Command::Write { .. } | Command::Append { .. } => Some(false),
            _ => None,
        };
        if let Some(flush) = flush {
            let from = crate::now_ns();
            self.sent.lock().push(Sent { queue, cid, flush, from, to: None });
        }
        self.below.submit(queue, cid, command);
    }

    fn poll(&self, queue: u16) -> Option<Completion> {
        self.done(queue, self.below.poll(queue))
    }

    fn wait(&self, queue: u16) -> Option<Completion> {
        self.done(queue, self.below.wait(queue))
    }

    fn wait_for(&self, queue: u16, cid: u16) -> Option<Completion> {
        self.done(queue, self.below.wait_for(queue, cid))
    }
}

/// The fsync after a 4 KiB overwrite, in `mode` on a drive of that profile.
pub fn record(drive: &str, mode: &'static Technique, seed: u64) -> Result<Timeline> {
    let spec = rig::spec(drive, 4 * FILE)?;
    let program_ns = spec.profile().program_ns.value;
    machine(seed)?.run(|| {
        let ssd = rig::new_drive(&spec, Timing::Virtual, seed)?;
        let wire = Arc::new(Wire { below: ssd.clone(), sent: Mutex::new(Vec::new()) });
        let below: Arc<dyn Drive> = wire.clone();
        rig::make(&f2fs::Format, &below)?;
        let fs = rig::mount(&f2fs::Format, below, mode.options)?;
        let file = fs.create(fs.root(), b"file", 0o644, Creator::default());
        let file = file.map_err(Error::at("create", b"file"))?.ino;
        let mut rng = Rng::new(seed, 7);
        fs.write(file, 0, &rng.bytes(FILE as usize)).map_err(Error::at("write", b"file"))?;
        fs.sync().map_err(Error::at("sync", b""))?;
        let mut overwrite = |fsync: &dyn Fn() -> vfs::Result<()>| {
            let at = rng.below(FILE / BLOCK) * BLOCK;
            fs.write(file, at, &rng.bytes(BLOCK as usize)).map_err(Error::at("write", b"file"))?;
            fsync().map_err(Error::at("fsync", b"file"))
        };
        (0..BEFORE).try_for_each(|_| overwrite(&|| fs.fsync(file, false)))?;
        let ends = Arc::new(Mutex::new(Vec::new()));
        let mut programs = Programs { ends: Vec::new(), slot: ends.clone() };
        ssd.observe(Box::new(move |event, _| {
            if let EventKind::Program { .. } = event.kind {
                programs.ends.push(event.at);
            }
        }));
        let times = Mutex::new((0, 0));
        wire.sent.lock().clear();
        cores::trace::start_timeline();
        overwrite(&|| {
            let from = crate::now_ns();
            fs.fsync(file, false)?;
            *times.lock() = (from, crate::now_ns());
            Ok(())
        })?;
        let spans = cores::trace::finish().timeline;
        let (from, to) = *times.lock();
        // Programs that are under way as it returns end while nothing else happens.
        cores::sleep(2 * program_ns);
        fs.statfs().map_err(Error::at("statfs", b""))?;
        let _ = ssd.issue(0, u16::MAX, Command::ReportZones { lba: 0, max: 1 });
        drop(ssd.unobserve());
        let sent = std::mem::take(&mut *wire.sent.lock());
        let ends = std::mem::take(&mut *ends.lock());
        Ok(put_together(mode, drive, (from, to), &spans, &sent, &ends, program_ns))
    })?
}

/// The drive's observer: gives away what it took when it is dropped.
struct Programs {
    ends: Vec<Nanos>,
    slot: Arc<Mutex<Vec<Nanos>>>,
}

impl Drop for Programs {
    fn drop(&mut self) {
        *self.slot.lock() = std::mem::take(&mut self.ends);
    }
}

fn put_together(
    mode: &'static Technique,
    drive: &str,
    (from, to): (Nanos, Nanos),
    spans: &[cores::trace::Event],
    sent: &[Sent],
    ends: &[Nanos],
    program_ns: Nanos,
) -> Timeline {
    let bar = |what, start: Nanos, end: Nanos| {
        let (from, to) = (start.max(from) - from, end.max(from) - from);
        Bar { what, from, to }
    };
    let of = |stages: &[(Stage, What)]| -> Vec<Bar> {
        let mut bars: Vec<Bar> = spans
            .iter()
            .filter(|span| span.end > from && span.start < to)
            .filter_map(|span| {
                let (_, what) = stages.iter().find(|(stage, _)| *stage == span.stage)?;
                Some(bar(*what, span.start, span.end))
            })
            .collect();
        bars.sort_by_key(|bar| bar.from);
        bars
    };
    let prepared = of(&[(Stage::FsyncPrepare, What::Data), (Stage::FsyncNode, What::Node)]);
    let wait = of(&[
        (Stage::WaitData, What::Data),
        (Stage::WaitNode, What::Node),
        (Stage::WaitFlush, What::Flush),
    ]);
    let dma = sent.iter().filter(|sent| sent.from >= from).map(|sent| {
        let at = sent.from - from;
        let node = prepared.iter().any(|b| b.what == What::Node && b.from <= at && at <= b.to);
        let what = match (sent.flush, node) {
            (true, _) => What::Flush,
            (_, true) => What::Node,
            _ => What::Data,
        };
        bar(what, sent.from, sent.to.unwrap_or(to))
    });
    let nand = ends.iter().filter(|end| **end > from);
    let nand = nand.map(|end| bar(What::Program, end.saturating_sub(program_ns), *end)).collect();
    Timeline {
        mode: mode.name.into(),
        drive: drive.into(),
        took: to - from,
        cpu: busy(&prepared, &wait, to - from),
        wait,
        dma: dma.collect(),
        nand,
    }
}

/// The CPU's lane: time that is neither preparing nor waiting is "other".
fn busy(prepared: &[Bar], wait: &[Bar], took: Nanos) -> Vec<Bar> {
    let mut known: Vec<(Bar, bool)> = prepared.iter().map(|bar| (*bar, true)).collect();
    known.extend(wait.iter().map(|bar| (*bar, false)));
    known.sort_by_key(|(bar, _)| bar.from);
    let (mut out, mut at) = (Vec::new(), 0);
    for (bar, is_busy) in known {
        if bar.from > at {
            out.push(Bar { what: What::Other, from: at, to: bar.from });
        }
        if is_busy {
            out.push(bar);
        }
        at = at.max(bar.to);
    }
    if took > at {
        out.push(Bar { what: What::Other, from: at, to: took });
    }
    out
}

#[cfg(test)]
mod tests {
    use f2fs::technique;

    use super::*;

    const VOLATILE: &str = "zn540-noplp";

    fn waits(timeline: &Timeline, what: What) -> usize {
        timeline.wait.iter().filter(|bar| bar.what == what).count()
    }

    #[test]
    fn each_mode_waits_for_what_its_plan_says() {
        let of = |mode| record(VOLATILE, mode, 1).expect("it runs");
        let (posix, strict, oprw) =
            (of(technique::POSIX), of(technique::STRICT), of(technique::OPRW));
        assert_eq!([&posix, &strict, &oprw].map(|t| waits(t, What::Flush)), [1, 2, 1]);
        // Posix sends its nodes when the data is there, OPRW at once.
        let first = |t: &Timeline, what| *t.dma.iter().find(|b| b.what == what).expect("a write");
        assert!(first(&posix, What::Node).from >= first(&posix, What::Data).to);
        assert!(first(&oprw, What::Node).from < first(&oprw, What::Data).to);
        for timeline in [&posix, &strict, &oprw] {
            let all: Nanos = timeline.cpu.iter().chain(&timeline.wait).map(|b| b.to - b.from).sum();
            assert_eq!(all, timeline.took, "{timeline:?}");
            assert!(!timeline.nand.is_empty());
            let kinds = |what| timeline.dma.iter().filter(|bar| bar.what == what).count();
            assert_eq!((kinds(What::Data), kinds(What::Node) > 0), (1, true), "{timeline:?}");
        }
        assert!(strict.took > posix.took && oprw.took <= posix.took);
        assert_eq!(record(VOLATILE, technique::OPRW, 1).expect("it runs"), oprw);
    }
}
