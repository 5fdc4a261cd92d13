//! Copies a directory tree of the host, as `cp -a` with an fsync per file would.

use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use vfs::Timespec;

use super::Workload;
use crate::workload::recorder::{Node, Recorder};
use crate::{Error, Result};

/// Bytes per write call.
const CHUNK: usize = 128 << 10;

/// A host tree in memory, so that every run writes the same.
#[derive(Debug, Default)]
pub struct TreeSource {
    /// Entries of the top directory, by name.
    entries: Vec<Entry>,
    /// Regular files taken.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Regular files left out because of the limit.
    pub left_out: u64,
}

#[derive(Debug)]
struct Entry {
    name: Vec<u8>,
    perm: u16,
    owner: (u32, u32),
    mtime: Timespec,
    body: Body,
}

#[derive(Debug)]
enum Body {
    File(Vec<u8>),
    Directory(Vec<Entry>),
    Symlink(Vec<u8>),
}

impl TreeSource {
    /// Reads `root`, files in order of their names until `max_bytes` are taken. Devices, sockets
    /// and unreadable files are skipped.
    pub fn load(root: &Path, max_bytes: u64) -> Result<Self> {
        let mut source = Self::default();
        source.entries = source.directory(root, max_bytes).map_err(Error::host(root))?;
        if source.files == 0 {
            return Err(Error::Usage(format!("{}: no readable file in it", root.display())));
        }
        Ok(source)
    }

    fn directory(&mut self, path: &Path, max_bytes: u64) -> std::io::Result<Vec<Entry>> {
        let mut names: Vec<_> = fs::read_dir(path)?.collect::<Result<_, _>>()?;
        names.sort_by_key(fs::DirEntry::file_name);
        let mut entries = Vec::new();
        for name in names {
            if let Some(entry) = self.entry(&name.path(), max_bytes)? {
                entries.push(Entry { name: name.file_name().as_bytes().to_vec(), ..entry });
            }
        }
        Ok(entries)
    }

    fn entry(&mut self, path: &Path, max_bytes: u64) -> std::io::Result<Option<Entry>> {
        let meta = fs::symlink_metadata(path)?;
        let body = if meta.is_dir() {
            match self.directory(path, max_bytes) {
                Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => return Ok(None),
                entries => Body::Directory(entries?),
            }
        } else if meta.is_symlink() {
            Body::Symlink(fs::read_link(path)?.into_os_string().into_vec())
        } else if !meta.is_file() {
            return Ok(None);
        } else if self.bytes + meta.len() > max_bytes {
            self.left_out += 1;
            return Ok(None);
        } else {
            let Ok(bytes) = fs::read(path) else { return Ok(None) };
            self.files += 1;
            self.bytes += bytes.len() as u64;
            Body::File(bytes)
        };
        Ok(Some(Entry {
            name: Vec::new(),
            perm: (meta.mode() & 0o7777) as u16,
            owner: (meta.uid(), meta.gid()),
            mtime: Timespec { secs: meta.mtime(), nanos: meta.mtime_nsec() as u32 },
            body,
        }))
    }
}

/// What names a tree on a command line.
pub fn tree_arguments(tree: &Path, max_bytes: u64) -> String {
    let path = shell_word(&tree.to_string_lossy());
    format!(" --tree {path} --max-bytes {max_bytes}")
}

/// One word of a command line, quoted where that is needed.
pub fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+,:@%=".contains(c);
    if word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The copy.
#[derive(Clone, Debug)]
pub struct Tree {
    source: Arc<TreeSource>,
}

impl Tree {
    /// A copy of `source`.
    pub fn new(source: Arc<TreeSource>) -> Self {
        Self { source }
    }
}

impl Workload for Tree {
    fn name(&self) -> &str {
        "tree"
    }

    fn footprint(&self) -> u64 {
        2 * self.source.bytes + (self.source.files << 14) + (64 << 20)
    }

    fn run(&self, fs: &Recorder, _seed: u64, started: &mut dyn FnMut()) -> Result<()> {
        started();
        copy(fs, fs.root(), &self.source.entries)?;
        fs.sync()
    }
}

fn copy(fs: &Recorder, dir: Node, entries: &[Entry]) -> Result<()> {
    for entry in entries {
        match &entry.body {
            Body::Symlink(target) => {
                fs.symlink(dir, &entry.name, target)?;
            }
            Body::File(bytes) => {
                let file = fs.create(dir, &entry.name, 0o600)?;
                for (i, chunk) in bytes.chunks(CHUNK).enumerate() {
                    fs.write(file, (i * CHUNK) as u64, chunk)?;
                }
                fs.set_meta(file, entry.perm, entry.owner, entry.mtime)?;
                fs.fsync(file)?;
            }
            Body::Directory(children) => {
                let child = fs.mkdir(dir, &entry.name, 0o700)?;
                copy(fs, child, children)?;
                // Last, because every new entry moves the directory's modification time.
                fs.set_meta(child, entry.perm, entry.owner, entry.mtime)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_named_as_a_shell_reads_it() {
        assert_eq!(
            tree_arguments(Path::new("/usr/share/doc"), 64),
            " --tree /usr/share/doc --max-bytes 64"
        );
        let quoted = tree_arguments(Path::new("my 'docs'"), 1);
        assert_eq!(quoted, r" --tree 'my '\''docs'\''' --max-bytes 1");
    }
}
