//! What a cut was found to have done, and whether the mode had promised otherwise.

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
    /// Old and new blocks of one fsync are mixed.
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
    /// An fsync that moves this block was under way when the power went.
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
    /// What an fsync that returned has written is there.
    pub durable: bool,
    /// Every block is an old or a new block of its file, never anything else.
    pub intact: bool,
    /// Of an fsync all blocks are there, or those that changed since the last checkpoint are as
    /// they were: what write-back had written by then, the checkpoint has taken up.
    pub atomic: bool,
}

impl Promise {
    /// The promises table. Without a volatile cache DMA order is NAND order, so every mode keeps
    /// data ahead of nodes. With one, `posix` and `nobarrier` promise nothing about the order (the
    /// thesis's section 4.1), and `nobarrier`, which sends no FLUSH, nothing about durability.
    /// `oprw` needs write pointers and so a zoned drive, or checksums, which only an fsync that is
    /// recovered whole has; `strict` is atomic where nothing is updated in place: there too.
    pub fn of(mode: Mode, volatile_cache: bool, zoned: bool) -> Self {
        Self {
            durable: !volatile_cache || !mode.is_nobarrier(),
            intact: !volatile_cache || mode.is_strict() || (mode.is_oprw() && zoned),
            atomic: mode == Mode::OprwStrict || (mode.is_strict() && zoned),
        }
    }

    /// Whether `verdict` is something this promise excludes.
    pub fn broken_by(self, verdict: &Verdict) -> bool {
        let exempt = verdict.in_flight && !self.intact;
        match verdict.damage {
            Damage::Lost => self.durable && !exempt,
            Damage::Garbage => self.intact || (self.durable && !exempt),
            Damage::Torn => self.atomic,
            Damage::Corrupt => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(damage: Damage, in_flight: bool) -> Verdict {
        let text = String::new;
        Verdict { damage, path: text(), block: None, expected: text(), found: text(), in_flight }
    }

    #[test]
    fn posix_on_a_volatile_drive_may_spoil_only_what_is_in_flight() {
        let posix = Promise::of(Mode::Posix, true, true);
        assert!(!posix.broken_by(&verdict(Damage::Garbage, true)));
        assert!(posix.broken_by(&verdict(Damage::Garbage, false)));
        assert!(posix.broken_by(&verdict(Damage::Lost, false)));
        assert!(posix.broken_by(&verdict(Damage::Corrupt, true)));
    }

    #[test]
    fn strict_and_oprw_promise_intact_data() {
        for mode in [Mode::Strict, Mode::Oprw, Mode::OprwStrict] {
            assert!(Promise::of(mode, true, true).broken_by(&verdict(Damage::Garbage, true)));
        }
        let conventional = Promise::of(Mode::Oprw, true, false);
        assert!(!conventional.broken_by(&verdict(Damage::Garbage, true)));
    }

    #[test]
    fn nobarrier_promises_structure_only_without_plp_and_all_with() {
        let bare = Promise::of(Mode::Nobarrier, true, true);
        assert!(!bare.broken_by(&verdict(Damage::Lost, false)));
        assert!(bare.broken_by(&verdict(Damage::Corrupt, false)));
        let plp = Promise::of(Mode::Nobarrier, false, true);
        assert!(plp.broken_by(&verdict(Damage::Lost, false)));
    }
}
