//! What else may live on a device: a file system is not overwritten unless told to.

use std::sync::Arc;

use drive::Drive;
use queue::BlockQueue;

use crate::error::{Error, Result};
use crate::ondisk::{BLOCK_SIZE, MAGIC};

/// Name, byte on the device, magic bytes.
const SIGNATURES: [(&str, usize, &[u8]); 12] = [
    ("F2FS", 1024, &MAGIC.to_le_bytes()),
    ("F2FS", 5120, &MAGIC.to_le_bytes()),
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

/// Fails if the drive holds something known. Of several joined drives it looks at the first.
pub fn check_blank(drive: &Arc<dyn Drive>) -> Result<()> {
    let queue = BlockQueue::new(drive.clone());
    let blocks = queue.identify().blocks;
    for (name, byte, magic) in SIGNATURES {
        let (lba, offset) = ((byte / BLOCK_SIZE) as u64, byte % BLOCK_SIZE);
        if lba >= blocks {
            continue;
        }
        if queue.read_block(lba)?.get(offset..offset + magic.len()) == Some(magic) {
            let hint = "-f overwrites it";
            return Err(Error::usage(format!("the device holds {name}; {hint}")));
        }
    }
    Ok(())
}
