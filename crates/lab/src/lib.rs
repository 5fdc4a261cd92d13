//! The lab: workloads, an oracle, crash campaigns, benchmarks, and reports of what they found.
//!
//! Everything here speaks to file systems through [`vfs::kind`], and to drives through `drive`.
//! Only the experiments of papers about F2FS name F2FS.

#![forbid(unsafe_code)]

pub mod bench;
pub mod campaign;
mod error;
pub mod explore;
pub mod oracle;
pub mod paper;
pub mod program;
pub mod record;
pub mod report;
pub mod rig;
pub mod workload;

use std::path::Path;

use cores::{Machine, Profile};

pub use error::{Error, Result};
use paper::sensitivity;
pub use rig::Extra;

/// Nanoseconds on the current machine's clock.
pub(crate) fn now_ns() -> u64 {
    cores::now()
}

/// The machine campaigns run on: the CPU of the thesis.
pub const CAMPAIGN_MACHINE: &str = "xeon-4116";

pub(crate) fn machine(seed: u64) -> Result<Machine> {
    machine_named(CAMPAIGN_MACHINE, seed)
}

/// `real`, or a virtual machine by its profile: a built-in one's name, or a file that ends in
/// `.toml`.
pub fn machine_named(name: &str, seed: u64) -> Result<Machine> {
    if name == "real" {
        return Ok(Machine::real());
    }
    Ok(Machine::simulated(&profile_named(name)?, seed))
}

/// A machine profile: a built-in one, or a file that ends in `.toml`.
pub(crate) fn profile_named(name: &str) -> Result<Profile> {
    let profile = match sensitivity::varied(name) {
        Some(varied) => Ok(varied),
        None if name.ends_with(".toml") => {
            let text = std::fs::read_to_string(name).map_err(Error::host(Path::new(name)))?;
            Profile::from_toml(&text)
        }
        None => Profile::named(name),
    };
    let profile = profile.map_err(|e| Error::Usage(e.to_string()))?;
    sensitivity::note(name, &profile);
    Ok(profile)
}
