//! What a check reports, a line for each finding: where, what, found, allowed.

use std::fmt;

/// What a repair does about a finding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Remedy {
    /// The value is set to what it should be, or recomputed.
    #[default]
    Set,
    /// The pointer is cleared, which leaves a hole or no node.
    Cleared,
    /// The entry is removed; the inode it named may end up in `lost+found`.
    Removed,
    /// The entry moves to where a lookup finds it.
    Moved,
    /// The second owner gets a copy.
    Copied,
    /// Another block turned out to be the right one.
    Found,
    /// The node is written to another place.
    Rewritten,
    /// The inode goes to `lost+found`, anything else is freed.
    Reconnected,
}

/// One thing that is wrong, at a place `P` in the file system's own terms.
///
/// ```
/// use vfs::finding::Finding;
///
/// let finding = Finding::new("inode 4", "i_links", 2, 1);
/// assert_eq!(finding.to_string(), "inode 4: i_links: found 2, should be 1");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding<P> {
    /// Where.
    pub place: P,
    /// Which property of that place.
    pub what: &'static str,
    /// As it is.
    pub found: Box<str>,
    /// As it should be.
    pub allowed: Box<str>,
    /// What a repair does about it.
    pub remedy: Remedy,
}

impl<P> Finding<P> {
    /// A new finding.
    pub fn new(place: P, what: &'static str, found: impl ToString, allowed: impl ToString) -> Self {
        Self {
            place,
            what,
            found: found.to_string().into(),
            allowed: allowed.to_string().into(),
            remedy: Remedy::Set,
        }
    }
}

impl<P: ToString> Finding<P> {
    /// The same finding, with its place in words.
    pub fn in_words(self) -> Finding<String> {
        let Self { place, what, found, allowed, remedy } = self;
        Finding { place: place.to_string(), what, found, allowed, remedy }
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Set => "set",
            Self::Cleared => "cleared",
            Self::Removed => "removed",
            Self::Moved => "moved",
            Self::Copied => "copied",
            Self::Found => "found",
            Self::Rewritten => "rewritten",
            Self::Reconnected => "lost+found, or freed",
        })
    }
}

impl<P: fmt::Display> fmt::Display for Finding<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, what, found, allowed, .. } = self;
        write!(f, "{place}: {what}: found {found}, should be {allowed}")
    }
}
