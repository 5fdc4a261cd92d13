//! Trees that the kernel makes on ext4 volumes of mke2fs: we read in them what it reads, and what
//! ext4-view reads where it knows the features.

use std::ops::Range;
use std::path::Path;

use ::ext4::Format;
use linux::{Guest, Manifest, Output};
use vfs::kind::{Format as _, Volume};
use vfs::ops::{Generator, Mix, Op, print};
use vfs::{FallocateMode, FileKind, path};

use crate::AGENT;
use crate::recorded::runs;
use crate::verdict::read_manifest;
use crate::volumes::{MIB, copy_slot, open, sparse, wrong_with};

const TREES: u64 = 50;
const SIZE_MIB: u64 = 192;
/// ext4-view reads a file into memory whole, its holes as well.
const VIEWED: u64 = 64 * MIB;
const BLOCK_SIZES: [u32; 3] = [4096, 1024, 2048];
/// Options of mke2fs, and whether ext4-view reads such a volume.
const SETS: [(&str, bool); 10] = [
    ("-t ext4", true),
    ("-t ext4 -O metadata_csum_seed,orphan_file,large_dir", false),
    ("-t ext4 -O ^64bit,^metadata_csum,uninit_bg", true),
    ("-t ext4 -O inline_data -I 512", false),
    ("-t ext4 -O fast_commit,project,quota", true),
    ("-t ext4 -O bigalloc -C 65536", true),
    ("-t ext4 -O meta_bg,^resize_inode,^flex_bg", false),
    ("-t ext4 -O ea_inode -I 256", false),
    ("-t ext3", false),
    ("-t ext2", false),
];

fn set(n: u64) -> (&'static str, bool) {
    SETS[n as usize % SETS.len()]
}

/// Each set meets each size.
fn block_size(n: u64) -> u32 {
    BLOCK_SIZES[(n as usize / SETS.len() + n as usize) % BLOCK_SIZES.len()]
}

/// What the tree `n` has besides what comes by chance.
fn operations(n: u64) -> Vec<Op> {
    let mix = Mix { file_bytes: MIB / 2, reads: 0, syncs: 1, ..Mix::default() };
    let (_, in_view) = set(n);
    let suits = |op: &Op| !in_view || !(preallocates(op) || names_the_unnameable(op));
    let mut ops: Vec<Op> = Generator::with_mix(n, mix).filter(suits).take(1200).collect();
    for (number, letter) in ["n", "\u{fc}", "\\"].into_iter().enumerate() {
        let path = letter.repeat(255 / letter.len());
        ops.push(Op::Create { path: path.clone(), perm: 0o640 });
        ops.push(Op::Link { from: path, path: format!("link-{number}") });
    }
    for path in ["sparse", "extents"] {
        ops.push(Op::Create { path: path.to_owned(), perm: 0o600 });
    }
    ops.extend([0, 12 * 1024, MIB, 40 * MIB].map(|at| write("sparse", at, 5000)));
    let names = if has_many_names(n) { 100_000 } else { 2000 };
    ops.push(Op::Mkdir { path: "many".to_owned(), perm: 0o1777 });
    ops.extend((0..names).map(|n| Op::Create { path: format!("many/name-{n}"), perm: 0o600 }));
    // In blocks of 1 KiB, with 84 extents each, a tree of this many is three levels deep.
    let extents = if n % 12 == 1 { 30_000 } else { 400 };
    ops.extend((0..extents).map(|n| write("extents", n * 2048, 700)));
    ops
}

/// ext4-view 0.9 shows what happens to lie in unwritten extents.
fn preallocates(op: &Op) -> bool {
    use FallocateMode as M;
    let moves = M::PUNCH_HOLE | M::COLLAPSE_RANGE | M::INSERT_RANGE;
    matches!(op, Op::Fallocate { mode, .. } if !mode.intersects(moves))
}

/// ext4-view refuses to read a symbolic link to a name of more than 255 bytes.
fn names_the_unnameable(op: &Op) -> bool {
    matches!(op, Op::Symlink { target, .. } if target.split('/').any(|name| name.len() > 255))
}

fn has_many_names(n: u64) -> bool {
    n % 20 == 7
}

fn write(path: &str, offset: u64, len: u64) -> Op {
    Op::Write { path: path.to_owned(), offset, len, seed: offset as u32 }
}

/// The guest's shell has an applet `mke2fs` of its own.
fn script(trees: Range<u64>) -> String {
    let sectors = SIZE_MIB * 2048;
    let make = |n: u64| {
        let ((set, _), block) = (set(n), block_size(n));
        let inodes = if has_many_names(n) { "-N 110000" } else { "" };
        format!(
            "dmsetup create tree --table \"0 {sectors} linear /dev/vda {}\"
            /bin/mke2fs -q -F {set} -b {block} {inodes} /dev/mapper/tree
            mount -t ext4 /dev/mapper/tree /mnt
            strandline-agent apply /mnt /host/ops-{n}
            umount /mnt
            mount -t ext4 -o noatime /dev/mapper/tree /mnt
            strandline-agent manifest /mnt >/host/tree-{n}
            umount /mnt
            dmsetup remove tree\n",
            n * sectors
        )
    };
    let head = "set -e\nexport DM_DISABLE_UDEV=1\nmodprobe dm-mod\n";
    head.to_owned() + &trees.map(make).collect::<String>()
}

/// Whether the volume on `image` holds what the kernel saw in it; all that it does not.
fn wrong_in(image: &Path, kernels: &Manifest, in_view: bool) -> Vec<String> {
    let mut wrong: Vec<String> = wrong_with(&Format, image).into_iter().collect();
    let fs = Format.mount(open(image), "ro").expect("a mount");
    wrong.extend(kernels.diff(&Manifest::of_volume(&*fs).expect("a tree")));
    match viewed(image, &*fs) {
        Ok(differ) => wrong.extend(differ),
        Err(error) if in_view => wrong.push(format!("ext4-view: {error}")),
        Err(_) => {}
    }
    wrong
}

/// The files of which ext4-view reads something else than we do.
fn viewed(image: &Path, ours: &dyn Volume) -> Result<Vec<String>, ext4_view::Ext4Error> {
    let theirs = ext4_view::Ext4::load_from_path(image)?;
    let mut wrong = Vec::new();
    let mut ahead = vec![ext4_view::PathBuf::new("/")];
    while let Some(dir) = ahead.pop() {
        for entry in theirs.read_dir(&dir)? {
            let entry = entry?;
            if matches!(entry.file_name().as_ref(), b"." | b"..") {
                continue;
            }
            let (at, meta) = (entry.path(), entry.metadata()?);
            let Ok(attr) = path::resolve(ours, &at.as_ref()[1..], false) else {
                wrong.push(format!("{at:?} is not there, ext4-view says it is"));
                continue;
            };
            let same = match attr.kind {
                FileKind::Directory => meta.is_dir(),
                FileKind::Regular if attr.size > VIEWED => meta.len() == attr.size,
                FileKind::Regular => {
                    let theirs = theirs.read(&at)?;
                    path::read_to_vec(ours, attr.ino).is_ok_and(|mine| mine == theirs)
                }
                FileKind::Symlink => {
                    let target = theirs.read_link(&at)?;
                    ours.readlink(attr.ino).is_ok_and(|mine| mine == target.as_ref())
                }
                _ => true,
            };
            if !same {
                wrong.push(format!("{at:?} is something else to ext4-view"));
            }
            if meta.is_dir() {
                ahead.push(at);
            }
        }
    }
    Ok(wrong)
}

fn has_been_made(disk: &Path, trees: Range<u64>) -> Output {
    let mut guest = Guest::new().memory(1536).timeout(1800).drive(disk).program(Path::new(AGENT));
    for n in trees.clone() {
        guest = guest.file(&format!("ops-{n}"), print(&operations(n)));
    }
    let out = guest.run(&script(trees));
    out.success();
    out
}

#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn we_read_what_the_kernel_made() {
    let trees = runs(TREES);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let disk = sparse(dir.path().join("disk"), trees.end * SIZE_MIB * MIB);
    let out = has_been_made(&disk, trees.clone());
    let (mut wrong, mut names) = (Vec::new(), 0);
    for n in trees.clone() {
        let image = sparse(dir.path().join("tree"), SIZE_MIB * MIB);
        copy_slot(&disk, n * SIZE_MIB * MIB, &image, SIZE_MIB * MIB);
        let kernels = read_manifest(&out.file(&format!("tree-{n}")));
        names += kernels.0.len();
        let (set, in_view) = set(n);
        let found = wrong_in(&image, &kernels, in_view);
        wrong.extend(found.iter().take(10).map(|word| format!("tree {n}, {set}: {word}")));
    }
    println!("trees {trees:?}, {names} names");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
