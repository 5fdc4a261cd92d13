//! Drives, and the namespaces as which they appear.
//!
//! A zoned namespace of NVMe has only sequential zones (ZNS 1.1, 2.1.1). So a drive with
//! conventional zones becomes two namespaces: one without zones for those, and a zoned one for the
//! others. `mkfs.f2fs -m -c` expects just that.

use std::path::PathBuf;
use std::sync::Arc;

use drive::{Drive, Fault, Lba, Ssd, ZoneGeometry};

/// A drive, and its name for people.
pub struct Unit {
    name: PathBuf,
    ssd: Arc<Ssd>,
    drive: Fault<Arc<Ssd>>,
}

impl Unit {
    /// A drive called `name`, which is the path of its file or any other word.
    pub fn new(name: impl Into<PathBuf>, ssd: Arc<Ssd>) -> Self {
        Self { name: name.into(), drive: Fault::new(ssd.clone()), ssd }
    }

    /// Its name.
    pub fn name(&self) -> &PathBuf {
        &self.name
    }

    /// The drive itself.
    pub fn ssd(&self) -> &Arc<Ssd> {
        &self.ssd
    }

    /// The drive as hosts see it, with its injected faults.
    pub fn drive(&self) -> &Fault<Arc<Ssd>> {
        &self.drive
    }
}

/// The part of a drive that a host sees as one namespace.
pub(crate) struct Namespace {
    pub(crate) nsid: u32,
    /// Which of the units.
    pub(crate) unit: usize,
    /// Its first block on the drive.
    pub(crate) first: Lba,
    pub(crate) blocks: u64,
    /// If it is zoned: its zones, all of them sequential.
    pub(crate) zones: Option<ZoneGeometry>,
    /// If it consists of a drive's conventional zones: how long each one is, because no command to
    /// the drive may cross a zone's end.
    pub(crate) stripe: Option<u64>,
    /// NGUID, and UUID.
    pub(crate) guid: [u8; 16],
}

impl Namespace {
    /// The namespaces of drive number `unit`, numbered from `nsid` on.
    pub(crate) fn of(unit: usize, drive: &Unit, mut nsid: u32) -> Vec<Self> {
        let identify = drive.ssd.identify();
        let conventional = identify.zones.map_or(identify.blocks, |zones| {
            zones.size.saturating_mul(u64::from(zones.conventional)).min(identify.blocks)
        });
        let mut all = Vec::new();
        let mut add = |first, blocks, zones, stripe| {
            let guid = guid(&drive.name, first);
            all.push(Self { nsid, unit, first, blocks, zones, stripe, guid });
            nsid += 1;
        };
        if conventional > 0 {
            add(0, conventional, None, identify.zones.map(|zones| zones.size));
        }
        if let Some(zones) = identify.zones.filter(|zones| zones.conventional < zones.count) {
            let count = zones.count - zones.conventional;
            let sequential = ZoneGeometry { count, conventional: 0, ..zones };
            add(conventional, identify.blocks - conventional, Some(sequential), None);
        }
        all
    }

    /// How many blocks can be written, without those beyond the capacity of each zone.
    pub(crate) fn capacity(&self) -> u64 {
        let zoned = |zones: ZoneGeometry| zones.capacity.saturating_mul(u64::from(zones.count));
        self.zones.map_or(self.blocks, zoned)
    }

    /// The drive's address of block `lba`, if it and the next `blocks` are inside.
    pub(crate) fn locate(&self, lba: Lba, blocks: u64) -> Option<Lba> {
        let end = lba.checked_add(blocks)?;
        (end <= self.blocks && lba < self.blocks).then(|| self.first + lba)
    }
}

/// An identifier that is always the same for the same drive, and different for any other.
pub(crate) fn guid(name: &std::path::Path, salt: u64) -> [u8; 16] {
    use std::os::unix::ffi::OsStrExt;
    // FNV-1a, 128 bits.
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    for byte in name.as_os_str().as_bytes().iter().copied().chain(salt.to_le_bytes()) {
        hash = (hash ^ u128::from(byte)).wrapping_mul(PRIME);
    }
    let mut guid = hash.to_be_bytes();
    // A UUID of RFC 9562's version 8: its contents are ours to choose.
    guid[6] = guid[6] & 0x0f | 0x80;
    guid[8] = guid[8] & 0x3f | 0x80;
    guid
}

#[cfg(test)]
mod tests {
    use drive::{Spec, Timing};

    use super::*;

    fn unit(spec: Spec) -> Unit {
        Unit::new("disk.img", Ssd::new(spec, Timing::Instant, 0).expect("drive"))
    }

    #[test]
    fn conventional_zones_are_a_namespace_of_their_own() {
        let spec = Spec::named("zn540").expect("profile").zone_size(64, 48).zones(10, 3);
        let all = Namespace::of(0, &unit(spec), 1);
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].blocks, all[0].capacity(), all[0].stripe), (192, 192, Some(64)));
        assert_eq!((all[1].nsid, all[1].blocks, all[1].capacity()), (2, 448, 7 * 48));
        assert_eq!((all[1].locate(0, 1), all[1].locate(447, 1)), (Some(192), Some(639)));
        assert_eq!((all[1].locate(447, 2), all[1].locate(448, 0)), (None, None));
        assert_eq!(all[0].locate(u64::MAX, 2), None);
        assert_ne!(all[0].guid, all[1].guid);
    }

    #[test]
    fn other_drives_are_one_namespace() {
        let all = Namespace::of(0, &unit(Spec::named("ram").expect("profile").blocks(7)), 4);
        assert_eq!((all.len(), all[0].nsid, all[0].blocks, all[0].zones), (1, 4, 7, None));
        let spec = Spec::named("zn540").expect("profile").zone_size(64, 64).zones(4, 0);
        let all = Namespace::of(0, &unit(spec), 1);
        assert_eq!((all.len(), all[0].first, all[0].zones.map(|z| z.count)), (1, 0, Some(4)));
    }
}
