//! The second step: which committed transactions count.
//!
//! In one log all of them do, up to the first that is missing, where the scan has ended. With
//! areas, those count that are valid: all whom they name are in their areas and valid, or home.
//! That is the greatest set that agrees with its marks ([`keep_valid`]), a prefix of each area.

use super::scan::{Scanned, Transaction};
use crate::chain::keep_valid;
use crate::ondisk::header::Tid;
use crate::transaction::Id;

/// What the areas of a log, or its only one, have that counts.
pub struct Judged {
    pub(super) areas: Vec<Scanned>,
    /// The last transaction of each area that counts, or that was home before.
    pub(super) last: Vec<Tid>,
    /// Number of the next transaction of all.
    pub(super) next: Tid,
    /// Committed transactions that do not count.
    pub(super) invalid: usize,
}

/// Decides which transactions count.
pub fn judge(mut areas: Vec<Scanned>) -> Judged {
    let ends = areas.iter().map(|area| area.end);
    let end = ends.reduce(|last, end| if end.is_after(last) { end } else { last });
    let mut last: Vec<Tid> = areas.iter().map(|area| area.end.previous()).collect();
    keep_valid(&mut last, transactions(&areas).map(|(id, of)| (id, &of.link.marks[..])));
    let mut invalid = 0;
    for (area, last) in areas.iter_mut().zip(&last) {
        let all = area.transactions.len();
        area.transactions.retain(|transaction| last.reaches(transaction.tid));
        invalid += all - area.transactions.len();
    }
    Judged { areas, last, next: end.unwrap_or_default().next(), invalid }
}

impl Judged {
    /// Whether a transaction that was found counts.
    pub fn counts(&self, id: Id) -> bool {
        let last = self.areas.get(usize::from(id.area)).and_then(|area| area.transactions.last());
        last.is_some_and(|last| last.tid.reaches(id.tid))
    }
}

fn transactions(areas: &[Scanned]) -> impl Iterator<Item = (Id, &Transaction)> + Clone {
    (0..).zip(areas).flat_map(|(area, scanned)| {
        let of = move |of: &Transaction| Id { area, tid: of.tid };
        scanned.transactions.iter().map(move |transaction| (of(transaction), transaction))
    })
}
