//! A file system for tests of the lab itself: everything in memory, and every fsync writes all of
//! it to the drive as one checksummed snapshot, then flushes. Slow, simple, and right, unless
//! `inject=drop-flush` takes the flush away, or `inject=drop-names` the names at an unmount. Zoned
//! drives only.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

use cores::Mutex;
use drive::{BLOCK_SIZE, Block, Blocks, Command, Drive, Output, ZoneAction, ZoneKind};
use f2fs::technique;
use vfs::kind::{self, Checked, Format, Label, Recovery, Technique, Volume};
use vfs::{
    Attr, Creator, DirEntry, Errno, FallocateMode, FileKind, FileSystem, Ino, MemFs, NewInode,
    RenameFlags, Seek, SetAttr, StatFs, Timespec, XattrMode,
};

const MAGIC: u64 = 0x5354_5241_4e44_4c4e;

/// The subject.
pub(crate) struct Snapshots;

impl Format for Snapshots {
    fn name(&self) -> &'static str {
        "snapshots"
    }

    fn make(&self, drive: &Arc<dyn Drive>) -> kind::Result<()> {
        let io = Io { drive: drive.clone(), next: 0, generation: 0, flush: true };
        io.call(Command::ManageZone { action: ZoneAction::Reset, zone: None }).map(drop)?;
        Ok(())
    }

    fn probe(&self, _drive: &Arc<dyn Drive>) -> kind::Result<bool> {
        Ok(true)
    }

    fn check_options(&self, options: &str) -> kind::Result<String> {
        Ok(options.to_owned())
    }

    fn techniques(&self) -> &'static [&'static Technique] {
        &[technique::STRICT]
    }

    fn label(&self, _drive: &Arc<dyn Drive>) -> kind::Result<Label> {
        Ok(Label { label: String::new(), uuid: [0; 16] })
    }

    fn mount(&self, drive: Arc<dyn Drive>, options: &str) -> kind::Result<Arc<dyn Volume>> {
        let flush = !options.contains("inject=drop-flush");
        let mut io = Io { drive, next: 0, generation: 0, flush };
        let memory = MemFs::new().without_atime();
        if let Some(bytes) = io.newest()? {
            restore(&memory, &bytes)?;
        }
        let keeps = !options.contains("inject=drop-names");
        Ok(Arc::new(SnapshotFs { memory, io: Mutex::new(io), keeps }))
    }

    fn check(&self, drive: &Arc<dyn Drive>) -> kind::Result<Checked> {
        self.mount(drive.clone(), "").map(|_| Checked::default())
    }
}

struct Io {
    drive: Arc<dyn Drive>,
    next: u64,
    generation: u64,
    flush: bool,
}

impl Io {
    fn call(&self, command: Command) -> vfs::Result<Output> {
        self.drive.submit(0, 0, command);
        let done = self.drive.wait(0).expect("one command is in flight");
        done.result.map_err(|error| vfs::Error::caused(Errno::IO, error))
    }

    fn read(&self, lba: u64, blocks: u64) -> vfs::Result<Vec<u8>> {
        let step = u64::from(self.drive.identify().max_transfer);
        let mut bytes = Vec::new();
        for at in (0..blocks).step_by(step as usize) {
            let blocks = step.min(blocks - at) as u32;
            let Output::Data(data) = self.call(Command::Read { lba: lba + at, blocks })? else {
                panic!("a read answers data");
            };
            data.iter().for_each(|b| bytes.extend_from_slice(b.bytes()));
        }
        Ok(bytes)
    }

    /// The newest whole snapshot; new ones go to zones nothing was written in.
    fn newest(&mut self) -> vfs::Result<Option<Vec<u8>>> {
        let Output::Zones(zones) = self.call(Command::ReportZones { lba: 0, max: u32::MAX })?
        else {
            panic!("a report answers zones");
        };
        let mut best = None;
        for zone in zones.iter().filter(|z| z.kind == ZoneKind::SequentialWriteRequired) {
            let (mut at, end) = (zone.start, zone.wp.min(zone.start + zone.capacity));
            while at < end {
                let head = self.read(at, 1)?;
                let word = |i: usize| {
                    u64::from_le_bytes(head[i * 8..i * 8 + 8].try_into().expect("eight bytes"))
                };
                let blocks = word(2).div_ceil(BLOCK_SIZE as u64);
                if word(0) != MAGIC || at + 1 + blocks > end {
                    break;
                }
                let mut body = self.read(at + 1, blocks)?;
                body.truncate(word(2) as usize);
                if digest(&body) == word(3) && word(1) > self.generation {
                    self.generation = word(1);
                    best = Some(body);
                }
                at += 1 + blocks;
            }
        }
        let empty = zones.iter().find(|z| z.wp == z.start);
        self.next = empty.map_or(0, |z| z.start);
        Ok(best)
    }

    fn store(&mut self, body: &[u8]) -> vfs::Result<()> {
        let zones = self.drive.identify().zones.expect("a zoned drive");
        let blocks = 1 + (body.len() as u64).div_ceil(BLOCK_SIZE as u64);
        if self.next % zones.size + blocks > zones.capacity {
            self.next = (self.next / zones.size + 1) * zones.size;
        }
        self.generation += 1;
        let words = [MAGIC, self.generation, body.len() as u64, digest(body)];
        let head: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let pages = std::iter::once(Block::from_prefix(&head))
            .chain(body.chunks(BLOCK_SIZE).map(Block::from_prefix));
        for page in pages {
            let data = Blocks::from_iter([page]);
            self.call(Command::Write { lba: self.next, data, fua: false })?;
            self.next += 1;
        }
        if self.flush {
            self.call(Command::Flush)?;
        }
        Ok(())
    }
}

fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Inode, kind, name, attributes, contents, then the entries of a directory.
fn save(fs: &MemFs, dir: Ino, out: &mut Vec<u8>) -> vfs::Result<()> {
    let entries = vfs::path::read_dir(fs, dir)?;
    out.extend_from_slice(&(entries.len() as u64).to_le_bytes());
    for entry in entries {
        let attr = fs.getattr(entry.ino)?;
        put(out, &entry.name);
        out.extend_from_slice(&(attr.kind.mode_bits() | u32::from(attr.perm)).to_le_bytes());
        out.extend_from_slice(&attr.uid.to_le_bytes());
        out.extend_from_slice(&attr.gid.to_le_bytes());
        for time in [attr.atime, attr.mtime, attr.ctime] {
            out.extend_from_slice(&time.secs.to_le_bytes());
            out.extend_from_slice(&time.nanos.to_le_bytes());
        }
        out.extend_from_slice(&attr.rdev.to_le_bytes());
        out.extend_from_slice(&attr.ino.to_le_bytes());
        let names = fs.listxattr(entry.ino)?;
        out.extend_from_slice(&(names.len() as u64).to_le_bytes());
        for name in names {
            put(out, &name);
            put(out, &fs.getxattr(entry.ino, &name)?);
        }
        match attr.kind {
            FileKind::Directory => save(fs, entry.ino, out)?,
            FileKind::Symlink => put(out, &fs.readlink(entry.ino)?),
            FileKind::Regular => put(out, &vfs::path::read_to_vec(fs, entry.ino)?),
            _ => put(out, b""),
        }
    }
    Ok(())
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(len);
        self.0 = rest;
        head
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take(8).try_into().expect("eight bytes"))
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take(4).try_into().expect("four bytes"))
    }

    fn bytes(&mut self) -> &'a [u8] {
        let len = self.u64() as usize;
        self.take(len)
    }
}

fn restore(fs: &MemFs, bytes: &[u8]) -> vfs::Result<()> {
    restore_dir(fs, fs.root(), &mut Reader(bytes), &mut BTreeMap::new())
}

/// `made` maps the inodes that were restored before.
fn restore_dir(
    fs: &MemFs,
    dir: Ino,
    from: &mut Reader<'_>,
    made: &mut BTreeMap<Ino, Ino>,
) -> vfs::Result<()> {
    let who = Creator::default();
    for _ in 0..from.u64() {
        let name = from.bytes();
        let (mode, uid, gid) = (from.u32(), from.u32(), from.u32());
        let times = [(); 3].map(|()| Timespec { secs: from.u64() as i64, nanos: from.u32() });
        let [atime, mtime, ctime] = times.map(Some);
        let (rdev, old) = (from.u64(), from.u64());
        let xattrs: Vec<_> = (0..from.u64()).map(|_| (from.bytes(), from.bytes())).collect();
        let perm = (mode & 0o7777) as u16;
        let kind = FileKind::from_mode(mode).ok_or(Errno::UCLEAN)?;
        let ino = match kind {
            FileKind::Directory => {
                let ino = fs.mkdir(dir, name, perm, who)?.ino;
                restore_dir(fs, ino, from, made)?;
                ino
            }
            FileKind::Symlink => fs.symlink(dir, name, from.bytes(), who)?.ino,
            _ => {
                let bytes = from.bytes();
                match made.get(&old) {
                    Some(&ino) => fs.link(ino, dir, name)?.ino,
                    None => {
                        let ino = fs.mknod(dir, name, kind, perm, rdev, who)?.ino;
                        vfs::path::write_all(fs, ino, 0, bytes)?;
                        ino
                    }
                }
            }
        };
        made.insert(old, ino);
        for (name, value) in xattrs {
            fs.setxattr(ino, name, value, XattrMode::Set)?;
        }
        let (perm, uid, gid) = (Some(perm), Some(uid), Some(gid));
        fs.setattr(ino, &SetAttr { perm, uid, gid, atime, mtime, ctime, size: None })?;
    }
    Ok(())
}

struct SnapshotFs {
    memory: MemFs,
    io: Mutex<Io>,
    /// Everything there at an unmount is there at the next mount.
    keeps: bool,
}

impl SnapshotFs {
    fn store(&self) -> vfs::Result<()> {
        self.store_all_of(&self.memory)
    }

    fn store_all_of(&self, memory: &MemFs) -> vfs::Result<()> {
        let mut body = Vec::new();
        save(memory, memory.root(), &mut body)?;
        self.io.lock().store(&body)
    }
}

/// Calls that only concern memory.
macro_rules! in_memory {
    ($(fn $name:ident(&self $(, $arg:ident: $type:ty)*) $(-> $result:ty)?;)*) => {
        $(fn $name(&self $(, $arg: $type)*) $(-> $result)? { self.memory.$name($($arg),*) })*
    };
}

impl Volume for SnapshotFs {
    fn recovery(&self) -> Recovery {
        Recovery { clean: true, ..Recovery::default() }
    }
}

impl FileSystem for SnapshotFs {
    in_memory! {
        fn root(&self) -> Ino;
        fn lookup(&self, parent: Ino, name: &[u8]) -> vfs::Result<Attr>;
        fn getattr(&self, ino: Ino) -> vfs::Result<Attr>;
        fn setattr(&self, ino: Ino, set: &SetAttr) -> vfs::Result<Attr>;
        fn make(&self, parent: Ino, name: &[u8], new: &NewInode<'_>) -> vfs::Result<Attr>;
        fn readlink(&self, ino: Ino) -> vfs::Result<Vec<u8>>;
        fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> vfs::Result<Attr>;
        fn unlink(&self, parent: Ino, name: &[u8]) -> vfs::Result<()>;
        fn rmdir(&self, parent: Ino, name: &[u8]) -> vfs::Result<()>;
        fn rename(&self, parent: Ino, name: &[u8], to: Ino, new: &[u8], flags: RenameFlags)
            -> vfs::Result<()>;
        fn open(&self, ino: Ino) -> vfs::Result<()>;
        fn release(&self, ino: Ino);
        fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> vfs::Result<usize>;
        fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> vfs::Result<usize>;
        fn fallocate(&self, ino: Ino, mode: FallocateMode, offset: u64, len: u64)
            -> vfs::Result<()>;
        fn lseek(&self, ino: Ino, offset: u64, seek: Seek) -> vfs::Result<u64>;
        fn readdir(&self, ino: Ino, from: u64, emit: &mut dyn FnMut(DirEntry) -> bool)
            -> vfs::Result<()>;
        fn getxattr(&self, ino: Ino, name: &[u8]) -> vfs::Result<Vec<u8>>;
        fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode)
            -> vfs::Result<()>;
        fn listxattr(&self, ino: Ino) -> vfs::Result<Vec<Vec<u8>>>;
        fn removexattr(&self, ino: Ino, name: &[u8]) -> vfs::Result<()>;
        fn statfs(&self) -> vfs::Result<StatFs>;
    }

    fn fsync(&self, _ino: Ino, _datasync: bool) -> vfs::Result<()> {
        self.store()
    }

    fn sync(&self) -> vfs::Result<()> {
        self.store()
    }

    fn unmount(&self) -> vfs::Result<()> {
        if self.keeps { self.store() } else { self.store_all_of(&MemFs::new()) }
    }
}
