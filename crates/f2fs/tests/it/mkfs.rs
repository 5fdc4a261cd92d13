//! Volumes made here, judged by Debian's `fsck.f2fs`.

use drive::Drive;
use f2fs::mkfs::{Formula, MkfsOptions, format};
use f2fs::ondisk::checkpoint::Checkpoint;
use f2fs::ondisk::superblock::{Features, Superblock};
use f2fs::{Error, F2fs};
use queue::BlockQueue;
use rustix::fs::{SeekFrom, seek};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use crate::judge::{
    self, Scratch, assert_fsck_clean, assert_stock_mkfs, create_zoned_image, open_image, tool,
};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

#[test]
fn fresh_conventional_volumes_are_clean_at_all_sizes() {
    let scratch = Scratch::new();
    for bytes in [64 * MIB, 512 * MIB, 4 * GIB, 64 * GIB] {
        let image = scratch.image("volume", bytes);
        let report = format(&open_image(&image), &MkfsOptions::default()).unwrap();
        assert!(report.trimmed);
        assert_fsck_clean(&image);
    }
}

#[test]
fn fresh_zoned_volumes_are_clean_at_all_sizes() {
    let scratch = Scratch::new();
    for (bytes, zone) in
        [(64 * MIB, 2 * MIB), (512 * MIB, 16 * MIB), (4 * GIB, 64 * MIB), (64 * GIB, 256 * MIB)]
    {
        let image = scratch.dir().join(format!("zoned-{bytes}"));
        let zones = (bytes / zone) as u32;
        create_zoned_image(&image, (zone / 4096, zone / 4096), (zones, zones / 4));
        let report = format(&open_image(&image), &MkfsOptions::default()).unwrap();
        assert!(report.superblock.features.contains(Features::BLKZONED));
        assert_eq!(u64::from(report.superblock.segs_per_sec), zone / (2 * MIB));
        assert_fsck_clean(&image);
    }
}

#[test]
fn a_plain_image_is_not_laid_out_for_zones() {
    let scratch = Scratch::new();
    let image = scratch.image("m", 64 * MIB);
    let drive = open_image(&image);
    format(&drive, &MkfsOptions::default()).unwrap();
    let before = std::fs::read(&image).unwrap();
    // Linux does not mount such a volume, and `mkfs.f2fs -m` does not make it.
    let options =
        MkfsOptions { zoned: true, segs_per_sec: 8, force: true, ..MkfsOptions::default() };
    let refused = format(&drive, &options).unwrap_err().to_string();
    assert!(refused.contains("no zones"), "{refused}");
    assert!(std::fs::read(&image).unwrap() == before, "refused before anything is written");
    let judged = tool("mkfs.f2fs", &["-f", "-m", "-s", "8", image.to_str().unwrap()]);
    assert!(!judged.status.success(), "{judged:?}");
}

#[test]
fn every_feature_and_option_makes_a_clean_volume() {
    let scratch = Scratch::new();
    let variants: [(&str, Change); 9] = [
        ("", |o| o.large_nat_bitmap = true),
        ("extra_attr", |o| o.label = "strand line".into()),
        ("extra_attr,inode_checksum", |o| o.overprovision = Some(12.5)),
        ("extra_attr,inode_crtime,flexible_inline_xattr", |o| o.root_owner = (1000, 100)),
        ("extra_attr,inode_checksum,inode_crtime,lost_found,sb_checksum", |o| o.seed = 99),
        ("lost_found", |o| o.segs_per_sec = 4),
        // Alone, `mkfs.f2fs` 1.15 gives its inode a successor no node will have.
        ("extra_attr,project_quota", |_| ()),
        ("sb_checksum", |o| o.sector_size = 4096),
        ("", |o| {
            o.sectors = Some(300 * 2048);
            o.discard = false;
        }),
    ];
    for (features, change) in variants {
        let image = scratch.image("v", 512 * MIB);
        let mut options = MkfsOptions { time: 1_700_000_000, ..MkfsOptions::default() };
        options.add_features(features).unwrap();
        change(&mut options);
        let report = format(&open_image(&image), &options).unwrap();
        assert_eq!(report.superblock.label, options.label);
        assert_fsck_clean(&image);
    }
}

type Change = fn(&mut MkfsOptions);

/// Options of `mkfs.f2fs`, features, and what else those options are here.
const STOCK: [(&str, &str, Change); 13] = [
    ("", "", |_| ()),
    ("-s 4 -z 2", "", |o| (o.segs_per_sec, o.secs_per_zone) = (4, 2)),
    ("-i -l volume-\u{e9}\u{1f600}", "", |o| {
        o.large_nat_bitmap = true;
        o.label = "volume-\u{e9}\u{1f600}".into();
    }),
    ("-o 7.5 -t 0", "", |o| (o.overprovision, o.discard) = (Some(7.5), false)),
    ("-e raw,dng -E wal", "", |o| {
        o.cold_extensions = vec!["raw".into(), "dng".into()];
        o.hot_extensions = vec!["wal".into()];
    }),
    ("-R 1000:100", "lost_found", |o| o.root_owner = (1000, 100)),
    ("", "extra_attr,inode_checksum,inode_crtime,sb_checksum", |_| ()),
    ("", "extra_attr,flexible_inline_xattr,compression", |_| ()),
    ("", "encrypt,verity,lost_found,quota", |_| ()),
    ("", "extra_attr,project_quota,quota,lost_found", |_| ()),
    ("-C utf8", "casefold", |_| ()),
    ("-C utf8:strict", "casefold", |o| o.encoding.strict = true),
    ("-g android", "", |o| {
        o.set_android();
        // For a file, `mkfs.f2fs` 1.15 stays with sectors of 512 bytes.
        o.sector_size = 512;
    }),
];

/// The release of the `mkfs.f2fs` that is installed.
fn installed() -> Formula {
    let out = judge::tool("mkfs.f2fs", &["-V"]);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let version = text.split(' ').nth(1).unwrap_or_else(|| panic!("mkfs.f2fs -V: {text}"));
    if version < "1.16" { Formula::V1_15 } else { Formula::V1_16 }
}

/// Everything but the two version strings, and the checksum over them.
#[test]
fn volumes_are_those_of_mkfs_f2fs_byte_for_byte() {
    const UUID: &str = "6ba7b810-9dad-41d1-80b4-00c04fd430c8";
    let scratch = Scratch::new();
    let formula = installed();
    for (arguments, features, change) in STOCK {
        let stock = scratch.image("stock", 512 * MIB);
        let mut all = vec!["-r", "-T", "1700000000", "-U", UUID];
        all.extend(arguments.split_whitespace());
        if !features.is_empty() {
            all.extend(["-O", features]);
        }
        assert_stock_mkfs(&stock, &all);
        let ours = scratch.image("ours", 512 * MIB);
        let uuid = uuid::Uuid::parse_str(UUID).unwrap().into_bytes();
        let time = 1_700_000_000;
        let mut options = MkfsOptions { time, formula, uuid: Some(uuid), ..MkfsOptions::default() };
        options.add_features(features).unwrap();
        change(&mut options);
        if cfg!(not(feature = "foreign")) && options.features.contains(Features::ENCRYPT) {
            let made = format(&open_image(&ours), &options).unwrap_err().to_string();
            let mounted = F2fs::mount(open_image(&stock), &"ro".parse().unwrap());
            let mounted = mounted.map(drop).unwrap_err().to_string();
            assert!(
                made.contains("'foreign'") && mounted.contains("'foreign'"),
                "{made}, {mounted}"
            );
            continue;
        }
        format(&open_image(&ours), &options).unwrap();
        assert_fsck_clean(&ours);
        let different = different_blocks(&ours, &stock);
        assert!(different.is_empty(), "{arguments} -O {features}: {different:x?}");
    }
}

/// The blocks of a sparse file that are not all zeroes, by address.
fn blocks(path: &Path) -> BTreeMap<u64, Vec<u8>> {
    let file = File::open(path).unwrap();
    let mut found = BTreeMap::new();
    let mut end = 0;
    while let Ok(data) = seek(&file, SeekFrom::Data(end)) {
        end = seek(&file, SeekFrom::Hole(data)).unwrap();
        for at in data / 4096..end.div_ceil(4096) {
            let mut block = vec![0; 4096];
            file.read_exact_at(&mut block, at * 4096).unwrap();
            if block.iter().any(|&byte| byte != 0) {
                found.insert(at, block);
            }
        }
    }
    assert!(found.contains_key(&0), "a volume has a superblock");
    found
}

/// Addresses of blocks that differ where they should not.
fn different_blocks(ours: &Path, stock: &Path) -> Vec<u64> {
    let [long, as_long] = [ours, stock].map(|path| path.metadata().unwrap().len());
    assert_eq!(long, as_long);
    let (ours, stock, zeroes) = (blocks(ours), blocks(stock), vec![0; 4096]);
    let same_superblock = |ours: &[u8], stock: &[u8]| {
        [0..1024 + 0x684, 1024 + 0x884..1024 + 0xbfc]
            .into_iter()
            .all(|r| ours[r.clone()] == stock[r])
    };
    let differ = |at: &u64| {
        let [ours, stock] = [&ours, &stock].map(|all| all.get(at).unwrap_or(&zeroes));
        if *at < 2 { !same_superblock(ours, stock) } else { ours != stock }
    };
    let all: BTreeSet<u64> = ours.keys().chain(stock.keys()).copied().collect();
    all.into_iter().filter(differ).collect()
}

#[test]
fn quota_files_name_the_owner_of_the_root() {
    let scratch = Scratch::new();
    let image = scratch.image("quota", 64 * MIB);
    let mut options = MkfsOptions { root_owner: (1000, 70_000), ..MkfsOptions::default() };
    options.add_features("quota,lost_found,extra_attr,project_quota").unwrap();
    let drive = open_image(&image);
    format(&drive, &options).unwrap();
    assert_fsck_clean(&image);
    let fs = f2fs::F2fs::mount(drive, &"".parse().unwrap()).unwrap();
    let quota = fs.status().quota_limits;
    assert_eq!(
        (&quota["user"]["1000"]["inodes"], &quota["group"]["70000"]["kib"]),
        (&2.into(), &8.into())
    );
}

#[test]
fn the_same_options_make_the_same_bytes() {
    let scratch = Scratch::new();
    let make = |name| {
        let image = scratch.image(name, 64 * MIB);
        format(&open_image(&image), &MkfsOptions::default()).unwrap();
        std::fs::read(image).unwrap()
    };
    assert!(make("a") == make("b"));
}

#[test]
fn nothing_is_overwritten_without_force() {
    let scratch = Scratch::new();
    let image = scratch.image("x", 64 * MIB);
    assert_stock_mkfs(&image, &[]);
    let drive = open_image(&image);
    let refused = format(&drive, &MkfsOptions::default());
    assert!(matches!(refused, Err(Error::Usage(_))), "{refused:?}");
    assert_fsck_clean(&image);
    let options = MkfsOptions { force: true, label: "new".into(), ..MkfsOptions::default() };
    format(&drive, &options).unwrap();
    assert_eq!(superblock(&drive).label, "new");
    assert_fsck_clean(&image);
}

#[test]
fn what_cannot_be_made_is_refused_with_the_reason() {
    let scratch = Scratch::new();
    let small = scratch.image("small", 16 * MIB);
    let drive = open_image(&small);
    let message = |options: &MkfsOptions| format(&drive, options).unwrap_err().to_string();
    assert!(message(&MkfsOptions::default()).contains("too small"));
    let read_only = MkfsOptions { features: Features::RO, ..MkfsOptions::default() };
    assert!(message(&read_only).ends_with("making volumes with ro"));
    let crtime = MkfsOptions { features: Features::INODE_CRTIME, ..MkfsOptions::default() };
    assert!(message(&crtime).contains("extra_attr"));
    assert!(MkfsOptions::default().add_features("no_such_thing").is_err());
    let zoned = scratch.dir().join("zoned");
    create_zoned_image(&zoned, (16384, 16384), (32, 1));
    let refused = format(&open_image(&zoned), &MkfsOptions::default()).unwrap_err().to_string();
    assert!(refused.contains("conventional zones"), "{refused}");
}

#[test]
fn volumes_of_mkfs_f2fs_parse() {
    let scratch = Scratch::new();
    for arguments in [
        &[][..],
        &["-i"],
        &["-s", "4"],
        &["-l", "stock", "-O", "extra_attr,inode_checksum,sb_checksum"],
    ] {
        let image = scratch.image("stock", 512 * MIB);
        assert_stock_mkfs(&image, arguments);
        let drive = open_image(&image);
        let queue = BlockQueue::new(Arc::clone(&drive));
        let sb = superblock(&drive);
        let read = |addr| Ok(queue.read_block(u64::from(addr))?);
        let mut cp = Checkpoint::select(&sb, read).unwrap().checkpoint;
        assert_eq!(cp.valid_inode_count, 1);
        let stored = queue.read_block(sb.cp_blkaddr.into()).unwrap();
        assert_eq!(cp.encode(&sb)[0], stored, "encoding is the inverse of decoding");
    }
}

fn superblock(drive: &Arc<dyn Drive>) -> Superblock {
    let queue = BlockQueue::new(Arc::clone(drive));
    Superblock::select(|addr| Ok(queue.read_block(addr.into())?)).unwrap().0
}
