//! `strandline stat`.

use clap::Args;
use serde::Serialize;
use vfs::{Attr, FileKind, Timespec};

use crate::failure::Outcome;
use crate::out::{self, lossy};
use crate::target::{Devices, ImageVolume, Inside};

/// Show the attributes of a file inside an image. Symbolic links are not followed.
#[derive(Args)]
#[command(mut_arg("named", |named| named.short('t')))]
#[command(after_help = "Example:\n  strandline stat disk.img:/etc/passwd --json")]
pub(crate) struct Stat {
    /// IMAGE:/path
    target: Inside,
    #[command(flatten)]
    devices: Devices,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// `struct stat` for programs. Times in seconds and nanoseconds since the epoch.
#[derive(Serialize)]
pub(crate) struct StatJson {
    ino: u64,
    kind: &'static str,
    mode: String,
    nlink: u32,
    uid: u32,
    gid: u32,
    size: u64,
    blocks: u64,
    atime: (i64, u32),
    mtime: (i64, u32),
    ctime: (i64, u32),
}

impl From<&Attr> for StatJson {
    fn from(attr: &Attr) -> Self {
        let time = |t: Timespec| (t.secs, t.nanos);
        Self {
            ino: attr.ino,
            kind: kind_name(attr.kind),
            mode: format!("{:04o}", attr.perm),
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            size: attr.size,
            blocks: attr.blocks,
            atime: time(attr.atime),
            mtime: time(attr.mtime),
            ctime: time(attr.ctime),
        }
    }
}

impl Stat {
    pub(crate) fn run(self) -> Outcome {
        let volume = ImageVolume::look(&self.target.image, &self.devices)?;
        let path = &self.target.path;
        let attr = volume.find(path, false)?;
        if self.json {
            out::json(&StatJson::from(&attr))?;
            return Ok(0);
        }
        let mut line = [b"  File: ", &*out::name(path)].concat();
        if attr.kind == FileKind::Symlink {
            let target = volume.fs.readlink(attr.ino).map_err(volume.about(path))?;
            line.extend([b" -> ", &*out::name(&target)].concat());
        }
        line.push(b'\n');
        out::bytes(&line)?;
        out::line(format!(
            "  Size: {}  Blocks: {}  {}",
            attr.size,
            attr.blocks,
            kind_name(attr.kind)
        ))?;
        out::line(format!(
            " Inode: {}  Links: {}  Access: ({:04o}/{})  Uid: {}  Gid: {}",
            attr.ino,
            attr.nlink,
            attr.perm,
            mode_text(&attr),
            attr.uid,
            attr.gid
        ))?;
        for (name, time) in [("Access", attr.atime), ("Modify", attr.mtime), ("Change", attr.ctime)]
        {
            out::line(format!("{name}: {}.{:09}", time_text(time), time.nanos))?;
        }
        for name in volume.fs.listxattr(attr.ino).map_err(volume.about(path))? {
            let value = volume.fs.getxattr(attr.ino, &name).map_err(volume.about(path))?;
            out::line(format!(" Xattr: {}={}", lossy(&name), lossy(&value)))?;
        }
        Ok(0)
    }
}

/// As stat(1) names them.
pub(crate) fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "regular file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symbolic link",
        FileKind::CharDevice => "character special file",
        FileKind::BlockDevice => "block special file",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
    }
}

/// `drwxr-sr-t`, as ls(1) has it.
pub(crate) fn mode_text(attr: &Attr) -> String {
    let mut text = String::from(match attr.kind {
        FileKind::Regular => "-",
        FileKind::Directory => "d",
        FileKind::Symlink => "l",
        FileKind::CharDevice => "c",
        FileKind::BlockDevice => "b",
        FileKind::Fifo => "p",
        FileKind::Socket => "s",
    });
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = attr.perm >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (attr.perm & special != 0, bits & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// `2026-01-31 23:59:59`, UTC. The calendar is Howard Hinnant's `civil_from_days`.
pub(crate) fn time_text(time: Timespec) -> String {
    let days = time.secs.div_euclid(86_400);
    let second = time.secs.rem_euclid(86_400);
    let shifted = i128::from(days) + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    let year = year_of_era + era * 400 + i128::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_on_both_sides_of_the_epoch() {
        let text = |secs| time_text(Timespec { secs, nanos: 0 });
        assert_eq!(text(0), "1970-01-01 00:00:00");
        assert_eq!(text(-1), "1969-12-31 23:59:59");
        assert_eq!(text(951_782_400), "2000-02-29 00:00:00");
        assert_eq!(text(1_767_225_599), "2025-12-31 23:59:59");
        assert!(!text(i64::MAX).is_empty() && !text(i64::MIN).is_empty());
    }
}
