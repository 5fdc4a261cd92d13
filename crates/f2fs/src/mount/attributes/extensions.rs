//! `extension_list`: the name extensions by which new files are put into the hot or the cold log.
//! Unlike other attributes it is text, and kept in the superblock (`f2fs_update_extension_list`).

use serde_json::{Value, json};
use vfs::attributes::{Attribute, AttributeError};

use crate::error::{Error, Result};
use crate::mount::engine::Engine;
use crate::offline::super_write;
use crate::ondisk::superblock::{RawSuperblock, Superblock};

/// Its name.
pub(super) const NAME: &str = "extension_list";
/// The version of Linux that brought it.
pub(super) const SINCE: &str = "4.17";

const EXPECTED: &str = "[h]NAME or [c]NAME to add a hot or cold extension that is not listed, \
                        [h]!NAME or [c]!NAME to remove one, of 1 to 7 bytes; 64 in all";

/// An extension to be added or removed.
struct Edit<'a> {
    hot: bool,
    add: bool,
    name: &'a str,
}

/// What `text` asks for.
fn parse(text: &str) -> Option<Edit<'_>> {
    let text = text.trim();
    let (hot, rest) = match text.strip_prefix("[h]") {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix("[c]")?),
    };
    let removed = rest.strip_prefix('!');
    let name = removed.unwrap_or(rest);
    let is_name = (1..8).contains(&name.len()) && !name.contains('\0');
    is_name.then_some(Edit { hot, add: removed.is_none(), name })
}

/// What there is to say of it.
pub(super) fn row() -> Attribute {
    let about = "Extensions of names that make a new file hot or cold, kept in the superblock: \
                 `[h]db` adds a hot one, `[c]!iso` removes a cold one.";
    Attribute::set(NAME, SINCE, about, "see there".into())
}

/// The lists of a volume.
pub(super) fn show(sb: &Superblock) -> Value {
    json!({ "cold": sb.cold_extensions, "hot": sb.hot_extensions })
}

/// The superblock as these settings leave it; `None` if there are none.
pub(super) fn edited(volume: &Engine, settings: &[&str]) -> Result<Option<RawSuperblock>> {
    if settings.is_empty() {
        return Ok(None);
    }
    volume.check_writable()?;
    let (mut raw, _) = super_write::read(volume.io.queue())?;
    for text in settings {
        let changed = parse(text).is_some_and(|edit| edit.apply(&mut raw));
        if !changed {
            let (value, expected) = ((*text).to_owned(), EXPECTED.to_owned());
            return Err(Error::from(AttributeError::Value { name: NAME, value, expected }));
        }
    }
    Ok(Some(raw))
}

/// Makes `raw` the superblock, on the drive and in memory.
pub(super) fn store(volume: &mut Engine, raw: RawSuperblock) -> Result<()> {
    volume.check_writable()?;
    let sb = super_write::replace(volume.io.queue(), raw);
    let sb = sb.inspect_err(|error| volume.stop(error))?;
    volume.sb = sb.into();
    Ok(())
}

impl Edit<'_> {
    /// Changes the lists; false if the extension is there already or is not, or there is no room.
    fn apply(&self, raw: &mut RawSuperblock) -> bool {
        let list = raw.extension_list;
        let (cold, hot) = (raw.extension_count.get() as usize, usize::from(raw.hot_ext_count));
        let Some((cold, rest)) = list.split_at_checked(cold) else { return false };
        let Some(hot) = rest.get(..hot) else { return false };
        let (mut cold, mut hot) = (cold.to_vec(), hot.to_vec());
        let full = cold.len() + hot.len() == list.len();
        let of_kind = if self.hot { &mut hot } else { &mut cold };
        let mut entry = [0; 8];
        entry[..self.name.len()].copy_from_slice(self.name.as_bytes());
        match (of_kind.iter().position(|known| *known == entry), self.add) {
            (None, true) if !full => of_kind.push(entry),
            (Some(at), false) => drop(of_kind.remove(at)),
            _ => return false,
        }
        raw.extension_list = [[0; 8]; 64];
        for (slot, extension) in raw.extension_list.iter_mut().zip(cold.iter().chain(&hot)) {
            *slot = *extension;
        }
        raw.extension_count.set(cold.len() as u32);
        raw.hot_ext_count = hot.len() as u8;
        true
    }
}
