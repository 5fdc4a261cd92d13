//! Features that a host sets and reads (NVMe base 2.0, section 5.27).

use crate::command::{Sqe, Status};

const ARBITRATION: u8 = 0x01;
const POWER: u8 = 0x02;
const TEMPERATURE: u8 = 0x04;
const ERROR_RECOVERY: u8 = 0x05;
pub(crate) const WRITE_CACHE: u8 = 0x06;
pub(crate) const QUEUES: u8 = 0x07;
const ATOMICITY: u8 = 0x0a;
const EVENTS: u8 = 0x0b;
const KEEP_ALIVE: u8 = 0x0f;
pub(crate) const HOST_BEHAVIOUR: u8 = 0x16;
const COMMAND_SET_PROFILE: u8 = 0x19;

/// Bytes of the host behaviour support feature.
pub(crate) const HOST_BEHAVIOUR_LEN: usize = 512;

/// Features whose value is kept but has no meaning here.
const KEPT: [u8; 5] = [ARBITRATION, POWER, TEMPERATURE, ERROR_RECOVERY, ATOMICITY];

/// Everything that can be set, apart from the number of queues.
pub(crate) struct Features {
    kept: [u32; KEPT.len()],
    cache: bool,
    events: u32,
    keep_alive: u32,
    host: [u8; HOST_BEHAVIOUR_LEN],
}

/// What a host asks about a feature.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Select {
    Current,
    Default,
    Capabilities,
}

impl Features {
    /// The values after a reset. `keep_alive` is in milliseconds and comes from Connect.
    pub(crate) fn new(keep_alive: u32) -> Self {
        // Temperature: that of the warning, as Identify has it.
        Self {
            kept: [0, 0, 343, 0, 0],
            cache: true,
            events: 0,
            keep_alive,
            host: [0; HOST_BEHAVIOUR_LEN],
        }
    }

    /// Milliseconds, 0 for never.
    pub(crate) fn keep_alive(&self) -> u32 {
        self.keep_alive
    }

    pub(crate) fn write_cache(&self) -> bool {
        self.cache
    }

    /// The events that the host wants.
    pub(crate) fn events(&self) -> u32 {
        self.events
    }

    /// Get Features, except for the number of queues: dword 0, and the data of a feature that has
    /// data.
    pub(crate) fn get(&self, sqe: &Sqe) -> Result<(u32, Vec<u8>), Status> {
        let select = match sqe.cdw10.get() >> 8 & 7 {
            0 => Select::Current,
            // Nothing is saved, so the saved value is the default.
            1 | 2 => Select::Default,
            3 => Select::Capabilities,
            _ => return Err(Status::INVALID_FIELD),
        };
        let feature = sqe.cdw10.get() as u8;
        let fresh = Self::new(self.keep_alive);
        let from = if select == Select::Default { &fresh } else { self };
        let value = match feature {
            WRITE_CACHE => u32::from(from.cache),
            QUEUES | COMMAND_SET_PROFILE => 0,
            EVENTS => from.events,
            KEEP_ALIVE => from.keep_alive,
            HOST_BEHAVIOUR if select != Select::Capabilities => {
                return Ok((0, from.host.to_vec()));
            }
            HOST_BEHAVIOUR => 0,
            _ => from.kept[kept(feature)?],
        };
        // Changeable, not saveable, and not specific to a namespace.
        let changeable = u32::from(feature != COMMAND_SET_PROFILE) << 2;
        Ok((if select == Select::Capabilities { changeable } else { value }, Vec::new()))
    }

    /// Set Features, except for the number of queues.
    pub(crate) fn set(&mut self, sqe: &Sqe, data: &[u8], cached: bool) -> Result<(), Status> {
        if sqe.cdw10.get() >> 31 != 0 {
            return Err(Status::NOT_SAVEABLE);
        }
        let value = sqe.cdw11.get();
        match sqe.cdw10.get() as u8 {
            WRITE_CACHE if !cached => return Err(Status::INVALID_FIELD),
            WRITE_CACHE => self.cache = value & 1 != 0,
            EVENTS => self.events = value,
            KEEP_ALIVE => self.keep_alive = value,
            HOST_BEHAVIOUR => {
                let behaviour = data.get(..HOST_BEHAVIOUR_LEN).ok_or(Status::SGL_LENGTH)?;
                self.host.copy_from_slice(behaviour);
            }
            // There is only one combination of command sets.
            COMMAND_SET_PROFILE if value & 0x1ff == 0 => {}
            COMMAND_SET_PROFILE => return Err(Status::COMMAND_SET_PROFILE),
            POWER if value & 0x1f != 0 => return Err(Status::INVALID_FIELD),
            feature => self.kept[kept(feature)?] = value,
        }
        Ok(())
    }
}

fn kept(feature: u8) -> Result<usize, Status> {
    KEPT.iter().position(|known| *known == feature).ok_or(Status::INVALID_FIELD)
}
