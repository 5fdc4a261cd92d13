//! Volumes that are mounted now, found in the mount table of the kernel, and the way to the
//! processes that serve them: extended attributes of their root directories.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::failure::{Failure, Outcome};

/// Type of our mounts, proc(5) `mountinfo`.
const KIND: &[u8] = b"fuse.strandline";
/// The prefix of requests to a mount.
const PREFIX: &str = "user.strandline.";
/// Longest value of an attribute.
const ANSWER_MAX: usize = 65536;

/// A mounted volume.
pub(crate) struct Mounted {
    /// What it is mounted from.
    pub(crate) image: PathBuf,
    /// What it is mounted on.
    pub(crate) dir: PathBuf,
    /// Its device number, as `MAJOR:MINOR`.
    device: String,
}

impl Mounted {
    /// The volume mounted on the directory `path`, or from the image `path`.
    pub(crate) fn find(path: &Path) -> Option<Self> {
        // Of a mount whose server has died the kernel says only that it is not connected.
        let path = std::fs::canonicalize(path).or_else(|_| std::path::absolute(path)).ok()?;
        let table = std::fs::read("/proc/self/mountinfo").ok()?;
        // Later mounts hide earlier ones.
        let mounts = table.rsplit(|&byte| byte == b'\n').filter_map(parse);
        mounts.into_iter().find(|mounted| mounted.dir == path || mounted.image == path)
    }

    /// The mounted volume that has the file `path`.
    pub(crate) fn with(path: &Path) -> Outcome<Self> {
        let whole = std::fs::canonicalize(path).map_err(Failure::host(path))?;
        let mut above = whole.ancestors().filter_map(Self::find);
        let found = above.find(|mounted| whole.starts_with(&mounted.dir));
        found.ok_or_else(|| {
            Failure::Problem(format!("{}: not on a volume that is mounted here", path.display()))
        })
    }

    /// As [`Mounted::find`], for a directory; fails if nothing is mounted there.
    pub(crate) fn on(dir: &Path) -> Outcome<Self> {
        let path = |dir: &Path| {
            std::fs::canonicalize(dir).or_else(|_| std::path::absolute(dir)).unwrap_or_default()
        };
        let found = Self::find(dir).filter(|mounted| mounted.dir == path(dir));
        found.ok_or_else(|| {
            Failure::Problem(format!("{}: no volume is mounted here", dir.display()))
        })
    }

    /// Asks the process that serves the mount for something.
    pub(crate) fn ask(&self, request: &str) -> Outcome<Vec<u8>> {
        let mut answer = vec![0; ANSWER_MAX];
        let len = rustix::fs::getxattr(&self.dir, format!("{PREFIX}{request}"), &mut answer[..])
            .map_err(|errno| self.refused(errno))?;
        answer.truncate(len);
        Ok(answer)
    }

    /// After it has been unmounted here: whether the volume is still mounted, on another directory
    /// or in another namespace. The kernel knows, and shows it as long as it has the volume's
    /// device.
    pub(crate) fn is_elsewhere(&self) -> bool {
        Path::new("/sys/class/bdi").join(&self.device).exists()
    }

    /// Whether the process that served the mount has died.
    pub(crate) fn is_dead(&self) -> bool {
        // The kernel has attributes in its cache; a request has to go to the server.
        let mut nothing: [u8; 0] = [];
        let asked = rustix::fs::getxattr(&self.dir, format!("{PREFIX}status"), &mut nothing[..]);
        asked.err() == Some(Errno::NOTCONN)
    }

    fn refused(&self, errno: Errno) -> Failure {
        let dir = self.dir.display();
        Failure::Problem(match errno {
            Errno::NOTCONN => format!(
                "{dir}: the process that served this mount has died; 'strandline umount {dir}' \
                 removes the mount, and mounting again recovers the volume"
            ),
            Errno::NODATA => format!("{dir}: only root and who mounted it can do this"),
            Errno::OPNOTSUPP => format!("{dir}: only an emulated drive can be cut"),
            errno => format!("{dir}: {errno}"),
        })
    }
}

/// One line of `mountinfo`: fields up to a lone `-`, then type and source.
fn parse(line: &[u8]) -> Option<Mounted> {
    let mut fields = line.split(|&byte| byte == b' ');
    let device = String::from_utf8(fields.nth(2)?.to_owned()).ok()?;
    let dir = unescape(fields.nth(1)?);
    let mut behind = fields.skip_while(|field| *field != b"-").skip(1);
    let (kind, source) = (behind.next()?, behind.next()?);
    (kind == KIND).then(|| Mounted { image: unescape(source), dir, device })
}

/// Blanks and backslashes are written as `\` and three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, behind)) = rest.split_first() {
        let code = behind.get(..3).filter(|_| first == b'\\').and_then(octal);
        bytes.push(code.unwrap_or(first));
        rest = if code.is_some() { &behind[3..] } else { behind };
    }
    OsString::from_vec(bytes).into()
}

fn octal(digits: &[u8]) -> Option<u8> {
    let text = std::str::from_utf8(digits).ok()?;
    u8::from_str_radix(text, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_table_is_understood() {
        let line = b"36 25 0:39 / /mnt/a\\040b rw,relatime shared:1 master:2 - fuse.strandline \
                     /img/x\\134y.img rw,user_id=0";
        let mounted = parse(line).unwrap();
        assert_eq!(mounted.dir, Path::new("/mnt/a b"));
        assert_eq!(mounted.image, Path::new("/img/x\\y.img"));
        assert_eq!(mounted.device, "0:39");
        assert!(parse(b"36 25 0:39 / /mnt rw - ext4 /dev/sda rw").is_none());
        assert!(parse(b"").is_none());
    }
}
