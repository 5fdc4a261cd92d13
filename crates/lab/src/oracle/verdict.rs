//! What a cut was found to have done, and whether that broke a promise of the mode.

use serde::{Deserialize, Serialize};

use vfs::kind::Promise;

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

impl Damage {
    /// What it is called, wherever people read it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Garbage => "garbage",
            Self::Torn => "torn",
            Self::Corrupt => "corrupt",
        }
    }
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
    /// A later fsync that writes this block was under way when the power failed. Where a file may
    /// have blocks before their contents ([`maps_ahead`](vfs::kind::Habits::maps_ahead)), it need
    /// not have been.
    pub in_flight: bool,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.damage.word(), self.path)?;
        if let Some(block) = self.block {
            write!(f, " block {block}")?;
        }
        write!(f, ": expected {}, found {}", self.expected, self.found)?;
        if self.in_flight { f.write_str(" (fsync in flight)") } else { Ok(()) }
    }
}

impl Verdict {
    /// Whether the volume did not mount.
    pub fn is_of_the_mount(&self) -> bool {
        self.damage == Damage::Corrupt && self.path == "(mount)"
    }

    /// Whether `promise` excludes it.
    pub fn breaks(&self, promise: Promise) -> bool {
        let exempt = self.in_flight && !promise.intact;
        let garbage = promise.intact || (promise.durable && !exempt);
        match self.damage {
            Damage::Lost => promise.durable && !exempt,
            Damage::Garbage => garbage,
            Damage::Torn if self.block.is_some() => garbage && promise.whole,
            Damage::Torn => promise.atomic,
            Damage::Corrupt => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use drive::{ProfileError, Spec};
    use f2fs::technique;
    use vfs::kind::Technique;

    use super::*;

    fn verdict(damage: Damage, in_flight: bool) -> Verdict {
        let text = String::new;
        Verdict { damage, path: text(), block: None, expected: text(), found: text(), in_flight }
    }

    fn promise(mode: &'static Technique, spec: Result<Spec, ProfileError>) -> Promise {
        (mode.promise)(&spec.and_then(|spec| spec.identify()).expect("a built-in profile"))
    }

    #[test]
    fn posix_on_a_volatile_drive_may_spoil_only_what_is_in_flight() {
        let posix = promise(technique::POSIX, Spec::named("zn540-noplp"));
        assert!(!verdict(Damage::Garbage, true).breaks(posix));
        assert!(verdict(Damage::Garbage, false).breaks(posix));
        assert!(verdict(Damage::Lost, false).breaks(posix));
        assert!(verdict(Damage::Corrupt, true).breaks(posix));
    }

    #[test]
    fn strict_and_oprw_promise_intact_data() {
        for mode in [technique::STRICT, technique::OPRW, technique::OPRW_STRICT] {
            let promise = promise(mode, Spec::named("zn540-noplp"));
            assert!(verdict(Damage::Garbage, true).breaks(promise));
        }
        let conventional = promise(technique::OPRW, Spec::named("conventional-noplp"));
        assert!(!verdict(Damage::Garbage, true).breaks(conventional));
    }

    #[test]
    fn nobarrier_promises_structure_only_without_plp_and_all_with() {
        let bare = promise(technique::NOBARRIER, Spec::named("zn540-noplp"));
        assert!(!verdict(Damage::Lost, false).breaks(bare));
        assert!(verdict(Damage::Corrupt, false).breaks(bare));
        let plp = promise(technique::NOBARRIER, Spec::named("zn540"));
        assert!(verdict(Damage::Lost, false).breaks(plp));
    }

    #[test]
    fn what_is_updated_in_place_may_be_torn_where_the_drive_tears() {
        let torn = Verdict { block: Some(3), ..verdict(Damage::Torn, false) };
        let breaks = |mode, spec| torn.breaks(promise(mode, spec));
        for profile in ["conventional-noplp", "zn540-noplp"] {
            for mode in [technique::POSIX, technique::STRICT, technique::OPRW_STRICT] {
                let in_place = profile == "conventional-noplp" && mode != technique::OPRW_STRICT;
                assert!(breaks(mode, Spec::named(profile)), "{mode} on {profile}");
                let tearing = Spec::named(profile).map(Spec::tearing);
                assert_eq!(breaks(mode, tearing), !in_place, "{mode} on {profile}:512");
            }
        }
    }
}
