//! The states persistent memory may show after a cut: any prefix of the stores to each line that
//! are not durable for certain, and streamed words one by one ([`drive::pm::sim`] has the rules).

use drive::pm::{Domain, Pending};

use super::Bound;
use super::states::{Found, State};
use crate::rig::Left;

/// Combinations up to which all are looked at in memory, whose states cost little.
const EXHAUST: u64 = 1024;

/// All states a cut may leave of persistent memory that was seen so. Between two looks, which are
/// before each fence, the set of states only grows.
pub(super) fn enumerate(
    looks: &[(Pending, usize)],
    domain: Domain,
    bound: Bound,
    seed: u64,
) -> Found {
    let mut found = Found::default();
    for (pending, position) in looks {
        let is_whole = pending.count() <= EXHAUST;
        found.sampled += usize::from(!is_whole);
        let max = if is_whole { EXHAUST } else { bound.states as u64 };
        for state in pending.states(max, seed) {
            let new = found.states.len();
            let at = *found.by_key.entry(state.hash()).or_insert(new);
            if at == new {
                let left = Left::Pm(state, domain);
                found.states.push(State { left, positions: Vec::new() });
            }
            let known = &mut found.states[at].positions;
            if known.last() != Some(position) {
                known.push(*position);
            }
        }
    }
    found
}
