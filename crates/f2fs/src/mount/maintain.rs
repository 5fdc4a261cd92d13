//! What a mounted volume does by itself: dirty pages written back by age and amount (the kernel's
//! flusher), a checkpoint every `cp_interval`, and background cleaning (`gc_thread_func`).
//!
//! [`Maintenance`] runs two threads of [`cores`], so on a virtual machine hours of it pass in
//! milliseconds, and the same every time. They use nothing but the volume's own operations; a
//! volume without them is as true, only less tidy.
//!
//! Idle means: no operation began for `gc_idle_interval`. Operations are counted, not timed, which
//! costs them nothing; so idleness is noticed up to one flusher interval late.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cores::{Condvar, JoinHandle, Mutex, MutexGuard, Nanos, now};
use vfs::Ino;

use crate::F2fs;
use crate::alloc::gc::Policy;
use crate::error::Result;
use crate::mount::options::BackgroundGc;
use crate::mount::tunables::{GcMode, Tunables};
use crate::mount::volume::{Caller, Health};
use crate::ondisk::Nid;

const MS: Nanos = 1_000_000;
const SECOND: Nanos = 1_000 * MS;

/// How often dirty pages are looked at (`dirty_writeback_centisecs`).
const WRITEBACK_INTERVAL: Nanos = 5 * SECOND;
/// Age at which dirty pages are written back (`dirty_expire_centisecs`).
const DIRTY_EXPIRE: Nanos = 30 * SECOND;

/// Share of a section that cleaning an idle zoned volume must gain at least
/// (`DEF_GC_THREAD_VALID_THRESH_RATIO`).
const LEAST_GAIN_PERCENT: u32 = 20;

/// What the threads of a volume and its operations tell each other.
pub(crate) struct Upkeep {
    state: Mutex<State>,
    changed: Condvar,
    /// More is dirty than may wait for its age, and the flusher has not looked yet.
    kicked: AtomicBool,
}

struct State {
    /// Threads are to end.
    stop: bool,
    /// Cleaning is wanted now (`gc_wake`).
    gc_wake: bool,
    tunables: Tunables,
    /// Operations begun when last looked, and since when none has.
    seen: u64,
    quiet_since: Nanos,
}

impl Upkeep {
    pub(crate) fn new(tunables: Tunables) -> Self {
        let state = State { stop: false, gc_wake: false, tunables, seen: 0, quiet_since: now() };
        Self {
            state: Mutex::named("f2fs upkeep", state),
            changed: Condvar::new(),
            kicked: AtomicBool::new(false),
        }
    }

    /// More is dirty than should be. Costs next to nothing while the flusher has not looked yet.
    pub(crate) fn kick(&self) {
        if !self.kicked.swap(true, Ordering::Relaxed) {
            // Whoever goes to sleep has looked at the flag under this lock.
            drop(self.state.lock());
            self.changed.notify_all();
        }
    }

    fn end(&self) {
        self.state.lock().stop = true;
        self.changed.notify_all();
    }

    /// Sleeps until `deadline` or until `early` says so; `None` if it is time to end.
    fn sleep(
        &self,
        deadline: Nanos,
        early: impl Fn(&State) -> bool,
    ) -> Option<MutexGuard<'_, State>> {
        let mut state = self.state.lock();
        while !state.stop && !early(&state) {
            if self.changed.wait_until(&mut state, deadline) {
                break;
            }
        }
        (!state.stop).then_some(state)
    }
}

/// The threads that look after a mounted volume. Stop them before unmounting.
#[must_use = "dropped, its threads end"]
pub struct Maintenance {
    fs: Arc<F2fs>,
    threads: Vec<JoinHandle<()>>,
}

impl Maintenance {
    /// Ends the threads and waits for them; what they were at is finished.
    pub fn stop(self) {}
}

impl Drop for Maintenance {
    fn drop(&mut self) {
        self.fs.upkeep.end();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so; the volume's own state tells the rest.
            let _ = thread.result();
        }
    }
}

impl F2fs {
    /// Starts looking after the volume: write-back, checkpoints and, unless it is mounted
    /// `background_gc=off`, cleaning. On a read-only mount there is nothing to do, and no thread.
    pub fn maintain(self: &Arc<Self>) -> Maintenance {
        let mut threads = Vec::new();
        if !self.options().read_only {
            let fs = self.clone();
            threads.push(cores::spawn("f2fs_flush", None, move || flusher(&fs)));
        }
        if !self.options().read_only && self.options().background_gc != BackgroundGc::Off {
            let fs = self.clone();
            threads.push(cores::spawn("f2fs_gc", None, move || gc_thread(&fs)));
        }
        Maintenance { fs: self.clone(), threads }
    }

    /// The tunables as they are now.
    pub fn tunables(&self) -> Tunables {
        self.upkeep.state.lock().tunables.clone()
    }

    /// Sets a tunable by the name it has in `/sys/fs/f2fs/<disk>/`.
    pub fn set_tunable(&self, name: &str, value: &str) -> Result<()> {
        let limits = {
            let mut state = self.upkeep.state.lock();
            state.tunables.set(name, value)?;
            state.gc_wake |= state.tunables.gc_mode.is_urgent();
            state.tunables.limits()
        };
        self.upkeep.changed.notify_all();
        self.lock().limits = limits;
        Ok(())
    }
}

/// Writes back what has been dirty for long, all of it if it is much, and checkpoints in time.
fn flusher(fs: &F2fs) {
    let mut dirty_since: BTreeMap<Ino, Nanos> = BTreeMap::new();
    let mut next = now() + WRITEBACK_INTERVAL;
    let kicked = &fs.upkeep.kicked;
    while let Some(state) = fs.upkeep.sleep(next, |_| kicked.load(Ordering::Relaxed)) {
        let all = kicked.swap(false, Ordering::Relaxed);
        let cp_interval = state.tunables.cp_interval.saturating_mul(SECOND);
        drop(state);
        if !fs.is_sound() {
            return;
        }
        fs.note_idleness();
        for ino in due(fs, &mut dirty_since, all) {
            // The file's next fsync tells.
            let _ = fs.write_back_file(ino);
        }
        // So does the next operation on a volume whose checkpoint failed.
        let _ = fs.checkpoint_if_older(cp_interval);
        next = now() + WRITEBACK_INTERVAL;
    }
}

/// Files to write back now, and since when the others have been dirty.
fn due(fs: &F2fs, dirty_since: &mut BTreeMap<Ino, Nanos>, all: bool) -> Vec<Nid> {
    let now = now();
    let dirty: Vec<Ino> = fs.lock().pages.dirty_inos().collect();
    let since = dirty.into_iter().map(|ino| (ino, *dirty_since.get(&ino).unwrap_or(&now)));
    let (old, young): (BTreeMap<_, _>, BTreeMap<_, _>) =
        since.partition(|(_, since)| all || now - since >= DIRTY_EXPIRE);
    *dirty_since = young;
    old.into_keys().filter_map(|ino| Nid::try_from(ino).ok()).collect()
}

/// Cleans when there is something to gain and nobody is kept waiting (`gc_thread_func`).
fn gc_thread(fs: &F2fs) {
    let mut wait = fs.tunables().gc_min_sleep_time;
    while let Some(mut state) = fs.upkeep.sleep(now() + wait * MS, |state| state.gc_wake) {
        state.gc_wake = false;
        let tunables = state.tunables.clone();
        drop(state);
        if !fs.is_sound() {
            return;
        }
        wait = fs.gc_round(&tunables, wait);
        fs.count_down_urgency();
    }
}

impl F2fs {
    fn is_sound(&self) -> bool {
        self.lock().health == Health::Sound
    }

    fn note_idleness(&self) {
        let begun = self.lock().operations;
        let mut state = self.upkeep.state.lock();
        if state.seen != begun {
            (state.seen, state.quiet_since) = (begun, now());
        }
    }

    fn is_idle(&self, tunables: &Tunables) -> bool {
        let begun = self.lock().operations;
        let state = self.upkeep.state.lock();
        tunables.gc_mode == GcMode::UrgentLow
            || state.seen == begun
                && now() - state.quiet_since >= tunables.gc_idle_interval.saturating_mul(SECOND)
    }

    /// Writes a checkpoint if the last one is `age` old and anything has changed since.
    fn checkpoint_if_older(&self, age: Nanos) -> Result<()> {
        let volume = self.settled();
        let in_time = now() - volume.last_checkpoint < age || !volume.has_changed();
        if in_time && !volume.has_excess_atimes() {
            return Ok(());
        }
        self.checkpoint(volume, Caller::Background).map(drop)
    }

    /// One waking of the gc thread; how long to sleep next, in ms.
    fn gc_round(&self, tunables: &Tunables, wait: u64) -> u64 {
        let mut wait = wait;
        let (mut boost, mut least_percent) = (false, 0);
        if matches!(tunables.gc_mode, GcMode::UrgentHigh | GcMode::UrgentMid) {
            wait = tunables.gc_urgent_sleep_time;
        } else {
            let idle = self.is_idle(tunables);
            let volume = self.lock();
            // An operation would soon have to do it, so this does not wait for a quiet moment.
            let short = volume.zones.is_some() && volume.is_nearly_short();
            if !idle && !short {
                return tunables.longer(wait);
            }
            if volume.zones.is_some() {
                if !short && volume.has_enough_free_blocks(tunables.gc_no_zoned_gc_percent) {
                    return tunables.gc_no_gc_sleep_time;
                }
                if wait == tunables.gc_no_gc_sleep_time {
                    wait = tunables.gc_max_sleep_time;
                }
                boost = short || !volume.has_enough_free_blocks(tunables.gc_boost_zoned_gc_percent);
                least_percent = if short { 0 } else { LEAST_GAIN_PERCENT };
            } else {
                boost = volume.has_enough_invalid_blocks();
            }
            wait = if boost { tunables.shorter(wait) } else { tunables.longer(wait) };
        }
        let sync = self.options().background_gc == BackgroundGc::Sync;
        let policy = tunables.gc_mode.policy(sync || boost && self.lock().zones.is_some());
        match self.clean_one(policy, least_percent, Caller::Background) {
            Ok(true) if wait == tunables.gc_no_gc_sleep_time => tunables.gc_min_sleep_time,
            Ok(true) => wait,
            Ok(false) | Err(_) => tunables.gc_no_gc_sleep_time,
        }
    }

    /// `gc_remaining_trials`: an urgent mode ends after so many rounds.
    fn count_down_urgency(&self) {
        let mut state = self.upkeep.state.lock();
        let tunables = &mut state.tunables;
        if tunables.gc_mode != GcMode::Normal && tunables.gc_remaining_trials > 0 {
            tunables.gc_remaining_trials -= 1;
            if tunables.gc_remaining_trials == 0 {
                tunables.gc_mode = GcMode::Normal;
            }
        }
    }

    /// Cleans one section chosen by `policy`, a segment at a time, and checkpoints. False if there
    /// is none of which at least `least_percent` can be gained.
    pub(crate) fn clean_one(
        &self,
        policy: Policy,
        least_percent: u32,
        caller: Caller,
    ) -> Result<bool> {
        let mut volume = self.change()?;
        let least = volume.segments.section_capacity() * least_percent / 100;
        let Some(section) = volume.begin_cleaning(policy, least.max(1), caller) else {
            return Ok(false);
        };
        let segments = volume.sb.segments_of(section);
        for segno in segments {
            if volume.logs.is_current(segno) {
                continue;
            }
            volume.clean_segments(segno..segno + 1, caller)?;
            volume.flush_moved()?;
            drop(volume);
            volume = self.change()?;
        }
        // What was moved frees the section only when a checkpoint knows.
        self.checkpoint(volume, caller)?;
        Ok(true)
    }
}
