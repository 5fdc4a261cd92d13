//! Folding of names as the kernel's `fs/unicode` does it for UTF-8 12.1: decomposed (NFD), full
//! case folding, without default ignorable characters ("NFDICF").
//!
//! Directories that fold case hash and compare folded names; the drive has each name as it was
//! given. The tables come from crates, which follow newer versions of Unicode. For characters of
//! 12.1 that makes no difference, because Unicode's policy keeps both mappings stable. Characters
//! that 12.1 does not have make a name invalid, as in the kernel.

use std::sync::OnceLock;

use caseless::Caseless;
use regex_syntax::hir::{Class, Hir, HirKind};
use unicode_normalization::UnicodeNormalization;

/// Longest folded name: the kernel folds into 255 bytes with a NUL.
const FOLDED_MAX: usize = 254;

/// A set of characters, as sorted ranges.
struct Set(Vec<(char, char)>);

impl Set {
    /// The set that a character class of regular expressions describes.
    fn of(class: &str) -> Set {
        match regex_syntax::parse(class).map(Hir::into_kind) {
            Ok(HirKind::Class(Class::Unicode(set))) => {
                Set(set.iter().map(|range| (range.start(), range.end())).collect())
            }
            _ => unreachable!("{class} is a class of characters"),
        }
    }

    fn contains(&self, c: char) -> bool {
        let at = self.0.partition_point(|&(_, end)| end < c);
        self.0.get(at).is_some_and(|&(start, _)| start <= c)
    }
}

/// The characters that the kernel accepts in a name, and those that it ignores. It accepts those of
/// Unicode 12.1, and unassigned ones that Unicode already declares ignorable.
fn sets() -> &'static (Set, Set) {
    static SETS: OnceLock<(Set, Set)> = OnceLock::new();
    SETS.get_or_init(|| {
        let ignorable = r"\p{Default_Ignorable_Code_Point}";
        let known = format!(r"[\p{{age=12.1}}[{ignorable}&&\p{{Cn}}]]");
        (Set::of(&known), Set::of(ignorable))
    })
}

/// The folded form of `name`. `None` if the name is not valid UTF-8 of Unicode 12.1, or if it folds
/// to nothing or to more than the kernel has room for. Such a name is compared by its bytes.
pub(crate) fn fold(name: &[u8]) -> Option<Vec<u8>> {
    let folded = if name.is_ascii() {
        name.to_ascii_lowercase()
    } else {
        fold_unicode(std::str::from_utf8(name).ok()?)?.into_bytes()
    };
    (1..=FOLDED_MAX).contains(&folded.len()).then_some(folded)
}

/// Each character is decomposed and folded by itself, and only then are all put into canonical
/// order, as in the kernel's tables. Folding turns the mark U+0345 into a letter, which then stays
/// where it is.
fn fold_unicode(name: &str) -> Option<String> {
    let (known, ignorable) = sets();
    if !name.chars().all(|c| known.contains(c)) {
        return None;
    }
    let folded = name.chars().flat_map(|c| std::iter::once(c).nfd().default_case_fold());
    Some(folded.nfd().filter(|&c| !ignorable.contains(c)).collect())
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};

    use super::*;
    use crate::ondisk::hash::dentry_hash;

    fn folded(name: &str) -> String {
        String::from_utf8(fold(name.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn names_fold_as_in_the_kernel() {
        assert_eq!(dentry_hash(&fold(b"HeLLo").unwrap()), 0x6f5b_b1a8);
        assert_eq!(folded("Straße"), "strasse");
        assert_eq!(dentry_hash(&fold("Straße".as_bytes()).unwrap()), 0xd6e5_379a);
        // Composed and decomposed are one; Hangul decomposes by rule.
        assert_eq!(folded("É"), folded("e\u{301}"));
        assert_eq!(folded("한"), "\u{1112}\u{1161}\u{11ab}");
        // Soft hyphen and zero width joiner are ignored.
        assert_eq!(folded("a\u{ad}b\u{200d}c"), "abc");
        // So is U+FFF0, although it is not assigned yet.
        assert_eq!(folded("a\u{fff0}"), "a");
        // The iota below becomes a letter before marks are ordered.
        assert_eq!(folded("α\u{345}\u{301}"), "αι\u{301}");
    }

    #[test]
    fn what_cannot_be_folded_is_bytes() {
        assert_eq!(fold(b"\xff"), None);
        // U+1FAE0 came with Unicode 14.
        assert_eq!(fold("\u{1fae0}".as_bytes()), None);
        assert_eq!(fold("\u{ad}".as_bytes()), None);
        assert_eq!(fold("ﬃ".repeat(85).as_bytes()), None);
    }

    #[test]
    fn any_bytes_fold_and_folding_twice_changes_nothing() {
        let mut random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(32);
        for _ in 0..20_000 {
            let len = random.random_range(0..40);
            let name: Vec<u8> = if random.random() {
                (0..len).map(|_| random.random()).collect()
            } else {
                (0..len).map(|_| random.random::<char>()).collect::<String>().into_bytes()
            };
            if let Some(folded) = fold(&name) {
                assert_eq!(fold(&folded).as_ref(), Some(&folded), "{name:?}");
            }
        }
    }
}
