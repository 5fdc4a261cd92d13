//! What `dump` can show of F2FS, under the names of its views.

use std::ops::Range;
use std::sync::Arc;

use drive::Drive;
use vfs::kind::{Error, Result};
use vfs::record::{Record, Value};

use crate::dump::{Dump, Emit};

/// The views, in the order of the drive.
const VIEWS: [&str; 10] =
    ["superblock", "checkpoint", "nat", "sit", "ssa", "inode", "extents", "dir", "node", "block"];

/// Shows a view or, if none is named, the superblock and the checkpoint in use.
pub(super) fn dump(
    drive: &Arc<dyn Drive>,
    view: Option<&str>,
    which: Option<&str>,
    see: Emit<'_>,
) -> Result<()> {
    let mut look = Dump::new(drive);
    let several = || which.map_or(Ok(0..u32::MAX), range);
    let one = || match which {
        Some(which) => number(which),
        None => Err(Error::Usage("which one? a number is missing".into())),
    };
    let whole = |view: &str| match which {
        Some(which) => Err(Error::Usage(format!("{view} {which}: both copies are shown, always"))),
        None => Ok(()),
    };
    match view {
        None => {
            for found in [look.superblock(), look.checkpoint()] {
                let best = found.iter().position(in_use).unwrap_or(0);
                all(found.into_iter().skip(best).take(1), see);
            }
        }
        Some(view @ "superblock") => whole(view).map(|()| all(look.superblock(), see))?,
        Some(view @ "checkpoint") => whole(view).map(|()| all(look.checkpoint(), see))?,
        Some("nat") => look.nat(several()?, see)?,
        Some("sit") => look.sit(several()?, see)?,
        Some("ssa") => look.ssa(several()?, see)?,
        Some("inode") => all([look.inode(one()?)?], see),
        Some("extents") => look.extents(one()?, see)?,
        Some("node") => all([look.node(one()?)?], see),
        Some("block") => all([look.block(one()?)?], see),
        Some("dir") => {
            let ino = if which.is_some() { one()? } else { look.root() };
            look.dir(ino, see)?;
        }
        Some(other) => {
            let known = VIEWS.join(", ");
            return Err(Error::Usage(format!("unknown view '{other}'; expected {known}")));
        }
    }
    Ok(())
}

fn all(records: impl IntoIterator<Item = Record>, see: Emit<'_>) {
    for record in records {
        if !see(record) {
            break;
        }
    }
}

/// Whether a mount would take this copy: a checkpoint's record says so, a superblock must be sound.
fn in_use(record: &Record) -> bool {
    match record.get("current") {
        Some(current) => *current == Value::Number(1),
        None => record.get("error").is_none(),
    }
}

fn number(text: &str) -> Result<u32> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| Error::Usage(format!("'{text}' is not a number")))
}

/// `FIRST~LAST`; -1 stands for the last one.
fn range(text: &str) -> Result<Range<u32>> {
    let (first, last) = text.split_once('~').unwrap_or((text, text));
    let end = if last == "-1" { u32::MAX } else { number(last)?.saturating_add(1) };
    let first = number(first)?;
    if first >= end {
        return Err(Error::Usage(format!("'{text}': the first comes after the last")));
    }
    Ok(first..end)
}
