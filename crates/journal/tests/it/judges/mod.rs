//! What the tests have of e2fsprogs: images made, logs written and replayed by others. They are
//! run, not read.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use drive::{BLOCK_SIZE, Block};
use journal::{Log, Replayed, Result, Strictness, Volume, recover};
use queue::{BlockQueue, Io};

/// Runs a tool of e2fsprogs; `None`, and a line that says so, if it is not installed.
pub(crate) fn tool(name: &str, args: &[&str]) -> Option<Output> {
    let program = ["/usr/sbin", "/sbin", "/usr/bin"].iter().map(|dir| Path::new(dir).join(name));
    let Some(program) = program.into_iter().find(|path| path.exists()) else {
        eprintln!("SKIPPED: {name} is not installed (Debian package e2fsprogs)");
        return None;
    };
    let output = Command::new(program).args(args).env("DEBUGFS_PAGER", "cat").output();
    Some(output.expect("the tool starts"))
}

/// Everything that a tool says.
pub(crate) fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// An ext4 volume in a file.
pub(crate) struct Image {
    dir: tempfile::TempDir,
    pub(crate) path: PathBuf,
    pub(crate) block_size: usize,
}

impl Image {
    /// A new volume.
    pub(crate) fn make(block_size: usize, size: &str, features: &str) -> Option<Self> {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("image");
        let file = path.to_str().expect("a path");
        let bytes = block_size.to_string();
        let args = ["-q", "-F", "-t", "ext4", "-b", &bytes, "-O", features, file, size];
        let made = tool("mke2fs", &args)?;
        assert!(made.status.success(), "{}", words(&made));
        Some(Self { dir, path, block_size })
    }

    /// A volume whose bytes are at hand.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("image");
        fs::write(&path, bytes).expect("written");
        let block_size = 1024 << u32::from_le_bytes(bytes[1024 + 24..][..4].try_into().ok()?);
        Some(Self { dir, path, block_size })
    }

    /// A file beside it.
    pub(crate) fn beside(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, bytes).expect("written");
        path
    }

    /// Runs lines of debugfs on it.
    pub(crate) fn debugfs(&self, lines: &str) -> String {
        let script = self.beside("script", lines.as_bytes());
        let args = ["-w", "-f", script.to_str().unwrap(), self.path.to_str().unwrap()];
        words(&tool("debugfs", &args).expect("it made the image"))
    }

    /// A copy, after e2fsck has replayed its journal, or whatever else `args` tell it.
    pub(crate) fn checked(&self, args: &[&str]) -> (Self, i32, String) {
        let copy = Self::of(&fs::read(&self.path).unwrap()).unwrap();
        let output = tool("e2fsck", &[args, &[copy.path.to_str().unwrap()]].concat()).unwrap();
        (copy, output.status.code().unwrap_or(-1), words(&output))
    }

    /// The blocks of the journal's file, as debugfs maps them.
    pub(crate) fn journal(&self) -> Vec<u64> {
        let stat = self.debugfs("stat <8>");
        let size = stat.split("Size: ").nth(1).and_then(|rest| rest.split_whitespace().next());
        let size: usize = size.expect("a size").parse().expect("a number");
        let lines: String =
            (0..size / self.block_size).map(|n| format!("bmap <8> {n}\n")).collect();
        let numbers = self.debugfs(&lines);
        numbers.lines().filter_map(|line| line.trim().parse().ok()).collect()
    }

    /// Its bytes on a drive in memory.
    pub(crate) fn drive(&self) -> Arc<drive::Ssd> {
        let bytes = fs::read(&self.path).unwrap();
        let drive = drive::ram(bytes.len().div_ceil(BLOCK_SIZE) as u64);
        let queue = BlockQueue::new(drive.clone());
        for (lba, bytes) in (0..).zip(bytes.chunks(BLOCK_SIZE)) {
            queue.write_blocks(lba, [Block::from_prefix(bytes)].as_slice(), false).unwrap();
        }
        drive
    }

    /// Recovers a copy on a drive in memory. Returns what recovery says, and the bytes.
    pub(crate) fn recovered(&self, strictness: Strictness) -> (Result<Replayed>, Vec<u8>) {
        self.recovered_with(&self.journal(), strictness)
    }

    /// As [`Image::recovered`], with the blocks of the journal's file.
    pub(crate) fn recovered_with(
        &self,
        map: &[u64],
        strictness: Strictness,
    ) -> (Result<Replayed>, Vec<u8>) {
        let drive = self.drive();
        let io = Io::new(Arc::new(BlockQueue::new(drive.clone())));
        let volume = Volume::new(&io, self.block_size as u32).unwrap();
        let find = |block: u32| map.get(block as usize).copied();
        let done =
            Log::open(volume, &find, map.len() as u32).and_then(|log| recover(log, strictness));
        let mut bytes = Vec::new();
        drive.look(&mut (0..drive_blocks(&io)), &mut |block| bytes.extend_from_slice(&block[..]));
        bytes.truncate(fs::metadata(&self.path).unwrap().len() as usize);
        (done, bytes)
    }

    /// The blocks in which both differ, without those that hold a superblock of ext4, which
    /// recovery leaves to the file system.
    pub(crate) fn differences(&self, ours: &[u8]) -> Vec<usize> {
        let theirs = fs::read(&self.path).unwrap();
        assert_eq!(theirs.len(), ours.len());
        let blocks = theirs.chunks(self.block_size).zip(ours.chunks(self.block_size));
        let differ = blocks.enumerate().filter(|(_, (theirs, ours))| theirs != ours);
        let is_superblock = |block: usize| {
            let at = if self.block_size == 1024 { 0 } else { 1024 * usize::from(block == 0) };
            theirs[block * self.block_size..][at..][56..58] == [0x53, 0xef]
        };
        differ.map(|(block, _)| block).filter(|block| !is_superblock(*block)).collect()
    }
}

fn drive_blocks(io: &Io) -> u64 {
    io.queue().identify().blocks
}
