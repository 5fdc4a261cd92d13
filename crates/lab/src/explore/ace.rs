//! All short sequences of operations over a small set of files, with a call that makes them durable
//! after each, or none: bounded black-box crash testing, after CrashMonkey and ACE (OSDI '18).

use std::fmt;
use std::str::FromStr;

use crate::workload::recorder::{Node, Recorder};
use crate::workload::{Rng, Workload};
use crate::{Error, Result};

/// An operation. The files: `/a` of three blocks, `/d/b` of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// Two blocks of `/a` anew.
    Overwrite,
    /// More of `/a` at its end, which lies within a block.
    Append,
    /// More of `/a` behind a hole.
    Beyond,
    /// `/a` shorter, to within a block.
    Shrink,
    /// `/a` longer, by a hole.
    Grow,
    /// A new file `/c` with contents.
    Create,
    /// `/a` goes.
    Unlink,
    /// `/a` moves to `/d/a`.
    Rename,
    /// `/d/b` moves to `/a`, replacing it.
    Replace,
    /// `/a` is `/d/l` too.
    Link,
    /// A new directory `/e`.
    Mkdir,
    /// A symbolic link `/s`.
    Symlink,
    /// An attribute of `/a`, larger than fits its inode.
    Xattr,
    /// Mode, owner and time of `/a`.
    Chmod,
}

impl Change {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::Overwrite,
        Self::Append,
        Self::Beyond,
        Self::Shrink,
        Self::Grow,
        Self::Create,
        Self::Unlink,
        Self::Rename,
        Self::Replace,
        Self::Link,
        Self::Mkdir,
        Self::Symlink,
        Self::Xattr,
        Self::Chmod,
    ];

    /// Name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Overwrite => "overwrite",
            Self::Append => "append",
            Self::Beyond => "beyond",
            Self::Shrink => "shrink",
            Self::Grow => "grow",
            Self::Create => "create",
            Self::Unlink => "unlink",
            Self::Rename => "rename",
            Self::Replace => "replace",
            Self::Link => "link",
            Self::Mkdir => "mkdir",
            Self::Symlink => "symlink",
            Self::Xattr => "xattr",
            Self::Chmod => "chmod",
        }
    }

    /// In words, for tables.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Overwrite => "overwrite 8 KiB",
            Self::Append => "append 5 kB",
            Self::Beyond => "write behind a hole",
            Self::Shrink => "truncate, shorter",
            Self::Grow => "truncate, longer",
            Self::Create => "create and write",
            Self::Unlink => "unlink",
            Self::Rename => "rename",
            Self::Replace => "rename over a file",
            Self::Link => "link",
            Self::Mkdir => "mkdir",
            Self::Symlink => "symlink",
            Self::Xattr => "setxattr 2 kB",
            Self::Chmod => "chmod, chown, utimes",
        }
    }
}

/// What makes it durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Then {
    /// Nothing.
    Nothing,
    /// fsync of what was changed, by an open descriptor.
    Fsync,
    /// fdatasync of it.
    Fdatasync,
    /// fsync of the directory it is in now.
    FsyncDir,
    /// sync.
    Sync,
}

impl Then {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Nothing, Self::Fsync, Self::Fdatasync, Self::FsyncDir, Self::Sync];

    /// Name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Fsync => "fsync",
            Self::Fdatasync => "fdatasync",
            Self::FsyncDir => "fsync-dir",
            Self::Sync => "sync",
        }
    }
}

/// One sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequence {
    steps: Vec<(Change, Then)>,
    name: String,
}

impl Sequence {
    /// These steps; `None` if one of them could not be done, or the last makes nothing durable.
    pub fn new(steps: Vec<(Change, Then)>) -> Option<Self> {
        let mut there = There::default();
        let possible = steps.iter().all(|step| there.takes(*step));
        let ends = steps.last().is_some_and(|(_, then)| *then != Then::Nothing);
        let name = Self { steps: steps.clone(), name: String::new() }.to_string();
        (possible && ends).then_some(Self { steps, name })
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
            write!(f, "{comma}{}+{}", op.name(), then.name())?;
        }
        Ok(())
    }
}

impl FromStr for Sequence {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            let ops = Change::ALL.map(Change::name).join(", ");
            let thens = Then::ALL.map(Then::name).join(", ");
            Error::Usage(format!(
                "'{text}': expected ace:OP+THEN,OP+THEN… that can be done in this order and ends \
                 durable; OP is one of {ops}; THEN one of {thens}"
            ))
        };
        let step = |step: &str| {
            let (op, then) = step.split_once('+')?;
            let op = Change::ALL.into_iter().find(|o| o.name() == op)?;
            Some((op, Then::ALL.into_iter().find(|t| t.name() == then)?))
        };
        let list = text.strip_prefix("ace:").ok_or_else(wrong)?;
        let steps: Option<Vec<_>> = list.split(',').map(step).collect();
        steps.and_then(Self::new).ok_or_else(wrong)
    }
}

/// The names that exist, which decide what can be done.
struct There {
    a: bool,
    b: bool,
    made: Vec<Change>,
}

impl Default for There {
    fn default() -> Self {
        Self { a: true, b: true, made: Vec::new() }
    }
}

impl There {
    /// Whether the step can be done now; if so, it counts as done.
    fn takes(&mut self, (op, then): (Change, Then)) -> bool {
        let once = matches!(
            op,
            Change::Create | Change::Rename | Change::Link | Change::Mkdir | Change::Symlink
        );
        let needs_a =
            !matches!(op, Change::Create | Change::Replace | Change::Mkdir | Change::Symlink);
        let possible = (self.a || !needs_a)
            && (self.b || op != Change::Replace)
            && !(once && self.made.contains(&op));
        match op {
            Change::Unlink | Change::Rename => self.a = false,
            Change::Replace => (self.a, self.b) = (true, false),
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
            Change::Xattr => fs.set_xattr(a, b"user.note", &self.rng.bytes(2000))?,
            Change::Chmod => {
                let mtime = vfs::Timespec { secs: 1_000_000_000, nanos: 7 };
                fs.set_meta(a, 0o4750, (1000, 100), mtime)?;
            }
        }
        Ok((a, root))
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
        fs.sync()?;
        started();
        let mut world = World { fs, rng, d, a, b };
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
    }

    #[test]
    fn how_many_there_are() {
        assert_eq!(Sequence::all(1).count(), 14 * 4 - 4);
        assert!(Sequence::all(2).count() > 3000);
    }
}
