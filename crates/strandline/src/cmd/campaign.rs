//! The arguments that `crash` and `lab run` share.

use std::path::PathBuf;

use clap::Args;
use vfs::kind::{Format, Technique};

use crate::failure::{Failure, Outcome};

/// Arguments of every run of crash campaigns.
#[derive(Args)]
pub(crate) struct CampaignArgs {
    /// Directory the tree workload copies
    #[arg(long, default_value = "/usr/share/doc")]
    pub(crate) tree: PathBuf,
    /// Cuts per mode and workload
    #[arg(long, default_value_t = 1000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) cuts: u32,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Real threads to judge on; the result does not depend on it
    #[arg(long, default_value_t = 2, value_parser = at_least_one)]
    pub(crate) threads: usize,
    /// What was found as JSON: an object per mode, or the report
    #[arg(long)]
    pub(crate) json: bool,
}

/// For clap: a number of threads.
pub(super) fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("expected a number from 1 on".into()),
        Ok(threads) => Ok(threads),
    }
}

/// The techniques of `format` by their names.
pub(super) fn techniques(
    format: &dyn Format,
    names: &[String],
) -> Outcome<Vec<&'static Technique>> {
    let mut before = names.iter().enumerate();
    if let Some((_, name)) = before.find(|(n, name)| names[..*n].contains(name)) {
        return Err(Failure::Usage(format!("mode {name}: given twice")));
    }
    Ok(names.iter().map(|name| subjects::technique(format, name)).collect::<Result<_, _>>()?)
}
