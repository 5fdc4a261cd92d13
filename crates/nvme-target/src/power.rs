//! The power switch, and what else goes wrong on purpose.
//!
//! One supply feeds all drives of a server. To hosts a cut looks like one of a real drive: the
//! controllers are lost and the connections drop; a host that connects again finds what was on
//! NAND.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::Ordering;

use drive::{AfterCut, CutPoint, DriveState, Lba, ZoneState};

use crate::subsystem::Subsystem;

/// What follows a cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum After {
    /// The power comes back at once.
    #[default]
    Back,
    /// It stays away until it is restored: connections are refused.
    Off,
    /// Dead but polite: read only, and every command succeeds, so that a host can unmount (thesis
    /// section 5.3.1). Connections stay.
    Polite,
}

/// When the power is to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Now.
    Now,
    /// As the n-th command of a drive from now on arrives, counted from 0. Each drive counts its
    /// own; the first to get there takes the others down with it.
    Commands(u64),
    /// Just after the n-th NAND program of a drive from now on.
    Programs(u64),
}

/// The state of the supply.
#[derive(Default)]
pub(crate) struct Power {
    /// What follows the pending cut.
    after: After,
    seed: u64,
    off: bool,
    saved: BTreeMap<String, Vec<DriveState>>,
    /// How often the power has failed.
    cuts: u64,
}

impl Subsystem {
    /// Whether there is no power.
    pub(crate) fn is_off(&self) -> bool {
        self.power.lock().off
    }

    /// Whether new connections are answered. Waits for the gate, so that after a cut with immediate
    /// restore hosts see only the end of their connections, and nothing of the time in between.
    pub(crate) fn is_there(&self) -> bool {
        let _gate = self.gate.read();
        !self.is_off()
    }

    /// Cuts the power, now or later, with the choices of `seed`.
    pub(crate) fn cut(&self, when: When, seed: u64, after: After) -> io::Result<()> {
        let _gate = self.gate.write();
        {
            let mut power = self.power.lock();
            (power.after, power.seed) = (after, seed);
        }
        self.polite_cut.store(after == After::Polite && when != When::Now, Ordering::Release);
        let polite = if after == After::Polite { AfterCut::SayYes } else { AfterCut::Dead };
        for unit in &self.units {
            unit.ssd().after_cut(polite);
            let stats = unit.ssd().stats();
            let point = match when {
                When::Now => continue,
                When::Commands(n) => CutPoint::Command(stats.commands.saturating_add(n)),
                When::Programs(n) => CutPoint::Program(stats.programs.saturating_add(n)),
            };
            unit.ssd().cut_at(point, seed);
        }
        if when == When::Now { self.fall() } else { Ok(()) }
    }

    /// A connection found a drive without power.
    pub(crate) fn power_lost(&self) {
        let _gate = self.gate.write();
        // The first thread to notice deals with it; for the others only their hosts' connections
        // are lost.
        if self.units.iter().any(|unit| unit.ssd().is_off()) && !self.is_off() {
            // A drive that cannot be restored stays off, and every connection is refused.
            let _off = self.fall();
        }
    }

    /// Whether a silent power loss is pending and no drive has reached it yet.
    pub(crate) fn expects_polite_cut(&self) -> bool {
        self.polite_cut.load(Ordering::Acquire)
    }

    /// A drive lost its power silently: so do the others.
    pub(crate) fn power_lost_politely(&self) {
        let _gate = self.gate.write();
        if self.expects_polite_cut() {
            // Nothing is brought back here, so nothing can fail.
            let _fallen = self.fall();
        }
    }

    /// The power of all drives fails. The caller has closed the gate.
    fn fall(&self) -> io::Result<()> {
        self.polite_cut.store(false, Ordering::Release);
        let mut power = self.power.lock();
        power.cuts += 1;
        let (after, seed) = (power.after, power.seed);
        if after != After::Polite {
            power.off = true;
            self.remove_all();
        }
        drop(power);
        self.freeze(false);
        self.units.iter().for_each(|unit| drop(unit.ssd().cut(seed)));
        if after == After::Back { self.give_power(None) } else { Ok(()) }
    }

    /// All drives get power again, with the contents of `states` or with their own.
    fn give_power(&self, states: Option<&[DriveState]>) -> io::Result<()> {
        self.remove_all();
        self.polite_cut.store(false, Ordering::Release);
        let mut power = self.power.lock();
        power.off = true;
        for (number, unit) in self.units.iter().enumerate() {
            let state = states.and_then(|states| states.get(number)).cloned();
            // Program times vary, but the same cuts give the same run.
            unit.ssd().power_again(state, power.seed.wrapping_add(power.cuts))?;
        }
        power.off = false;
        Ok(())
    }

    /// Brings the power back after a cut, with the drives as they are or as they were when saved
    /// under `name`. If the power is on, hosts see it fail first; without a name there is then
    /// nothing to do but to end a freeze, and it returns false.
    pub(crate) fn restore(&self, name: Option<&str>) -> io::Result<bool> {
        self.freeze(false);
        let _gate = self.gate.write();
        // After a polite cut only the drives are without power.
        if name.is_none() && !self.is_off() && !self.units.iter().any(|unit| unit.ssd().is_off()) {
            return Ok(false);
        }
        let saved = match name {
            None => None,
            Some(name) => {
                let power = self.power.lock();
                let none = || io::Error::other(format!("nothing was saved as '{name}'"));
                Some(power.saved.get(name).cloned().ok_or_else(none)?)
            }
        };
        self.give_power(saved.as_deref()).map(|()| true)
    }

    /// As [`Subsystem::restore`], with the contents of `states`, one for each drive.
    pub(crate) fn replace(&self, states: &[DriveState]) -> io::Result<()> {
        self.freeze(false);
        let _gate = self.gate.write();
        self.give_power(Some(states))
    }

    /// Keeps the contents of all drives, with everything acknowledged, under `name`.
    pub(crate) fn save(&self, name: &str) {
        let _gate = self.gate.write();
        let states = self.units.iter().map(|unit| unit.ssd().hold()).collect();
        self.power.lock().saved.insert(name.to_owned(), states);
    }

    /// Forgets what was saved under `name`; false if nothing was.
    pub(crate) fn forget(&self, name: &str) -> bool {
        self.power.lock().saved.remove(name).is_some()
    }

    /// Names of what was saved.
    pub(crate) fn saved(&self) -> Vec<String> {
        self.power.lock().saved.keys().cloned().collect()
    }

    /// How often the power has failed.
    pub(crate) fn cuts(&self) -> u64 {
        self.power.lock().cuts
    }

    /// Makes the zone of `unit` that holds the drive's block `lba` read only or offline, and tells
    /// the hosts.
    pub(crate) fn fail_zone(
        &self,
        unit: usize,
        lba: Lba,
        state: ZoneState,
    ) -> Result<(), drive::Status> {
        let drive = self.units.get(unit).ok_or(drive::Status::InvalidField)?;
        drive.ssd().fail_zone(lba, state)?;
        let holds = |of: &&crate::namespace::Namespace| {
            of.unit == unit && lba >= of.first && lba - of.first < of.blocks
        };
        for namespace in self.namespaces.iter().filter(holds) {
            let Some(zones) = namespace.zones else { continue };
            let inside = lba - namespace.first;
            let start = inside - inside % zones.size;
            for controller in self.controllers() {
                controller.zone_changed(namespace.nsid, start);
            }
        }
        Ok(())
    }
}
