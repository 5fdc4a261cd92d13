//! `strandline label`: what f2fslabel does.

use std::path::PathBuf;

use clap::Args;
use drive::linux::Access;
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::out;
use crate::target::{Kind, open_drive};

/// Show or set the label of a volume; show its UUID.
#[derive(Args)]
#[command(
    version,
    mut_arg("named", |named| named.short('t')),
    after_help = "\
Examples:
  strandline label disk.img
  strandline label disk.img photos
  strandline label --uuid disk.img"
)]
pub(crate) struct Label {
    /// Image of a drive
    image: PathBuf,
    #[command(flatten)]
    kind: Kind,
    /// The new label, at most 512 UTF-16 units; '' for none
    label: Option<String>,
    /// Print the UUID instead
    #[arg(long, conflicts_with = "label")]
    uuid: bool,
    /// One JSON object with both
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Shown {
    label: String,
    uuid: String,
}

impl Label {
    pub(crate) fn run(self) -> Outcome {
        let access = if self.label.is_some() { Access::Write } else { Access::Read };
        let opened = open_drive(&self.image, access)?;
        let done = self.kind.of(&opened.drive).and_then(|format| match &self.label {
            Some(label) => format.set_label(&opened.drive, label),
            None => format.label(&opened.drive),
        });
        let told = done.map_err(Failure::on(self.image.display()))?;
        if self.label.is_some() {
            opened.close()?;
        }
        let digits: Vec<String> = told.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        let groups = [0..4, 4..6, 6..8, 8..10, 10..16].map(|range| digits[range].concat());
        let shown = Shown { label: told.label, uuid: groups.join("-") };
        if self.json {
            out::json(&shown)?;
        } else if self.uuid {
            out::line(&shown.uuid)?;
        } else if self.label.is_some() {
            out::line(format!("Info: volume label is changed to {}", shown.label))?;
        } else {
            out::line(format!("Info: volume label = {}", shown.label))?;
        }
        Ok(0)
    }
}
