//! What a mounted volume does beyond POSIX.

use serde_json::{Map, Value, json};
use vfs::kind::{Recovery, Volume};
use vfs::{Attr, Creator, Errno, Ino, InodeFlags, Result};

use super::Pmfs;
use super::options::OPTIONS;
use crate::commit::Change;

/// Flags that are kept. None of them changes what this file system does; the layers above heed
/// them.
const FLAGS: InodeFlags = InodeFlags::all();

impl Volume for Pmfs {
    fn recovery(&self) -> Recovery {
        self.recovery
    }

    fn options(&self) -> String {
        OPTIONS.show(&self.options)
    }

    fn status(&self) -> Map<String, Value> {
        let info = self.pm.info();
        let survives = match info.domain {
            drive::pm::Domain::Process => "a killed process, not a power cut",
            _ => "a power cut",
        };
        let status = json!({
            "design": self.layout.design.name(),
            "cores": self.layout.cores,
            "domain": info.domain.name(),
            "survives": survives,
            "blocks": self.space.total(),
            "blocks_free": self.space.free(),
            "inodes": self.numbers.total(),
            "inodes_free": self.numbers.free(),
        });
        match status {
            Value::Object(map) => map,
            _ => Map::new(),
        }
    }

    fn tmpfile(&self, parent: Ino, perm: u16, creator: Creator) -> Result<Attr> {
        let _gate = self.change()?;
        self.make_nameless(parent, perm, creator)
    }

    fn flags(&self, ino: Ino) -> Result<u32> {
        let _gate = self.enter()?;
        let node = self.node(ino)?;
        let inode = node.lock.read();
        inode.kind()?;
        Ok(inode.raw.flags.get())
    }

    fn set_flags(&self, ino: Ino, flags: u32) -> Result<()> {
        let _gate = self.change()?;
        if flags & !FLAGS.bits() != 0 {
            return Err(Errno::OPNOTSUPP.into());
        }
        let node = self.node(ino)?;
        let mut inode = node.lock.write();
        inode.kind()?;
        let mut raw = inode.raw;
        raw.flags = flags.into();
        raw.touch_ctime();
        let _done = self.commit_raw(&mut inode, Change::new(&*self.pm), raw)?;
        Ok(())
    }
}
