//! Data that a host sends for a command, as it arrives.

use std::io::IoSliceMut;

use drive::{BLOCK_SIZE, Block, Blocks};

/// The most slices in one system call.
pub(crate) const MAX_SLICES: usize = 256;

/// Data of one command, in order. Memory is taken as the data arrives, not when it is announced.
#[derive(Default)]
pub(crate) struct Transfer {
    data: Blocks,
    length: usize,
    got: usize,
}

impl Transfer {
    /// A transfer of `length` bytes, none of which has arrived.
    pub(crate) fn new(length: usize) -> Self {
        Self { data: Blocks::new(), length, got: 0 }
    }

    /// A transfer of which all `bytes` have arrived.
    pub(crate) fn whole(bytes: &[u8]) -> Self {
        let mut whole = Self::new(bytes.len());
        whole.put(bytes);
        whole
    }

    pub(crate) fn length(&self) -> usize {
        self.length
    }

    pub(crate) fn got(&self) -> usize {
        self.got
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.got == self.length
    }

    /// The data. An incomplete last page ends in zeroes.
    pub(crate) fn into_data(self) -> Blocks {
        self.data
    }

    /// Makes room for `more` bytes.
    fn reserve(&mut self, more: usize) {
        let end = (self.got + more).min(self.length);
        while self.data.len() * BLOCK_SIZE < end {
            let whole = self.length - self.data.len() * BLOCK_SIZE >= BLOCK_SIZE;
            self.data.push(if whole { Block::unspecified() } else { Block::from_prefix(&[]) });
        }
    }

    /// Adds `bytes`, as far as they are part of the data.
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        let mut rest = &bytes[..bytes.len().min(self.length - self.got)];
        self.reserve(rest.len());
        while !rest.is_empty() {
            let (page, at) = (self.got / BLOCK_SIZE, self.got % BLOCK_SIZE);
            let (now, later) = rest.split_at(rest.len().min(BLOCK_SIZE - at));
            self.data[page].make_mut()[at..at + now.len()].copy_from_slice(now);
            self.got += now.len();
            rest = later;
        }
    }

    /// Where the next bytes go, up to `most` of them.
    pub(crate) fn slices(&mut self, most: usize) -> impl Iterator<Item = IoSliceMut<'_>> {
        let room = MAX_SLICES * BLOCK_SIZE - self.got % BLOCK_SIZE;
        let most = most.min(self.length - self.got).min(room);
        self.reserve(most);
        let (first, at) = (self.got / BLOCK_SIZE, self.got % BLOCK_SIZE);
        let mut left = most;
        let pages = self.data.iter_mut().skip(first).enumerate();
        pages.map_while(move |(n, page)| {
            let from = if n == 0 { at } else { 0 };
            let len = left.min(BLOCK_SIZE - from);
            left -= len;
            (len > 0).then(|| IoSliceMut::new(&mut page.make_mut()[from..from + len]))
        })
    }

    /// Notes that `bytes` more were put where [`Self::slices`] said. Returns `digest` continued
    /// over them, if there is one.
    pub(crate) fn advance(&mut self, bytes: usize, digest: Option<u32>) -> Option<u32> {
        let bytes = bytes.min(self.length - self.got);
        let end = self.got + bytes;
        let Some(mut digest) = digest else {
            self.got = end;
            return None;
        };
        while self.got < end {
            let (page, at) = (self.got / BLOCK_SIZE, self.got % BLOCK_SIZE);
            let len = (end - self.got).min(BLOCK_SIZE - at);
            digest = crc32c::crc32c_append(digest, &self.data[page].bytes()[at..at + len]);
            self.got += len;
        }
        Some(digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_comes_in_any_pieces() {
        let bytes: Vec<u8> = (0..10_000_u32).map(|n| n as u8 ^ (n >> 8) as u8).collect();
        let mut transfer = Transfer::new(bytes.len());
        let (mut rest, mut digest) = (&bytes[..], Some(0));
        for (n, len) in [1, 4095, 4097, 300, 9999].into_iter().enumerate() {
            let (now, later) = rest.split_at(rest.len().min(len));
            rest = later;
            if n % 2 == 0 {
                transfer.put(now);
                digest = digest.map(|crc| crc32c::crc32c_append(crc, now));
                continue;
            }
            let mut from = now;
            for mut slice in transfer.slices(now.len()) {
                let len = slice.len();
                slice.copy_from_slice(&from[..len]);
                from = &from[len..];
            }
            digest = transfer.advance(now.len(), digest);
        }
        assert!(transfer.is_whole());
        assert_eq!(digest, Some(crc32c::crc32c(&bytes)));
        let data = transfer.into_data();
        let whole: Vec<u8> = data.iter().flat_map(|page| page.bytes().iter().copied()).collect();
        assert_eq!(whole[..10_000], bytes);
        assert!(whole[10_000..].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn more_than_announced_is_ignored() {
        let mut transfer = Transfer::new(10);
        transfer.put(&[1; 50]);
        assert!(transfer.is_whole() && transfer.slices(9).next().is_none());
        assert_eq!(transfer.advance(7, None), None);
        assert_eq!((transfer.got(), transfer.into_data().len()), (10, 1));
    }
}
