//! `strandline bench calibrate`: a machine profile of this machine.

use std::path::PathBuf;

use clap::Args;
use lab::bench::calibrate::{self, NAME, Setting};
use lab::bench::fxmark::Place;
use serde_json::json;

use super::Common;
use crate::failure::{Failure, Outcome};
use crate::out;
use crate::progress::Progress;

/// Make a machine profile of this machine, and see how well it predicts other loads.
#[derive(Args)]
#[command(after_help = "\
Examples:
  strandline bench calibrate --out here.toml --check
  strandline bench fxmark DWOL --machine here.toml --cores 1,2")]
pub(crate) struct Calibrate {
    /// Where the profile goes; its name must end in .toml, by which --machine knows it for a file
    #[arg(long, value_name = "FILE", value_parser = parse_profile)]
    out: Option<PathBuf>,
    /// Also run loads that the profile was not made from, here and on the virtual machine
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    common: Common,
}

/// A profile's name in a directory that is there: measuring takes half a minute.
fn parse_profile(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.extension().is_none_or(|extension| extension != "toml") {
        return Err("its name must end in .toml".into());
    }
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() && !parent.is_dir() => {
            Err(format!("{} is not a directory", parent.display()))
        }
        _ => Ok(path),
    }
}

impl Calibrate {
    pub(super) fn run(self) -> Outcome {
        let mount_opts = self.common.mount_opts();
        let Common { fs, seed, json, .. } = self.common;
        let (format, drive) = (subjects::named(&fs)?, "ram".to_owned());
        let place = Place::Fresh { format, drive, mount_opts };
        let setting = Setting { place, seed };
        let progress = Progress::new(calibrate::steps(self.check), "calibrate", json);
        let step = &mut |_: &str| progress.step();
        let made = setting.run(step)?;
        let mut compared = made.fitted;
        if self.check {
            compared.extend(setting.check(&made.profile, step)?);
        }
        progress.finish();
        if let Some(path) = &self.out {
            std::fs::write(path, made.profile.to_toml()).map_err(Failure::host(path))?;
        }
        match json {
            true => out::json(&json!({ "machine": NAME, "loads": compared }))?,
            false => out::text(&calibrate::table(&compared))?,
        }
        Ok(0)
    }
}
