//! What each core does, compared with FxMark's source: the header of each function names its file.
//!
//! Two differences, so that a run is bounded by operations and the same every time: FxMark makes
//! files for as long as it will measure, or until the volume is full, where we make as many as are
//! needed; and of the regions of 8 MiB that its cores have in a shared file it touches the first
//! block only, so only that is written beforehand.

use std::sync::Arc;

use super::files::Files;
use super::load::Load;
use super::{BLOCK, ENTRIES};
use crate::Result;
use crate::workload::Rng;

/// What a core has of a shared file: FxMark's `PRIVATE_REGION_SIZE`.
const REGION: u64 = 8 << 20;

/// The file that cores share.
const SHARED: &str = "shared.dat";

/// Directories and files in each directory of the tree of MRPM and MRPH, and its depth.
const BRANCHES: u64 = 8;
const DEPTH: u32 = 5;

/// One operation, by its number.
pub(super) type Op = Box<dyn FnMut(u64) -> Result<()> + Send>;

/// A core's own region or directory, or that of all.
#[derive(Clone, Copy)]
enum Whose {
    Own,
    All,
}

/// One core's share of a load.
pub(super) struct Share<F> {
    pub(super) files: Arc<F>,
    pub(super) core: u64,
    pub(super) ops: u64,
    pub(super) seed: u64,
}

/// What the cores share, made before any of them starts.
pub(super) fn make_shared<F: Files>(load: Load, files: &F, cores: u64) -> Result<()> {
    let blocks = match load {
        Load::Dwom | Load::Drbm => cores,
        Load::Drbh => 1,
        Load::Mrpm | Load::Mrph => return tree(files, &files.root(), DEPTH),
        _ => return Ok(()),
    };
    let file = files.create(&files.root(), SHARED)?;
    for core in 0..blocks {
        files.write(&file, core * REGION, &[0; BLOCK as usize])?;
    }
    files.fsync(&file)
}

/// Directories `0` to `7` in each other, and files of these names at the bottom.
fn tree<F: Files>(files: &F, dir: &F::Dir, depth: u32) -> Result<()> {
    for branch in 0..BRANCHES {
        let name = branch.to_string();
        match depth {
            1 => drop(files.create(dir, &name)?),
            _ => tree(files, &files.mkdir(dir, &name)?, depth - 1)?,
        }
    }
    Ok(())
}

impl<F: Files> Share<F> {
    /// Makes what only this core uses, and returns its operation.
    pub(super) fn prepare(self, load: Load) -> Result<Op> {
        match load {
            Load::Dwal => self.append(),
            Load::Dwol => self.overwrite_own(),
            Load::Dwom => self.overwrite_part(),
            Load::Dwsl => self.overwrite_and_sync(),
            Load::Dwtl => self.cut(),
            Load::Drbl => self.read_own(),
            Load::Drbm => self.read_shared(Whose::Own),
            Load::Drbh => self.read_shared(Whose::All),
            Load::Mwcl => self.create_own(),
            Load::Mwcm => self.create_shared(),
            Load::Mwrl => self.rename_own(),
            Load::Mwrm => self.rename_shared(),
            Load::Mwul => self.unlink(Whose::Own),
            Load::Mwum => self.unlink(Whose::All),
            Load::Mrdl => self.list(Whose::Own),
            Load::Mrdm => self.list(Whose::All),
            Load::Mrpl => self.stat_own(),
            Load::Mrpm => self.stat_any(),
            Load::Mrph => self.stat("0/0/0/0/0".to_owned()),
        }
    }

    /// The directory that only this core uses.
    fn own_dir(&self) -> Result<F::Dir> {
        self.files.mkdir(&self.files.root(), &self.core.to_string())
    }

    fn dir(&self, whose: Whose) -> Result<F::Dir> {
        match whose {
            Whose::Own => self.own_dir(),
            Whose::All => Ok(self.files.root()),
        }
    }

    /// A file of so many blocks in it, open.
    fn own_file(&self, blocks: u64) -> Result<F::File> {
        let file = self.files.create(&self.own_dir()?, "private.dat")?;
        for block in 0..blocks {
            self.files.write(&file, block * BLOCK, &self.block())?;
        }
        Ok(file)
    }

    /// What is written: all cores write different bytes.
    fn block(&self) -> Vec<u8> {
        Rng::new(self.seed, self.core).bytes(BLOCK as usize)
    }

    /// The name of this core's file `number`.
    fn name(&self, number: u64) -> String {
        format!("file-{}-{number}.dat", self.core)
    }

    /// `DWAL.c`: appends to a private file.
    fn append(self) -> Result<Op> {
        let (file, block) = (self.own_file(0)?, self.block());
        Ok(Box::new(move |i| self.files.write(&file, i * BLOCK, &block)))
    }

    /// `DWOL.c`: overwrites the first block of a private file.
    fn overwrite_own(self) -> Result<Op> {
        let (file, block) = (self.own_file(1)?, self.block());
        Ok(Box::new(move |_| self.files.write(&file, 0, &block)))
    }

    /// `DWOM.c`: overwrites the first block of a region of the shared file.
    fn overwrite_part(self) -> Result<Op> {
        let (file, block) = (self.files.open(&self.files.root(), SHARED)?, self.block());
        Ok(Box::new(move |_| self.files.write(&file, self.core * REGION, &block)))
    }

    /// `DWSL.c`: overwrites the first block of a private file and syncs it.
    fn overwrite_and_sync(self) -> Result<Op> {
        let (file, block) = (self.own_file(1)?, self.block());
        Ok(Box::new(move |_| {
            self.files.write(&file, 0, &block)?;
            self.files.fsync(&file)
        }))
    }

    /// `DWTL.c`: makes a private file one block shorter.
    fn cut(self) -> Result<Op> {
        let file = self.own_file(self.ops)?;
        Ok(Box::new(move |i| self.files.truncate(&file, (self.ops - 1 - i) * BLOCK)))
    }

    /// `DRBL.c`: reads the first block of a private file.
    fn read_own(self) -> Result<Op> {
        let (file, mut block) = (self.own_file(1)?, self.block());
        Ok(Box::new(move |_| self.files.read(&file, 0, &mut block)))
    }

    /// `DRBM.c`, `DRBH.c`: reads the first block of a region of the shared file, and the same block
    /// as all others.
    fn read_shared(self, whose: Whose) -> Result<Op> {
        let (file, mut block) = (self.files.open(&self.files.root(), SHARED)?, self.block());
        let at = match whose {
            Whose::Own => self.core * REGION,
            Whose::All => 0,
        };
        Ok(Box::new(move |_| self.files.read(&file, at, &mut block)))
    }

    /// `MWCL.c`: creates empty files in a private directory.
    fn create_own(self) -> Result<Op> {
        let dir = self.own_dir()?;
        Ok(Box::new(move |i| self.files.create(&dir, &self.name(i)).map(drop)))
    }

    /// `MWCM.c`: creates files in the shared directory and writes a block to each. (The paper says
    /// that they are empty.)
    fn create_shared(self) -> Result<Op> {
        let (root, block) = (self.files.root(), self.block());
        Ok(Box::new(move |i| {
            let file = self.files.create(&root, &self.name(i))?;
            self.files.write(&file, 0, &block)
        }))
    }

    /// `MWRL.c`: gives the file of a private directory its next name.
    fn rename_own(self) -> Result<Op> {
        let dir = self.own_dir()?;
        self.files.fsync(&self.files.create(&dir, &self.name(0))?)?;
        Ok(Box::new(move |i| self.files.rename(&dir, &self.name(i), &dir, &self.name(i + 1))))
    }

    /// `MWRM.c`: moves files from a private directory to the shared one.
    fn rename_shared(self) -> Result<Op> {
        let (dir, root) = (self.own_dir()?, self.files.root());
        self.fill(&dir, self.ops)?;
        Ok(Box::new(move |i| self.files.rename(&dir, &self.name(i), &root, &self.name(i))))
    }

    /// `MWUL.c`, `MWUM.c`: removes files of a private directory, and of the shared one.
    fn unlink(self, whose: Whose) -> Result<Op> {
        let dir = self.dir(whose)?;
        self.fill(&dir, self.ops)?;
        Ok(Box::new(move |i| self.files.unlink(&dir, &self.name(i))))
    }

    /// `MRDL.c`, `MRDM.c`: reads entries of a private directory, and of the shared one.
    fn list(self, whose: Whose) -> Result<Op> {
        let dir = self.dir(whose)?;
        self.fill(&dir, ENTRIES)?;
        let mut entries = self.files.entries(&dir)?;
        Ok(Box::new(move |_| {
            while !self.files.next(&mut entries)? {
                entries = self.files.entries(&dir)?;
            }
            Ok(())
        }))
    }

    /// Makes so many empty files.
    fn fill(&self, dir: &F::Dir, count: u64) -> Result<()> {
        (0..count).try_for_each(|i| self.files.create(dir, &self.name(i)).map(drop))
    }

    /// `MRPL.c`: stats a private file in private directories.
    fn stat_own(self) -> Result<Op> {
        let mut dir = self.own_dir()?;
        for _ in 0..3 {
            dir = self.files.mkdir(&dir, "0")?;
        }
        drop(self.files.create(&dir, "0")?);
        let path = format!("{}/0/0/0/0", self.core);
        self.stat(path)
    }

    /// `MRPM.c`: stats files of the shared tree at random.
    fn stat_any(self) -> Result<Op> {
        let mut rng = Rng::new(self.seed, self.core);
        Ok(Box::new(move |_| {
            let digits: [u64; DEPTH as usize] = std::array::from_fn(|_| rng.below(BRANCHES));
            self.files.stat(&digits.map(|digit| digit.to_string()).join("/"))
        }))
    }

    /// `MRPH.c`: stats the same file of the shared tree.
    fn stat(self, path: String) -> Result<Op> {
        Ok(Box::new(move |_| self.files.stat(&path)))
    }
}
