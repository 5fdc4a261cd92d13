//! Random sequences of operations from a seed.
//!
//! There are few names, so that operations meet: directories `d0` to `d2`, up to three deep, and a
//! dozen names in them. A name mostly keeps its role (`d` directories, `f` files, `s` links), so
//! that most operations succeed; one in ten ignores it.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::Op;
use crate::{FallocateMode, FileKind, RenameFlags, XattrMode};

const PAGE: u64 = 4096;

/// Directories that every sequence makes first, so that few paths lead nowhere.
const PRELUDE: [&str; 5] = ["d0", "d1", "d2", "d0/d1", "d1/d2"];

/// How often each family of operations comes, as weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// Making and removing names.
    pub names: u32,
    /// Rename and link.
    pub moves: u32,
    /// Write, append, copy.
    pub data: u32,
    /// Truncate and fallocate.
    pub space: u32,
    /// Mode, owner and extended attributes.
    pub attributes: u32,
    /// Open and close.
    pub handles: u32,
    /// Whatever changes nothing.
    pub reads: u32,
    /// Fsync, fdatasync, sync.
    pub syncs: u32,
    /// Largest offset of a write or size of a file; one in thirty goes up to 16 times that.
    pub file_bytes: u64,
}

impl Default for Mix {
    fn default() -> Self {
        Self {
            names: 30,
            moves: 12,
            data: 25,
            space: 12,
            attributes: 8,
            handles: 4,
            reads: 8,
            syncs: 8,
            file_bytes: 256 * 1024,
        }
    }
}

type Family = fn(&mut Generator) -> Op;

/// An endless stream of operations, the same for the same seed and mix.
#[derive(Clone, Debug)]
pub struct Generator {
    rng: Xoshiro256PlusPlus,
    mix: Mix,
    /// The rest of [`PRELUDE`].
    prelude: std::slice::Iter<'static, &'static str>,
}

impl Generator {
    /// A generator with the default mix.
    pub fn new(seed: u64) -> Self {
        Self::with_mix(seed, Mix::default())
    }

    /// A generator with the given mix. A mix of zeroes gives nothing but `sync`.
    pub fn with_mix(seed: u64, mix: Mix) -> Self {
        Self { rng: Xoshiro256PlusPlus::seed_from_u64(seed), mix, prelude: PRELUDE.iter() }
    }

    /// The next `count` operations.
    pub fn take_ops(&mut self, count: usize) -> Vec<Op> {
        self.by_ref().take(count).collect()
    }

    fn below(&mut self, end: u64) -> u64 {
        self.rng.random_range(0..end.max(1))
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.rng.random_range(0..of.len())]
    }

    /// A path whose last name mostly has the role `role`.
    fn path(&mut self, role: char) -> String {
        let depth = self.pick(&[0, 0, 0, 0, 0, 1, 1, 1, 2]);
        let mut path = String::new();
        for _ in 0..depth {
            let role = if self.one_in(30) { 's' } else { 'd' };
            path.push_str(&format!("{role}{}/", self.below(3)));
        }
        let role = if self.one_in(10) { self.pick(&['d', 'f', 's']) } else { role };
        let names = if role == 'f' { 5 } else { 3 };
        path.push_str(&format!("{role}{}", self.below(names)));
        if self.one_in(40) {
            // Long names take several slots of an F2FS directory; 256 is one too long.
            let len = self.pick(&[9, 17, 100, 253, 254]);
            path.push_str(&"x".repeat(len));
        }
        path
    }

    /// A file to use: by path, or by a handle that may have outlived its name.
    fn file(&mut self) -> String {
        if self.one_in(8) { format!("#{}", self.below(3)) } else { self.path('f') }
    }

    /// Anything that exists, a file more often than a directory.
    fn any(&mut self) -> String {
        let role = self.pick(&['f', 'f', 'f', 'd', 'd', 's']);
        self.path(role)
    }

    fn offset(&mut self) -> u64 {
        let end = self.mix.file_bytes * if self.one_in(30) { 16 } else { 1 };
        match self.below(3) {
            0 => self.below(end.min(2 * PAGE)),
            1 => self.below(end / PAGE) * PAGE,
            _ => self.below(end),
        }
    }

    fn len(&mut self) -> u64 {
        match self.below(8) {
            0 => PAGE,
            1 => PAGE * (1 + self.below(16)),
            2 => 1 + self.below(64 * 1024),
            3 => 0,
            _ => 1 + self.below(2 * PAGE),
        }
    }

    fn seed(&mut self) -> u32 {
        if self.one_in(20) { 0 } else { self.rng.random_range(1..1000) }
    }

    fn names(&mut self) -> Op {
        match self.below(20) {
            0..8 => Op::Create { path: self.path('f'), perm: self.pick(&[0o644, 0o600, 0o6755]) },
            8..12 => Op::Mkdir { path: self.path('d'), perm: self.pick(&[0o755, 0o700, 0o2775]) },
            12..14 => {
                let target = self.any();
                Op::Symlink { target, path: self.path('s') }
            }
            14 => self.node(),
            15..18 => Op::Unlink { path: self.path('f') },
            18 => Op::Unlink { path: self.path('s') },
            _ => Op::Rmdir { path: self.path('d') },
        }
    }

    fn node(&mut self) -> Op {
        let kind = self.pick(&[
            FileKind::Fifo,
            FileKind::Socket,
            FileKind::CharDevice,
            FileKind::BlockDevice,
        ]);
        let device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
        let rdev = if device { self.pick(&[0x103, 0x801, 0x0010_3207]) } else { 0 };
        Op::Mknod { path: self.path('f'), kind, perm: 0o660, rdev }
    }

    fn moves(&mut self) -> Op {
        if self.one_in(3) {
            return Op::Link { from: self.path('f'), path: self.path('f') };
        }
        let role = self.pick(&['f', 'f', 'd']);
        let flags = self.pick(&[
            RenameFlags::empty(),
            RenameFlags::empty(),
            RenameFlags::NOREPLACE,
            RenameFlags::EXCHANGE,
        ]);
        Op::Rename { from: self.path(role), path: self.path(role), flags }
    }

    fn data(&mut self) -> Op {
        match self.below(10) {
            0..6 => Op::Write {
                path: self.file(),
                offset: self.offset(),
                len: self.len(),
                seed: self.seed(),
            },
            6..9 => Op::Append { path: self.file(), len: self.len(), seed: self.seed() },
            _ => Op::Copy {
                from: self.file(),
                from_offset: self.offset(),
                path: self.file(),
                offset: self.offset(),
                len: self.len(),
            },
        }
    }

    fn space(&mut self) -> Op {
        const MODES: [FallocateMode; 8] = [
            FallocateMode::empty(),
            FallocateMode::KEEP_SIZE,
            FallocateMode::PUNCH_HOLE.union(FallocateMode::KEEP_SIZE),
            FallocateMode::ZERO_RANGE,
            FallocateMode::ZERO_RANGE.union(FallocateMode::KEEP_SIZE),
            FallocateMode::COLLAPSE_RANGE,
            FallocateMode::INSERT_RANGE,
            FallocateMode::PUNCH_HOLE,
        ];
        if self.one_in(2) {
            return Op::Truncate { path: self.file(), size: self.offset() };
        }
        let mode = self.pick(&MODES);
        let moves = mode.intersects(FallocateMode::COLLAPSE_RANGE | FallocateMode::INSERT_RANGE);
        let (mut offset, mut len) = (self.offset(), self.len());
        if moves && !self.one_in(10) {
            (offset, len) = (offset / 4 / PAGE * PAGE, len.next_multiple_of(PAGE));
        }
        Op::Fallocate { path: self.file(), mode, offset, len }
    }

    fn attributes(&mut self) -> Op {
        let (path, name) = (self.xattr_owner(), self.xattr_name());
        match self.below(8) {
            0 => Op::Chmod { path: self.file(), perm: self.pick(&[0o644, 0o755, 0o1777, 0o400]) },
            1 => Op::Chown { path: self.file(), uid: self.pick(&[0, 1000]), gid: 100 },
            2 => Op::RemoveXattr { path, name },
            _ => {
                let mode = self.pick(&[XattrMode::Set, XattrMode::Create, XattrMode::Replace]);
                let len = self.pick(&[0, 1, 20, 100, 400]);
                Op::SetXattr { path, name, len, seed: self.seed(), mode }
            }
        }
    }

    /// Mostly one of four inodes, since otherwise no attribute would be used twice.
    fn xattr_owner(&mut self) -> String {
        if self.one_in(4) { self.any() } else { self.pick(&["f0", "f1", "d0", "d1/d2"]).into() }
    }

    fn xattr_name(&mut self) -> String {
        const RARE: [&str; 4] = ["user.a_longer_name", "trusted.t", "security.s", "bad.x"];
        let rare = self.pick(&RARE);
        self.pick(&["user.a", "user.a", "user.a", "user.b", rare]).to_string()
    }

    fn handles(&mut self) -> Op {
        let handle = self.below(3).to_string();
        if self.one_in(2) {
            Op::Close { handle }
        } else {
            Op::Open { path: self.path('f'), handle }
        }
    }

    fn reads(&mut self) -> Op {
        match self.below(5) {
            0..2 => Op::Read { path: self.file(), offset: self.offset(), len: self.len() },
            2 => Op::Stat { path: self.any() },
            3 => Op::List { path: self.path('d') },
            _ => Op::GetXattr { path: self.xattr_owner(), name: self.xattr_name() },
        }
    }

    fn syncs(&mut self) -> Op {
        match self.below(8) {
            0 => Op::Sync,
            1 => Op::Fsync { path: self.path('d') },
            2..4 => Op::Fdatasync { path: self.file() },
            _ => Op::Fsync { path: self.file() },
        }
    }
}

impl Iterator for Generator {
    type Item = Op;

    fn next(&mut self) -> Option<Op> {
        match self.prelude.next() {
            Some(path) => Some(Op::Mkdir { path: (*path).into(), perm: 0o755 }),
            None => Some(self.random_op()),
        }
    }
}

impl Generator {
    /// The next operation after the prelude.
    pub(super) fn random_op(&mut self) -> Op {
        let mix = self.mix;
        let families: [(u32, Family); 8] = [
            (mix.names, Self::names),
            (mix.moves, Self::moves),
            (mix.data, Self::data),
            (mix.space, Self::space),
            (mix.attributes, Self::attributes),
            (mix.handles, Self::handles),
            (mix.reads, Self::reads),
            (mix.syncs, Self::syncs),
        ];
        let total: u64 = families.iter().map(|family| u64::from(family.0)).sum();
        let mut ticket = self.below(total);
        for (weight, make) in families {
            if ticket < u64::from(weight) {
                return make(self);
            }
            ticket -= u64::from(weight);
        }
        Op::Sync
    }
}
