//! What a mounted volume says of itself, and what of it can be set, under the names of
//! `/sys/fs/ext4/<disk>/` where Linux has them.

use std::ops::RangeInclusive;

use journal::RecordStatus;
use serde_json::{Map, Value};
use vfs::attributes::{Attribute, AttributeError, Shown, in_words, number};

use crate::mount::fs::Ext4;
use crate::mount::options::SECOND;

/// The option that Linux sets by a remount; here it is an attribute, too.
const COMMIT: &str = "commit";
const SECONDS: RangeInclusive<u64> = 1..=u64::MAX;

const TABLE: [Shown<Ext4>; 13] = [
    Shown {
        name: "delayed_allocation_blocks",
        since: "2.6.30",
        about: "Blocks that are promised to dirty pages.",
        show: |fs| fs.engine.room.promised().into(),
    },
    Shown {
        name: "session_write_kbytes",
        since: "2.6.30",
        about: "Written since the mount, the journal included.",
        show: |fs| (fs.engine.io.written_blocks() * 4).into(),
    },
    Shown {
        name: "free_blocks",
        since: "",
        about: "Free blocks that are promised to nothing.",
        show: |fs| fs.engine.room.left().into(),
    },
    Shown {
        name: "free_inodes",
        since: "",
        about: "Free inodes.",
        show: |fs| fs.engine.groups.free_inodes().into(),
    },
    Shown {
        name: "corruptions",
        since: "",
        about: "Operations that met a corrupt structure since the mount.",
        show: |fs| fs.engine.corruptions.load().into(),
    },
    Shown {
        name: "journal/areas",
        since: "",
        about: "Areas of the journal, each with a running transaction.",
        show: |fs| fs.engine.journal.areas().into(),
    },
    Shown {
        name: "journal/commits",
        since: "",
        about: "Transactions committed since the mount, of all areas.",
        show: |fs| fs.engine.journal.commits().into(),
    },
    Shown {
        name: "journal/records",
        since: "",
        about: "Records or fast commits written since the mount.",
        show: |fs| fs.records().records.into(),
    },
    Shown {
        name: "journal/record_blocks",
        since: "",
        about: "Their blocks.",
        show: |fs| fs.records().blocks.into(),
    },
    Shown {
        name: "journal/fallen_back",
        since: "",
        about: "Fsyncs that no record or fast commit could carry, so that a commit did.",
        show: |fs| fs.records().fallen_back.into(),
    },
    Shown {
        name: "cache/metadata_kb",
        since: "",
        about: "Metadata in memory, cached or not yet home.",
        show: |fs| (fs.engine.journal.cached() as u64 * 4).into(),
    },
    Shown {
        name: "cache/inodes",
        since: "",
        about: "Inodes in memory.",
        show: |fs| fs.engine.inodes_in_memory().into(),
    },
    Shown {
        name: "cache/pages_kb",
        since: "",
        about: "Contents of files in memory.",
        show: |fs| (fs.engine.budget.pages() as u64 * 4).into(),
    },
];

impl Ext4 {
    fn records(&self) -> RecordStatus {
        self.engine.journal.record_status().unwrap_or_default()
    }

    fn commit_seconds(&self) -> u64 {
        self.commits.first().map_or(0, |area| area.lock().own / SECOND)
    }

    /// Every attribute by name.
    pub(super) fn by_name(&self) -> Map<String, Value> {
        let shown = TABLE.iter().map(|row| (row.name.to_owned(), (row.show)(self)));
        shown.chain([(COMMIT.to_owned(), self.commit_seconds().into())]).collect()
    }

    /// The table, with the values of this volume.
    pub(super) fn table(&self) -> Vec<Attribute> {
        let mut rows = table();
        let values = self.by_name();
        for row in &mut rows {
            row.value = values.get(row.name).cloned();
            row.default = (row.name == COMMIT).then(|| (self.options.commit / SECOND).into());
        }
        rows
    }

    /// Sets attributes, all or none.
    pub(super) fn set_attributes(&self, settings: &[(&str, &str)]) -> Result<(), AttributeError> {
        let mut seconds = self.commit_seconds();
        for (name, value) in settings {
            if *name != COMMIT {
                let (name, known) = ((*name).to_owned(), vec![COMMIT]);
                return Err(AttributeError::Unknown { name, known });
            }
            seconds = number(COMMIT, &SECONDS, value)?;
        }
        for area in &self.commits {
            area.lock().own = seconds.saturating_mul(SECOND);
            area.wake();
        }
        Ok(())
    }
}

/// What there is to know without a volume.
pub(super) fn table() -> Vec<Attribute> {
    let about = "Seconds that a change stays in memory at most. Linux sets it by a remount.";
    let commit = Attribute::set(COMMIT, "", about, in_words(&SECONDS));
    [commit].into_iter().chain(TABLE.iter().map(Shown::attribute)).collect()
}
