//! A mounted volume under a harness: while programs use it, it can lose what is not durable, now or
//! at a given call, and go on with what is left, as if the machine had been off for a moment.
//!
//! Calls share one lock, and a cut takes it exclusively. So each call is done before the cut or
//! after it, and what is noted about a call is noted in the same critical section as the call.
//! Calls on open inodes that the cut took fail with `ESTALE`, even if a new file gets the same
//! number: it is shown with another generation.
//!
//! A loss is reported as a kernel reports failed write-back: an fsync of the file, or of the
//! directory with the name, fails with `EIO` once through each open file (`told`).

mod calls;
mod faults;
mod gate;
mod keep;
mod lost;
mod names;
mod notes;
mod told;
mod torn;
mod unsynced;
mod volume;

use std::any::Any;
use std::result::Result as StdResult;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cores::{Mutex, Rank, RwLock};
use drive::{Drive, Ssd};
use vfs::kind::{Format, Volume, Witness};
use vfs::{Attr, Creator, Errno, Ino, Result};

pub use faults::{Call, Clear, Crash, Fail, Fault, FaultError, When};
use faults::{Due, Event, Faults};
pub use gate::Gate;
use keep::Kept;
use notes::Notes;
pub use torn::{Parts, Torn, TornOp, TornSeq};
use torn::{Piece, Tear};
pub use unsynced::{NameChange, UnsyncedFile};

/// What is below a harness, and how it is mounted again.
pub struct Below {
    /// The drive of the volume.
    pub drive: Arc<dyn Drive>,
    /// The emulated drives that it is made of. If there are none, the drive keeps all it was sent,
    /// and only memory is lost.
    pub emulated: Vec<Arc<Ssd>>,
    /// What is in front of the drive if it is a real one.
    pub gate: Option<Gate>,
    /// The file system.
    pub format: &'static dyn Format,
    /// Its mount options.
    pub options: String,
    /// It writes back and cleans by itself, as any mount does.
    pub maintains: bool,
}

/// Something that a harness reports.
#[derive(Clone, Copy, Debug)]
pub enum Report<'a> {
    /// A call begins.
    Called {
        /// Which.
        call: Call,
        /// Path, or the one it comes from.
        from: &'a [u8],
        /// Where it goes.
        to: Option<&'a [u8]>,
        /// Offset and length in bytes.
        range: Option<(u64, u64)>,
    },
    /// A file is closed for the last time by one of those that opened it.
    Closed {
        /// Its path, empty if it has none left.
        path: &'a [u8],
    },
    /// A fault was met.
    Triggered {
        /// At which call.
        call: Call,
        /// Before it or after it.
        when: When,
        /// Files with changes that no fsync has covered.
        files: &'a [UnsyncedFile],
        /// Names of that kind.
        names: &'a [NameChange],
    },
    /// A write is torn: what was not durable is lost, except for these offsets and lengths of the
    /// file.
    Torn {
        /// Which file.
        path: &'a [u8],
        /// Offsets and lengths in bytes.
        ranges: &'a [(u64, u64)],
    },
    /// A write cannot be torn as it was to be.
    Unfit {
        /// Which file.
        path: &'a [u8],
        /// Why.
        why: &'static str,
    },
    /// At that call what was not durable was lost, and the volume goes on with the rest. The kernel
    /// may still have the old contents cached.
    Lost,
    /// It cannot be mounted again, for this reason. Every call fails with `EIO`.
    Ended(&'a str),
}

/// The program that serves a harness.
pub trait Keeper: Send + Sync {
    /// Is told what happens. A request waits meanwhile, so it must not wait for one.
    fn hear(&self, report: Report<'_>);

    /// Ends the process as a power cut would.
    fn die(&self) -> !;
}

/// Which volume there is.
enum Present {
    Mounted(Arc<dyn Volume>),
    /// It could not be mounted again after a loss, or is about to be.
    Lost,
    Unmounted(Arc<dyn Volume>),
}

impl Present {
    fn volume(&self) -> Result<&dyn Volume> {
        match self {
            Self::Mounted(volume) | Self::Unmounted(volume) => Ok(&**volume),
            Self::Lost => Err(Errno::IO.into()),
        }
    }
}

/// See the module's header.
pub struct Harness {
    /// Protects which volume is served.
    present: RwLock<Present>,
    /// Protects the threads of that volume, which end when this is dropped.
    maintenance: Mutex<Option<Box<dyn Any + Send>>>,
    below: Below,
    keeper: Arc<dyn Keeper>,
    /// Where users believe the root to be, in paths that faults name and reports show.
    root: Vec<u8>,
    root_ino: Ino,
    /// Protects what is known of inodes, names and what is not durable.
    notes: Mutex<Notes>,
    /// Protects what is to be done at which call.
    faults: Mutex<Faults>,
    /// Protects whom to tell of failures.
    witness: Mutex<Option<Witness>>,
    losses: AtomicU64,
}

impl Harness {
    /// Puts `volume`, which is mounted from `below`, under a harness. Users believe that its root
    /// is at `root`.
    pub fn new(
        volume: Arc<dyn Volume>,
        below: Below,
        keeper: Arc<dyn Keeper>,
        root: &[u8],
    ) -> Arc<Self> {
        let root_ino = volume.root();
        let harness = Self {
            present: RwLock::ranked(Rank::Harness, "harness", Present::Lost),
            maintenance: Mutex::named("harness maintenance", None),
            below,
            keeper,
            root: root.strip_suffix(b"/").unwrap_or(root).to_vec(),
            root_ino,
            notes: Mutex::named("harness notes", Notes::new(root_ino)),
            faults: Mutex::named("harness faults", Faults::default()),
            witness: Mutex::named("harness witness", None),
            losses: AtomicU64::new(0),
        };
        *harness.present.write() = harness.begin(volume);
        Arc::new(harness)
    }

    /// Adds a fault.
    ///
    /// # Errors
    ///
    /// There are too many.
    pub fn add(&self, fault: Fault) -> StdResult<(), FaultError> {
        self.faults.lock().add(fault, |path| self.placed(path))
    }

    /// From now on every call is reported.
    pub fn report_calls(&self) {
        self.faults.lock().reports_calls = true;
    }

    /// The path of a fault as calls have it: below the root, whether it begins with that or not.
    fn placed(&self, path: &[u8]) -> Vec<u8> {
        let inside = path.strip_prefix(&self.root[..]).filter(|rest| rest.starts_with(b"/"));
        let parts = inside.unwrap_or(path).split(|byte| *byte == b'/');
        let parts = parts.filter(|part| !part.is_empty());
        self.shown(&parts.flat_map(|part| [b"/", part].concat()).collect::<Vec<u8>>())
    }

    /// The path as users see it.
    pub fn shown(&self, path: &[u8]) -> Vec<u8> {
        [&self.root[..], path].concat()
    }

    /// Loses what is not durable, as the power cut of the drives with the choices of `seed` leaves
    /// it, and mounts what is left. No call is under way meanwhile.
    ///
    /// # Errors
    ///
    /// Why it cannot be mounted again. From then on every call fails, unless a later loss ends
    /// better.
    pub fn lose(&self, seed: u64) -> StdResult<(), String> {
        self.lose_alone(&mut self.present.write(), seed)
    }

    /// As [`Harness::lose`], but some of it survives: half of the pages that were written, and half
    /// of the new files, by the choice of `seed`. They are durable then.
    ///
    /// # Errors
    ///
    /// As there, or why they cannot be written.
    pub fn lose_some(&self, seed: u64) -> StdResult<(), String> {
        let text = |error: vfs::Error| error.to_string();
        let mut present = self.present.write();
        let (files, _) = self.notes.lock().unsynced();
        let kept = present.volume().and_then(|volume| keep::choose(volume, &files, seed));
        let kept = kept.map_err(text)?;
        self.lose_alone(&mut present, seed)?;
        let put_back = |volume: &dyn Volume| {
            for Kept { attr, path, pieces } in &kept {
                let is_there = self.notes.lock().enter(attr.ino).is_ok();
                match path {
                    _ if is_there => put(volume, attr.ino, pieces)?,
                    Some(path) => put(volume, made(volume, path, attr)?, pieces)?,
                    None => {}
                }
            }
            volume.sync()
        };
        present.volume().and_then(put_back).map_err(text)
    }

    /// As [`Harness::lose`], for a caller that has the volume alone.
    fn lose_alone(&self, present: &mut Present, seed: u64) -> StdResult<(), String> {
        if matches!(present, Present::Unmounted(_)) {
            return Err("it is unmounted".into());
        }
        let dirty = present.volume().map(|volume| self.notes.lock().dirty_files(volume));
        for drive in &self.below.emulated {
            drive.cut(seed);
        }
        self.below.gate.iter().for_each(Gate::close);
        // Only now: what they still write goes nowhere. The volume has no other user, or its drive
        // would be switched on below it.
        drop(self.maintenance.lock().take());
        *present = Present::Lost;
        let volume = self.mount_again(seed)?;
        self.notes.lock().survive(&*volume, &dirty.unwrap_or_default());
        self.losses.fetch_add(1, Ordering::Relaxed);
        *present = self.begin(volume);
        Ok(())
    }

    fn mount_again(&self, seed: u64) -> StdResult<Arc<dyn Volume>, String> {
        let Below { drive, emulated, gate, format, options, .. } = &self.below;
        gate.iter().for_each(Gate::open);
        for drive in emulated {
            drive.power_again(None, seed).map_err(|error| error.to_string())?;
        }
        format.mount(drive.clone(), options).map_err(|error| error.to_string())
    }

    fn begin(&self, volume: Arc<dyn Volume>) -> Present {
        if let Some(witness) = &*self.witness.lock() {
            volume.report_to(witness.clone());
        }
        *self.maintenance.lock() = self.below.maintains.then(|| volume.clone().maintain());
        Present::Mounted(volume)
    }

    /// Makes everything durable.
    ///
    /// # Errors
    ///
    /// Those of the volume.
    pub fn checkpoint(&self) -> Result<()> {
        vfs::FileSystem::sync(self)
    }

    /// The files and names that no fsync has covered yet, with paths as users see them.
    pub fn unsynced(&self) -> (Vec<UnsyncedFile>, Vec<NameChange>) {
        let (mut files, mut names) = self.notes.lock().unsynced();
        let paths = files.iter_mut().flat_map(|file| &mut file.paths);
        let paths = paths.chain(names.iter_mut().map(|name| &mut name.path));
        paths.for_each(|path| *path = self.shown(path));
        (files, names)
    }

    /// How often it has lost what was not durable.
    pub fn losses(&self) -> u64 {
        self.losses.load(Ordering::Relaxed)
    }

    /// Calls the volume.
    fn with<T>(&self, call: impl FnOnce(&dyn Volume) -> Result<T>) -> Result<T> {
        call(self.present.read().volume()?)
    }

    /// Does a call that faults may wait for.
    fn observed<T>(
        &self,
        call: Call,
        at: At<'_>,
        range: Option<(u64, u64)>,
        done: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        self.around(self.event(call, at, range).as_ref(), done)
    }

    /// Meets what is due before a call and, if it succeeds, after it.
    fn around<T>(&self, event: Option<&Event>, done: impl FnOnce() -> Result<T>) -> Result<T> {
        if let Some(event) = event {
            self.meet(event, When::Before)?;
        }
        let done = done()?;
        if let Some(event) = event {
            self.meet(event, When::After)?;
        }
        Ok(done)
    }

    /// The call, if anybody wants to know of it.
    fn event(&self, call: Call, at: At<'_>, range: Option<(u64, u64)>) -> Option<Event> {
        if !self.faults.lock().watches() {
            return None;
        }
        let notes = self.notes.lock();
        let of = |ino| notes.paths(ino).into_iter().map(|path| self.shown(&path)).collect();
        let name = |(dir, name): (Ino, &[u8])| Some(self.shown(&notes.path(dir, name)?));
        let (from, to) = match at {
            At::Inode(ino) => (of(ino), None),
            At::Name(dir, of) => (name((dir, of)).into_iter().collect(), None),
            At::Target(target, to) => (vec![target.to_vec()], name(to)),
            At::Linked(ino, to) => (of(ino), name(to)),
            At::Moved(from, to) => (name(from).into_iter().collect(), name(to)),
        };
        Some(Event { call, from, to, range })
    }

    /// Does what is due before or after a call.
    fn meet(&self, event: &Event, when: When) -> Result<()> {
        let mut faults = self.faults.lock();
        let (due, reports) = (faults.due(event, when), faults.reports_calls);
        drop(faults);
        let call = event.call;
        if reports && when == When::Before {
            let from = event.from.first().map_or(&b""[..], |path| path);
            let (to, range) = (event.to.as_deref(), event.range);
            self.keeper.hear(Report::Called { call, from, to, range });
        }
        let Some(due) = due else { return Ok(()) };
        let (files, names) = self.unsynced();
        self.keeper.hear(Report::Triggered { call, when, files: &files, names: &names });
        match due {
            Due::Crash => self.keeper.die(),
            Due::Fail => return Err(Errno::IO.into()),
            Due::Clear => match self.lose(0) {
                Ok(()) => self.keeper.hear(Report::Lost),
                Err(why) => self.keeper.hear(Report::Ended(&why)),
            },
        }
        Ok(())
    }

    /// Dies if a fault tears this write of `ino`, after what is left of it.
    fn tear(&self, ino: Ino, event: &Event, data: &[u8]) -> Result<()> {
        let torn = self.faults.lock().tear(event, data);
        let (path, pieces) = match torn {
            None => return Ok(()),
            Some((path, Tear::Unfit(why))) => {
                self.keeper.hear(Report::Unfit { path: &path, why });
                return Ok(());
            }
            Some((path, Tear::Of(pieces))) => (path, pieces),
        };
        let attr = self.on(ino, |volume| volume.getattr(ino))?;
        let ranges: Vec<_> =
            pieces.iter().map(|piece| (piece.offset, piece.data.len() as u64)).collect();
        self.keeper.hear(Report::Torn { path: &path, ranges: &ranges });
        let mut present = self.present.write();
        let put = self.lose_alone(&mut present, 0).and_then(|()| {
            let path = path.strip_prefix(&self.root[..]).unwrap_or(&path);
            let put = present.volume().and_then(|volume| {
                put(volume, made(volume, path, &attr)?, &pieces)?;
                volume.sync()
            });
            put.map_err(|error| error.to_string())
        });
        if let Err(why) = put {
            self.keeper.hear(Report::Ended(&why));
        }
        // No call runs in between, because the lock is still held exclusively.
        self.keeper.die()
    }
}

/// The file at a path. If it is lost, it is made again.
fn made(volume: &dyn Volume, path: &[u8], was: &Attr) -> Result<Ino> {
    let creator = Creator { uid: was.uid, gid: was.gid };
    let at = path.iter().rposition(|byte| *byte == b'/').ok_or(Errno::INVAL)?;
    let dir = vfs::path::create_dir_all(volume, &path[..=at], 0o755, creator)?.ino;
    let name = &path[at + 1..];
    match volume.lookup(dir, name) {
        Err(error) if error.errno() == Errno::NOENT => {
            Ok(volume.create(dir, name, was.perm, creator)?.ino)
        }
        found => Ok(found?.ino),
    }
}

/// Writes pieces of a file, in their order.
fn put(volume: &dyn Volume, ino: Ino, pieces: &[Piece]) -> Result<()> {
    let mut pieces = pieces.iter();
    pieces.try_for_each(|piece| vfs::path::write_all(volume, ino, piece.offset, &piece.data))
}

/// What a call is about.
#[derive(Clone, Copy)]
enum At<'a> {
    Inode(Ino),
    Name(Ino, &'a [u8]),
    /// From a symbolic link's target to its name.
    Target(&'a [u8], (Ino, &'a [u8])),
    Linked(Ino, (Ino, &'a [u8])),
    Moved((Ino, &'a [u8]), (Ino, &'a [u8])),
}

#[cfg(test)]
mod tests;
