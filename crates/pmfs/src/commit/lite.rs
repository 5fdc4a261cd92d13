//! The commit of designs with logs (NOVA, FAST 2016, section 4.4): one word, or an undo journal.
//!
//! ```text
//! one word       data, entries ‖ word ‖
//! several        data, entries, old words ‖ mark ‖ new words ‖ clear ‖      ‖ = write back, fence
//! ```
//!
//! *Why every call is atomic and durable.* All that was stored lies where nothing durable points
//! to: blocks that were free, and lines of a log behind its tail. A call that changes one inode
//! makes it count by one word, the log's tail or its first page, which a cut does not tear; the
//! fence before makes durable what the word makes count.
//!
//! A call that changes several inodes has several such words. Their old values are durable in the
//! slot before the mark is, so from the mark on a cut takes all of them back, whichever were
//! stored; and what they made count is again where nothing points to. Once the mark is cleared,
//! durably, all of them count. It is not cleared before the new words are durable.
//!
//! NOVA's own journal has three holes (see the crate's tests): its old words are not fenced before
//! its mark, which then brings back those of an earlier call; its recovery clears the mark before
//! the old words are durable; and `valid` of a new inode is never written back. Here the record
//! carries its number, the mark repeats it, and the compiler asks for every fence.

use drive::pm::typed::{Obj, fence};

use super::slots::{Slots, split};
use super::{Change, Done};

/// A word that makes something count.
enum Word {}
/// It does.
pub(super) enum Committed {}

/// Makes `change` durable, all of it or nothing.
pub(super) fn commit(slots: &Slots, change: Change<'_>) -> Done {
    let pm = change.pm;
    if let Some((at, word)) = only_word(&change.patches) {
        let stored = fence(pm, change.stored);
        let word = Obj::<Word>::settled(pm, at, 8).commit::<Committed>(0, word, &stored);
        return fence(pm, word.write_back()).into();
    }
    let mut undo = Change::new(pm);
    for (at, new) in split(&change.patches) {
        let mut old = vec![0; new.len()];
        pm.read(at, &mut old);
        undo.patch(at, &old);
    }
    slots.commit(change, Some(&undo.patches)).into()
}

/// Where the change's word is and what it becomes, if it has but one.
fn only_word(patches: &[u8]) -> Option<(u64, u64)> {
    let mut words = split(patches);
    let (at, bytes) = words.next()?;
    match words.next() {
        None => Some((at, u64::from_le_bytes(bytes.try_into().ok()?))),
        Some(_) => None,
    }
}
