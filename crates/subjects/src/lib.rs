//! The file systems there are, by name and by what is on a drive. No other crate knows them all.

#![forbid(unsafe_code)]

use std::sync::Arc;

use drive::Drive;
use vfs::kind::{Error, Format, Result, Technique, signature};

/// All of them; the first is the default.
pub static ALL: &[&dyn Format] = &[
    &f2fs::Format,
    &ext4::Format,
    &pmfs::Format,
    #[cfg(feature = "plainfs")]
    &plainfs::Format,
];

/// The file system called `name`.
pub fn named(name: &str) -> Result<&'static dyn Format> {
    ALL.iter().find(|format| format.name() == name).copied().ok_or_else(|| {
        Error::Usage(format!("unknown file system '{name}'; expected {}", names().join(", ")))
    })
}

/// The file system of the volume on `drive`.
pub fn probe(drive: &Arc<dyn Drive>) -> Result<&'static dyn Format> {
    for format in ALL {
        if format.probe(drive)? {
            return Ok(*format);
        }
    }
    let there = signature(drive).map_err(|error| vfs::Error::caused(vfs::Errno::IO, error))?;
    let names = names().join(" or ");
    Err(Error::Unknown(match there {
        Some(other) => format!("not {names}: this is {other}"),
        None => format!("not {names}, nor anything else that is known"),
    }))
}

/// `named`, for a volume on `drive` whose superblocks may be lost. Fails if the drive holds
/// something else that is known.
pub fn confirm(named: &'static dyn Format, drive: &Arc<dyn Drive>) -> Result<&'static dyn Format> {
    // An unreadable superblock may hold anything.
    if named.probe(drive).unwrap_or(true) {
        return Ok(named);
    }
    let ours = ALL.iter().find(|format| format.probe(drive).unwrap_or(false));
    let ours = ours.map(|format| format.name());
    match ours.or_else(|| signature(drive).ok().flatten()) {
        Some(other) => Err(Error::Unknown(format!("not {}: this is {other}", named.name()))),
        None => Ok(named),
    }
}

/// The first file system with these mount options. Fails if none has them, with what the default
/// one says of them.
pub fn with_options(options: &str) -> Result<&'static dyn Format> {
    let mut wrong = None;
    for format in ALL {
        match format.check_options(options) {
            Ok(_) => return Ok(*format),
            Err(error) => wrong = wrong.or(Some(error)),
        }
    }
    Err(wrong.unwrap_or_else(|| Error::Usage("there is no file system".into())))
}

/// The technique called `name` of a file system.
pub fn technique(format: &dyn Format, name: &str) -> Result<&'static Technique> {
    let all = format.techniques();
    all.iter().find(|technique| technique.name == name).copied().ok_or_else(|| {
        let known: Vec<_> = all.iter().map(|technique| technique.name).collect();
        Error::Usage(format!("unknown mode '{name}'; expected {}", known.join(", ")))
    })
}

/// Names on the command line.
pub fn names() -> Vec<&'static str> {
    ALL.iter().map(|format| format.name()).collect()
}

#[cfg(test)]
mod tests {
    use drive::pm::{Domain, PmAccess, PmDrive, PmSim, PmState};

    use super::*;

    #[test]
    fn every_format_and_technique_is_found_by_its_name() {
        for format in ALL {
            assert_eq!(named(format.name()).expect("it is there").name(), format.name());
            for technique in format.techniques() {
                let found = self::technique(*format, technique.name).expect("it is there");
                assert_eq!(found, *technique);
            }
            assert!(technique(*format, "posixly").is_err());
        }
        assert!(named("f3fs").is_err());
    }

    #[test]
    fn what_is_on_a_drive_is_said() {
        let drive: Arc<dyn Drive> = drive::ram(1 << 15);
        assert!(probe(&drive).is_err_and(|error| error.to_string().contains("nor anything")));
        for format in ALL {
            let drive: Arc<dyn Drive> = match format.name() {
                "pmfs" => {
                    let memory = PmSim::power_on(PmState::new(1 << 24), Domain::Memory);
                    PmDrive::new(memory, PmAccess::Write)
                }
                _ => drive::ram(1 << 15),
            };
            format.make(&drive).expect("it is made");
            assert_eq!(probe(&drive).expect("it is found").name(), format.name());
        }
    }
}
