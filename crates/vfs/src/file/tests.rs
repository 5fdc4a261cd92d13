//! The loops over a map that lies in memory, whose drive is a vector of blocks.

use std::collections::{BTreeMap, BTreeSet};

use drive::BLOCK_SIZE;
use proptest::prelude::*;

use super::*;

const PAGE: u64 = BLOCK_SIZE as u64;
const FILE: Ino = 7;

/// One file.
struct Toy {
    cache: PageCache,
    drive: Vec<Block>,
    /// Which block a page is in.
    addrs: BTreeMap<u64, Lba>,
    /// Pages that come into memory with [`Map::load`] only.
    packed: BTreeMap<u64, Block>,
    reserved: BTreeSet<u64>,
    /// Pages that can still be reserved.
    free: usize,
    /// Pages that [`Map::reserve_run`] reserves at a time.
    run: u64,
    reads: Vec<Range<Lba>>,
    bad: Option<Lba>,
}

impl Toy {
    /// A file that begins with `pages` pages on the drive, each of them full of its number + 1.
    fn new(pages: u64, cached: usize) -> Self {
        Self {
            cache: PageCache::new(cached * BLOCK_SIZE),
            drive: (0..pages).map(|page| block((page % 255) as u8 + 1)).collect(),
            addrs: (0..pages).map(|page| (page, page)).collect(),
            packed: BTreeMap::new(),
            reserved: BTreeSet::new(),
            free: usize::MAX,
            run: 0,
            reads: Vec::new(),
            bad: None,
        }
    }

    fn read(&mut self, offset: u64, len: usize) -> Result<Vec<u8>, Errno> {
        let mut buf = vec![0xee; len];
        read(self, FILE, offset, &mut buf)?;
        Ok(buf)
    }

    /// Gives every dirty page a new block, which lies behind all others.
    fn write_back(&mut self) {
        while let Some(index) = self.cache.next_dirty(FILE, 0) {
            self.drive.push(self.cache.peek(FILE, index).unwrap().clone());
            self.addrs.insert(index, self.drive.len() as Lba - 1);
            self.cache.mark_clean(FILE, index);
        }
    }
}

impl Map for Toy {
    type File = Ino;
    type Error = Errno;

    fn pages(&mut self, _: Ino) -> &mut PageCache {
        &mut self.cache
    }

    fn locate(&mut self, _: Ino, index: u64, most: u64) -> Result<Option<Range<Lba>>, Errno> {
        assert!(self.cache.peek(FILE, index).is_none(), "page {index} is in memory");
        let Some(&start) = self.addrs.get(&index) else { return Ok(None) };
        let follows = (0..most).take_while(|i| self.addrs.get(&(index + i)) == Some(&(start + i)));
        Ok(Some(start..start + follows.count() as u64))
    }

    fn read_blocks(&mut self, blocks: Range<Lba>) -> Result<Blocks, Errno> {
        self.reads.push(blocks.clone());
        if self.bad.is_some_and(|bad| blocks.contains(&bad)) {
            return Err(Errno::IO);
        }
        Ok(self.drive[blocks.start as usize..blocks.end as usize].iter().cloned().collect())
    }

    fn reserve(&mut self, _: Ino, index: u64) -> Result<(), Errno> {
        if !self.addrs.contains_key(&index) && !self.reserved.contains(&index) {
            self.free = self.free.checked_sub(1).ok_or(Errno::NOSPC)?;
            self.reserved.insert(index);
        }
        Ok(())
    }

    fn reserve_run(&mut self, file: Ino, pages: Range<u64>) -> Result<u64, Errno> {
        let end = pages.end.min(pages.start + self.run);
        Ok((pages.start..end).find(|page| self.reserve(file, *page).is_err()).unwrap_or(end))
    }

    fn load(&mut self, _: Ino, index: u64) -> Result<bool, Errno> {
        let Some(page) = self.packed.get(&index) else { return Ok(false) };
        self.cache.insert_clean(FILE, index, page.clone());
        Ok(true)
    }
}

fn block(fill: u8) -> Block {
    Block::new([fill; BLOCK_SIZE])
}

#[test]
fn a_read_goes_through_holes_and_reads_what_lies_side_by_side_at_once() {
    let mut toy = Toy::new(4, 100);
    toy.addrs = [(0, 1), (1, 2), (2, 3), (4, 0)].into();
    toy.packed = [(5, block(9))].into();
    let read = toy.read(PAGE - 1, 4 * BLOCK_SIZE + 2).unwrap();
    assert_eq!(toy.reads, [1..4, 0..1]);
    let firsts: Vec<u8> = read[1..].iter().step_by(BLOCK_SIZE).copied().collect();
    assert_eq!((read[0], firsts), (2, vec![3, 4, 0, 1, 9]));
    assert_eq!(toy.read(PAGE - 1, 4 * BLOCK_SIZE + 2).unwrap(), read);
    assert_eq!(toy.reads.len(), 2, "the second time all of it is in memory");
}

#[test]
fn a_read_of_the_cache_ends_where_a_page_is_missing() {
    let mut toy = Toy::new(4, 100);
    toy.addrs.remove(&1);
    toy.cache.insert_clean(FILE, 0, block(1));
    let mut buf = vec![0xee; 4 * BLOCK_SIZE];
    let part = read_cached(&mut toy, FILE, 10, &mut buf).unwrap();
    assert_eq!(part.len, 2 * BLOCK_SIZE - 10);
    assert_eq!(part.miss, Some(Miss { file: FILE, index: 2, blocks: 2..4 }));
    assert!(buf[..BLOCK_SIZE - 10].iter().all(|byte| *byte == 1));
    assert!(buf[BLOCK_SIZE - 10..part.len].iter().all(|byte| *byte == 0));
    assert!(buf[part.len..].iter().all(|byte| *byte == 0xee), "behind the miss nothing changes");
    assert!(toy.reads.is_empty());
}

#[test]
fn reading_ahead_ends_with_the_read_at_a_page_in_memory_and_after_256_blocks() {
    let mut toy = Toy::new(600, 1000);
    page(&mut toy, FILE, 0, 1).unwrap();
    page(&mut toy, FILE, 1, 600).unwrap();
    toy.cache.insert_dirty(FILE, 300, block(0));
    page(&mut toy, FILE, 257, 600).unwrap();
    assert_eq!(toy.reads, [0..1, 1..257, 257..300]);
}

#[test]
fn in_a_full_cache_the_page_asked_for_stays() {
    for cached in 1..4 {
        let mut toy = Toy::new(8, cached);
        assert!(page(&mut toy, FILE, 2, 8).unwrap().is_some_and(|page| page[0] == 3));
        let read = toy.read(0, 8 * BLOCK_SIZE).unwrap();
        let firsts: Vec<u8> = read.iter().step_by(BLOCK_SIZE).copied().collect();
        assert_eq!(firsts, [1, 2, 3, 4, 5, 6, 7, 8], "{cached} pages");
    }
}

#[test]
fn what_could_not_be_read_fails_the_read() {
    let mut toy = Toy::new(4, 100);
    toy.addrs.remove(&1);
    toy.bad = Some(3);
    assert_eq!(toy.read(0, 2 * BLOCK_SIZE).map(|read| read[0]), Ok(1));
    assert_eq!(toy.read(0, 4 * BLOCK_SIZE), Err(Errno::IO));
}

#[test]
fn what_changed_during_a_read_is_not_taken_in() {
    let mut toy = Toy::new(4, 100);
    let part = read_cached(&mut toy, FILE, 0, &mut [0; 4 * BLOCK_SIZE]).unwrap();
    let miss = part.miss.unwrap();
    let blocks = toy.read_blocks(miss.blocks.clone()).unwrap();
    // Page 1 is written to meanwhile, page 2 gets another block.
    toy.cache.insert_dirty(FILE, 1, block(0x55));
    toy.addrs.insert(2, 0);
    let is_still_there = |toy: &mut Toy, index, lba| Ok(toy.addrs.get(&index) == Some(&lba));
    insert(&mut toy, &miss, blocks, is_still_there).unwrap();
    let firsts = [0, 1, 2, 3].map(|index| toy.cache.peek(FILE, index).map(|page| page[0]));
    assert_eq!(firsts, [Some(1), Some(0x55), None, Some(4)]);
    assert!(toy.cache.is_dirty(FILE, 1));
}

#[test]
fn a_write_without_room_is_short() {
    // Ends within page 0 and page 4; page 0 is on the drive and needs no room.
    let data = vec![0xaa; 4 * BLOCK_SIZE];
    for (free, run, pages) in [(2, 0, 3), (2, 9, 3), (3, 2, 4), (0, 9, 1)] {
        let mut toy = Toy::new(1, 100);
        (toy.free, toy.run) = (free, run);
        let Written { len, failed } = write(&mut toy, FILE, Write::new(100, &data)).unwrap();
        assert_eq!(len as u64, pages * PAGE - 100, "room for {free}, {run} at once");
        let (error, reserved) = failed.unwrap();
        assert_eq!((error, reserved), (Errno::NOSPC, 1 + run.min(free as u64)));
        assert_eq!(toy.cache.dirty_count(FILE) as u64, pages);
        let read = toy.read(0, 5 * BLOCK_SIZE).unwrap();
        let end = 100 + len;
        assert!(read[..100].iter().all(|byte| *byte == 1), "what page 0 held before");
        assert!(read[100..end].iter().all(|byte| *byte == 0xaa));
        assert!(read[end..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn zeroing_a_range_leaves_whole_pages_to_the_caller() {
    let zero = |bytes| {
        let mut toy = Toy::new(4, 100);
        toy.addrs.remove(&3);
        let pages = zero_ends(&mut toy, FILE, bytes).unwrap();
        let dirty: Vec<u64> = toy.cache.dirty_in(FILE, 0..9).collect();
        let read = toy.read(0, 3 * BLOCK_SIZE).unwrap();
        (pages, dirty, read.iter().filter(|byte| **byte == 0).count())
    };
    assert_eq!(zero(0..2 * PAGE), (0..2, vec![], 0));
    assert_eq!(zero(10..20), (0..0, vec![0], 10));
    assert_eq!(zero(PAGE - 5..2 * PAGE + 7), (1..2, vec![0, 2], 12));
    assert_eq!(zero(PAGE..3 * PAGE + 1), (1..3, vec![], 0), "the end lies in a hole");
}

#[derive(Clone, Debug)]
enum Action {
    Write(u64, usize, u8),
    Read(u64, usize),
    WriteBack,
}

fn action() -> impl Strategy<Value = Action> {
    let at = 0..12 * PAGE;
    let len = prop_oneof![0..200_usize, Just(BLOCK_SIZE), 0..5 * BLOCK_SIZE];
    let at = prop_oneof![at.clone(), at.prop_map(|at| at / PAGE * PAGE)];
    prop_oneof![
        (at.clone(), len.clone(), 1..=255_u8)
            .prop_map(|(at, len, fill)| Action::Write(at, len, fill)),
        (at, len).prop_map(|(at, len)| Action::Read(at, len)),
        Just(Action::WriteBack),
    ]
}

proptest! {
    #[test]
    fn a_file_is_what_was_written_last(
        actions in prop::collection::vec(action(), 1..40),
        cached in 1..6_usize,
        run in 0..4_u64,
        free in 0..16_usize,
    ) {
        let mut toy = Toy { run, free, ..Toy::new(3, cached) };
        let mut model = vec![0; 20 * BLOCK_SIZE];
        for (index, page) in model.chunks_mut(BLOCK_SIZE).take(3).enumerate() {
            page.fill(index as u8 + 1);
        }
        for action in actions {
            match action {
                Action::Write(at, len, fill) => {
                    let Written { len: done, failed } =
                        write(&mut toy, FILE, Write::new(at, &vec![fill; len])).unwrap();
                    prop_assert_eq!(done == len, failed.is_none());
                    model[at as usize..at as usize + done].fill(fill);
                }
                Action::Read(at, len) => {
                    prop_assert_eq!(
                        &toy.read(at, len).unwrap()[..],
                        &model[at as usize..at as usize + len]
                    );
                }
                Action::WriteBack => toy.write_back(),
            }
        }
    }
}
