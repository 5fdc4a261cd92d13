//! All short sequences of operations over a small set of files, with a call that makes them durable
//! after each, or none: bounded black-box crash testing, after CrashMonkey and ACE (OSDI '18).
//!
//! Where every call is durable when it returns no other needs to follow, so there is room for more
//! operations, over more files.

mod change;

use std::fmt;
use std::str::FromStr;

use vfs::{FallocateMode, FileKind};

use crate::workload::recorder::{Node, Recorder};
use crate::workload::{Rng, Workload};
use crate::{Error, Result};

pub use change::{Change, Then};

/// One sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequence {
    steps: Vec<(Change, Then)>,
    /// Calls are durable when they return: there is nothing after any of them.
    at_return: bool,
    name: String,
}

impl Sequence {
    /// These steps; `None` if one of them could not be done, or the last makes nothing durable.
    pub fn new(steps: Vec<(Change, Then)>) -> Option<Self> {
        let mut there = There::default();
        let possible = steps.iter().all(|step| there.takes(*step));
        let ends = steps.last().is_some_and(|(_, then)| *then != Then::Nothing);
        (possible && ends).then_some(Self::named(steps, false))
    }

    fn named(steps: Vec<(Change, Then)>, at_return: bool) -> Self {
        let mut sequence = Self { steps, at_return, name: String::new() };
        sequence.name = sequence.to_string();
        sequence
    }

    /// These changes, each of which is durable when it returns; `None` if one could not be done.
    pub fn at_return(changes: &[Change]) -> Option<Self> {
        let steps: Vec<_> = changes.iter().map(|op| (*op, Then::Nothing)).collect();
        let mut there = There::default();
        let possible = steps.iter().all(|step| there.takes(*step));
        (possible && !steps.is_empty()).then(|| Self::named(steps, true))
    }

    /// The same without its last change, if calls are durable when they return and one is left.
    pub(super) fn shorter(&self) -> Option<Self> {
        let (_, before) = self.steps.split_last().filter(|_| self.at_return)?;
        Self::at_return(&before.iter().map(|(op, _)| *op).collect::<Vec<_>>())
    }

    /// All of `length` such changes, in order.
    pub fn all_at_return(length: u32) -> impl Iterator<Item = Self> {
        let all = (Change::AT_RETURN.len() as u64).pow(length);
        (0..all).filter_map(move |n| Self::numbered_at_return(n, length))
    }

    /// One of `length` such changes, drawn.
    pub fn drawn_at_return(length: u32, rng: &mut Rng) -> Self {
        let all = (Change::AT_RETURN.len() as u64).pow(length);
        loop {
            if let Some(sequence) = Self::numbered_at_return(rng.below(all), length) {
                return sequence;
            }
        }
    }

    fn numbered_at_return(mut n: u64, length: u32) -> Option<Self> {
        let of = Change::AT_RETURN.len() as u64;
        let changes: Vec<Change> = (0..length)
            .map(|_| {
                let digit = (n % of) as usize;
                n /= of;
                Change::AT_RETURN[digit]
            })
            .collect();
        Self::at_return(&changes)
    }

    /// All of `length` steps, in order.
    pub fn all(length: u32) -> impl Iterator<Item = Self> {
        let kinds = (Change::ALL.len() * Then::ALL.len()) as u64;
        (0..kinds.pow(length)).filter_map(move |n| Self::numbered(n, length))
    }

    /// One of `length` steps, drawn.
    pub fn drawn(length: u32, rng: &mut Rng) -> Self {
        let kinds = (Change::ALL.len() * Then::ALL.len()) as u64;
        loop {
            if let Some(sequence) = Self::numbered(rng.below(kinds.pow(length)), length) {
                return sequence;
            }
        }
    }

    fn numbered(mut n: u64, length: u32) -> Option<Self> {
        let mut steps = Vec::new();
        for _ in 0..length {
            let digit = |n: u64, of: usize| ((n % of as u64) as usize, n / of as u64);
            let (op, left) = digit(n, Change::ALL.len());
            let (then, left) = digit(left, Then::ALL.len());
            n = left;
            steps.push((Change::ALL[op], Then::ALL[then]));
        }
        Self::new(steps)
    }

    /// What it does.
    pub fn steps(&self) -> &[(Change, Then)] {
        &self.steps
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ace:")?;
        for (i, (op, then)) in self.steps.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            match self.at_return {
                true => write!(f, "{comma}{}", op.name())?,
                false => write!(f, "{comma}{}+{}", op.name(), then.name())?,
            }
        }
        Ok(())
    }
}

impl FromStr for Sequence {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            let ops = Change::ALL.map(Change::name).join(", ");
            let more = Change::AT_RETURN[Change::ALL.len()..].iter().map(|op| op.name());
            let more = more.collect::<Vec<_>>().join(", ");
            let thens = Then::ALL.map(Then::name).join(", ");
            Error::Usage(format!(
                "'{text}': expected ace:OP+THEN,OP+THEN… that can be done in this order and ends \
                 durable; OP is one of {ops}; THEN one of {thens}. Or ace:OP,OP… where calls are \
                 durable when they return; there are also {more}"
            ))
        };
        let step = |step: &str| {
            let (op, then) = step.split_once('+')?;
            let op = Change::ALL.into_iter().find(|o| o.name() == op)?;
            Some((op, Then::ALL.into_iter().find(|t| t.name() == then)?))
        };
        let list = text.strip_prefix("ace:").ok_or_else(wrong)?;
        if !list.contains('+') {
            let find = |name: &str| Change::AT_RETURN.into_iter().find(|op| op.name() == name);
            let changes: Option<Vec<_>> = list.split(',').map(find).collect();
            return changes.and_then(|all| Self::at_return(&all)).ok_or_else(wrong);
        }
        let steps: Option<Vec<_>> = list.split(',').map(step).collect();
        steps.and_then(Self::new).ok_or_else(wrong)
    }
}

/// The names that exist, which decide what can be done.
struct There {
    a: bool,
    b: bool,
    /// The directory `/d/f`, and the file `/p`.
    f: bool,
    p: bool,
    /// `/d/b` is a directory, and `/d/f` a file.
    swapped: bool,
    made: Vec<Change>,
}

impl Default for There {
    fn default() -> Self {
        Self { a: true, b: true, f: true, p: true, swapped: false, made: Vec::new() }
    }
}

impl There {
    /// Whether the step can be done now; if so, it counts as done.
    fn takes(&mut self, (op, then): (Change, Then)) -> bool {
        use Change::{Create, DropXattr, ExchangeDir, Fill, Link, Long, Mkdir, Node, Orphan};
        use Change::{
            Empty, Exchange, MoveDir, Punch, Rename, Replace, ReplaceDir, Rmdir, Symlink,
        };
        let once = matches!(op, Create | Rename | Link | Mkdir | Symlink | Node | Long | DropXattr);
        let needs_p = matches!(op, Punch | Fill | Empty | Orphan);
        let needs_f = matches!(op, ExchangeDir | Rmdir | MoveDir | ReplaceDir);
        let needs_b = matches!(op, Replace | Exchange | ExchangeDir);
        let without_a = matches!(op, Create | Replace | Mkdir | Symlink | Node | Long);
        let needs_a = !(without_a || needs_p || needs_f);
        // An attribute goes with its file.
        let moved = self.made.iter().any(|op| matches!(op, Replace | Exchange));
        let has_xattr = op != DropXattr || !moved;
        let possible = (self.a || !needs_a)
            && (self.b || !needs_b)
            && (self.p || !needs_p)
            && (self.f || !needs_f)
            && has_xattr
            && !(self.swapped && (needs_b || needs_f))
            && !(once && self.made.contains(&op));
        match op {
            Change::Unlink | Rename => self.a = false,
            Replace => (self.a, self.b) = (true, false),
            Orphan => self.p = false,
            Rmdir | MoveDir | ReplaceDir => self.f = false,
            ExchangeDir => self.swapped = true,
            _ => {}
        }
        self.made.push(op);
        // An object without a descriptor is not fsynced itself.
        let by_name = matches!(op, Change::Unlink | Change::Symlink);
        possible && !(by_name && matches!(then, Then::Fsync | Then::Fdatasync))
    }
}

/// The files as they are called now.
struct World<'a> {
    fs: &'a Recorder,
    rng: Rng,
    d: Node,
    a: Node,
    b: Node,
    /// `/p`, where there is more.
    p: Node,
}

impl World<'_> {
    /// Does one operation; returns what it changed, and its directory.
    fn run(&mut self, op: Change) -> Result<(Node, Node)> {
        let (fs, root, a, d) = (self.fs, self.fs.root(), self.a, self.d);
        match op {
            Change::Overwrite => fs.write(a, 0, &self.rng.bytes(8192))?,
            Change::Append => fs.write(a, fs.size(a), &self.rng.bytes(5000))?,
            Change::Beyond => fs.write(a, fs.size(a) + 30_000, &self.rng.bytes(6000))?,
            Change::Shrink => fs.truncate(a, fs.size(a) / 2)?,
            Change::Grow => fs.truncate(a, fs.size(a) + 20_000)?,
            Change::Create => {
                let c = fs.create(root, b"c", 0o644)?;
                fs.write(c, 0, &self.rng.bytes(6000))?;
                return Ok((c, root));
            }
            Change::Unlink => fs.unlink(root, b"a")?,
            Change::Rename => {
                fs.rename(root, b"a", d, b"a")?;
                return Ok((a, d));
            }
            Change::Replace => {
                fs.rename(d, b"b", root, b"a")?;
                self.a = self.b;
                return Ok((self.a, root));
            }
            Change::Link => {
                fs.link(a, d, b"l")?;
                return Ok((a, d));
            }
            Change::Mkdir => return Ok((fs.mkdir(root, b"e", 0o755)?, root)),
            Change::Symlink => return Ok((fs.symlink(root, b"s", b"d/b")?, root)),
            // A file system without attributes changes nothing here, and makes that durable.
            Change::Xattr if !fs.has_xattrs(a) => {}
            Change::Xattr => {
                let len = note_len(fs)?;
                fs.set_xattr(a, b"user.note", &self.rng.bytes(len))?;
            }
            Change::Chmod => {
                let mtime = vfs::Timespec { secs: 1_000_000_000, nanos: 7 };
                fs.set_meta(a, 0o4750, (1000, 100), mtime)?;
            }
            op => self.run_more(op)?,
        }
        Ok((a, root))
    }

    fn run_more(&mut self, op: Change) -> Result<()> {
        let (fs, root, a, d, p) = (self.fs, self.fs.root(), self.a, self.d, self.p);
        let keep = FallocateMode::KEEP_SIZE;
        match op {
            Change::Punch => fs.fallocate(p, FallocateMode::PUNCH_HOLE | keep, 100, 9000),
            Change::Zero => fs.fallocate(a, FallocateMode::ZERO_RANGE, 50, 6000),
            Change::Allocate => {
                let end = fs.size(a) + 9000;
                fs.fallocate(a, FallocateMode::empty(), 4096, end - 4096)
            }
            Change::Fill => fs.write(p, 4000, &self.rng.bytes(9000)),
            Change::Empty => fs.truncate(p, 0),
            Change::Exchange => {
                fs.exchange(root, b"a", d, b"b")?;
                (self.a, self.b) = (self.b, self.a);
                Ok(())
            }
            Change::ExchangeDir => fs.exchange(d, b"f", d, b"b"),
            Change::Rmdir => fs.rmdir(d, b"f"),
            Change::MoveDir => fs.rename(d, b"f", root, b"f"),
            Change::ReplaceDir => fs.rename(d, b"f", root, b"g"),
            Change::Node => fs.special(root, b"n", FileKind::Fifo, 0o600, 0).map(drop),
            Change::Long => fs.create(d, &[b'n'; 200], 0o644).map(drop),
            Change::DropXattr => fs.remove_xattr(a, b"user.old"),
            Change::Orphan => {
                fs.open(p)?;
                fs.unlink(root, b"p")?;
                fs.close(p);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl Workload for Sequence {
    fn name(&self) -> &str {
        &self.name
    }

    fn footprint(&self) -> u64 {
        0
    }

    fn run(&self, fs: &Recorder, seed: u64, started: &mut dyn FnMut()) -> Result<()> {
        let mut rng = Rng::new(seed, 9);
        let a = fs.create(fs.root(), b"a", 0o644)?;
        fs.write(a, 0, &rng.bytes(10_000))?;
        let d = fs.mkdir(fs.root(), b"d", 0o755)?;
        let b = fs.create(d, b"b", 0o644)?;
        fs.write(b, 0, &rng.bytes(7_000))?;
        let p = if self.at_return { more(fs, (a, d), &mut rng)? } else { a };
        fs.sync()?;
        started();
        let mut world = World { fs, rng, d, a, b, p };
        for &(op, then) in &self.steps {
            let (node, dir) = world.run(op)?;
            match then {
                Then::Nothing => {}
                Then::Fsync => fs.fsync(node)?,
                Then::Fdatasync => fs.fdatasync(node)?,
                Then::FsyncDir => fs.fsync(dir)?,
                Then::Sync => fs.sync()?,
            }
        }
        Ok(())
    }
}

/// Bytes of a long attribute: ext4 has room for all of a file's in one block.
fn note_len(fs: &Recorder) -> Result<usize> {
    let block_size = fs.fs().statfs().map_err(Error::at("statfs", b""))?.block_size;
    Ok(if block_size < 4096 { block_size as usize / 2 } else { 2000 })
}

/// What there is besides for calls that are durable when they return.
fn more(fs: &Recorder, (a, d): (Node, Node), rng: &mut Rng) -> Result<Node> {
    fs.link(a, d, b"k")?;
    fs.set_xattr(a, b"user.old", &rng.bytes(100))?;
    let p = fs.create(fs.root(), b"p", 0o644)?;
    for page in [0, 2, 4] {
        fs.write(p, page * 4096, &rng.bytes(3000))?;
    }
    fs.mkdir(d, b"f", 0o755)?;
    fs.mkdir(fs.root(), b"g", 0o700)?;
    Ok(p)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        for sequence in Sequence::all(1) {
            assert_eq!(sequence.name().parse::<Sequence>().unwrap(), sequence);
        }
        assert!("ace:unlink+sync,overwrite+fsync".parse::<Sequence>().is_err());
        assert!("ace:overwrite+nothing".parse::<Sequence>().is_err());
        for sequence in Sequence::all_at_return(1) {
            assert_eq!(sequence.name().parse::<Sequence>().unwrap(), sequence);
        }
        assert!("ace:punch+fsync".parse::<Sequence>().is_err());
    }

    #[test]
    fn how_many_there_are() {
        assert_eq!(Sequence::all(1).count(), 14 * 4 - 4);
        assert!(Sequence::all(2).count() > 3000);
    }
}
