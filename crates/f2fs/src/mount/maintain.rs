//! What a mounted volume does by itself: the flusher of [`vfs::upkeep`], with a checkpoint every
//! `cp_interval`, background cleaning (`gc_thread_func`), and discards (`issue_discard_thread`).
//!
//! [`Maintenance`] runs three threads of [`cores`], so on a virtual machine hours of it pass in
//! milliseconds, in the same way every time. They use only the volume's own operations. A volume
//! without them is just as correct, only less tidy.

use std::sync::Arc;

use cores::{JoinHandle, Nanos, now};
use vfs::upkeep::{Flushed, flush};
use vfs::{Health, Hold, Ino};

use crate::F2fs;
use crate::alloc::discard::discard_thread;
use crate::alloc::gc::Policy;
use crate::error::Result;
use crate::mount::attributes::{GcMode, Knobs};
use crate::mount::engine::{Caller, Engine};
use crate::mount::options::BackgroundGc;
use crate::ondisk::Nid;

const MS: Nanos = 1_000_000;
const SECOND: Nanos = 1_000 * MS;

/// Share of a section that cleaning an idle zoned volume must gain at least
/// (`DEF_GC_THREAD_VALID_THRESH_RATIO`).
const LEAST_GAIN_PERCENT: u32 = 20;

/// What the threads of a volume and its operations tell each other.
pub(crate) type Upkeep = vfs::upkeep::Upkeep<Wishes>;

/// What the threads have been asked to do.
pub struct Wishes {
    /// Clean now (`gc_wake`).
    gc_wake: bool,
    /// Discard what is free. `None` if no thread does.
    pub(crate) discard: Option<bool>,
    pub(crate) knobs: Knobs,
    /// Their values at the mount.
    defaults: Knobs,
}

impl Wishes {
    pub(crate) fn new(knobs: Knobs) -> Self {
        Self { gc_wake: false, discard: None, knobs, defaults: knobs }
    }
}

/// The background threads of a mounted volume. They must be stopped before it is unmounted.
#[must_use = "dropped, its threads end"]
pub struct Maintenance {
    fs: Arc<F2fs>,
    threads: Vec<JoinHandle<()>>,
}

impl Maintenance {
    /// Ends the threads and waits for them. They finish what they are doing.
    pub fn stop(self) {}
}

impl Drop for Maintenance {
    fn drop(&mut self) {
        self.fs.upkeep.end();
        for thread in self.threads.drain(..) {
            // A thread that panicked has reported it; the volume's own state shows the rest.
            let _ = thread.result();
        }
        self.fs.upkeep.lock().own.discard = None;
    }
}

impl F2fs {
    /// Starts the background threads: write-back, checkpoints and, unless it is mounted
    /// `background_gc=off`, cleaning. A read-only mount needs none of this, and no threads.
    pub fn maintain(self: &Arc<Self>) -> Maintenance {
        let mut threads = Vec::new();
        if !self.options().read_only {
            let fs = self.clone();
            threads.push(cores::spawn("f2fs_flush", None, move || flush(&*fs)));
            let fs = self.clone();
            self.upkeep.lock().own.discard = Some(false);
            threads.push(cores::spawn("f2fs_discard", None, move || discard_thread(&fs)));
        }
        if !self.options().read_only && self.options().background_gc != BackgroundGc::Off {
            let fs = self.clone();
            threads.push(cores::spawn("f2fs_gc", None, move || gc_thread(&fs)));
        }
        Maintenance { fs: self.clone(), threads }
    }

    /// The present values of the writable attributes.
    pub fn knobs(&self) -> Knobs {
        self.upkeep.lock().own.knobs
    }

    /// Their values when the volume was mounted.
    pub(crate) fn default_knobs(&self) -> Knobs {
        self.upkeep.lock().own.defaults
    }

    /// Sets an attribute, by its name in `/sys/fs/f2fs/<disk>/`.
    pub fn set_tunable(&self, name: &str, value: &str) -> Result<()> {
        self.set_tunables(&[(name, value)])
    }

    /// Changes the values that the threads go by.
    pub(crate) fn change_knobs<E>(
        &self,
        change: impl FnOnce(&mut Knobs) -> Result<(), E>,
    ) -> Result<Knobs, E> {
        let knobs = {
            let wishes = &mut self.upkeep.lock().own;
            change(&mut wishes.knobs)?;
            wishes.gc_wake |= wishes.knobs.gc_mode().is_urgent();
            wishes.knobs
        };
        self.upkeep.wake();
        Ok(knobs)
    }
}

impl Flushed for F2fs {
    type Own = Wishes;

    fn upkeep(&self) -> &Upkeep {
        &self.upkeep
    }

    fn commit_interval(wishes: &Wishes) -> Nanos {
        wishes.knobs.cp_interval.saturating_mul(SECOND)
    }

    fn is_sound(&self) -> bool {
        self.lock().health == Health::Sound
    }

    fn operations(&self) -> u64 {
        self.operations_begun()
    }

    fn dirty_inos(&self) -> Vec<Ino> {
        self.lock().inodes.with_dirty_pages().into_iter().map(Ino::from).collect()
    }

    fn write_back(&self, ino: Ino) {
        if let Ok(ino) = Nid::try_from(ino) {
            // The file's next fsync reports it too.
            self.report_failure("write-back", self.write_back_file(ino));
        }
    }

    fn commit_if_older(&self, age: Nanos) {
        // So does the next operation on the volume.
        self.report_failure("checkpoint", self.checkpoint_if_older(age));
    }
}

/// Cleans when there is something to gain and no operation has to wait for it (`gc_thread_func`).
fn gc_thread(fs: &F2fs) {
    let mut wait = fs.knobs().gc_min_sleep_time;
    while let Some(mut state) = fs.upkeep.sleep(now() + wait * MS, |wishes| wishes.gc_wake) {
        state.own.gc_wake = false;
        let knobs = state.own.knobs;
        drop(state);
        if !fs.is_sound() {
            return;
        }
        wait = fs.gc_round(&knobs, wait);
        fs.count_down_urgency();
    }
}

impl F2fs {
    /// Reports what failed in the background. On a volume that has stopped, everything does, and
    /// the reason has been reported.
    pub(crate) fn report_failure(&self, of: &str, done: Result<()>) {
        if let Err(error) = done {
            let volume = self.lock();
            if volume.health == Health::Sound {
                volume.report(&format!("{of}: {error}"));
            }
        }
    }

    /// Wakes the discard thread; false if there is none.
    pub(crate) fn wake_discards(&self) -> bool {
        let wish = &mut self.upkeep.lock().own.discard;
        let has_thread = wish.is_some();
        *wish = wish.map(|_| true);
        if has_thread {
            self.upkeep.wake();
        }
        has_thread
    }

    fn is_idle(&self, knobs: &Knobs) -> bool {
        let begun = self.operations();
        let state = self.upkeep.lock();
        let interval = knobs.gc_idle_interval.saturating_mul(SECOND);
        knobs.gc_mode() == GcMode::UrgentLow || state.is_idle(begun, interval)
    }

    /// Writes a checkpoint if the last one is `age` old and anything has changed since.
    fn checkpoint_if_older(&self, age: Nanos) -> Result<()> {
        let mut volume = self.settled();
        let in_time = now() - volume.last_checkpoint < age || !volume.has_changed();
        if in_time && !volume.has_excess_atimes() {
            return Ok(());
        }
        self.checkpoint(volume, Caller::Background).map(drop)
    }

    /// One round of the gc thread. Returns how long to sleep next, in ms.
    fn gc_round(&self, knobs: &Knobs, wait: u64) -> u64 {
        let mut wait = wait;
        let (mut boost, mut least_percent) = (false, 0);
        if matches!(knobs.gc_mode(), GcMode::UrgentHigh | GcMode::UrgentMid) {
            wait = knobs.gc_urgent_sleep_time;
        } else {
            let idle = self.is_idle(knobs);
            let mut volume = self.lock();
            // An operation would soon have to clean, so this does not wait for a quiet moment.
            let short = volume.zones.is_some() && volume.is_nearly_short();
            if !idle && !short {
                return knobs.longer(wait);
            }
            if volume.zones.is_some() {
                if !short && volume.has_enough_free_blocks(knobs.gc_no_zoned_gc_percent) {
                    return knobs.gc_no_gc_sleep_time;
                }
                if wait == knobs.gc_no_gc_sleep_time {
                    wait = knobs.gc_max_sleep_time;
                }
                boost = short || !volume.has_enough_free_blocks(knobs.gc_boost_zoned_gc_percent);
                least_percent = if short { 0 } else { LEAST_GAIN_PERCENT };
            } else {
                boost = volume.has_enough_invalid_blocks();
            }
            wait = if boost { knobs.shorter(wait) } else { knobs.longer(wait) };
        }
        let sync = self.options().background_gc == BackgroundGc::Sync;
        let policy = {
            let volume = self.lock();
            volume.background_policy(sync || boost && volume.zones.is_some())
        };
        match self.clean_one(policy, least_percent, Caller::Background) {
            Ok(true) if wait == knobs.gc_no_gc_sleep_time => knobs.gc_min_sleep_time,
            Ok(true) => wait,
            Ok(false) => knobs.gc_no_gc_sleep_time,
            failed => {
                self.report_failure("cleaning", failed.map(drop));
                knobs.gc_no_gc_sleep_time
            }
        }
    }

    /// `gc_remaining_trials`: an urgent mode ends after this many rounds.
    fn count_down_urgency(&self) {
        let knobs = &mut self.upkeep.lock().own.knobs;
        if knobs.gc_mode() != GcMode::Normal && knobs.gc_remaining_trials > 0 {
            knobs.gc_remaining_trials -= 1;
            if knobs.gc_remaining_trials == 0 {
                (knobs.gc_urgent, knobs.gc_idle) = (0, 0);
            }
        }
    }

    /// The volume, for a change. What the volume does by itself does not make it busy.
    fn change_for(&self, caller: Caller) -> Result<Hold<'_, Engine>> {
        let mut volume = self.change()?;
        if caller == Caller::Background {
            volume.operations = volume.operations.wrapping_sub(1);
        }
        Ok(volume)
    }

    /// Cleans one section chosen by `policy`, one segment at a time, and writes a checkpoint; in
    /// the background at most `migration_granularity` segments of it. False if no section would
    /// gain at least `least_percent`.
    pub(crate) fn clean_one(
        &self,
        policy: Policy,
        least_percent: u32,
        caller: Caller,
    ) -> Result<bool> {
        let mut volume = self.change_for(caller)?;
        let least = volume.segments.get_mut().section_capacity() * least_percent / 100;
        let Some(segments) = volume.segments_to_clean(policy, least.max(1), caller) else {
            return Ok(false);
        };
        for segno in segments {
            if volume.logs.get_mut().is_current(segno) {
                continue;
            }
            self.empty_segments(volume, segno..segno + 1, caller)?;
            volume = self.change_for(caller)?;
        }
        // Moving the blocks frees the section only with the next checkpoint.
        self.checkpoint(volume, caller)?;
        Ok(true)
    }
}
