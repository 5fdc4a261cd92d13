//! One subsystem: drives, namespaces, the hosts' controllers, and the power of all drives.
//!
//! The power gate is a lock. Commands run while it is held for reading; cutting and restoring the
//! power hold it for writing. So no command from before a cut reaches the drive after it, and a cut
//! can be judged by what hosts were told before it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cores::{Condvar, Mutex, RwLock, RwLockReadGuard};

use crate::controller::Controller;
use crate::namespace::{Namespace, Unit, guid};
use crate::power::Power;
use crate::server::Options;

/// Name of the discovery subsystem (NVMe base 2.0, section 4.5).
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";
/// How many namespaces are listed at once.
const MAX_NAMESPACES: usize = 1024;
/// The last controller identifier; those above have special meanings.
const LAST_CONTROLLER: u16 = 0xffef;

/// Everything that connections share.
pub(crate) struct Subsystem {
    pub(crate) options: Options,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    pub(crate) serial: String,
    pub(crate) units: Vec<Unit>,
    pub(crate) namespaces: Vec<Namespace>,
    /// The longest transfer is 2 to this power blocks.
    pub(crate) transfer_shift: u8,
    pub(crate) gate: RwLock<()>,
    pub(crate) power: Mutex<Power>,
    /// A silent cut is pending.
    pub(crate) polite_cut: AtomicBool,
    /// While this is set, nothing is answered.
    frozen: AtomicBool,
    thawed: Condvar,
    controllers: Mutex<Controllers>,
    /// Bytes of transfers under way, besides one for each connection.
    transfers: AtomicU64,
}

#[derive(Default)]
struct Controllers {
    last: u16,
    by_id: BTreeMap<u16, Arc<Controller>>,
}

impl Subsystem {
    pub(crate) fn new(units: Vec<Unit>, address: SocketAddr, options: Options) -> Self {
        let mut namespaces: Vec<Namespace> = Vec::new();
        for (number, unit) in units.iter().enumerate() {
            let next = namespaces.len() as u32 + 1;
            namespaces.extend(Namespace::of(number, unit, next));
        }
        namespaces.truncate(MAX_NAMESPACES);
        let longest = |unit: &Unit| {
            let identify = drive::Drive::identify(&**unit.ssd());
            identify.max_transfer.max(1)
        };
        let transfer = units.iter().map(longest).min().unwrap_or(1);
        let first = units.first().map_or(std::path::Path::new(""), |unit| unit.name().as_path());
        let number = u128::from_be_bytes(guid(first, u64::MAX));
        Self {
            options,
            address,
            serial: format!("{:020x}", number & ((1 << 80) - 1)),
            units,
            namespaces,
            transfer_shift: transfer.ilog2() as u8,
            gate: RwLock::new(()),
            power: Mutex::new(Power::default()),
            polite_cut: AtomicBool::new(false),
            frozen: AtomicBool::new(false),
            thawed: Condvar::new(),
            controllers: Mutex::new(Controllers::default()),
            transfers: AtomicU64::new(0),
        }
    }

    /// Longest transfer in blocks.
    pub(crate) fn transfer(&self) -> u32 {
        1 << self.transfer_shift
    }

    /// The namespace `nsid`.
    pub(crate) fn namespace(&self, nsid: u32) -> Option<&Namespace> {
        self.namespaces.get((nsid as usize).checked_sub(1)?)
    }

    /// Adds the controller that `make` makes with its identifier. `None` if there are too many.
    pub(crate) fn add<E>(
        &self,
        make: impl FnOnce(u16) -> Result<Arc<Controller>, E>,
    ) -> Option<Arc<Controller>> {
        let mut controllers = self.controllers.lock();
        let candidates =
            (controllers.last.saturating_add(1)..=LAST_CONTROLLER).chain(1..=controllers.last);
        let free = |id: &u16| !controllers.by_id.contains_key(id);
        let id = candidates.into_iter().find(free)?;
        let controller = make(id).ok()?;
        controllers.last = id;
        controllers.by_id.insert(id, controller.clone());
        Some(controller)
    }

    pub(crate) fn controller(&self, id: u16) -> Option<Arc<Controller>> {
        self.controllers.lock().by_id.get(&id).cloned()
    }

    /// The controllers that hosts have of the subsystem itself.
    pub(crate) fn controllers(&self) -> Vec<Arc<Controller>> {
        self.controllers.lock().by_id.values().cloned().collect()
    }

    /// Ends a controller and its connections.
    pub(crate) fn remove(&self, controller: &Controller) {
        controller.end();
        let mut controllers = self.controllers.lock();
        if controllers.by_id.get(&controller.id).is_some_and(|known| known.is(controller)) {
            controllers.by_id.remove(&controller.id);
        }
    }

    /// Ends all controllers.
    pub(crate) fn remove_all(&self) {
        let all = std::mem::take(&mut self.controllers.lock().by_id);
        all.values().for_each(|controller| controller.end());
    }

    /// The right to run commands. Waits while they are frozen.
    pub(crate) fn enter(&self) -> RwLockReadGuard<'_, ()> {
        if self.frozen.load(Ordering::Acquire) {
            let mut power = self.power.lock();
            while self.frozen.load(Ordering::Acquire) {
                self.thawed.wait(&mut power);
            }
        }
        self.gate.read()
    }

    /// Stops answering, or resumes.
    pub(crate) fn freeze(&self, frozen: bool) {
        let power = self.power.lock();
        self.frozen.store(frozen, Ordering::Release);
        drop(power);
        self.thawed.notify_all();
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.frozen.load(Ordering::Acquire)
    }

    /// Takes room for a transfer from what all connections share.
    pub(crate) fn take_room(&self, bytes: u64) -> bool {
        let most = self.options.transfer_bytes;
        let taken = self.transfers.fetch_add(bytes, Ordering::Relaxed);
        let fits = taken.saturating_add(bytes) <= most;
        if !fits {
            self.give_room(bytes);
        }
        fits
    }

    /// Returns that room.
    pub(crate) fn give_room(&self, bytes: u64) {
        self.transfers.fetch_sub(bytes, Ordering::Relaxed);
    }
}
