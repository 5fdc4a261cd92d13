//! What one thread does.

use std::sync::Arc;

use vfs::{Errno, FallocateMode, FileKind, InodeFlags, Timespec};

use super::World;
use super::table::{File, Name};
use crate::workload::Rng;
use crate::workload::recorder::{Node, Recorder};
use crate::{Error, Result};

/// Actions of a thread.
const ACTIONS: usize = 20;

/// Files of its own.
const OWN: usize = 2;

/// Blocks of a shared file that are written: in the inode, and in a direct node.
pub(super) const SHARED_BLOCKS: [u64; 8] = [0, 1, 2, 3, 1000, 1001, 1002, 1003];

/// Where the blocks of an own file are: the last one in a direct node.
const OWN_BLOCKS: [u64; 6] = [0, 1, 2, 3, 4, 1100];

/// Names that anybody moves files to.
const CONTENDED: u64 = 2;

const BLOCK: u64 = 4096;

/// Bytes of a hole in what fills the volume.
const HOLE: u64 = 32 * BLOCK;

/// One thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Bytes somewhere in a private file, and an fsync.
    Overwrite,
    /// Bytes at its end, and an fsync.
    Append,
    /// A range of a private file preallocated, punched or zeroed, and perhaps an fsync.
    Ranges,
    /// Whole blocks of a private file written past the cache, and an fsync.
    Direct,
    /// A new private file and its first fsync; the one before it may be removed.
    Own,
    /// Whole blocks of a shared file, and perhaps an fsync.
    Shared,
    /// A shared file cut short, made long again, and perhaps an fsync.
    Cut,
    /// Attributes of a shared file.
    Attributes,
    /// Times and flags of a private file, one extended attribute more and one less, and perhaps an
    /// fsync.
    OwnAttributes,
    /// A file under a name of the table.
    Make,
    /// A file moved, or given another name.
    Move,
    /// The same into a directory just made.
    MoveIntoNew,
    /// A file removed, and another made under its name.
    Again,
    /// A block of anybody's file, and perhaps an fsync.
    Any,
    /// An fsync of a file that is not held open, and may be gone.
    Stray,
    /// A file moved over one that others move theirs to or remove.
    Replace,
    /// An fsync of a directory.
    Directory,
    /// A block of the files that fill the volume, perhaps a hole, and an fsync.
    Filling,
    /// More than the cache should hold, and no fsync.
    Burst,
    /// A section cleaned.
    Clean,
    /// Everything made durable.
    Sync,
    /// A device, made in a directory that others change, and perhaps an fsync of that.
    Device,
}

/// One thread and what it knows.
pub(super) struct Script {
    world: Arc<World>,
    thread: usize,
    threads: usize,
    rng: Rng,
    own: Vec<(Vec<u8>, Node)>,
    made: usize,
}

impl Script {
    /// A script with its first files.
    pub(super) fn new(world: Arc<World>, thread: usize, threads: usize, seed: u64) -> Result<Self> {
        let rng = Rng::new(seed, 100 + thread as u64);
        let mut script = Self { world, thread, threads, rng, own: Vec::new(), made: 0 };
        for _ in 0..OWN {
            let node = script.create_own()?;
            for index in OWN_BLOCKS {
                script.write_block(node, index)?;
            }
        }
        Ok(script)
    }

    /// Does it all.
    pub(super) fn run(mut self) -> Result<()> {
        let weights = self.world.mix.weights();
        let all = weights.iter().map(|(_, weight)| weight).sum();
        for _ in 0..ACTIONS {
            let mut at = self.rng.below(all);
            let action = weights.iter().find(|(_, weight)| {
                let is_it = at < *weight;
                at = at.saturating_sub(*weight);
                is_it
            });
            let Some((action, _)) = action else { continue };
            self.act(*action)?;
        }
        Ok(())
    }

    fn act(&mut self, action: Action) -> Result<()> {
        match action {
            Action::Overwrite => self.overwrite(),
            Action::Append => self.append(),
            Action::Ranges => self.ranges(),
            Action::Direct => self.direct(),
            Action::Own => self.new_own(),
            Action::Shared => self.shared(),
            Action::Cut => self.cut(),
            Action::Attributes => self.attributes(),
            Action::OwnAttributes => self.own_attributes(),
            Action::Device => self.device(),
            Action::Make => self.make(),
            Action::Move => self.move_one(),
            Action::MoveIntoNew => self.move_into_new(),
            Action::Again => self.again(),
            Action::Any => self.any(),
            Action::Stray => self.stray(),
            Action::Replace => self.replace(),
            Action::Directory => {
                let dir = if self.chance(2) { self.world.table.dir } else { self.fs().root() };
                self.fs().fsync(dir)
            }
            Action::Filling => self.filling(),
            Action::Burst => self.burst(),
            Action::Clean => self.fs().clean(),
            Action::Sync => self.fs().sync(),
        }
    }

    fn fs(&self) -> &Recorder {
        &self.world.fs
    }

    /// Once in `of` times.
    fn chance(&mut self, of: u64) -> bool {
        self.rng.below(of) == 0
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.rng.below(all.len() as u64) as usize]
    }

    fn write_block(&mut self, node: Node, index: u64) -> Result<()> {
        let bytes = self.rng.bytes(BLOCK as usize);
        self.fs().write(node, index * BLOCK, &bytes)
    }

    fn own(&mut self) -> Node {
        let at = self.rng.below(self.own.len() as u64) as usize;
        self.own[at].1
    }

    fn create_own(&mut self) -> Result<Node> {
        let name = format!("t{}f{}", self.thread, self.made).into_bytes();
        self.made += 1;
        let node = self.fs().create(self.fs().root(), &name, 0o644)?;
        self.own.push((name, node));
        Ok(node)
    }

    fn overwrite(&mut self) -> Result<()> {
        let node = self.own();
        for _ in 0..self.rng.within(1, 3) {
            let at = self.one_of(&OWN_BLOCKS) * BLOCK + self.rng.below(2) * self.rng.below(BLOCK);
            let bytes = self.rng.within(1, 2 * BLOCK) as usize;
            let bytes = self.rng.bytes(bytes);
            self.fs().write(node, at, &bytes)?;
        }
        if self.chance(4) { self.fs().fdatasync(node) } else { self.fs().fsync(node) }
    }

    fn append(&mut self) -> Result<()> {
        let node = self.own();
        let bytes = self.rng.within(1, 9000) as usize;
        let bytes = self.rng.bytes(bytes);
        self.fs().write(node, self.fs().size(node), &bytes)?;
        self.fs().fsync(node)
    }

    fn ranges(&mut self) -> Result<()> {
        let node = self.own();
        let at = self.rng.below(8) * BLOCK + self.rng.below(2) * self.rng.below(BLOCK);
        let len = self.rng.within(1, 4 * BLOCK);
        let keep = FallocateMode::KEEP_SIZE;
        let mode = self.one_of(&[
            FallocateMode::empty(),
            keep,
            FallocateMode::PUNCH_HOLE | keep,
            FallocateMode::ZERO_RANGE,
        ]);
        self.fs().fallocate(node, mode, at, len)?;
        if self.chance(3) { Ok(()) } else { self.fs().fsync(node) }
    }

    fn direct(&mut self) -> Result<()> {
        let node = self.own();
        let at = self.rng.below(8) * BLOCK;
        let blocks = self.rng.within(1, 4) as usize;
        let bytes = self.rng.bytes(blocks * BLOCK as usize);
        self.fs().write_direct(node, at, &bytes)?;
        if self.chance(2) { self.fs().fdatasync(node) } else { self.fs().fsync(node) }
    }

    fn new_own(&mut self) -> Result<()> {
        let node = self.create_own()?;
        let bytes = self.rng.within(1, 20_000) as usize;
        let bytes = self.rng.bytes(bytes);
        self.fs().write(node, 0, &bytes)?;
        self.fs().fsync(node)?;
        if self.chance(2) {
            let (name, _) = self.own.remove(0);
            self.fs().unlink(self.fs().root(), &name)?;
        }
        Ok(())
    }

    fn shared(&mut self) -> Result<()> {
        let node = self.one_of(&self.world.clone().shared);
        for _ in 0..self.rng.within(1, 3) {
            let index = self.one_of(&SHARED_BLOCKS);
            self.write_block(node, index)?;
        }
        if self.chance(3) { Ok(()) } else { self.fs().fsync(node) }
    }

    fn cut(&mut self) -> Result<()> {
        let node = self.one_of(&self.world.clone().shared);
        let keep = self.one_of(&[0, 2, 1001]);
        self.fs().truncate(node, keep * BLOCK)?;
        self.fs().truncate(node, 1004 * BLOCK)?;
        if self.chance(3) { Ok(()) } else { self.fs().fsync(node) }
    }

    fn attributes(&mut self) -> Result<()> {
        let node = self.one_of(&self.world.clone().shared);
        let value = self.rng.within(1, 300) as usize;
        let value = self.rng.bytes(value);
        self.fs().set_xattr(node, b"user.note", &value)?;
        let perm = self.one_of(&[0o600, 0o644, 0o660]);
        self.fs().chmod(node, perm)?;
        self.fs().fsync(node)
    }

    fn own_attributes(&mut self) -> Result<()> {
        let node = self.own();
        let time = |secs| Some(Timespec { secs: secs as i64, nanos: 1 });
        let (atime, mtime) = (time(self.rng.below(1 << 33)), time(self.rng.below(1 << 33)));
        self.fs().utimens(node, atime, mtime)?;
        let flags = self.one_of(&[InodeFlags::empty(), InodeFlags::NODUMP, InodeFlags::NOATIME]);
        self.fs().chattr(node, flags)?;
        let (one, other) =
            if self.chance(2) { (b"user.a", b"user.b") } else { (b"user.b", b"user.a") };
        let value = self.rng.within(1, 100) as usize;
        let value = self.rng.bytes(value);
        self.fs().set_xattr(node, one, &value)?;
        unless(self.fs().remove_xattr(node, other), &[Errno::NODATA])?;
        if self.chance(3) { Ok(()) } else { self.fs().fsync(node) }
    }

    fn device(&mut self) -> Result<()> {
        let (root, dir) = (self.fs().root(), self.world.table.dir);
        let dir = if self.chance(2) { dir } else { root };
        let name = format!("t{}d{}", self.thread, self.made).into_bytes();
        self.made += 1;
        let number = self.rng.below(1 << 32);
        self.fs().special(dir, &name, FileKind::BlockDevice, 0o600, number)?;
        if self.chance(2) {
            let to = [&name[..], b"moved"].concat();
            self.fs().rename(dir, &name, root, &to)?;
        }
        if self.chance(2) { Ok(()) } else { self.fs().fsync(dir) }
    }

    /// Makes a file, with contents, and holds it open.
    fn make_at(&mut self, name: &mut Name) -> Result<Arc<File>> {
        let node = self.fs().create(name.dir, &name.name, 0o644)?;
        let file = File::open(self.fs(), node)?;
        name.file = Some(file.clone());
        self.write_block(node, 0)?;
        Ok(file)
    }

    fn make(&mut self) -> Result<()> {
        let world = self.world.clone();
        let Some(mut name) = world.table.take(false, &mut self.rng) else { return self.any() };
        let file = self.make_at(&mut name)?;
        world.table.put(name);
        // Others may move or remove it from here on.
        self.fs().fsync(file.node)
    }

    /// A used name and a free one, both reserved.
    fn two(&mut self) -> Option<(Name, Name)> {
        let world = self.world.clone();
        let from = world.table.take(true, &mut self.rng)?;
        match world.table.take(false, &mut self.rng) {
            Some(to) => Some((from, to)),
            None => {
                world.table.put(from);
                None
            }
        }
    }

    /// Moves the file called `from`, or calls it `to` as well.
    fn relocate(&mut self, from: &mut Name, to: &mut Name) -> Result<()> {
        let Some(file) = from.file.clone() else { return Ok(()) };
        if self.chance(3) {
            self.fs().link(file.node, to.dir, &to.name)?;
        } else {
            self.fs().rename(from.dir, &from.name, to.dir, &to.name)?;
            from.file = None;
        }
        to.file = Some(file);
        Ok(())
    }

    fn move_one(&mut self) -> Result<()> {
        let Some((mut from, mut to)) = self.two() else { return self.make() };
        let file = from.file.clone();
        let done = self.relocate(&mut from, &mut to);
        self.world.table.put(from);
        self.world.table.put(to);
        done?;
        match file {
            Some(file) if self.chance(2) => self.fs().fsync(file.node),
            _ => Ok(()),
        }
    }

    fn move_into_new(&mut self) -> Result<()> {
        let world = self.world.clone();
        let Some(mut from) = world.table.take(true, &mut self.rng) else { return self.make() };
        let name = format!("m{}-{}", self.thread, self.made);
        self.made += 1;
        let parent = if self.chance(2) { world.table.dir } else { self.fs().root() };
        let dir = self.fs().mkdir(parent, name.as_bytes(), 0o755)?;
        let Some(file) = from.file.clone() else { return Ok(()) };
        if self.chance(2) {
            self.fs().link(file.node, dir, b"here")?;
        } else {
            self.fs().rename(from.dir, &from.name, dir, b"here")?;
            from.file = None;
        }
        world.table.put(from);
        world.table.add(dir, "here", Some(file.clone()));
        if self.chance(3) { self.fs().fsync(file.node) } else { Ok(()) }
    }

    fn again(&mut self) -> Result<()> {
        let world = self.world.clone();
        let Some(mut name) = world.table.take(true, &mut self.rng) else { return self.make() };
        self.fs().unlink(name.dir, &name.name)?;
        name.file = None;
        let made = if self.chance(4) {
            Ok(())
        } else {
            self.make_at(&mut name).and_then(|file| self.fs().fsync(file.node))
        };
        world.table.put(name);
        made
    }

    fn any(&mut self) -> Result<()> {
        let Some(file) = self.world.clone().table.any(&mut self.rng) else { return Ok(()) };
        let index = self.rng.below(4);
        self.write_block(file.node, index)?;
        if self.chance(4) { Ok(()) } else { self.fs().fsync(file.node) }
    }

    fn stray(&mut self) -> Result<()> {
        let file = self.world.clone().table.any(&mut self.rng);
        let Some(node) = file.map(|file| file.node) else { return Ok(()) };
        let done = self.fs().fsync(node);
        unless(done, &[Errno::NOENT, Errno::STALE])
    }

    fn replace(&mut self) -> Result<()> {
        let (root, world) = (self.fs().root(), self.world.clone());
        let name = format!("t{}r{}", self.thread, self.made).into_bytes();
        self.made += 1;
        let to = format!("c{}", self.rng.below(CONTENDED)).into_bytes();
        let node = self.fs().create(root, &name, 0o644)?;
        let file = File::open(self.fs(), node)?;
        self.write_block(node, 0)?;
        if self.chance(2) {
            self.fs().fsync(node)?;
        }
        self.fs().rename(root, &name, world.table.dir, &to)?;
        self.fs().fsync(file.node)?;
        drop(file);
        if self.chance(4) {
            let gone = self.fs().unlink(world.table.dir, &to);
            unless(gone, &[Errno::NOENT])?;
        }
        Ok(())
    }

    fn filling(&mut self) -> Result<()> {
        let world = self.world.clone();
        let (files, of) = (world.filling.len(), self.threads);
        let own = (files + of - 1 - self.thread) / of;
        let number = self.thread + of * self.rng.below(own as u64) as usize;
        let Some(&node) = world.filling.get(number) else { return Ok(()) };
        let index = self.rng.below(super::FILLING as u64 / BLOCK);
        self.write_block(node, index)?;
        if self.chance(4) {
            // Without it a drive that is written in place has nothing to clean.
            let at = self.rng.below(super::FILLING as u64 / HOLE) * HOLE;
            self.fs().fallocate(
                node,
                FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE,
                at,
                HOLE,
            )?;
        }
        self.fs().fsync(node)
    }

    fn burst(&mut self) -> Result<()> {
        let node = self.own();
        let first = self.rng.below(4);
        for index in 0..64 {
            self.write_block(node, first + index)?;
        }
        Ok(())
    }
}

/// `done`, or one of the errors that other threads can cause.
fn unless(done: Result<()>, answers: &[Errno]) -> Result<()> {
    match done {
        Err(Error::FileSystem { source, .. }) if answers.contains(&source.errno()) => Ok(()),
        done => done,
    }
}
