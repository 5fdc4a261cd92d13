//! What a cut was found to have done, and whether that broke a promise of the mode.

use drive::{BLOCK_SIZE, Identify};
use serde::{Deserialize, Serialize};

use crate::mode::Mode;

/// Kind of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Damage {
    /// Something durable is missing or back at an older version.
    Lost,
    /// Something is there that was never written there.
    Garbage,
    /// Old and new blocks of one fsync are mixed, or, of one block, old and new sectors.
    Torn,
    /// The volume does not mount, cannot be read, or its structures disagree.
    Corrupt,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// What kind.
    pub damage: Damage,
    /// Which file, or the structure that is broken.
    pub path: String,
    /// Which 4 KiB block of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<u64>,
    /// What had to be there.
    pub expected: String,
    /// What was.
    pub found: String,
    /// An fsync that writes this block was under way when the power failed.
    pub in_flight: bool,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}: {}", self.damage, self.path)?;
        if let Some(block) = self.block {
            write!(f, " block {block}")?;
        }
        write!(f, ": expected {}, found {}", self.expected, self.found)?;
        if self.in_flight { f.write_str(" (fsync in flight)") } else { Ok(()) }
    }
}

/// What one mode promises on one drive. That a volume mounts and its structures agree is promised
/// always.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promise {
    /// Everything that a completed fsync wrote is there.
    pub durable: bool,
    /// Every block is an old or a new block of its file, never anything else.
    pub intact: bool,
    /// All blocks of an fsync are there, or all blocks changed since the last checkpoint are as
    /// they were. (The checkpoint includes what write-back had written by then.)
    pub atomic: bool,
    /// No block has sectors of several of its versions.
    pub whole: bool,
}

impl Promise {
    /// The table of promises. Without a volatile cache, DMA order is NAND order, so every mode
    /// keeps data ahead of nodes. With one, `posix` and `nobarrier` promise nothing about the order
    /// (the thesis's section 4.1), and `nobarrier`, which sends no FLUSH, nothing about durability.
    /// `oprw` needs write pointers and so a zoned drive, or checksums, which only fsyncs that are
    /// recovered whole have; `strict` is atomic where nothing is updated in place. What is updated
    /// in place, the drive may tear.
    pub fn of(mode: Mode, drive: &Identify) -> Self {
        let (volatile, zoned) = (drive.volatile_cache, drive.zones.is_some());
        Self {
            durable: !volatile || !mode.is_nobarrier(),
            intact: !volatile || mode.is_strict() || (mode.is_oprw() && zoned),
            atomic: mode == Mode::OprwStrict || (mode.is_strict() && zoned),
            whole: drive.atomic_write as usize >= BLOCK_SIZE || mode.is_oprw() || zoned,
        }
    }

    /// Whether `verdict` is something this promise excludes.
    pub fn broken_by(self, verdict: &Verdict) -> bool {
        let exempt = verdict.in_flight && !self.intact;
        let garbage = self.intact || (self.durable && !exempt);
        match verdict.damage {
            Damage::Lost => self.durable && !exempt,
            Damage::Garbage => garbage,
            Damage::Torn if verdict.block.is_some() => garbage && self.whole,
            Damage::Torn => self.atomic,
            Damage::Corrupt => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use drive::{ProfileError, Spec};

    use super::*;

    fn verdict(damage: Damage, in_flight: bool) -> Verdict {
        let text = String::new;
        Verdict { damage, path: text(), block: None, expected: text(), found: text(), in_flight }
    }

    fn promise(mode: Mode, spec: Result<Spec, ProfileError>) -> Promise {
        Promise::of(mode, &spec.and_then(|spec| spec.identify()).expect("a built-in profile"))
    }

    #[test]
    fn posix_on_a_volatile_drive_may_spoil_only_what_is_in_flight() {
        let posix = promise(Mode::Posix, Spec::named("zn540-noplp"));
        assert!(!posix.broken_by(&verdict(Damage::Garbage, true)));
        assert!(posix.broken_by(&verdict(Damage::Garbage, false)));
        assert!(posix.broken_by(&verdict(Damage::Lost, false)));
        assert!(posix.broken_by(&verdict(Damage::Corrupt, true)));
    }

    #[test]
    fn strict_and_oprw_promise_intact_data() {
        for mode in [Mode::Strict, Mode::Oprw, Mode::OprwStrict] {
            assert!(
                promise(mode, Spec::named("zn540-noplp"))
                    .broken_by(&verdict(Damage::Garbage, true))
            );
        }
        let conventional = promise(Mode::Oprw, Spec::named("conventional-noplp"));
        assert!(!conventional.broken_by(&verdict(Damage::Garbage, true)));
    }

    #[test]
    fn nobarrier_promises_structure_only_without_plp_and_all_with() {
        let bare = promise(Mode::Nobarrier, Spec::named("zn540-noplp"));
        assert!(!bare.broken_by(&verdict(Damage::Lost, false)));
        assert!(bare.broken_by(&verdict(Damage::Corrupt, false)));
        let plp = promise(Mode::Nobarrier, Spec::named("zn540"));
        assert!(plp.broken_by(&verdict(Damage::Lost, false)));
    }

    #[test]
    fn what_is_updated_in_place_may_be_torn_where_the_drive_tears() {
        let torn = Verdict { block: Some(3), ..verdict(Damage::Torn, false) };
        let breaks = |mode, spec| promise(mode, spec).broken_by(&torn);
        for profile in ["conventional-noplp", "zn540-noplp"] {
            for mode in [Mode::Posix, Mode::Strict, Mode::OprwStrict] {
                let in_place = profile == "conventional-noplp" && !mode.is_oprw();
                assert!(breaks(mode, Spec::named(profile)), "{mode} on {profile}");
                let tearing = Spec::named(profile).map(Spec::tearing);
                assert_eq!(breaks(mode, tearing), !in_place, "{mode} on {profile}:512");
            }
        }
    }
}
