//! The simplest drive there is, cheap enough to make one for each case.

use std::collections::VecDeque;
use std::sync::Arc;

use cores::{Mutex, MutexGuard};
use drive::{
    BLOCK_SIZE, Block, Command, Completion, Drive, Identify, Output, RamMedia, Status, Zone,
    ZoneAction, ZoneGeometry, ZoneKind, ZoneState,
};

/// Commands after which a case counts as one that does not end.
const COMMANDS_MAX: u64 = 200_000;

/// What a drive holds. A clone shares all blocks.
#[derive(Clone)]
pub struct Snapshot {
    pub blocks: u64,
    pub geometry: Option<ZoneGeometry>,
    pub media: RamMedia,
    pub zones: Vec<Zone>,
}

impl Snapshot {
    /// A new drive: all zeroes, all zones empty.
    pub fn new(blocks: u64, geometry: Option<ZoneGeometry>) -> Self {
        let zones = geometry.map_or_else(Vec::new, |g| (0..g.count).map(|i| zone(g, i)).collect());
        Self { blocks, geometry, media: RamMedia::new(), zones }
    }

    /// Bytes of the block at `lba`, to change.
    pub fn change(&mut self, lba: u32, change: impl FnOnce(&mut [u8; BLOCK_SIZE])) {
        let mut block = self.media.read(lba.into());
        change(block.make_mut());
        self.media.write(lba.into(), block);
    }
}

fn zone(geometry: ZoneGeometry, index: u32) -> Zone {
    let start = u64::from(index) * geometry.size;
    if index < geometry.conventional {
        let (kind, state) = (ZoneKind::Conventional, ZoneState::NotWritePointer);
        let size = geometry.size;
        return Zone { start, size, capacity: size, wp: start + size, kind, state };
    }
    let (kind, state) = (ZoneKind::SequentialWriteRequired, ZoneState::Empty);
    Zone { start, size: geometry.size, capacity: geometry.capacity, wp: start, kind, state }
}

/// A drive in memory whose every completed write is durable.
pub struct MemoryDrive {
    identify: Identify,
    state: Mutex<State>,
}

struct State {
    held: Snapshot,
    done: VecDeque<Completion>,
    commands: u64,
    changes: u64,
}

impl MemoryDrive {
    /// A drive that holds `snapshot`.
    pub fn on(snapshot: Snapshot) -> Arc<Self> {
        let identify = Identify {
            model: "memory".into(),
            blocks: snapshot.blocks,
            queues: 1,
            queue_depth: 32,
            max_transfer: 256,
            volatile_cache: false,
            fua: true,
            atomic_write: BLOCK_SIZE as u32,
            discard: true,
            discard_zeroes: true,
            read_only: false,
            zones: snapshot.geometry,
            joined: Vec::new(),
            pm: None,
        };
        let state = State { held: snapshot, done: VecDeque::new(), commands: 0, changes: 0 };
        Arc::new(Self { identify, state: Mutex::new(state) })
    }

    /// What it holds now.
    pub fn snapshot(&self) -> Snapshot {
        self.state().held.clone()
    }

    /// Commands so far that changed something.
    pub fn changes(&self) -> u64 {
        self.state().changes
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    fn run(&mut self, command: Command) -> Result<Output, Status> {
        self.commands += 1;
        assert!(self.commands < COMMANDS_MAX, "no end: {COMMANDS_MAX} commands");
        let changes =
            !matches!(command, Command::Read { .. } | Command::ReportZones { .. } | Command::Flush);
        self.changes += u64::from(changes);
        match command {
            Command::Read { lba, blocks } => {
                let range = self.range(lba, blocks.into())?;
                Ok(Output::Data(range.map(|lba| self.held.media.read(lba)).collect()))
            }
            Command::Write { lba, data, .. } => self.write(lba, &data),
            Command::Flush => Ok(Output::Done),
            Command::Discard { lba, blocks } => {
                self.range(lba, blocks)?;
                self.held.media.discard(lba, blocks);
                Ok(Output::Done)
            }
            Command::ReportZones { .. } => Ok(Output::Zones(self.held.zones.clone())),
            Command::ManageZone { action, zone: Some(start) } => self.manage(action, start),
            Command::Append { .. } | Command::ManageZone { .. } => Err(Status::InvalidOpcode),
        }
    }

    fn range(&self, lba: u64, blocks: u64) -> Result<std::ops::Range<u64>, Status> {
        let end = lba.checked_add(blocks).filter(|end| *end <= self.held.blocks);
        Ok(lba..end.ok_or(Status::LbaOutOfRange)?)
    }

    fn zone_at(&mut self, lba: u64) -> Option<&mut Zone> {
        let size = self.held.geometry?.size;
        let zone = self.held.zones.get_mut(usize::try_from(lba / size).ok()?)?;
        (zone.kind == ZoneKind::SequentialWriteRequired).then_some(zone)
    }

    fn write(&mut self, lba: u64, data: &[Block]) -> Result<Output, Status> {
        for (lba, block) in self.range(lba, data.len() as u64)?.zip(data) {
            if let Some(zone) = self.zone_at(lba) {
                if zone.wp != lba {
                    return Err(Status::ZoneInvalidWrite);
                }
                zone.state = ZoneState::ImplicitlyOpen;
                zone.wp += 1;
                if zone.wp == zone.start + zone.capacity {
                    (zone.state, zone.wp) = (ZoneState::Full, zone.start + zone.size);
                }
            }
            self.held.media.write(lba, block.clone());
        }
        Ok(Output::Done)
    }

    fn manage(&mut self, action: ZoneAction, start: u64) -> Result<Output, Status> {
        let zone = self.zone_at(start).ok_or(Status::InvalidField)?;
        match action {
            ZoneAction::Reset => (zone.state, zone.wp) = (ZoneState::Empty, zone.start),
            ZoneAction::Finish => (zone.state, zone.wp) = (ZoneState::Full, zone.start + zone.size),
            ZoneAction::Open | ZoneAction::Close | ZoneAction::Offline => {
                return Err(Status::InvalidOpcode);
            }
        }
        if action == ZoneAction::Reset {
            let (start, size) = (zone.start, zone.size);
            self.held.media.discard(start, size);
        }
        Ok(Output::Done)
    }
}

impl Drive for MemoryDrive {
    fn identify(&self) -> &Identify {
        &self.identify
    }

    fn submit(&self, _queue: u16, cid: u16, command: Command) {
        let mut state = self.state();
        let result = state.run(command);
        state.done.push_back(Completion { cid, result });
    }

    fn poll(&self, _queue: u16) -> Option<Completion> {
        self.state().done.pop_front()
    }

    fn wait(&self, queue: u16) -> Option<Completion> {
        self.poll(queue)
    }
}
