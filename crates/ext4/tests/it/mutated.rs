//! Images with wrong bytes: an error or the right answer, no panic, and an end.
//!
//! With checksums, whatever is read of a broken image must be what was there before. Without them,
//! anything may be read, but everything must end.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use drive::{BLOCK_SIZE, Block, Blocks, Drive, Memory};
use ext4::ondisk::features::RoCompat;
use queue::BlockQueue;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use vfs::kind::{Format as _, Volume};
use vfs::{Attr, DirEntry, FileKind};

use crate::judge::{self, Scratch, e2fsck};

/// What is read of an entry: attributes, names of attributes, the start of the contents.
type Entry = (Attr, Vec<Vec<u8>>, Vec<u8>);

/// Entries that a walk sees at most; a broken directory may name itself.
const ENTRIES_MAX: usize = 400;

/// An image in memory.
struct Image {
    drive: Arc<Memory>,
    queue: BlockQueue,
    sound: Vec<Block>,
    /// Blocks of the file system with metadata, and their size.
    metadata: Vec<usize>,
    block_size: usize,
    tree: BTreeMap<Vec<u8>, Entry>,
}

fn image(scratch: &Scratch, tree: &Path, options: &[&str]) -> Image {
    let path = scratch.made("image", 8, options, Some(tree));
    judge::debugfs(&path, "ea_set one user.colour blue\nmknod null c 1 3\n");
    assert!(e2fsck(&path, "-yD").0 <= 1);
    let bytes = fs::read(&path).expect("an image");
    let sound: Vec<Block> = bytes.chunks(BLOCK_SIZE).map(Block::from_prefix).collect();
    let drive = Memory::ramdisk_mq(sound.len() as u64, 1, 32);
    let queue = BlockQueue::new(drive.clone());
    queue.write_blocks(0, sound.iter().cloned().collect::<Blocks>(), false).expect("memory");
    let size = if options.contains(&"1024") { 1024 } else { 4096 };
    let metadata = metadata(&path, size);
    let mut image =
        Image { queue, metadata, block_size: size, tree: BTreeMap::new(), drive, sound };
    image.tree = image.walk().expect("a sound volume");
    assert!(image.tree.len() > 200 && image.tree.values().all(|entry| entry.0.nlink > 0));
    image
}

/// Blocks of the file system that have none of a file's contents, by what e2fsprogs say.
fn metadata(path: &Path, block_size: usize) -> Vec<usize> {
    let out = judge::tool("dumpe2fs", &[path.to_str().expect("a plain path")], "");
    // The superblock, more often than its share.
    let mut blocks = vec![1024 / block_size; 8];
    for line in judge::said(&out).lines().map(str::trim) {
        let known = ["Primary", "Block bitmap", "Inode bitmap", "Inode table"];
        if known.iter().any(|word| line.starts_with(word)) {
            for (first, last) in line.split([' ', ',']).filter_map(numbers) {
                blocks.extend((first..=last).take(70));
            }
        }
    }
    let stat = |name: &str| judge::debugfs(path, &format!("stat {name}\n"));
    for line in ["/", "many", "dir"].map(stat).iter().flat_map(|said| said.lines()) {
        if line.starts_with('(') {
            let parts = line.split(", ").filter_map(|part| numbers(part.split_once(':')?.1));
            blocks.extend(parts.flat_map(|(first, last)| first..=last));
        }
    }
    // Of a file, only the blocks of its map.
    for line in stat("pieces").lines().filter(|line| line.starts_with('(')) {
        let map = line.split(", ").filter(|part| part.contains("ETB") || part.contains("IND"));
        blocks.extend(map.filter_map(|part| Some(numbers(part.split_once(':')?.1)?.0)));
    }
    blocks
}

/// `FIRST-LAST`, or one number, perhaps in brackets.
fn numbers(word: &str) -> Option<(usize, usize)> {
    let mut ends = word.trim_matches(['(', ')']).split('-').map(str::parse::<usize>);
    let first = ends.next()?.ok()?;
    Some((first, ends.next().and_then(Result::ok).unwrap_or(first)))
}

impl Image {
    fn drive(&self) -> Arc<dyn Drive> {
        self.drive.clone()
    }

    /// Mounts and reads everything. Entries that cannot be read are left out; an error is that of
    /// the mount.
    fn walk(&self) -> Result<BTreeMap<Vec<u8>, Entry>, vfs::kind::Error> {
        let fs = ext4::Format.mount(self.drive(), "ro")?;
        let (mut all, mut ahead) = (BTreeMap::new(), vec![(Vec::new(), fs.root())]);
        while let Some((path, dir)) = ahead.pop() {
            let mut entries: Vec<DirEntry> = Vec::new();
            let _ = fs.readdir(dir, 0, &mut |entry| {
                entries.push(entry);
                entries.len() < ENTRIES_MAX
            });
            for entry in entries {
                if matches!(entry.name.as_slice(), b"." | b"..") || all.len() > ENTRIES_MAX {
                    continue;
                }
                let name = [&path[..], b"/", &entry.name].concat();
                let _ = fs.lookup(dir, &entry.name);
                if let Ok(found) = read(&*fs, entry.ino) {
                    if found.0.kind == FileKind::Directory {
                        ahead.push((name.clone(), entry.ino));
                    }
                    all.insert(name, found);
                }
            }
        }
        Ok(all)
    }

    /// Breaks some bytes, reads everything, checks, and mends them.
    fn case(&self, seed: u64) {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut broken = Vec::new();
        for _ in 0..random.random_range(1..=3) {
            let start =
                self.metadata[random.random_range(0..self.metadata.len())] * self.block_size;
            let lba = start / BLOCK_SIZE;
            let mut block = self.queue.read_block(lba as u64).expect("memory");
            let bytes = &mut block.make_mut()[start % BLOCK_SIZE..][..self.block_size];
            for _ in 0..random.random_range(1..=6) {
                let at = match lba {
                    // The superblock is a small part of its block.
                    0 if self.block_size > 1024 => random.random_range(1024..1424),
                    _ => random.random_range(0..bytes.len()),
                };
                bytes[at] = match random.random_range(0..4) {
                    0 => 0,
                    1 => 0xff,
                    2 => bytes[at] ^ 1 << random.random_range(0..8),
                    _ => random.random(),
                };
            }
            self.put(lba, block);
            broken.push(lba);
        }
        if let Ok(found) = self.walk()
            && self.has_checksums()
        {
            for (name, entry) in &found {
                let before = self.tree.get(name);
                let name = String::from_utf8_lossy(name);
                assert!(before == Some(entry), "seed {seed}: {name} is read as {:?}", entry.0);
            }
        }
        let _ = ext4::Format.check(&self.drive());
        broken.into_iter().for_each(|lba| self.put(lba, self.sound[lba].clone()));
    }

    /// Whether the superblock, which may be broken itself, asks for checksums: without its bit
    /// nobody verifies any, its own included.
    fn has_checksums(&self) -> bool {
        let block = self.queue.read_block(0).expect("memory");
        let ro_compat = u32::from_le_bytes(block[1024 + 0x64..][..4].try_into().expect("4 bytes"));
        RoCompat::from_bits_retain(ro_compat).contains(RoCompat::METADATA_CSUM)
    }

    fn put(&self, lba: usize, block: Block) {
        self.queue.write_blocks(lba as u64, Blocks::from_iter([block]), false).expect("memory");
    }
}

fn read(fs: &dyn Volume, ino: u64) -> vfs::Result<Entry> {
    let attr = fs.getattr(ino)?;
    let contents = match attr.kind {
        FileKind::Symlink => fs.readlink(ino)?,
        FileKind::Regular => {
            let mut buf = vec![0; 10_000];
            let len = fs.read(ino, 0, &mut buf)?;
            buf.truncate(len);
            let mut last = [0; 100];
            fs.read(ino, attr.size.saturating_sub(100), &mut last)?;
            buf.extend(last);
            buf
        }
        _ => Vec::new(),
    };
    let mut names = fs.listxattr(ino)?;
    for name in &mut names {
        name.extend(fs.getxattr(ino, name)?);
    }
    Ok((attr, names, contents))
}

fn images() -> Vec<Image> {
    use std::os::unix::fs::FileExt;
    let scratch = Scratch::new();
    let tree = scratch.path("tree");
    fs::create_dir_all(tree.join("dir/below")).expect("directories");
    fs::create_dir(tree.join("many")).expect("a directory");
    fs::write(tree.join("one"), "1").expect("a file");
    fs::write(tree.join("dir/long"), vec![b'x'; 30_000]).expect("a file");
    std::os::unix::fs::symlink("one", tree.join("link")).expect("a link");
    std::os::unix::fs::symlink("l".repeat(100), tree.join("dir/link")).expect("a link");
    let pieces = fs::File::create(tree.join("pieces")).expect("a file");
    for piece in 0..200_u64 {
        pieces.write_all_at(&[1], piece * 8192).expect("bytes");
    }
    for n in 0..200 {
        fs::write(tree.join(format!("many/{n}{}", "n".repeat(n % 60))), []).expect("a file");
    }
    let sets: [&[&str]; 4] = [
        &["-t", "ext4", "-b", "4096", "-N", "512"],
        &["-t", "ext4", "-b", "1024", "-N", "512"],
        &["-t", "ext4", "-b", "1024", "-N", "512", "-O", "^metadata_csum,^64bit,inline_data"],
        &["-t", "ext2", "-b", "1024", "-N", "512"],
    ];
    sets.map(|options| image(&scratch, &tree, options)).into()
}

fn cases(range: std::ops::Range<u64>) {
    let images = images();
    for seed in range {
        images[seed as usize % images.len()].case(seed);
    }
}

#[test]
fn a_few_hundred_broken_images() {
    cases(0..400);
}

#[test]
#[ignore = "300,000 cases take half an hour"]
fn many_broken_images() {
    cases(1000..301_000);
}
