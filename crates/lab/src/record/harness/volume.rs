//! What a volume is beyond POSIX: as the one below.

use std::ops::Range;

use serde_json::{Map, Value};
use vfs::attributes::Attribute;
use vfs::kind::{
    Atomic, Defragmented, Ioctl, PageAt, Recovery, Result as KindResult, Shutdown, Volume, Witness,
};
use vfs::{Attr, Creator, Ino, Result, Timespec};

use super::faults::Call;
use super::{At, Harness, Report};

impl Harness {
    /// Asks the volume of now, or answers `default` if there is none.
    fn ask<T>(&self, default: T, call: impl FnOnce(&dyn Volume) -> T) -> T {
        self.present.read().volume().map_or(default, call)
    }
}

impl Volume for Harness {
    fn recovery(&self) -> Recovery {
        self.ask(Recovery::default(), |volume| volume.recovery())
    }

    fn options(&self) -> String {
        self.ask(String::new(), |volume| volume.options())
    }

    fn status(&self) -> Map<String, Value> {
        let mut status = self.ask(Map::new(), |volume| volume.status());
        let (files, names) = self.unsynced();
        let bytes = files.iter().flat_map(|file| &file.ranges).map(|range| range.end - range.start);
        status.insert("harness/losses".into(), self.losses().into());
        status.insert("harness/unsynced_files".into(), files.len().into());
        status.insert("harness/unsynced_bytes".into(), bytes.sum::<u64>().into());
        status.insert("harness/unsynced_names".into(), names.len().into());
        status
    }

    fn attributes(&self) -> Vec<Attribute> {
        self.ask(Vec::new(), |volume| volume.attributes())
    }

    fn unwritten(&self) -> u64 {
        self.ask(0, |volume| volume.unwritten())
    }

    fn report_to(&self, witness: Witness) {
        *self.witness.lock() = Some(witness.clone());
        self.ask((), |volume| volume.report_to(witness));
    }

    fn set(&self, settings: &[(&str, &str)]) -> KindResult<()> {
        self.with(|volume| Ok(volume.set(settings)))?
    }

    fn clean(&self) -> Result<()> {
        self.with(|volume| volume.clean())
    }

    fn clean_always(&self) -> KindResult<()> {
        self.with(|volume| Ok(volume.clean_always()))?
    }

    fn cleanings(&self) -> u64 {
        self.ask(0, |volume| volume.cleanings())
    }

    fn shut_down(&self, how: Shutdown) -> Result<()> {
        self.with(|volume| volume.shut_down(how))
    }

    fn opened(&self, ino: Ino, handle: u64, made: bool) -> Result<()> {
        let open = || {
            self.with(|volume| {
                let mut notes = self.notes.lock();
                notes.enter(ino)?;
                notes.opened(ino, handle);
                drop(notes);
                volume.opened(ino, handle, made)
            })
        };
        if made { open() } else { self.observed(Call::Open, At::Inode(ino), None, open) }
    }

    fn closed(&self, ino: Ino, handle: u64) {
        if self.faults.lock().reports_calls {
            let path = self.notes.lock().paths(ino).into_iter().next();
            let path = path.map_or_else(Vec::new, |path| self.shown(&path));
            self.keeper.hear(Report::Closed { path: &path });
        }
        self.notes.lock().closed(ino, handle);
        self.ask((), |volume| volume.closed(ino, handle));
    }

    fn fsync_through(&self, ino: Ino, handle: u64, datasync: bool) -> Result<()> {
        self.fsync_by(ino, Some(handle), datasync)
    }

    fn tmpfile(&self, parent: Ino, perm: u16, creator: Creator) -> Result<Attr> {
        self.with(|volume| {
            self.notes.lock().enter(parent)?;
            let attr = volume.tmpfile(parent, perm, creator)?;
            let mut notes = self.notes.lock();
            let shown = notes.met(attr);
            // It comes open, and so it is released like others.
            notes.hold(attr.ino);
            Ok(shown)
        })
    }

    fn touch_atime(&self, ino: Ino, time: Timespec) -> Result<()> {
        self.on(ino, |volume| volume.touch_atime(ino, time))
    }

    fn flags(&self, ino: Ino) -> Result<u32> {
        self.on(ino, |volume| volume.flags(ino))
    }

    fn set_flags(&self, ino: Ino, flags: u32) -> Result<()> {
        self.change(ino, None, |volume| volume.set_flags(ino, flags))
    }

    fn project(&self, ino: Ino) -> Result<u32> {
        self.on(ino, |volume| volume.project(ino))
    }

    fn set_project(&self, ino: Ino, project: u32) -> Result<()> {
        self.change(ino, None, |volume| volume.set_project(ino, project))
    }

    fn atomic_write(&self, ino: Ino, step: Atomic) -> Result<()> {
        self.change(ino, None, |volume| volume.atomic_write(ino, step))
    }

    fn ioctl(&self, ino: Ino, call: Ioctl<'_>) -> Result<Vec<u8>> {
        self.on(ino, |volume| volume.ioctl(ino, call))
    }

    fn defragment(&self, ino: Ino) -> Result<Defragmented> {
        self.on(ino, |volume| volume.defragment(ino))
    }

    fn pages(
        &self,
        ino: Ino,
        range: Range<u64>,
        see: &mut dyn FnMut(u64, PageAt<'_>),
    ) -> Result<bool> {
        self.on(ino, |volume| volume.pages(ino, range, see))
    }
}
