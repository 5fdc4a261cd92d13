//! `strandline tree`.

use clap::Args;
use lab::report::counted;
use serde::Serialize;
use vfs::FileKind;

use crate::failure::Outcome;
use crate::out::{self, hex_unless_text, lossy};
use crate::target::{Devices, ImageVolume, Inside};

/// Show everything below a directory inside an image.
#[derive(Args)]
#[command(mut_arg("named", |named| named.short('t')))]
#[command(after_help = "\
Examples:
  strandline tree disk.img:/
  strandline tree disk.img:/usr --json")]
pub(crate) struct Tree {
    /// IMAGE:/path
    target: Inside,
    #[command(flatten)]
    devices: Devices,
    /// One JSON object per file, with its path
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Entry {
    path: String,
    /// The bytes of a path that is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    #[serde(flatten)]
    stat: super::stat::StatJson,
}

impl Tree {
    pub(crate) fn run(self) -> Outcome {
        show(&self.target, &self.devices, self.json)?;
        Ok(0)
    }
}

/// Shows everything below `target`.
pub(crate) fn show(target: &Inside, devices: &Devices, json: bool) -> Outcome<()> {
    let volume = ImageVolume::look(&target.image, devices)?;
    let attr = volume.find(&target.path, true)?;
    let mut found = Vec::new();
    if attr.kind == FileKind::Directory {
        let all = vfs::path::walk(&*volume.fs, attr.ino, &mut |path, attr| {
            found.push((path.to_vec(), *attr));
            Ok(())
        });
        all.map_err(volume.about(&target.path))?;
    }
    if !json {
        out::bytes(&[&*out::name(&target.path), b"\n"].concat())?;
    }
    for (path, attr) in &found {
        if json {
            let path_hex = hex_unless_text(path);
            out::json(&Entry { path: lossy(path), path_hex, stat: attr.into() })?;
            continue;
        }
        let depth = path.iter().filter(|&&b| b == b'/').count();
        let name = path.rsplit(|&b| b == b'/').next().unwrap_or(path);
        let mut line = "  ".repeat(depth + 1).into_bytes();
        line.extend_from_slice(&out::name(name));
        if attr.kind == FileKind::Directory {
            line.push(b'/');
        } else if attr.kind == FileKind::Symlink {
            let target = volume.fs.readlink(attr.ino).map_err(volume.about(path))?;
            line.extend([b" -> ", &*out::name(&target)].concat());
        }
        line.push(b'\n');
        out::bytes(&line)?;
    }
    if !json {
        let dirs = found.iter().filter(|(_, a)| a.kind == FileKind::Directory).count();
        let files = counted(found.len() - dirs, "file");
        out::line(format!("\n{}, {files}", counted(dirs, "directory")))?;
    }
    Ok(())
}
