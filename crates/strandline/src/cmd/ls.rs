//! `strandline ls`.

use clap::Args;
use serde::Serialize;
use vfs::{Attr, FileKind};

use crate::failure::Outcome;
use crate::out::{self, hex_unless_text, lossy};
use crate::target::{Devices, ImageVolume, Inside};

/// List a directory inside an image, without mounting it.
#[derive(Args)]
#[command(mut_arg("named", |named| named.short('t')))]
#[command(after_help = "\
Examples:
  strandline ls disk.img:/
  strandline ls -l disk.img:/usr/share --json")]
pub(crate) struct Ls {
    /// IMAGE:/path
    target: Inside,
    #[command(flatten)]
    devices: Devices,
    /// Long listing
    #[arg(short)]
    long: bool,
    /// One JSON object per entry
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Entry {
    name: String,
    /// The bytes of a name that is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    name_hex: Option<String>,
    #[serde(flatten)]
    stat: super::stat::StatJson,
}

impl Ls {
    pub(crate) fn run(self) -> Outcome {
        let volume = ImageVolume::look(&self.target.image, &self.devices)?;
        let path = &self.target.path;
        let attr = volume.find(path, true)?;
        let mut entries = vec![(path.clone(), attr)];
        if attr.kind == FileKind::Directory {
            let listed = vfs::path::read_dir(&*volume.fs, attr.ino).map_err(volume.about(path))?;
            entries.clear();
            for entry in listed {
                let attr = volume.fs.getattr(entry.ino).map_err(volume.about(&entry.name))?;
                entries.push((entry.name, attr));
            }
            entries.sort_by(|a, b| a.0.cmp(&b.0));
        }
        for (name, attr) in &entries {
            self.show(&volume, name, attr)?;
        }
        Ok(0)
    }

    fn show(&self, volume: &ImageVolume, name: &[u8], attr: &Attr) -> Outcome<()> {
        if self.json {
            let name_hex = hex_unless_text(name);
            return out::json(&Entry { name: lossy(name), name_hex, stat: attr.into() });
        }
        if !self.long {
            return out::bytes(&[&*out::name(name), b"\n"].concat());
        }
        let mut line = format!(
            "{} {:>3} {:>5} {:>5} {:>12} {} ",
            super::stat::mode_text(attr),
            attr.nlink,
            attr.uid,
            attr.gid,
            attr.size,
            super::stat::time_text(attr.mtime)
        )
        .into_bytes();
        line.extend_from_slice(&out::name(name));
        if attr.kind == FileKind::Symlink {
            let target = volume.fs.readlink(attr.ino).map_err(volume.about(name))?;
            line.extend([b" -> ", &*out::name(&target)].concat());
        }
        line.push(b'\n');
        out::bytes(&line)
    }
}
