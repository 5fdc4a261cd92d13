//! What the block layer adds to a command. Target: below 300 ns for submit and wait.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use drive::{Block, Drive, Spec, Ssd, Timing, ram};
use queue::BlockQueue;

fn submit_and_wait(c: &mut Criterion) {
    let queue = BlockQueue::new(ram(1 << 20));
    let (block, mut lba) = (Block::from_prefix(b"bench"), 0u64);
    let mut next = move || {
        lba = (lba + 1) % (1 << 16);
        lba
    };
    c.bench_function("write 4 KiB, submit and wait", |b| {
        b.iter(|| {
            let data: drive::Blocks = std::iter::once(block.clone()).collect();
            black_box(queue.wait(queue.write(next(), data, false)))
        });
    });
    c.bench_function("read 4 KiB, submit and wait", |b| {
        b.iter(|| black_box(queue.read_block(next())));
    });
    c.bench_function("flush, submit and wait", |b| b.iter(|| black_box(queue.flush())));
    let spec = Spec::named("ram").expect("profile").zone_size(1 << 16, 1 << 16).zones(16, 0);
    let queue = BlockQueue::new(Ssd::new(spec, Timing::Instant, 0).expect("drive"));
    let mut wp = 0u64;
    c.bench_function("write 4 KiB to a zone under its lock", |b| {
        b.iter(|| {
            if wp.is_multiple_of(1 << 16) {
                let full = queue.drive().identify().blocks;
                wp %= full;
                queue.reset_zone(wp).expect("reset");
            }
            let data: drive::Blocks = std::iter::once(block.clone()).collect();
            wp += 1;
            queue.wait(queue.write(wp - 1, data, false)).expect("write at wp");
        });
    });
}

criterion_group!(benches, submit_and_wait);
criterion_main!(benches);
