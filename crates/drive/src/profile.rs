//! What makes an emulated drive: profiles with a source for every value, and the size and zones of
//! one drive.

use std::fmt::Display;
use std::sync::Arc;

use cores::Nanos;
use serde::Deserialize;
use thiserror::Error;

use crate::{BLOCK_SIZE, Identify, Lba, ZoneGeometry};

const BLOCK_BYTES: u64 = BLOCK_SIZE as u64;
/// File offsets cannot address 16 EiB. This stays well below.
const MAX_BLOCKS: u64 = 1 << 48;
const MAX_ZONES: u64 = 1 << 22;
/// KiB of a block.
const KIB: u64 = BLOCK_SIZE as u64 >> 10;

const BUILT_IN: [(&str, &str); 8] = [
    ("zn540", include_str!("../profiles/zn540.toml")),
    ("zn540-noplp", include_str!("../profiles/zn540-noplp.toml")),
    ("conventional-noplp", include_str!("../profiles/conventional-noplp.toml")),
    ("850-evo", include_str!("../profiles/850-evo.toml")),
    ("sata-nofua", include_str!("../profiles/sata-nofua.toml")),
    ("983-zet", include_str!("../profiles/983-zet.toml")),
    ("sz985", include_str!("../profiles/sz985.toml")),
    ("ram", include_str!("../profiles/ram.toml")),
];

/// A profile or a specification from which no drive can be made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProfileError {
    /// No built-in profile has that name.
    #[error("no drive profile '{0}'; there are {names}", names = Profile::names().join(", "))]
    Unknown(String),
    /// The text is not a profile.
    #[error("drive profile: {0}")]
    Syntax(String),
    /// A value that no drive can have.
    #[error("drive profile '{profile}': {what}")]
    Invalid {
        /// Name of the profile.
        profile: String,
        /// What is wrong.
        what: String,
    },
}

/// A value and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// A publication, a data sheet, a measurement, or `assumed: why`.
    pub source: String,
}

/// The make of an emulated SSD. Times in nanoseconds, sizes as named.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the names say it, and the TOML files say where from")]
pub struct Profile {
    pub name: String,
    pub model: String,
    pub channels: Sourced<u32>,
    pub dies_per_channel: Sourced<u32>,
    pub planes: Sourced<u32>,
    pub page_bytes: Sourced<u32>,
    /// Pages of a plane that are programmed at once: three for one-shot TLC.
    pub pages_per_program: Sourced<u32>,
    pub channel_bytes_per_s: Sourced<u64>,
    pub dma_bytes_per_s: Sourced<u64>,
    pub firmware_write_ns: Sourced<Nanos>,
    pub firmware_write_block_ns: Sourced<Nanos>,
    pub firmware_read_ns: Sourced<Nanos>,
    pub firmware_flush_ns: Sourced<Nanos>,
    pub firmware_manage_ns: Sourced<Nanos>,
    pub read_ns: Sourced<Nanos>,
    pub program_ns: Sourced<Nanos>,
    /// Program times vary evenly by up to ± this.
    pub program_jitter_percent: Sourced<u32>,
    pub erase_ns: Sourced<Nanos>,
    /// Tokens; 0 means that a write is durable when it completes.
    pub write_buffer_bytes: Sourced<u64>,
    /// How often the drive flushes by itself; 0 means never.
    pub internal_flush_ns: Sourced<Nanos>,
    /// The size of the pieces that a cut never splits, in a write outside sequential zones (NVMe's
    /// AWUPF, in bytes): 4096, or 512 on a drive formatted so.
    pub atomic_write_bytes: Sourced<u32>,
    /// Power-loss protection: what is in the write buffer survives.
    pub plp: Sourced<bool>,
    /// Single writes can be forced to NAND; so unless a profile denies it, as most SATA drives
    /// under Linux (`libata.fua`).
    pub fua: Option<Sourced<bool>>,
    /// A flush begins when the one before it has ended, as on a link where it cannot be queued. If
    /// nothing is said, flushes overlap.
    pub flush_exclusive: Option<Sourced<bool>>,
    /// Size of a drive without zones.
    pub blocks: Option<Sourced<u64>>,
    pub zone_blocks: Option<Sourced<u64>>,
    pub zone_capacity_blocks: Option<Sourced<u64>>,
    pub zones: Option<Sourced<u32>>,
    pub conventional_zones: Option<Sourced<u32>>,
    pub max_open: Option<Sourced<u32>>,
    pub max_active: Option<Sourced<u32>>,
    /// On an unkind drive, a command may take longer by up to this percentage.
    pub lateness_percent: Sourced<u32>,
    /// And of 1,000 commands, this many take up to `slow_command_ns` longer.
    pub slow_commands_per_1000: Sourced<u32>,
    pub slow_command_ns: Sourced<Nanos>,
    pub queues: Sourced<u16>,
    pub queue_depth: Sourced<u16>,
    pub max_transfer_blocks: Sourced<u32>,
}

impl Profile {
    /// Names of the built-in profiles.
    pub fn names() -> Vec<&'static str> {
        BUILT_IN.iter().map(|(name, _)| *name).collect()
    }

    /// A built-in profile, also with changed values: `zn540-noplp:program_jitter_percent=0`.
    pub fn named(name: &str) -> Result<Self, ProfileError> {
        let (built_in, changes) = name.split_once(':').map_or((name, None), |(n, c)| (n, Some(c)));
        let text = BUILT_IN.iter().find(|(known, _)| *known == built_in);
        let text = text.ok_or_else(|| ProfileError::Unknown(built_in.to_owned()))?.1;
        let Some(changes) = changes else { return Self::parse(text) };
        let syntax = |what: &dyn Display| ProfileError::Syntax(format!("{name}: {what}"));
        let mut table: toml::Table = text.parse().map_err(|e| syntax(&e))?;
        table.insert("name".into(), name.into());
        for change in changes.split(':') {
            let (field, value) =
                change.split_once('=').ok_or_else(|| syntax(&"want NAME=VALUE after a colon"))?;
            let sourced = table.get_mut(field).and_then(toml::Value::as_table_mut);
            let sourced = sourced.ok_or_else(|| syntax(&format!("it has no value '{field}'")))?;
            let value: i64 = value.parse().map_err(|e| syntax(&e))?;
            let is_flag = sourced.get("value").is_some_and(toml::Value::is_bool);
            let value = if is_flag { (value != 0).into() } else { value.into() };
            sourced.insert("value".into(), value);
        }
        table.try_into::<Self>().map_err(|e| syntax(&e.message())).and_then(Self::checked)
    }

    /// A profile from TOML.
    pub fn parse(text: &str) -> Result<Self, ProfileError> {
        let profile: Self =
            toml::from_str(text).map_err(|e| ProfileError::Syntax(e.message().to_owned()))?;
        profile.checked()
    }

    fn checked(self) -> Result<Self, ProfileError> {
        self.check()?;
        Ok(self)
    }

    fn check(&self) -> Result<(), ProfileError> {
        let checks = [
            (self.dies() > 0, "no dies"),
            (self.dies() <= 1 << 16, "more than 65536 dies"),
            (self.channel_bytes_per_s.value > 0, "channels without bandwidth"),
            (self.dma_bytes_per_s.value > 0, "DMA without bandwidth"),
            (self.program_unit() > 0, "program unit below one block"),
            (self.program_jitter_percent.value < 100, "jitter of 100% or more"),
            (matches!(self.atomic_write_bytes.value, 512 | 4096), "neither 512 nor 4096 atomic"),
            (self.slow_commands_per_1000.value <= 1000, "more slow commands than commands"),
            (self.queues.value > 0 && self.queue_depth.value > 0, "no queues"),
            (self.max_transfer_blocks.value > 0, "no transfer size"),
            (
                self.write_through() || self.buffer() >= u64::from(self.max_transfer_blocks.value),
                "write buffer smaller than the longest transfer",
            ),
            (
                self.zone_blocks.is_some() != self.blocks.is_some(),
                "either 'blocks' or 'zone_blocks'",
            ),
        ];
        match checks.iter().find(|(holds, _)| !holds) {
            Some((_, what)) => Err(self.invalid(*what)),
            None => Ok(()),
        }
    }

    fn invalid(&self, what: impl Into<String>) -> ProfileError {
        ProfileError::Invalid { profile: self.name.clone(), what: what.into() }
    }

    /// How many dies work side by side.
    pub fn dies(&self) -> usize {
        self.channels.value.saturating_mul(self.dies_per_channel.value) as usize
    }

    /// Blocks that one die programs at once, over all its planes.
    pub fn program_unit(&self) -> u64 {
        let pages = u64::from(self.planes.value) * u64::from(self.pages_per_program.value);
        pages.saturating_mul(u64::from(self.page_bytes.value)) / BLOCK_BYTES
    }

    /// The write buffer in blocks.
    pub fn buffer(&self) -> u64 {
        self.write_buffer_bytes.value / BLOCK_BYTES
    }

    /// Whether one flush is carried out at a time.
    pub fn flushes_alone(&self) -> bool {
        self.flush_exclusive.as_ref().is_some_and(|exclusive| exclusive.value)
    }

    /// Whether a write is durable when it completes, because there is no buffer.
    pub fn write_through(&self) -> bool {
        self.buffer() == 0
    }

    /// Whether completed writes can be lost with the power.
    pub fn volatile(&self) -> bool {
        !self.write_through() && !self.plp.value
    }
}

/// A drive to be made: a profile, and the size and zones that replace the profile's.
///
/// ```
/// use drive::{Profile, Spec};
///
/// let quiet = Profile::named("zn540-noplp:program_jitter_percent=0")?;
/// assert!(quiet.volatile());
/// let drive = Spec::new(quiet).zone_size(2048, 1536).zones(64, 4).identify()?;
/// assert_eq!(drive.blocks, 64 * 2048);
/// # Ok::<(), drive::ProfileError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    profile: Arc<Profile>,
    blocks: Option<u64>,
    zone: Option<(u64, u64)>,
    zones: Option<u32>,
    conventional: Option<u32>,
    limits: Option<(Option<u32>, Option<u32>)>,
    unkind: bool,
    tearing: bool,
}

impl Spec {
    /// A drive as the profile has it.
    pub fn new(profile: Profile) -> Self {
        Self {
            profile: Arc::new(profile),
            blocks: None,
            zone: None,
            zones: None,
            conventional: None,
            limits: None,
            unkind: false,
            tearing: false,
        }
    }

    /// A drive of a built-in profile.
    pub fn named(profile: &str) -> Result<Self, ProfileError> {
        Ok(Self::new(Profile::named(profile)?))
    }

    /// Size in blocks. On a zoned drive rounded up to whole zones.
    #[must_use]
    pub fn blocks(mut self, blocks: u64) -> Self {
        self.blocks = Some(blocks);
        self
    }

    /// Zones of `size` blocks of which `capacity` can be written. Turns any drive into a zoned one.
    #[must_use]
    pub fn zone_size(mut self, size: u64, capacity: u64) -> Self {
        self.zone = Some((size, capacity));
        self
    }

    /// Makes `count` zones, of which the first `conventional` take random writes.
    #[must_use]
    pub fn zones(mut self, count: u32, conventional: u32) -> Self {
        self.zones = Some(count);
        self.conventional(conventional)
    }

    /// The first `count` zones take random writes.
    #[must_use]
    pub fn conventional(mut self, count: u32) -> Self {
        self.conventional = Some(count);
        self
    }

    /// Limits how many zones can be open, and active, at once.
    #[must_use]
    pub fn limits(mut self, max_open: Option<u32>, max_active: Option<u32>) -> Self {
        self.limits = Some((max_open, max_active));
        self
    }

    /// Makes the drive unkind: it does everything to its host that a real drive may do. A command
    /// may take longer than a later one and complete after it. An orderly drive has the times of
    /// its profile's sources, and answers commands of one kind in the order in which they arrived.
    #[must_use]
    pub fn unkind(mut self) -> Self {
        self.unkind = true;
        self
    }

    /// Makes the drive orderly again.
    #[must_use]
    pub fn orderly(mut self) -> Self {
        self.unkind = false;
        self
    }

    /// Lets a cut tear a block that NAND does not hold completely: each of its 512-byte sectors is
    /// then old or new by itself.
    #[must_use]
    pub fn tearing(mut self) -> Self {
        self.tearing = true;
        self
    }

    /// Size of the pieces that no cut tears.
    pub fn atomic_write(&self) -> usize {
        if self.tearing { 512 } else { self.profile.atomic_write_bytes.value as usize }
    }

    /// Whether it tears blocks although its profile does not.
    pub fn is_tearing(&self) -> bool {
        self.tearing
    }

    /// Whether it is an unkind drive.
    pub fn is_unkind(&self) -> bool {
        self.unkind
    }

    /// The profile.
    pub fn profile(&self) -> &Arc<Profile> {
        &self.profile
    }

    /// What a drive of this specification says about itself, or why there can be none.
    pub fn identify(&self) -> Result<Identify, ProfileError> {
        let profile = &self.profile;
        let zones = self.geometry()?;
        let blocks = match (&zones, self.blocks) {
            (Some(zones), _) => zones.size.saturating_mul(u64::from(zones.count)),
            (None, Some(blocks)) => blocks,
            (None, None) => profile.blocks.as_ref().map_or(0, |blocks| blocks.value),
        };
        if blocks == 0 || blocks > MAX_BLOCKS {
            return Err(profile.invalid("a drive has 1 to 2^48 blocks of 4 KiB"));
        }
        Ok(Identify {
            model: profile.model.clone(),
            blocks,
            queues: profile.queues.value,
            queue_depth: profile.queue_depth.value,
            max_transfer: profile.max_transfer_blocks.value,
            volatile_cache: profile.volatile(),
            fua: profile.fua.as_ref().is_none_or(|fua| fua.value),
            atomic_write: self.atomic_write() as u32,
            discard: zones.is_none_or(|zones| zones.conventional > 0),
            discard_zeroes: true,
            read_only: false,
            zones,
            joined: Vec::new(),
            pm: None,
        })
    }

    fn geometry(&self) -> Result<Option<ZoneGeometry>, ProfileError> {
        let profile = &self.profile;
        let zone_blocks = profile.zone_blocks.as_ref().map(|size| size.value);
        let capacity = profile.zone_capacity_blocks.as_ref().map(|blocks| blocks.value);
        let of_profile = zone_blocks.map(|size| (size, capacity.unwrap_or(size)));
        let Some((size, capacity)) = self.zone.or(of_profile) else {
            return match self.zones.or(self.conventional) {
                Some(_) => Err(profile.invalid("zones need a zone size")),
                None => Ok(None),
            };
        };
        let value = |field: &Option<Sourced<u32>>| field.as_ref().map(|field| field.value);
        let conventional =
            self.conventional.or_else(|| value(&profile.conventional_zones)).unwrap_or(0);
        if size == 0 || capacity == 0 || capacity > size {
            let (size, capacity) = (size * KIB, capacity * KIB);
            return Err(profile.invalid(format!(
                "a zone of {size} KiB has a capacity of 4 to {size} KiB, not {capacity}"
            )));
        }
        let count = match (self.zones, self.blocks) {
            (Some(count), _) => count,
            (None, Some(blocks)) => {
                let count = blocks.div_ceil(size).min(MAX_ZONES + 1);
                u32::try_from(count).unwrap_or(u32::MAX)
            }
            (None, None) => value(&profile.zones).unwrap_or(0),
        };
        if count == 0 || u64::from(count) > MAX_ZONES {
            return Err(profile.invalid(format!("a zoned drive has 1 to {MAX_ZONES} zones")));
        }
        if conventional > count {
            return Err(profile.invalid(format!(
                "{conventional} conventional zones, but only {count} zones in all"
            )));
        }
        let limits = (value(&profile.max_open), value(&profile.max_active));
        let (max_open, max_active) = self.limits.unwrap_or(limits);
        if max_open == Some(0) || max_active == Some(0) {
            return Err(profile.invalid("a zone limit of 0 lets nothing be written"));
        }
        Ok(Some(ZoneGeometry { size, capacity, count, conventional, max_open, max_active }))
    }
}

impl ZoneGeometry {
    /// The zone that holds `lba`.
    pub fn zone_of(&self, lba: Lba) -> u64 {
        lba.checked_div(self.size).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_profiles_are_sound_and_sourced() {
        for name in Profile::names() {
            let spec = Spec::named(name).expect(name);
            assert_eq!(spec.profile().name, name);
            assert!(spec.identify().is_ok());
        }
        for (name, text) in BUILT_IN {
            assert_eq!(text.matches("value =").count(), text.matches("source = \"").count());
            assert!(!text.contains("source = \"\""), "{name}");
        }
    }

    #[test]
    fn zn540_is_as_the_data_sheet_says() {
        let identify = Spec::named("zn540").and_then(|spec| spec.identify()).expect("zn540");
        let zones = identify.zones.expect("zoned");
        assert_eq!((zones.size, zones.capacity), (2048 << 8, 1077 << 8));
        assert_eq!((zones.max_open, zones.max_active), (Some(14), Some(14)));
        assert!(!identify.volatile_cache);
        let noplp = Spec::named("zn540-noplp").and_then(|spec| spec.identify()).expect("noplp");
        assert!(noplp.volatile_cache);
    }

    #[test]
    fn a_name_may_change_values() {
        let named = |name: &str| Profile::named(name).map_err(|e| e.to_string());
        let name = "zn540-noplp:internal_flush_ns=7:program_jitter_percent=0";
        let changed = named(name).unwrap();
        let mut expected = named("zn540-noplp").unwrap();
        expected.name = name.into();
        expected.internal_flush_ns.value = 7;
        expected.program_jitter_percent.value = 0;
        assert_eq!(changed, expected);
        for (name, what) in [
            ("zn540:colour=1", "colour"),
            ("zn540:program_ns", "NAME=VALUE"),
            ("zn540:program_ns=fast", "digit"),
            ("zn540:program_ns=-1", "zn540:program_ns=-1"),
            ("zn540:program_jitter_percent=100", "jitter"),
            ("zn541:program_ns=1", "zn541"),
        ] {
            let error = named(name).unwrap_err();
            assert!(error.contains(what), "{name}: {error}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        let zn540 = || Spec::named("zn540").expect("zn540");
        for (spec, what) in [
            (zn540().zone_size(4, 5), "capacity"),
            (zn540().zones(0, 0), "zones"),
            (zn540().zones(3, 4), "zones"),
            (zn540().limits(Some(0), None), "limit"),
            (Spec::named("ram").expect("ram").conventional(2), "zone size"),
            (Spec::named("ram").expect("ram").blocks(0), "blocks"),
            (Spec::named("ram").expect("ram").blocks(u64::MAX), "blocks"),
            (zn540().blocks(u64::MAX), "zones"),
        ] {
            let error = spec.identify().expect_err(what).to_string();
            assert!(error.contains(what), "{error}");
        }
        assert!(Profile::named("zn54").expect_err("unknown").to_string().contains("zn540-noplp"));
        assert!(Profile::parse("channels = 3").is_err());
    }
}
