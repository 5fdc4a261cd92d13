//! What one look-up in the page cache costs: sequential, random, and with eviction.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use vfs::{Block, PageCache};

const PAGES: u64 = 65_536;

fn filled() -> PageCache {
    let mut cache = PageCache::new(PAGES as usize * drive::BLOCK_SIZE);
    (0..PAGES).for_each(|index| cache.insert_clean(1, index, Block::zeroed()));
    cache
}

fn lookups(c: &mut Criterion) {
    let mut group = c.benchmark_group("page_cache");
    group.throughput(Throughput::Elements(PAGES));
    let mut cache = filled();
    group.bench_function("get_sequential", |b| {
        b.iter(|| (0..PAGES).filter(|&index| cache.get(1, black_box(index)).is_some()).count());
    });
    group.bench_function("get_random", |b| {
        // An odd multiplier visits every index once.
        let random = |i: u64| i.wrapping_mul(0x9e37_79b1) % PAGES;
        b.iter(|| (0..PAGES).filter(|&i| cache.get(1, black_box(random(i))).is_some()).count());
    });
    group.bench_function("dirty_and_clean", |b| {
        b.iter(|| {
            for index in 0..PAGES {
                black_box(cache.dirty_mut(1, index));
                cache.mark_clean(1, index);
            }
        });
    });
    group.bench_function("insert_and_evict", |b| {
        let mut next = PAGES;
        b.iter(|| {
            for _ in 0..PAGES {
                cache.insert_clean(1, next, Block::zeroed());
                next += 1;
            }
        });
    });
    group.finish();
}

criterion_group!(benches, lookups);
criterion_main!(benches);
