//! What else a device may hold, by its magic bytes.

use std::sync::Arc;

use drive::{BLOCK_SIZE, Drive};
use queue::{BlockQueue, IoError};

/// `F2FS_SUPER_MAGIC`.
const F2FS: &[u8] = &0xf2f5_2010_u32.to_le_bytes();

/// Name, byte on the device, magic bytes.
const SIGNATURES: [(&str, usize, &[u8]); 12] = [
    ("F2FS", 1024, F2FS),
    ("F2FS", 5120, F2FS),
    ("ext2, ext3 or ext4", 1024 + 56, &[0x53, 0xef]),
    ("XFS", 0, b"XFSB"),
    ("Btrfs", 65536 + 64, b"_BHRfS_M"),
    ("swap space", BLOCK_SIZE - 10, b"SWAPSPACE2"),
    ("NTFS", 3, b"NTFS    "),
    ("exFAT", 3, b"EXFAT   "),
    ("FAT", 54, b"FAT"),
    ("FAT", 82, b"FAT32"),
    ("LUKS", 0, b"LUKS\xba\xbe"),
    ("a GPT partition table", 512, b"EFI PART"),
];

/// The name of what the drive holds, if it is known. If several drives are joined, the first one
/// decides.
pub fn signature(drive: &Arc<dyn Drive>) -> Result<Option<&'static str>, IoError> {
    let queue = BlockQueue::new(drive.clone());
    let blocks = queue.identify().blocks;
    for (name, byte, magic) in SIGNATURES {
        let (lba, offset) = ((byte / BLOCK_SIZE) as u64, byte % BLOCK_SIZE);
        if lba >= blocks {
            continue;
        }
        if queue.read_block(lba)?.get(offset..offset + magic.len()) == Some(magic) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}
