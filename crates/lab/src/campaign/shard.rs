//! A share of a campaign, and shares put together again.
//!
//! Everything that is judged has a number: cuts, states, sequences. A shard is a contiguous stretch
//! of them, so that shares in order are the whole in order. A share is one line of JSON; sums of
//! shares are what one run would have found, bit for bit, because one run is a sum of one share.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use vfs::words::counted;

use crate::campaign::Tally;
use crate::explore::Explored;
use crate::explore::batch::{BatchResult, Explorations};
use crate::workload::script::read_bounded;
use crate::{Error, Result};

/// Shards of one campaign.
const SHARDS_MAX: usize = 10_000;
/// Campaigns in one merge.
const CAMPAIGNS_MAX: usize = 1_000;
/// Bytes of a file of shares.
const FILE_MAX: u64 = 256 << 20;

/// The `i`-th of `n` shares, written `i/n`, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Shard {
    index: usize,
    of: usize,
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index + 1, self.of)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/').and_then(|(i, n)| {
            let (i, n): (usize, usize) = (i.parse().ok()?, n.parse().ok()?);
            (1 <= i && i <= n && n <= SHARDS_MAX).then(|| Self { index: i - 1, of: n })
        });
        numbers.ok_or_else(|| format!("'{text}': expected i/n with 1 <= i <= n <= {SHARDS_MAX}"))
    }
}

impl TryFrom<String> for Shard {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Shard> for String {
    fn from(shard: Shard) -> Self {
        shard.to_string()
    }
}

impl Shard {
    /// Which of `count` things belong to this shard.
    pub fn range(self, count: usize) -> Range<usize> {
        let at = |index: usize| (index as u128 * count as u128 / self.of as u128) as usize;
        at(self.index)..at(self.index + 1)
    }

    /// The first share: findings without a number are counted there.
    pub fn is_first(self) -> bool {
        self.index == 0
    }
}

/// Which part of a campaign is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// Everything.
    All,
    /// One cut or state.
    One(usize),
    /// A share.
    Shard(Shard),
}

impl Pick {
    /// Which of `count` things; `what` is their name.
    pub fn range(self, count: usize, what: &str) -> Result<Range<usize>> {
        match self {
            Self::All => Ok(0..count),
            Self::One(only) if only < count => Ok(only..only + 1),
            Self::One(only) => {
                let last = count.saturating_sub(1);
                Err(Error::Usage(format!("--only {only}: the {what} are 0 to {last}")))
            }
            Self::Shard(shard) => Ok(shard.range(count)),
        }
    }

    /// Whether a single thing is judged, and so completely.
    pub fn is_one(self) -> bool {
        matches!(self, Self::One(_))
    }

    /// Whether findings without a number are counted here.
    pub fn is_first(self) -> bool {
        !matches!(self, Self::Shard(shard) if !shard.is_first())
    }
}

/// What a share found.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// Cuts of one run.
    Cuts(Tally),
    /// The states that a cut may leave of one run.
    States(Explored),
    /// Sequences of operations.
    Sequences(Explorations),
}

impl Part {
    /// Whether both belong to one campaign.
    fn is_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Cuts(one), Self::Cuts(two)) => one.run == two.run,
            (Self::States(one), Self::States(two)) => one.is_of(two),
            (Self::Sequences(one), Self::Sequences(two)) => one.result.is_of(&two.result),
            _ => false,
        }
    }

    /// Adds the share that comes next.
    fn add(&mut self, next: Self) {
        match (self, next) {
            (Self::Cuts(all), Self::Cuts(next)) => all.add(next),
            (Self::States(all), Self::States(next)) => all.add(next),
            (Self::Sequences(all), Self::Sequences(next)) => all.add(next),
            _ => {}
        }
    }

    /// Whether a promise was broken.
    pub fn is_broken(&self) -> bool {
        match self {
            Self::Cuts(tally) => tally.broken > 0,
            Self::States(explored) => explored.counts.broken > 0,
            Self::Sequences(Explorations { result: BatchResult { counts, .. }, .. }) => {
                counts.broken > 0
            }
        }
    }

    /// For messages.
    fn name(&self) -> String {
        match self {
            Self::Cuts(Tally { run, .. }) => {
                format!("{} of {} on {}", run.mode, run.workload, run.drive)
            }
            Self::States(e) => format!("{} of {} on {}", e.mode, e.workload, e.drive),
            Self::Sequences(Explorations { result, .. }) => {
                let length = counted(result.length, "operation");
                format!("{} of {length} on {}", result.mode, result.drive)
            }
        }
    }
}

/// A line of a shard's output.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Share {
    /// Which.
    pub shard: Shard,
    /// What it found.
    pub part: Part,
}

/// Reads the shares in a file, one a line.
pub fn load(path: &Path) -> Result<Vec<Share>> {
    let (text, file) = (read_bounded(path, FILE_MAX)?, path.display());
    // A killed shard leaves this; it must not pass for a campaign without findings.
    if text.trim().is_empty() {
        return Err(Error::Usage(format!("{file}: no share of a campaign in it")));
    }
    let lines = text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty());
    lines
        .map(|(line, number)| {
            serde_json::from_str(line).map_err(|error| {
                Error::Usage(format!("{file}:{number}: not a share of a campaign: {error}"))
            })
        })
        .collect()
}

/// Puts shares together, campaigns in the order in which they first appear. Every share of each
/// must be there, once.
pub fn merge(shares: Vec<Share>) -> Result<Vec<Part>> {
    let mut campaigns: Vec<Vec<Share>> = Vec::new();
    for share in shares {
        let of = |all: &Vec<Share>| {
            all.first().is_some_and(|first| {
                first.shard.of == share.shard.of && first.part.is_of(&share.part)
            })
        };
        match campaigns.iter().position(of) {
            Some(at) => campaigns[at].push(share),
            None if campaigns.len() < CAMPAIGNS_MAX => campaigns.push(vec![share]),
            None => return Err(Error::Usage(format!("more than {CAMPAIGNS_MAX} campaigns"))),
        }
    }
    campaigns.into_iter().map(whole).collect()
}

fn whole(mut shares: Vec<Share>) -> Result<Part> {
    shares.sort_by_key(|share| share.shard.index);
    for (index, at) in shares.iter().map(|share| share.shard.index).zip(0..) {
        let Share { shard, part } = &shares[at];
        let (name, of) = (part.name(), shard.of);
        if index < at {
            return Err(Error::Usage(format!("{name}: shard {shard} is there twice")));
        }
        if index > at {
            return Err(Error::Usage(format!("{name}: shard {}/{of} is missing", at + 1)));
        }
    }
    let (there, of) = (shares.len(), shares.first().map_or(0, |share| share.shard.of));
    let mut shares = shares.into_iter().map(|share| share.part);
    let Some(mut all) = shares.next().filter(|_| there == of) else {
        return Err(Error::Usage(format!("shard {}/{of} is missing", there + 1)));
    };
    shares.for_each(|next| all.add(next));
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_a_partition() {
        for (count, of) in [(10, 3), (2, 5), (0, 4), (1_000_000, 7)] {
            let ranges = (1..=of)
                .map(|i| format!("{i}/{of}").parse::<Shard>().expect("it is a shard").range(count));
            let end = ranges.fold(0, |from, range| {
                assert_eq!(range.start, from);
                range.end
            });
            assert_eq!(end, count);
        }
        for wrong in ["0/3", "4/3", "1", "1/0", "a/b", "1/10001", "-1/2", "1/2/3"] {
            assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
        }
    }
}
