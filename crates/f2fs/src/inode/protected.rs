//! What encryption, verity and compression deny to users: contents without their key, and changes
//! of sealed files.

use drive::BLOCK_SIZE;
use vfs::{Errno, FileKind};
use zerocopy::FromBytes;
use zerocopy::little_endian::U16;

use crate::dir::entries::Names;
use crate::dir::nokey;
use crate::error::{Error, Result};
use crate::inode::see::{InodeView, See};
use crate::mount::engine::Engine;
use crate::ondisk::Nid;
use crate::ondisk::inode::{Advise, Inline};

/// Checks for contents that cannot be read, because they are encrypted.
pub(crate) trait Protected: See {
    /// Fails with `ENOKEY` if the contents of a regular file are encrypted. The type of the file.
    fn check_readable(&mut self, ino: Nid) -> Result<FileKind, Self::Error> {
        Ok(readable(self.view(ino)?)?)
    }

    /// Fails unless `ino` is a regular file that can be read.
    fn check_regular(&mut self, ino: Nid) -> Result<(), Self::Error> {
        match self.check_readable(ino)? {
            FileKind::Regular => Ok(()),
            FileKind::Directory => Err(Error::from(Errno::ISDIR).into()),
            _ => Err(Error::from(Errno::INVAL).into()),
        }
    }

    fn is_encrypted(&mut self, ino: Nid) -> Result<bool, Self::Error> {
        Ok(self.view(ino)?.advise().contains(Advise::ENCRYPT))
    }

    /// Fails with `ENOKEY` if names in directory `dir` are encrypted, so that none can be made.
    fn check_has_key(&mut self, dir: Nid) -> Result<(), Self::Error> {
        self.check_dir(dir)?;
        if self.is_encrypted(dir)? { Err(Error::from(Errno::NOKEY).into()) } else { Ok(()) }
    }
}

impl<S: See> Protected for S {}

/// The type of a file, unless its contents are encrypted.
fn readable(inode: InodeView<'_>) -> Result<FileKind> {
    match inode.file_kind() {
        FileKind::Regular if inode.advise().contains(Advise::ENCRYPT) => Err(Errno::NOKEY.into()),
        kind => Ok(kind),
    }
}

impl Engine {
    /// Fails if contents must not change: they are encrypted, sealed by fs-verity, or compressed
    /// with the saved blocks given back.
    pub(crate) fn check_unsealed(&mut self, ino: Nid) -> Result<()> {
        let inode = self.view(ino)?;
        readable(inode)?;
        let released = inode.inline().contains(Inline::COMPRESS_RELEASED);
        let sealed = inode.advise().contains(Advise::VERITY);
        if sealed || released { Err(Errno::PERM.into()) } else { Ok(()) }
    }

    /// The no-key form of an encrypted symbolic link's target (`fscrypt_get_symlink`); `None` if
    /// the link is not encrypted.
    pub(crate) fn encrypted_target(&mut self, ino: Nid) -> Result<Option<Vec<u8>>> {
        if self.kind_of(ino)? != FileKind::Symlink || !self.is_encrypted(ino)? {
            return Ok(None);
        }
        let mut stored = vec![0; BLOCK_SIZE];
        let len = self.read_file(ino, 0, &mut stored)?;
        let target = U16::read_from_prefix(&stored[..len])
            .ok()
            .and_then(|(len, rest)| rest.get(..usize::from(len.get())))
            .ok_or_else(|| Error::corrupt("fscrypt_symlink_data.len", ino, len, "within it"))?;
        nokey::encode(0, target, ino).map(Some)
    }
}

#[cfg(all(test, feature = "foreign"))]
mod tests {
    use std::sync::Arc;

    use drive::Drive;
    use vfs::{Creator, FallocateMode, FileSystem, Ino, RenameFlags, SetAttr};

    use super::*;
    use crate::F2fs;
    use crate::check::{CheckOptions, check};
    use crate::mount::fs::nid;
    use crate::offline::mkfs::{MkfsOptions, format};

    /// As long as the names that encryption makes, and with bytes no user's name has.
    const CIPHERTEXT: [u8; 32] = [0xc3; 32];

    fn mount(drive: &Arc<dyn Drive>) -> F2fs {
        F2fs::mount(Arc::clone(drive), &"".parse().unwrap()).unwrap()
    }

    fn advise(fs: &F2fs, ino: Ino, advise: Advise) {
        let mut volume = fs.lock();
        let inode = volume.inode_mut(nid(ino).unwrap()).unwrap();
        inode.set_advise(inode.advise() | advise);
    }

    /// A volume with an encrypted directory, and in that a file and a link.
    fn encrypted() -> (Arc<dyn Drive>, F2fs, Ino) {
        let drive: Arc<dyn Drive> = drive::ram(32 * 1024);
        format(&drive, &MkfsOptions::default()).unwrap();
        let fs = mount(&drive);
        let who = Creator::default();
        let dir = fs.mkdir(fs.root(), b"dir", 0o755, who).unwrap().ino;
        let file = fs.create(dir, &CIPHERTEXT, 0o644, who).unwrap().ino;
        fs.write(file, 0, &[0xee; 9000]).unwrap();
        let target = [&16_u16.to_le_bytes()[..], &[0xdd; 16]].concat();
        let link = fs.symlink(dir, &[0xb2; 200], &target, who).unwrap().ino;
        for ino in [dir, file, link] {
            advise(&fs, ino, Advise::ENCRYPT);
        }
        (drive, fs, dir)
    }

    fn names(fs: &F2fs, dir: Ino) -> Vec<Vec<u8>> {
        let mut names = Vec::new();
        fs.readdir(dir, 0, &mut |entry| {
            names.push(entry.name);
            true
        })
        .unwrap();
        names
    }

    #[test]
    fn without_the_key_names_are_shown_and_removed_but_not_made() {
        let (drive, fs, dir) = encrypted();
        let shown = names(&fs, dir);
        assert_eq!(shown.len(), 4);
        assert!(shown.iter().all(|name| name.iter().all(u8::is_ascii_graphic)), "{shown:?}");
        for name in &shown[2..] {
            fs.lookup(dir, name).unwrap();
        }
        let who = Creator::default();
        let no_key =
            |result: vfs::Result<()>| assert_eq!(result.unwrap_err().errno(), Errno::NOKEY);
        no_key(fs.create(dir, b"new", 0o644, who).map(drop));
        no_key(fs.mkdir(dir, b"new", 0o755, who).map(drop));
        no_key(fs.rename(dir, &shown[2], fs.root(), b"out", RenameFlags::empty()));
        assert_eq!(fs.lookup(dir, b"plain name").unwrap_err().errno(), Errno::NOENT);
        fs.unlink(dir, &shown[2]).unwrap();
        fs.unmount().unwrap();
        let fs = mount(&drive);
        assert_eq!(names(&fs, dir), [&shown[..2], &shown[3..]].concat());
        fs.unmount().unwrap();
        assert!(check(&drive, &CheckOptions::default()).unwrap().is_clean());
    }

    #[test]
    fn without_the_key_contents_are_out_of_reach() {
        let (_drive, fs, dir) = encrypted();
        let shown = names(&fs, dir);
        let file = fs.lookup(dir, &shown[2]).unwrap();
        let no_key =
            |result: vfs::Result<()>| assert_eq!(result.unwrap_err().errno(), Errno::NOKEY);
        no_key(fs.open(file.ino));
        no_key(fs.read(file.ino, 0, &mut [0; 10]).map(drop));
        no_key(fs.write(file.ino, 0, b"x").map(drop));
        let cut = SetAttr { size: Some(1), ..SetAttr::default() };
        no_key(fs.setattr(file.ino, &cut).map(drop));
        no_key(fs.fallocate(file.ino, FallocateMode::empty(), 0, 1 << 20));
        assert_eq!(file.size, 9000);
        let link = fs.lookup(dir, &shown[3]).unwrap();
        let target = fs.readlink(link.ino).unwrap();
        // Hash 0, then the ciphertext, in base64url.
        assert_eq!(target, b"AAAAAAAAAADd3d3d3d3d3d3d3d3d3d3d");
        assert_eq!(link.size, target.len() as u64);
    }

    #[test]
    fn a_sealed_file_is_read_but_does_not_change() {
        let drive: Arc<dyn Drive> = drive::ram(32 * 1024);
        format(&drive, &MkfsOptions::default()).unwrap();
        let fs = mount(&drive);
        let file = fs.create(fs.root(), b"sealed", 0o644, Creator::default()).unwrap().ino;
        fs.write(file, 0, b"sealed").unwrap();
        advise(&fs, file, Advise::VERITY);
        assert_eq!(fs.write(file, 0, b"x").unwrap_err().errno(), Errno::PERM);
        let cut = SetAttr { size: Some(1), ..SetAttr::default() };
        assert_eq!(fs.setattr(file, &cut).unwrap_err().errno(), Errno::PERM);
        let mut bytes = [0; 6];
        fs.read(file, 0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"sealed");
        fs.unlink(fs.root(), b"sealed").unwrap();
    }
}
