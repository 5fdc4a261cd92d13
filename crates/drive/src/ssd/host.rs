//! What a server of many hosts needs from a drive besides commands: a queue for each host, the time
//! to look again, and power restored in place.

use std::io;

use cores::Nanos;

use super::{DriveState, Ssd, Timing};

impl Ssd {
    /// A hardware queue for the caller alone, in addition to [`crate::Identify::queues`]; `None` if
    /// there can be no more.
    pub fn open_queue(&self) -> Option<u16> {
        self.model.lock().open_lane()
    }

    /// Gives back a queue of [`Ssd::open_queue`]. Commands in flight in it still take effect, but
    /// their completions are dropped.
    pub fn close_queue(&self, queue: u16) {
        self.present().close_lane(queue);
    }

    /// When to look for the next completion of `queue`, on the current machine's clock. If there is
    /// one already, that is not later than now; `None` if nothing is under way.
    pub fn due(&self, queue: u16) -> Option<Nanos> {
        let model = self.present();
        if model.is_done(queue) { Some(0) } else { model.wake_at(queue, None) }
    }

    /// What time the drive takes.
    pub fn timing(&self) -> Timing {
        self.timing
    }

    /// Whether the power is off. A read or a write would show that too, but this needs none.
    pub fn is_off(&self) -> bool {
        self.present().fallen.is_some()
    }

    /// What the drive holds now, including everything acknowledged, as if it were switched off in
    /// good order. It keeps running. In memory this costs what is buffered; a drive in a file is
    /// read completely.
    pub fn hold(&self) -> DriveState {
        self.present().hold()
    }

    /// Restores the power after a cut. The drive holds what the cut left, or `state` if one is
    /// given. If the power is on, it fails first. Earlier commands are no longer under way and are
    /// never answered; queues stay open.
    ///
    /// # Errors
    ///
    /// Those of the file behind the drive. The drive then stays off.
    pub fn power_again(&self, state: Option<DriveState>, seed: u64) -> io::Result<()> {
        let mut model = self.present();
        model.fall(seed);
        let Some(left) = model.fallen.clone() else { return Ok(()) };
        let state = match state {
            Some(state) if state.identify.blocks != left.identify.blocks => {
                return Err(io::Error::other("a state of a drive of another size"));
            }
            Some(state) => {
                let (ram, _) = state.media.snapshot();
                let mut media = left.media.clone();
                media.assume(&ram, left.identify.blocks)?;
                DriveState { media, zones: state.zones, ..left }
            }
            None => left,
        };
        model.power_again(state, seed);
        if model.record().is_err() {
            model.fall(seed);
            return Err(io::Error::other("the drive's file cannot be written"));
        }
        if self.timing != Timing::Instant {
            model.advance(cores::now());
        }
        Ok(())
    }
}
