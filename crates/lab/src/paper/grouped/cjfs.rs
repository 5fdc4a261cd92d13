//! What CJFS (FAST '23) gains over ext4 by several commits under way at a time, and what the
//! journals here gain on the same loads: Filebench's Varmail on 16 threads, and OLTP-insert.

use super::percore::POLICIES;
use super::{Kind, Row};
use crate::paper::oprw::{mail, oltp};
use crate::{Error, Result};

const DRIVE: &str = "conventional-noplp";
const THREADS: u64 = 16;

pub(super) fn run(seed: u64) -> Result<Vec<Row>> {
    let ext4 = subjects::named("ext4").map_err(Error::of("ext4"))?;
    let mail = gains("Varmail, 16 threads", "CJFS: 1.81", |options| {
        mail::turns_per_s((ext4, options), DRIVE, THREADS, seed)
    })?;
    let oltp = gains("OLTP-insert, one thread", "CJFS: 2.25", |options| {
        oltp::inserts_per_s((ext4, options), DRIVE, oltp::SERVER_NS, seed)
    })?;
    Ok([mail, oltp].concat())
}

/// What each journal gains over JBD2 on a load, whose throughput `rate` answers.
fn gains(load: &str, paper: &str, rate: impl Fn(&str) -> Result<f64>) -> Result<Vec<Row>> {
    let [(_, jbd2), others @ ..] = POLICIES;
    let ordered = rate(jbd2)?;
    let gain = |(name, options): (&str, &str)| {
        let what = format!("{load}: {name} / JBD2");
        Ok(Row::new(Kind::Outcome, what, paper, rate(options)? / ordered, "x"))
    };
    others.into_iter().map(gain).collect()
}
