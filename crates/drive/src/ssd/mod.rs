//! The emulated SSD: zoned or conventional, with a write buffer, NAND, and a plug to pull.
//!
//! Source: thesis section 5.3 (write buffer by tokens, wp_zns and wp_nand, cut without reboot),
//! NVMe base 2.0 and ZNS 1.1 for commands and states. Invariants, for each zone at any time:
//! wp_nand ≤ wp_zns ≤ zone capacity; a power cut leaves a prefix of what was written to a
//! sequential zone; and what a completed flush covers survives every later cut.

mod cache;
mod compose;
mod host;
mod model;
mod nand;
mod ops;
mod power;
mod stats;
mod undo;
mod write;
mod zones;

#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;

use cores::Mutex;

pub(crate) use power::SavedZone;
pub use power::{AfterCut, CutPoint, DriveState, Event, EventKind, Moment, Observer};
pub use stats::Stats;

use crate::{
    Block, Command, Completion, Drive, Identify, Lba, ProfileError, Spec, Status, ZoneState,
};
use model::Model;

/// How the drive spends time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// The model's time, on the clock of a virtual machine.
    Virtual,
    /// The model's time on the real clock: completions are held back until they are due. The model
    /// is the same as for `Virtual`; the caller's machine decides which clock it uses.
    Paced,
    /// No time for the host: each command is complete once it is submitted. The model's own time
    /// goes on, so buffered data still reaches NAND late and in the drive's own order.
    Instant,
}

/// Where a drive in a file keeps the states of its zones.
pub(crate) trait ZoneLog: Send {
    /// Records the state of one zone for the next process that opens the drive, however this one
    /// ends. It need not survive the host's power.
    fn note(&mut self, zone: usize, state: SavedZone) -> io::Result<()>;

    /// Makes the state of all zones durable.
    fn record(&mut self, zones: &[SavedZone]) -> io::Result<()>;
}

/// An emulated SSD.
///
/// Its power can be cut at any moment; what is left depends on a seed.
///
/// ```
/// use drive::{Block, Command, Drive, Spec, Ssd, Timing};
/// # fn main() -> Result<(), drive::ProfileError> {
/// // 8 zones of 64 blocks of which 60 can be written; the first two take random writes.
/// let spec = Spec::named("zn540-noplp")?.zone_size(64, 60).zones(8, 2);
/// let ssd = Ssd::new(spec, Timing::Instant, 1)?;
/// let run = |command| {
///     ssd.submit(0, 0, command);
///     ssd.wait(0).expect("it was submitted").result.expect("it is a good command");
/// };
/// let blocks = |count| (0..count).map(|_| Block::from_prefix(b"data")).collect();
/// run(Command::Write { lba: 128, data: blocks(3), fua: false });
/// run(Command::Flush);
/// run(Command::Write { lba: 131, data: blocks(2), fua: false });
///
/// let left = ssd.cut(42);
/// let pointer = left.write_pointers().nth(2).expect("there are 8 zones");
/// assert!((3..=5).contains(&pointer), "what was flushed is there");
/// let ssd = Ssd::power_on(left, Timing::Instant, 1);
/// assert_eq!(ssd.stats().commands, 0);
/// # Ok(())
/// # }
/// ```
pub struct Ssd {
    identify: Identify,
    timing: Timing,
    model: Mutex<Model>,
}

impl Ssd {
    /// A new drive in memory, switched on.
    pub fn new(spec: Spec, timing: Timing, seed: u64) -> Result<Arc<Self>, ProfileError> {
        Ok(Self::power_on(DriveState::new(spec)?, timing, seed))
    }

    /// Switches on a drive that holds this state. Program times vary with `seed`.
    pub fn power_on(state: DriveState, timing: Timing, seed: u64) -> Arc<Self> {
        Arc::new(Self::with_log(state, timing, seed, None))
    }

    pub(crate) fn with_log(
        state: DriveState,
        timing: Timing,
        seed: u64,
        log: Option<Box<dyn ZoneLog>>,
    ) -> Self {
        let identify = state.identify.clone();
        let mut model = Model::new(state, seed, timing == Timing::Instant);
        model.log = log;
        Self { identify, timing, model: Mutex::instrument("drive", model) }
    }

    /// Its specification. A drive in a file may promise less, because its host has a cache too.
    pub fn spec(&self) -> Spec {
        self.model.lock().spec.clone()
    }

    /// What would be left if the power failed now, with the choices of `seed`. Changes nothing. In
    /// memory this costs what is buffered; a drive in a file is read completely. After a cut, it is
    /// what that cut left.
    pub fn survivors(&self, seed: u64) -> DriveState {
        self.present().survivors(seed)
    }

    /// The power fails now. Commands under way end; for later ones see [`Ssd::after_cut`].
    pub fn cut(&self, seed: u64) -> DriveState {
        let mut model = self.present();
        model.fall(seed);
        model.survivors(seed)
    }

    /// Makes the power fail at `point`, with the choices of `seed`.
    pub fn cut_at(&self, point: CutPoint, seed: u64) {
        self.present().cut_at = Some((point, seed));
    }

    /// How the drive answers once its power has been cut.
    pub fn after_cut(&self, after: AfterCut) {
        self.model.lock().after_cut = after;
    }

    /// What the cut left, if there has been one.
    pub fn fallen(&self) -> Option<DriveState> {
        self.present().fallen.clone()
    }

    /// From now on shows `observer` every command, and the end of every NAND program.
    pub fn observe(&self, observer: Observer) {
        self.present().observer = Some(observer);
    }

    /// Stops observing; gives the observer back.
    pub fn unobserve(&self) -> Option<Observer> {
        self.present().observer.take()
    }

    /// Switches off in good order: everything written becomes durable. Later commands are answered
    /// as after a cut. Takes no time.
    pub fn power_off(&self) -> DriveState {
        let mut model = self.present();
        model.switch_off();
        model.survivors(0)
    }

    /// Shows what reads of these blocks would return, in order and at no cost. Shows zeroes where
    /// one would fail. `see` must not use the drive.
    pub fn look(&self, lbas: &mut dyn Iterator<Item = Lba>, see: &mut dyn FnMut(&Block)) {
        let model = self.model.lock();
        lbas.for_each(|lba| model.look(lba, see));
    }

    /// Makes the zone that holds `lba` read only or offline. A conventional zone, which has no
    /// state, gets [`Status::InvalidField`].
    pub fn fail_zone(&self, lba: Lba, state: ZoneState) -> Result<(), Status> {
        self.present().fail_zone(lba, state)
    }

    /// What the drive has done since it was switched on.
    pub fn stats(&self) -> Stats {
        self.present().stats
    }

    /// The model, after it has caught up with the present.
    fn present(&self) -> cores::MutexGuard<'_, Model> {
        let mut model = self.model.lock();
        if self.timing != Timing::Instant {
            model.advance(cores::now());
        }
        model
    }

    fn sleep_for(&self, queue: u16, cid: Option<u16>) -> Option<Completion> {
        loop {
            let mut model = self.present();
            if let Some(completion) = model.take_done(queue, cid) {
                return Some(completion);
            }
            let wake = model.wake_at(queue, cid)?;
            drop(model);
            cores::sleep_until(wake);
        }
    }
}

impl Drive for Ssd {
    fn identify(&self) -> &Identify {
        &self.identify
    }

    fn submit(&self, queue: u16, cid: u16, command: Command) {
        self.present().submit(queue, cid, command);
    }

    fn issue(&self, queue: u16, cid: u16, command: Command) -> Option<Completion> {
        let mut model = self.present();
        model.submit(queue, cid, command);
        if self.timing == Timing::Instant { model.take_done(queue, Some(cid)) } else { None }
    }

    fn poll(&self, queue: u16) -> Option<Completion> {
        self.present().take_done(queue, None)
    }

    fn wait(&self, queue: u16) -> Option<Completion> {
        self.sleep_for(queue, None)
    }

    fn wait_for(&self, queue: u16, cid: u16) -> Option<Completion> {
        self.sleep_for(queue, Some(cid))
    }
}

impl Drop for Ssd {
    /// Switches off a drive in a file in good order.
    fn drop(&mut self) {
        let model = self.model.get_mut();
        if model.log.is_some() {
            model.switch_off();
        }
    }
}

/// A RAM drive of `blocks` blocks (at least one) that answers at once: for tests, and for speed.
pub fn ram(blocks: u64) -> Arc<Ssd> {
    let spec = Spec::named("ram").map(|spec| spec.blocks(blocks.clamp(1, 1 << 48)));
    spec.and_then(|spec| Ssd::new(spec, Timing::Instant, 0)).expect("built-in profile is sound")
}
