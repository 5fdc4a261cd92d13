use zerocopy::FromZeros;

use super::*;

/// 512 MiB with mke2fs's defaults: 4 groups.
fn raw() -> RawSuperblock {
    let mut raw = RawSuperblock::new_zeroed();
    raw.magic = MAGIC.into();
    raw.rev_level = 1.into();
    raw.log_block_size = 2.into();
    raw.log_cluster_size = 2.into();
    raw.set_blocks_count(131_072);
    raw.blocks_per_group = 32_768.into();
    raw.clusters_per_group = 32_768.into();
    raw.inodes_per_group = 8192.into();
    raw.inodes_count = 32_768.into();
    raw.first_ino = 11.into();
    raw.inode_size = 256.into();
    raw.desc_size = 64.into();
    raw.reserved_gdt_blocks = 63.into();
    raw.feature_incompat = 0x2c2.into();
    raw.feature_ro_compat = 0x46b.into();
    raw.checksum_type = CHECKSUM_CRC32C;
    raw
}

fn parse(change: impl FnOnce(&mut RawSuperblock)) -> Result<Superblock> {
    let mut raw = raw();
    change(&mut raw);
    raw.seal();
    Superblock::parse(raw, 0)
}

#[test]
fn a_default_volume_is_laid_out_as_mke2fs_does() {
    let sb = parse(|_| ()).unwrap();
    assert_eq!((sb.groups, sb.inode_size, sb.desc_size, sb.table_blocks()), (4, 256, 64, 512));
    assert_eq!(sb.desc_place(3), (1, 192));
    assert_eq!([0, 1, 2, 3].map(|group| sb.has_super(group)), [true, true, false, true]);
    assert_eq!([0, 1, 2, 3].map(|group| sb.base_meta_blocks(group)), [65, 65, 0, 65]);
    assert_eq!(sb.inode_place(8193).unwrap(), layout::InodePlace { group: 1, index: 0 });
    assert_eq!(sb.inode_at(100, 17), (101, 256));
    assert!(sb.inode_place(0).is_err() && sb.inode_place(32_769).is_err());
    assert_eq!((sb.group_of(32_768), sb.cluster_of(32_769)), (1, 1));
    assert!(sb.holds(131_071, 1) && !sb.holds(131_071, 2) && !sb.holds(0, 1));
}

#[test]
fn descriptors_of_meta_groups_are_in_the_groups() {
    let sb = parse(|raw| {
        raw.feature_incompat = 0xd2.into();
        raw.reserved_gdt_blocks = 0.into();
        raw.set_blocks_count(200 << 15);
        raw.inodes_count = (200 * 8192).into();
    })
    .unwrap();
    assert_eq!(sb.desc_place(0), (1, 0));
    assert_eq!(sb.desc_place(130), (128 << 15, 128), "no superblock in group 128");
    assert_eq!([64, 65, 66, 127].map(|group| sb.base_meta_blocks(group)), [1, 1, 0, 1]);
}

#[test]
fn what_does_not_fit_together_is_corrupt() {
    let wrong: [fn(&mut RawSuperblock); 9] = [
        |raw| raw.magic = 1.into(),
        |raw| raw.log_block_size = 7.into(),
        |raw| raw.inode_size = 100.into(),
        |raw| raw.desc_size = 63.into(),
        |raw| raw.blocks_per_group = 32_769.into(),
        |raw| raw.inodes_per_group = 0.into(),
        |raw| raw.inodes_count = 1.into(),
        |raw| raw.first_data_block = 2.into(),
        |raw| raw.set_blocks_count(0),
    ];
    for (number, change) in wrong.into_iter().enumerate() {
        assert!(matches!(parse(change), Err(Error::Corrupt(_))), "{number}");
    }
    let mut raw = raw();
    raw.checksum = 1.into();
    let error = Superblock::parse(raw, 0).err().map(|error| error.errno());
    assert_eq!(error, Some(vfs::Errno::BADMSG), "a wrong checksum");
}

#[test]
fn large_blocks_are_refused_by_name() {
    let error = parse(|raw| raw.log_block_size = 6.into()).err().unwrap();
    assert_eq!(error.to_string(), "not supported: blocks of 64 KiB");
}

#[test]
fn the_seed_is_stored_or_the_uuids() {
    let mut raw = raw();
    raw.uuid = *b"0123456789abcdef";
    raw.checksum_seed = 7.into();
    assert_eq!(raw.checksums(), Checksums::Metadata(crc32c(!0, b"0123456789abcdef")));
    raw.feature_incompat = (0x2c2 | Incompat::CSUM_SEED.bits()).into();
    assert_eq!(raw.checksums(), Checksums::Metadata(7));
}
