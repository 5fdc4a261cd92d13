//! Of all combinations of what a cut may leave, one of each kind that can be told apart.
//!
//! A recovery, the comparison with the oracle and the checks read only some of the parts that a cut
//! decides about. To them it makes no difference what the others hold, as of a journal's record
//! without its commit mark. So one combination is looked at, then those in which one of the parts
//! that were read is otherwise, and so on, until nothing undecided is read.

use std::collections::BTreeSet;

use crate::Result;
use crate::rig::Left;

/// Does to what a cut leaves at these positions all that is done to judge it.
pub(super) type Look<'a> = dyn FnMut(Left, &[usize]) -> Result<()> + 'a;

/// Every combination, if these are at most `most`.
pub(super) fn every(choices: &[u64], most: usize) -> Option<Vec<Vec<u64>>> {
    let count = choices.iter().try_fold(1_u64, |count, &n| count.checked_mul(n))?;
    let combination = |mut number: u64| {
        let digit = |&of| {
            let digit = number % of;
            number /= of;
            digit
        };
        choices.iter().map(digit).collect()
    };
    (count <= most as u64).then(|| (0..count).map(combination).collect())
}

/// Looks at combinations of parts, where part `n` has `choices[n]` choices, until each other
/// combination agrees with one of them in all that `look` reads of it. `look` says which parts it
/// read. None if these would be more than `most`.
pub(super) fn distinct(
    choices: &[u64],
    most: usize,
    look: &mut dyn FnMut(&[u64]) -> Result<BTreeSet<usize>>,
) -> Result<Option<Vec<Vec<u64>>>> {
    let mut seen = Vec::new();
    let mut todo = vec![(vec![0; choices.len()], BTreeSet::new())];
    while let Some((combination, mut decided)) = todo.pop() {
        for part in look(&combination)? {
            if !decided.insert(part) {
                continue;
            }
            for choice in 1..choices[part] {
                let mut other = combination.clone();
                other[part] = choice;
                todo.push((other, decided.clone()));
            }
        }
        seen.push(combination);
        if seen.len() + todo.len() > most {
            return Ok(None);
        }
    }
    Ok(Some(seen))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a program finds that reads a mark, and what is before it only if the mark is there, and
    /// the parts that it reads for that.
    fn replay(parts: &[u64]) -> (Vec<u64>, BTreeSet<usize>) {
        let [record @ .., mark] = parts else { return Default::default() };
        let read = if *mark == 1 { 0..parts.len() } else { record.len()..parts.len() };
        (parts[read.clone()].to_vec(), read.collect())
    }

    fn seen(choices: &[u64], most: usize) -> Option<Vec<Vec<u64>>> {
        distinct(choices, most, &mut |parts| Ok(replay(parts).1)).unwrap()
    }

    #[test]
    fn each_kind_of_combination_is_there_once() {
        let choices = [3, 2, 4, 2];
        let all = every(&choices, 48).unwrap();
        let all: BTreeSet<Vec<u64>> = all.iter().map(|parts| replay(parts).0).collect();
        let some = seen(&choices, 48).unwrap();
        let found: BTreeSet<Vec<u64>> = some.iter().map(|parts| replay(parts).0).collect();
        assert_eq!((found, some.len()), (all, 1 + 24));
    }

    #[test]
    fn too_many_kinds_are_said() {
        assert_eq!(seen(&[3, 2, 4, 2], 24), None);
        assert_eq!(seen(&[9; 40], 1000), None);
        assert_eq!((every(&[9; 40], 1000), every(&[3, 2, 4, 2], 47)), (None, None));
    }
}
