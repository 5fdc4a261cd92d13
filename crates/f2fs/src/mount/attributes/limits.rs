//! `quota_limits`: the limits of an owner, a group or a project, as `setquota` sets them. Through
//! FUSE there is no quotactl(2).

use vfs::attributes::{Attribute, AttributeError};

use crate::error::{Error, Result};
use crate::mount::engine::Engine;
use crate::ondisk::quota::{QuotaType, Usage};

/// Its name.
pub(super) const NAME: &str = "quota_limits";

const EXPECTED: &str = "TYPE:ID:SOFT:HARD:SOFT:HARD, of KiB and of inodes, 0 for none; TYPE is \
                        user, group or project";

/// What there is to say of it.
pub(super) fn row() -> Attribute {
    let about = "What owners, groups and projects use and may use. user:1000:0:2048:0:10 limits \
                 user 1000 to 2048 KiB and 10 inodes (soft, hard; soft, hard).";
    Attribute::set(NAME, "", about, "see there".into())
}

/// The id and the limits that `text` says.
fn parse(text: &str) -> Option<(QuotaType, u32, Usage)> {
    let fields: Vec<&str> = text.trim().split(':').collect();
    let [kind, id, limits @ ..] = fields.as_slice() else { return None };
    let kind = QuotaType::ALL.into_iter().find(|known| known.name() == *kind)?;
    let limits: Option<Vec<u64>> = limits.iter().map(|limit| limit.parse().ok()).collect();
    let [block_soft, block_hard, inode_soft, inode_hard] = *limits?.as_slice() else { return None };
    let limits = Usage {
        block_soft_limit: block_soft,
        block_hard_limit: block_hard,
        inode_soft_limit: inode_soft,
        inode_hard_limit: inode_hard,
        ..Usage::default()
    };
    Some((kind, id.parse().ok()?, limits))
}

/// Sets the limits that these settings say, or none if one is wrong. The next checkpoint writes
/// them.
pub(super) fn set(volume: &mut Engine, settings: &[&str]) -> Result<()> {
    if settings.is_empty() {
        return Ok(());
    }
    volume.check_writable()?;
    let parsed = settings.iter().map(|text| {
        parse(text).ok_or_else(|| AttributeError::Value {
            name: NAME,
            value: (*text).to_owned(),
            expected: EXPECTED.to_owned(),
        })
    });
    let parsed = parsed.collect::<Result<Vec<_>, _>>().map_err(Error::from)?;
    parsed.iter().try_for_each(|(kind, id, limits)| volume.quotas.limit(*kind, *id, limits))
}
