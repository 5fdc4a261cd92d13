//! The states persistent memory may show after a cut: any prefix of the stores to each line that
//! are not durable for certain, and streamed words one by one ([`drive::pm::sim`] has the rules).

use drive::pm::{Domain, Pending, PmState};

use super::Bound;
use super::collapse::{Look, distinct, every};
use super::states::{Found, State};
use crate::Result;
use crate::campaign::Job;
use crate::rig::Left;

/// Combinations up to which all are looked at in memory, whose states cost little.
const EXHAUST: usize = 1024;
/// Of more, those that can be told apart, up to so many.
const DISTINCT: usize = 65_536;
/// Of a run with a fault, which is to be found and not to be looked at completely, up to so many.
const DISTINCT_FAULTY: usize = 1024;

/// All states a cut may leave of persistent memory that was seen so. Between two looks, which are
/// before each fence, the set of states only grows.
pub(super) fn enumerate(
    looks: &[(Pending, usize)],
    domain: Domain,
    bound: Bound,
    job: &Job,
    look: &mut Look<'_>,
) -> Result<Found> {
    let mut found = Found::default();
    let most = if job.inject.is_some() { DISTINCT_FAULTY } else { DISTINCT };
    for (pending, position) in looks {
        let choices = pending.choices();
        let mut reads = |choices: &[u64]| {
            let mut looked = Ok(());
            let see = &mut |state| looked = look(Left::Pm(state, domain), &[*position]);
            let read = pending.reads(choices, see);
            looked.map(|()| read)
        };
        let all = every(&choices, EXHAUST)
            .map_or_else(|| distinct(&choices, most, &mut reads), |all| Ok(Some(all)))?;
        found.sampled += usize::from(all.is_none());
        let states: Vec<PmState> = match all {
            Some(all) => all.iter().map(|choices| pending.chosen(choices)).collect(),
            None => pending.states(bound.states as u64, job.seed).collect(),
        };
        for state in states {
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
    Ok(found)
}
