//! Drives for the lab: a profile's timing and buffer, sized for the workload.
//!
//! The ZN540 has zones of 2 GiB; a volume of a few hundred MiB would be one zone. So zones are
//! scaled down and their share of capacity kept. Everything else is the profile's.
//!
//! What a run is on is a [`Kit`] before it is made, a [`Medium`] while it is on, and what is
//! [`Left`] of it after a cut: an emulated drive, or persistent memory (`pm`).

mod extra;

use std::sync::Arc;

use drive::pm::{Domain, Pm, PmAccess, PmDrive, PmSim, PmState};
use drive::{BLOCK_SIZE, Block, Drive, DriveState, Identify, Lba, Spec, Ssd, Timing};
use vfs::kind::{Finding, Format, Technique, Volume};

pub use self::extra::Extra;
use crate::{Error, Result};

const MIB_BLOCKS: u64 = (1 << 20) / BLOCK_SIZE as u64;

/// Zone size and capacity: 9/16 of the zone can be written, on the ZN540 it is 1077/2048.
const ZONE: (u64, u64) = (32 * MIB_BLOCKS, 18 * MIB_BLOCKS);

/// Zones beside those for the data: logs, reserve and room for cleaning.
const SPARE_ZONES: u64 = 28;

/// How many conventional zones a drive has beside `zones` others, for the metadata F2FS updates in
/// place. Its mkfs asks for 2 of 112 zones in all, 3 of 200, 4 of 400, 7 of 800 and 13 of 2,000.
fn conventional_zones(zones: u32) -> u32 {
    if zones <= 110 { 2 } else { 1 + zones.div_ceil(96) }
}

/// Zones of the smallest drive, for workloads without a footprint, which fill it.
const SMALL_ZONE: u64 = 2 * MIB_BLOCKS;
const SMALL_ZONES: (u32, u32) = (40, 8);

/// The smallest drive without zones.
const SMALL_CONVENTIONAL: u64 = 64 * MIB_BLOCKS;

/// Smallest drive without zones for a workload that does not fill it.
const CONVENTIONAL_MIN: u64 = 256 * MIB_BLOCKS;

/// Persistent memory without a footprint, and what it has besides twice the footprint.
const PM_SMALL: u64 = 4 << 20;
const PM_SPARE: u64 = 8 << 20;

/// What a medium is to be like.
#[derive(Clone)]
pub enum Kit {
    /// An emulated drive.
    Ssd(Spec),
    /// Simulated persistent memory of so many bytes.
    Pm(u64, Domain),
}

/// What a run is on.
#[derive(Clone)]
pub enum Medium {
    /// An emulated drive.
    Ssd(Arc<Ssd>),
    /// Simulated persistent memory.
    Pm(Arc<PmSim>),
}

/// What a medium holds after a cut.
#[derive(Clone)]
#[allow(clippy::large_enum_variant, reason = "there are few, and mostly of drives")]
pub enum Left {
    /// An emulated drive.
    Ssd(DriveState),
    /// Persistent memory, and how far a store must get to survive there.
    Pm(PmState, Domain),
}

impl From<DriveState> for Left {
    fn from(state: DriveState) -> Self {
        Self::Ssd(state)
    }
}

/// The medium called `name`: `pm[:DOMAIN]`, or a drive as for [`unkind`].
pub fn kit(name: &str, footprint: u64) -> Result<Kit> {
    let domain = match name.split_once(':') {
        None if name == "pm" => Domain::Memory,
        Some(("pm", domain)) => domain.parse().map_err(Error::Usage)?,
        _ => return unkind(name, footprint).map(Kit::Ssd),
    };
    let bytes = if footprint == 0 { PM_SMALL } else { 2 * footprint + PM_SPARE };
    Ok(Kit::Pm(bytes.next_multiple_of(BLOCK_SIZE as u64), domain))
}

impl Kit {
    /// What the medium will say of itself.
    pub fn identify(&self) -> Result<Identify> {
        match self {
            Self::Ssd(spec) => spec.identify().map_err(|error| Error::Usage(error.to_string())),
            Self::Pm(..) => {
                self.make(Timing::Instant, 0).map(|made| made.drive().identify().clone())
            }
        }
    }

    /// A new, empty one.
    pub fn make(&self, timing: Timing, seed: u64) -> Result<Medium> {
        match self {
            Self::Ssd(spec) => new_drive(spec, timing, seed).map(Medium::Ssd),
            Self::Pm(bytes, domain) => {
                Ok(Medium::Pm(PmSim::power_on(PmState::new(*bytes), *domain)))
            }
        }
    }
}

impl Medium {
    /// As a file system sees it.
    pub fn drive(&self) -> Arc<dyn Drive> {
        match self {
            Self::Ssd(ssd) => ssd.clone(),
            Self::Pm(pm) => PmDrive::new(pm.clone(), PmAccess::Write),
        }
    }

    /// What a cut leaves now, as `seed` decides.
    pub fn survivors(&self, seed: u64) -> Left {
        match self {
            Self::Ssd(ssd) => Left::Ssd(ssd.survivors(seed)),
            Self::Pm(pm) => Left::Pm(pm.survivors(seed), pm.info().domain),
        }
    }

    /// What is there after it was switched off in order.
    pub fn power_off(&self) -> Left {
        match self {
            Self::Ssd(ssd) => Left::Ssd(ssd.clone().power_off()),
            Self::Pm(pm) => Left::Pm(pm.visible(), pm.info().domain),
        }
    }

    /// The hash of what a persistent memory holds.
    pub fn memory_hash(&self) -> Option<u64> {
        match self {
            Self::Ssd(_) => None,
            Self::Pm(pm) => Some(pm.visible().hash()),
        }
    }

    /// Shows what reads of these blocks would return, in order and at no cost.
    pub fn look(&self, lbas: &mut dyn Iterator<Item = Lba>, see: &mut dyn FnMut(&Block)) {
        match self {
            Self::Ssd(ssd) => ssd.look(lbas, see),
            Self::Pm(pm) => lbas.for_each(|lba| {
                let mut block = Block::unspecified();
                pm.read(lba * BLOCK_SIZE as u64, block.make_mut());
                see(&block);
            }),
        }
    }
}

impl Left {
    /// With its power back.
    pub fn power_on(&self, timing: Timing, seed: u64) -> Medium {
        match self {
            Self::Ssd(state) => Medium::Ssd(Ssd::power_on(state.clone(), timing, seed)),
            Self::Pm(state, domain) => Medium::Pm(PmSim::power_on(state.clone(), *domain)),
        }
    }

    /// Whether the other is just the same.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Ssd(one), Self::Ssd(other)) => one.is_same(other),
            (Self::Pm(one, _), Self::Pm(other, _)) => one.hash() == other.hash(),
            _ => false,
        }
    }

    /// That of an emulated drive.
    pub fn ssd(&self) -> Option<&DriveState> {
        match self {
            Self::Ssd(state) => Some(state),
            Self::Pm(..) => None,
        }
    }
}

/// The name of a drive without `:fail=N`, and the N: which of the writes and flushes of a run
/// fails, counted from 0.
pub fn failing(name: &str) -> Result<(String, Option<u64>)> {
    let (fails, parts): (Vec<&str>, Vec<&str>) =
        name.split(':').partition(|part| part.starts_with("fail="));
    let wrong = || Error::Usage(format!("drive '{name}': fail=N, once, with a number from 0"));
    let nth = match fails[..] {
        [] => None,
        [fail] => Some(fail["fail=".len()..].parse().map_err(|_| wrong())?),
        _ => return Err(wrong()),
    };
    Ok((parts.join(":"), nth))
}

/// As [`spec`], for campaigns that cut the power: unkind, unless the name ends in `:orderly`. What
/// holds on an unkind drive does not depend on the luck of one order. With `:512` the drive tears
/// blocks. `:NAME=VALUE` replaces a value of the profile.
pub fn unkind(name: &str, footprint: u64) -> Result<Spec> {
    let mut parts = name.split(':');
    let mut profile = parts.next().unwrap_or(name).to_owned();
    let (values, ways): (Vec<&str>, Vec<&str>) = parts.partition(|part| part.contains('='));
    values.iter().for_each(|value| profile += &format!(":{value}"));
    let mut drive = spec(&profile, footprint)?.unkind();
    for way in ways {
        drive = match way {
            "orderly" => drive.orderly(),
            "512" => drive.tearing(),
            _ => return Err(Error::Usage(format!("drive '{name}': PROFILE[:orderly][:512]"))),
        };
    }
    Ok(drive)
}

/// A drive as profile `name` says.
pub fn named(name: &str) -> Result<Spec> {
    Spec::named(name).map_err(|e| Error::Usage(e.to_string()))
}

/// A drive of profile `name` with room for `footprint` bytes of writes; 0 makes the smallest.
pub fn spec(name: &str, footprint: u64) -> Result<Spec> {
    let spec = named(name)?;
    let blocks = footprint.div_ceil(BLOCK_SIZE as u64);
    let identify = spec.identify().map_err(|e| Error::Usage(e.to_string()))?;
    Ok(if identify.zones.is_some() && footprint == 0 {
        let (zones, conventional) = SMALL_ZONES;
        spec.zone_size(SMALL_ZONE, SMALL_ZONE).zones(zones, conventional)
    } else if identify.zones.is_some() {
        let data = blocks.div_ceil(ZONE.1);
        let zones = u32::try_from(data + SPARE_ZONES).unwrap_or(u32::MAX / 2);
        let conventional = conventional_zones(zones);
        spec.zone_size(ZONE.0, ZONE.1).zones(zones + conventional, conventional)
    } else if footprint == 0 {
        spec.blocks(SMALL_CONVENTIONAL)
    } else {
        spec.blocks((2 * blocks).max(CONVENTIONAL_MIN))
    })
}

/// Makes an empty volume for a technique, to be mounted with these `options`, with `more` features.
pub fn make_for(
    format: &dyn Format,
    drive: &Arc<dyn Drive>,
    way: &Technique,
    options: &str,
    more: &str,
) -> Result<()> {
    let features = [way.make, format.features_for(options), more];
    let features: Vec<&str> = features.into_iter().filter(|f| !f.is_empty()).collect();
    format.make_with(drive, &features.join(",")).map_err(Error::of("mkfs"))
}

/// Makes an empty volume to be mounted with these `options`: for the technique that has them, if
/// that needs a volume of its own.
pub fn make_fitting(format: &dyn Format, drive: &Arc<dyn Drive>, options: &str) -> Result<()> {
    let given: Vec<&str> = options.split(',').collect();
    let needs_all = |way: &&&Technique| {
        let is_own = !way.make.is_empty() && !way.options.is_empty();
        is_own && way.options.split(',').all(|word| given.contains(&word))
    };
    match format.techniques().iter().find(needs_all) {
        Some(way) => make_for(format, drive, way, options, ""),
        None => make(format, drive),
    }
}

/// Makes an empty volume.
pub fn make(format: &dyn Format, drive: &Arc<dyn Drive>) -> Result<()> {
    format.make(drive).map_err(Error::of("mkfs"))
}

/// Mounts a volume, recovering it first if need be.
pub fn mount(format: &dyn Format, drive: Arc<dyn Drive>, options: &str) -> Result<Arc<dyn Volume>> {
    format.mount(drive, options).map_err(Error::of("mount"))
}

/// What is wrong with a volume that is not mounted.
pub fn check(format: &dyn Format, drive: &Arc<dyn Drive>) -> Result<Vec<Finding>> {
    format.check(drive).map(|checked| checked.findings).map_err(Error::of("check"))
}

/// A new, empty drive.
pub fn new_drive(spec: &Spec, timing: Timing, seed: u64) -> Result<Arc<Ssd>> {
    Ssd::new(spec.clone(), timing, seed).map_err(|e| Error::Usage(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_of_any_size_has_room_for_its_metadata() {
        for data in [0, 80, 82, 83, 84, 164, 165, 260, 300, 700, 1900] {
            let spec = spec("zn540", data * ZONE.1 * BLOCK_SIZE as u64).expect("it is built in");
            let drive: Arc<dyn Drive> = new_drive(&spec, Timing::Instant, 1).expect("it is sound");
            make(&f2fs::Format, &drive).unwrap_or_else(|error| panic!("{data} zones: {error}"));
        }
    }

    #[test]
    fn drives_that_are_cut_are_unkind_unless_told() {
        assert!(unkind("zn540-noplp", 0).is_ok_and(|spec| spec.is_unkind()));
        assert!(unkind("zn540-noplp:orderly", 0).is_ok_and(|spec| !spec.is_unkind()));
        assert!(spec("zn540-noplp", 0).is_ok_and(|spec| !spec.is_unkind()));
        let tears = |spec: Spec| (spec.is_unkind(), spec.atomic_write());
        assert_eq!(tears(unkind("zn540-noplp", 0).unwrap()), (true, 4096));
        assert_eq!(tears(unkind("zn540-noplp:512", 0).unwrap()), (true, 512));
        assert_eq!(tears(unkind("zn540-noplp:orderly:512", 0).unwrap()), (false, 512));
        let changed = unkind("zn540-noplp:orderly:program_ns=1:512", 0).unwrap();
        assert_eq!(changed.profile().program_ns.value, 1);
        assert_eq!(tears(changed), (false, 512));
        assert!(unkind("zn540-noplp:kind", 0).is_err());
    }

    #[test]
    fn a_drive_that_fails_says_when() {
        let known = |name| failing(name).ok();
        assert_eq!(known("zn540"), Some(("zn540".into(), None)));
        assert_eq!(known("ram:fail=7:512"), Some(("ram:512".into(), Some(7))));
        for wrong in ["ram:fail=", "ram:fail=x", "ram:fail=1:fail=2", "ram:fail=-1"] {
            assert!(failing(wrong).is_err(), "{wrong}");
        }
        assert!(unkind("ram:fail=7", 0).is_err(), "only runs that are cut know it");
    }

    /// `journal=fast` needs a volume with room for fast commits, and others do without.
    #[test]
    fn a_volume_fits_the_options_that_it_is_made_for() {
        let ext4 = subjects::named("ext4").unwrap();
        for (options, fits) in [("cache=8m,journal=fast", true), ("cache=8m", false)] {
            let drive: Arc<dyn Drive> = drive::ram(1 << 14);
            make_fitting(ext4, &drive, options).unwrap();
            assert_eq!(mount(ext4, drive, "journal=fast").is_ok(), fits, "{options}");
        }
    }
}
