//! Grouped fsync (section 4, figures 1 and 2): concurrent fsyncs share one record.

use std::sync::Arc;

use cores::{Condvar, Mutex, Rank};
use vfs::Ino;

use super::ijournal::{IJOURNAL, RECORDS};
use super::{Holds, Policy, Recording};
use crate::error::Result;

/// One record for all files whose fsyncs are under way at the same time.
pub const GROUPED: Policy = Policy {
    name: "grouped",
    records: Some(Recording { holds: Holds::Group, ..RECORDS }),
    ..IJOURNAL
};

/// The group that an fsync may join.
pub(crate) struct Groups(Mutex<Option<Arc<Group>>>);

/// What the members of a group share: files and stage, and the queue of waiters. The core that
/// handles the files is that of the caller that opened the group.
struct Group(Mutex<(Vec<Ino>, Stage)>, Condvar);

enum Stage {
    /// This many write data. The group is open.
    Data(usize),
    /// One caller writes the record and flushes for all.
    Journal,
    /// These files are durable by it.
    Ended(Result<Vec<Ino>>),
}

/// A caller in a group: its file, and whether it leads.
pub(crate) struct Member<'a>(&'a Groups, Arc<Group>, Ino, bool);

/// What a caller has to do once its data is written: handle these files, or nothing, since the
/// group's record has these.
pub(crate) enum Part {
    Lead(Vec<Ino>),
    Carried(Result<Vec<Ino>>),
}

impl Groups {
    pub(crate) fn new() -> Self {
        Self(Mutex::ranked(Rank::Flush, "open group", None).keyed(0))
    }

    /// Joins the open group, or opens one and leads it.
    pub(crate) fn join(&self, ino: Ino) -> Member<'_> {
        let mut open = self.0.lock();
        let leads = open.is_none();
        let new = || {
            let shared = Mutex::ranked(Rank::Flush, "group", (Vec::new(), Stage::Data(0)));
            Arc::new(Group(shared.keyed(1), Condvar::new()))
        };
        let group = open.get_or_insert_with(new).clone();
        if let Stage::Data(writing) = &mut group.0.lock().1 {
            *writing += 1;
        }
        Member(self, group, ino, leads)
    }
}

impl Member<'_> {
    /// The caller's data is written, or cannot be. The leader waits for members that still write,
    /// and closes the group; the others wait for its end.
    pub(crate) fn close(&self, has_data: bool) -> Part {
        let Self(groups, group, ino, leads) = self;
        let mut shared = group.0.lock();
        shared.0.extend(has_data.then_some(*ino));
        if let Stage::Data(writing) = &mut shared.1 {
            *writing -= 1;
        }
        group.1.notify_all();
        loop {
            match &shared.1 {
                Stage::Data(0) if *leads => {
                    drop(shared);
                    let mut open = groups.0.lock();
                    shared = group.0.lock();
                    if let Stage::Data(0) = shared.1 {
                        open.take_if(|open| Arc::ptr_eq(open, group));
                        shared.1 = Stage::Journal;
                        return Part::Lead(std::mem::take(&mut shared.0));
                    }
                }
                Stage::Ended(done) => return Part::Carried(done.clone()),
                _ => group.1.wait(&mut shared),
            }
        }
    }

    /// The leader is done: these files are durable.
    pub(crate) fn end(&self, done: Result<Vec<Ino>>) {
        self.1.0.lock().1 = Stage::Ended(done);
        self.1.1.notify_all();
    }
}
