//! All that may be on the drive at one position of the log.
//!
//! Every value (a block, a size, a name) is what an fsync *promised* and what came since. Without
//! later versions, the promised one must be there; with them, any of these may be, and nothing
//! else. What was durable earlier is remembered by its hash, so that a stale block can be told from
//! garbage.
//!
//! [`super::order`] says what "later" means where calls overlap. The log must then keep three
//! rules: writes to a file that several threads write are of whole blocks; attributes that several
//! threads set are set alike or all at once; and only one thread at a time uses a name while it is
//! moved, linked from, or created. The name that a file is moved *to* may be used by anybody.

use std::collections::BTreeMap;

use vfs::FileKind;

use super::event::{Event, Meta, ObjId, Place, ROOT, Times, Transactions};
use super::object::{Object, SECTOR};
use super::order::{Call, Calls, Versions};
use vfs::kind::Habits;

/// Everything that may be there.
#[derive(Clone, Debug)]
pub struct Model {
    /// Objects by number.
    pub objects: Vec<Object>,
    /// What each name may stand for.
    pub names: BTreeMap<Place, Versions<Option<ObjId>>>,
    /// What each name stood for earlier, and may no longer stand for.
    former: BTreeMap<Place, Vec<ObjId>>,
    /// When calls began and returned.
    pub calls: Calls,
    /// Those of the workload.
    pub transactions: Transactions,
    /// Calls under way that change names, and which.
    naming: BTreeMap<Call, Vec<Place>>,
    /// Calls of `sync` under way.
    syncs: Vec<Call>,
    /// What else the file system may do, by its nature.
    pub(super) habits: Habits,
    /// What the medium does not tear, in bytes.
    pub(super) grain: usize,
    position: usize,
}

impl Default for Model {
    fn default() -> Self {
        Self::new(Habits::default())
    }
}

impl Model {
    /// An empty volume of a file system that has these habits.
    pub fn new(habits: Habits) -> Self {
        let meta = Meta { perm: 0o755, ..Meta::default() };
        let mut root = Object::new(FileKind::Directory, Box::default(), meta, 0);
        root.anchored = true;
        Self {
            objects: vec![root],
            names: BTreeMap::new(),
            former: BTreeMap::new(),
            calls: Calls::default(),
            transactions: Transactions::default(),
            naming: BTreeMap::new(),
            syncs: Vec::new(),
            habits,
            grain: SECTOR,
            position: 0,
        }
    }

    /// The same on a medium that tears what is longer than so many bytes.
    pub fn torn_at(self, grain: usize) -> Self {
        Self { grain, ..self }
    }

    /// How many events it has seen.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Moves forward along `log` to `position`.
    pub fn advance(&mut self, log: &[Event], position: usize) {
        for event in &log[self.position..position] {
            self.apply(event);
        }
    }

    /// The names known in directory `dir`, in order.
    pub fn entries(&self, dir: ObjId) -> impl Iterator<Item = (&[u8], &Versions<Option<ObjId>>)> {
        self.names
            .range((dir, Box::default())..(dir + 1, Box::default()))
            .map(|((_, name), versions)| (&**name, versions))
    }

    /// What `name` in `dir` stood for earlier, the newest last.
    pub fn former(&self, dir: ObjId, name: &[u8]) -> &[ObjId] {
        self.former.get(&(dir, name.into())).map_or(&[], |objects| objects)
    }

    /// One path of `obj`, for people.
    pub fn path(&self, obj: ObjId) -> String {
        let mut parts = Vec::new();
        let mut at = obj;
        while at != ROOT {
            let Some((parent, name)) = self.objects[at].places.first() else {
                parts.push(format!("(unlinked object {at})"));
                break;
            };
            parts.push(String::from_utf8_lossy(name).into_owned());
            at = *parent;
        }
        parts.reverse();
        format!("/{}", parts.join("/"))
    }

    /// Whether an fsync or a sync is under way.
    pub fn is_syncing(&self) -> bool {
        !self.syncs.is_empty() || self.objects.iter().any(Object::is_syncing)
    }

    /// Takes in one event.
    pub fn apply(&mut self, event: &Event) {
        self.position += 1;
        let call = self.position;
        match event {
            Event::Overlap => {
                self.calls.begin_overlap();
                let carried = self.carries_always();
                self.objects.iter_mut().for_each(|object| object.carried = carried);
            }
            Event::Transaction { number, done: false } => self.transactions.begun = *number,
            Event::Transaction { number, done: true } => self.transactions.committed = *number,
            Event::Return { call } => self.end(*call, true),
            Event::Fail { call } => self.end(*call, false),
            Event::SyncEnd { obj, call, times } => {
                self.end_sync(*obj, call.unwrap_or(self.position), *times);
            }
            event => {
                self.calls.begin(call);
                self.begin(event, call);
            }
        }
    }

    fn begin(&mut self, event: &Event, call: Call) {
        match event {
            Event::Create { place, kind, meta, target, rdev } => {
                let mut object = Object::new(*kind, target.clone(), *meta, *rdev);
                object.syncs.clone_from(&self.syncs);
                object.carried = self.carries_always();
                self.objects.push(object);
                self.bind(self.objects.len() - 1, place, call);
            }
            Event::Link { obj, place } => self.bind(*obj, place, call),
            Event::Unlink { place } => self.unbind(place, call),
            Event::Rename { from, to } => {
                let moved = self.names.get(from).and_then(|v| *v.current());
                // A lookup finds one or the other, never nothing.
                if let Some(replaced) = self.names.get(to).and_then(|v| *v.current()) {
                    self.objects[replaced].places.retain(|place| place != to);
                }
                self.unbind(from, call);
                if let Some(obj) = moved {
                    self.bind(obj, to, call);
                }
            }
            Event::Write { obj, first, blocks, from, end } => {
                let file = &mut self.objects[*obj];
                file.write(*first, blocks, (*from, *end), (call, &self.calls));
            }
            Event::Truncate { obj, size } => {
                self.objects[*obj].truncate(*size, (call, &self.calls));
            }
            Event::SetMeta { obj, meta } => self.objects[*obj].meta.push(*meta, call),
            Event::Xattr { obj, name, value } => {
                let slot = self.objects[*obj].xattrs.entry(name.clone());
                slot.or_insert_with(|| Versions::new(None)).push(value.clone(), call);
            }
            Event::SyncBegin { obj: Some(obj) } => self.objects[*obj].syncs.push(call),
            Event::SyncBegin { obj: None } => {
                self.syncs.push(call);
                self.objects.iter_mut().for_each(|object| object.syncs.push(call));
            }
            Event::SyncEnd { .. }
            | Event::Transaction { .. }
            | Event::Overlap
            | Event::Return { .. }
            | Event::Fail { .. } => {}
        }
    }

    /// A call has returned: it has changed names as it should, or not at all.
    fn end(&mut self, call: Call, done: bool) {
        self.calls.end(call, self.position);
        let places = self.naming.remove(&call).unwrap_or_default();
        if !done {
            self.forget_sync(call);
            places.iter().for_each(|place| self.withdraw(place, call));
        }
    }

    fn withdraw(&mut self, place: &Place, call: Call) {
        let Some(slot) = self.names.get_mut(place) else { return };
        slot.withdraw(call);
        let now = *slot.current();
        for (obj, object) in self.objects.iter_mut().enumerate() {
            let was = object.places.iter().position(|p| p == place);
            match was {
                Some(at) if now != Some(obj) => drop(object.places.remove(at)),
                None if now == Some(obj) => object.places.push(place.clone()),
                _ => {}
            }
        }
    }

    fn bind(&mut self, obj: ObjId, place: &Place, call: Call) {
        self.objects[obj].places.push(place.clone());
        self.set_name(place, Some(obj), call);
    }

    fn unbind(&mut self, place: &Place, call: Call) {
        let known = self.names.get(place).and_then(|slot| *slot.current());
        // Where calls overlap, it may remove a name that is only now being made.
        if known.is_some() || self.calls.overlap() {
            self.set_name(place, None, call);
        }
        if let Some(obj) = known {
            self.objects[obj].places.retain(|p| p != place);
        }
    }

    fn set_name(&mut self, place: &Place, obj: Option<ObjId>, call: Call) {
        let slot = self.names.entry(place.clone()).or_insert_with(|| Versions::new(None));
        let contested = !slot.had_returned(&self.calls, call);
        slot.push(obj, call);
        if contested {
            for obj in slot.allowed().filter_map(|obj| *obj) {
                self.objects[obj].contested = true;
            }
        }
        if self.calls.overlap() {
            self.naming.entry(call).or_default().push(place.clone());
        }
    }

    /// Whether any fsync may, at any time, make parts of other files durable.
    fn carries_always(&self) -> bool {
        self.habits.takes_others_along && self.calls.overlap()
    }

    /// Forgets that `call` was an fsync under way.
    fn forget_sync(&mut self, call: Call) {
        self.syncs.retain(|sync| *sync != call);
        self.objects.iter_mut().for_each(|object| object.syncs.retain(|sync| *sync != call));
    }

    /// An fsync that was called at `call` has returned.
    fn end_sync(&mut self, obj: Option<ObjId>, call: Call, times: Option<Times>) {
        self.forget_sync(call);
        self.calls.end(call, self.position);
        match obj {
            Some(obj) => {
                self.settle(obj, call);
                self.objects[obj].settle_times(times);
            }
            None => self.settle_all(call),
        }
    }

    /// An fsync makes the object durable, and the way to it; of a directory also its entries.
    fn settle(&mut self, obj: ObjId, called: usize) {
        let (now, carried) = (self.position, self.carries_always());
        for (other, object) in self.objects.iter_mut().enumerate() {
            if other == obj {
                object.settle(&self.calls, called, now, carried);
            } else if self.habits.takes_others_along {
                object.carry();
            }
        }
        if self.objects[obj].kind == FileKind::Directory {
            let names: Vec<Place> = self
                .names
                .range((obj, Box::default())..(obj + 1, Box::default()))
                .filter(|(_, v)| v.is_open())
                .map(|(place, _)| place.clone())
                .collect();
            names.iter().for_each(|place| self.settle_name(place, called));
        }
        self.settle_way(obj, called);
    }

    fn settle_way(&mut self, obj: ObjId, called: usize) {
        let object = &mut self.objects[obj];
        // Whatever it is called by now, it has had a name all the time.
        object.anchored |= !object.contested && !object.places.is_empty();
        for place in object.places.clone() {
            let Some(slot) = self.names.get(&place) else { continue };
            if !slot.is_certain(&self.calls, called) {
                continue;
            }
            let settled = !slot.is_open();
            self.settle_name(&place, called);
            // When a name was settled, so was the path to it.
            if !settled {
                self.settle_way(place.0, called);
            }
        }
    }

    fn settle_name(&mut self, place: &Place, called: usize) {
        let Some(slot) = self.names.get_mut(place) else { return };
        let mut gone = Vec::new();
        slot.settle(&self.calls, called, &mut |obj| gone.extend(*obj));
        let gone = gone.into_iter().filter(|obj| !slot.allows(&Some(*obj))).collect::<Vec<_>>();
        if !gone.is_empty() {
            self.former.entry(place.clone()).or_default().extend(gone);
        }
        if let [Some(obj)] = slot.promised().collect::<Vec<_>>()[..] {
            self.objects[*obj].anchored = true;
        }
        if is_gone(slot) {
            self.names.remove(place);
        }
    }

    fn settle_all(&mut self, called: usize) {
        let (now, carried) = (self.position, self.carries_always());
        let calls = &self.calls;
        self.objects.iter_mut().for_each(|object| object.settle(calls, called, now, carried));
        let open = self.names.iter().filter(|(_, slot)| slot.is_open());
        let names: Vec<Place> = open.map(|(place, _)| place.clone()).collect();
        names.iter().for_each(|place| self.settle_name(place, called));
    }
}

/// Whether nothing has this name, and no call under way may give it.
fn is_gone(slot: &Versions<Option<ObjId>>) -> bool {
    !slot.is_open() && slot.allowed().all(Option::is_none)
}

#[cfg(test)]
mod tests {
    use drive::{BLOCK_SIZE, Block};

    use super::*;

    fn place(name: &str) -> Place {
        (ROOT, name.as_bytes().into())
    }

    fn create(name: &str) -> Event {
        let meta = Meta { perm: 0o644, ..Meta::default() };
        let (kind, target) = (FileKind::Regular, Box::default());
        Event::Create { place: place(name), kind, meta, target, rdev: 0 }
    }

    fn write(obj: ObjId, byte: u8) -> Event {
        let blocks = vec![Block::new([byte; BLOCK_SIZE])];
        Event::Write { obj, first: 0, blocks, from: 0, end: BLOCK_SIZE as u64 }
    }

    fn run(events: &[Event]) -> Model {
        let mut model = Model::default();
        model.advance(events, events.len());
        model
    }

    #[test]
    fn a_write_may_be_and_an_fsync_makes_it_must() {
        let log = [
            create("a"),
            write(1, 7),
            Event::SyncBegin { obj: Some(1) },
            Event::SyncEnd { obj: Some(1), call: None, times: None },
        ];
        let before = run(&log[..3]);
        assert_eq!(before.names[&place("a")].allowed().count(), 2);
        assert_eq!(before.objects[1].size.range(&before.calls), (0, 4096));
        let after = run(&log);
        assert_eq!(*after.names[&place("a")].durable(), Some(1));
        assert_eq!(after.objects[1].size.range(&after.calls), (4096, 4096));
        assert!(after.objects[1].anchored);
    }

    #[test]
    fn what_was_durable_once_is_stale_not_garbage() {
        let sync = Event::SyncEnd { obj: Some(1), call: None, times: None };
        let model = run(&[create("a"), write(1, 1), sync.clone(), write(1, 2), sync]);
        let block = &model.objects[1].blocks[&0];
        assert!(block.was_once(&[1; BLOCK_SIZE]));
        assert!(!block.was_once(&[2; BLOCK_SIZE]));
    }

    #[test]
    fn truncation_clears_the_tail_and_keeps_the_old_as_possible() {
        let sync = Event::SyncEnd { obj: Some(1), call: None, times: None };
        let cut = Event::Truncate { obj: 1, size: 10 };
        let model = run(&[create("a"), write(1, 9), sync, cut]);
        let versions = &model.objects[1].blocks[&0].versions;
        assert_eq!(versions.current()[9..12], [9, 0, 0]);
        assert_eq!(versions.durable()[9..12], [9, 9, 9]);
        assert_eq!(model.objects[1].size.range(&model.calls), (10, 4096));
    }

    #[test]
    fn a_rename_leaves_both_names_open_until_the_directory_is_synced() {
        let sync = Event::SyncEnd { obj: Some(1), call: None, times: None };
        let moved = Event::Rename { from: place("a"), to: place("b") };
        let log =
            [create("a"), sync, moved, Event::SyncEnd { obj: Some(ROOT), call: None, times: None }];
        let between = run(&log[..3]);
        assert!(between.names[&place("a")].allows(&None));
        assert!(between.names[&place("b")].allows(&Some(1)));
        let after = run(&log);
        assert!(!after.names.contains_key(&place("a")));
        assert_eq!(*after.names[&place("b")].durable(), Some(1));
    }
}
