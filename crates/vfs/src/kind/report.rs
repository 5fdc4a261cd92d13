//! What a check or a repair reports, for every file system.

use super::Recovery;

/// One thing that is wrong with a volume. The place is in the file system's own words.
pub type Finding = crate::finding::Finding<String>;

/// One line of the table that the checker of this file system prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What was compared.
    pub name: &'static str,
    /// Whether it failed.
    pub failed: bool,
    /// How many were found.
    pub value: Option<u64>,
}

/// What a check saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// What is wrong, up to a limit.
    pub findings: Vec<Finding>,
    /// The volume was unmounted cleanly.
    pub clean_unmount: bool,
    /// What was counted, in one line.
    pub summary: String,
    /// The checker's table.
    pub rows: Vec<Row>,
}

/// What a repair found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// What was wrong, up to a limit.
    pub findings: Vec<Finding>,
    /// Findings beyond the limit.
    pub omitted: u64,
    /// Whether anything was written.
    pub changed: bool,
    /// Inodes that no name led to: number, and new name in `lost+found`.
    pub reconnected: Vec<(u64, String)>,
    /// What else was done, one line each.
    pub notes: Vec<String>,
    /// Whether everything was rebuilt.
    pub rescued: bool,
    /// What recovery did on the way.
    pub recovery: Recovery,
}

/// What a volume calls itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// As its user named it; may be empty.
    pub label: String,
    /// Its UUID.
    pub uuid: [u8; 16],
}
