//! What the emulated drive costs: commands, snapshots, survivors.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use drive::{Block, Command, Drive, Spec, Ssd, Timing, ram};

fn write(lba: u64, block: &Block) -> Command {
    Command::Write { lba, data: std::iter::once(block.clone()).collect(), fua: false }
}

/// Target: 5 million commands per second.
fn commands(c: &mut Criterion) {
    let mut group = c.benchmark_group("ram");
    let (drive, block, mut lba) = (ram(1 << 20), Block::from_prefix(b"bench"), 0u64);
    group.throughput(Throughput::Elements(2));
    group.bench_function("write 4 KiB + flush", |b| {
        b.iter(|| {
            lba = (lba + 1) % (1 << 16);
            for command in [write(lba, &block), Command::Flush] {
                drive.submit(0, 0, command);
                black_box(drive.wait(0));
            }
        });
    });
    group.throughput(Throughput::Elements(1));
    group.bench_function("read 4 KiB", |b| {
        b.iter(|| {
            lba = (lba + 1) % (1 << 16);
            drive.submit(0, 0, Command::Read { lba, blocks: 1 });
            black_box(drive.wait(0))
        });
    });
    group.finish();
}

/// A 64 GiB drive with 1 GiB of data and something in the buffer: the price of a cut.
fn cuts(c: &mut Criterion) {
    let spec = Spec::named("zn540-noplp").expect("profile").zone_size(1 << 14, 1 << 14);
    let drive = Ssd::new(spec.zones(1024, 4), Timing::Instant, 1).expect("drive");
    let (block, mut cid) = (Block::from_prefix(b"bench"), 0);
    let mut run = |command| {
        cid = (cid + 1) % 8;
        drive.submit(0, cid, command);
        drive.wait(0).expect("completion").result.expect("success")
    };
    for zone in 4..20 {
        for at in 0..1u64 << 14 {
            run(write((zone << 14) + at, &block));
        }
    }
    (0..100).for_each(|at| drop(run(write((20 << 14) + at, &block))));
    (0..20).for_each(|lba| drop(run(write(lba, &block))));
    c.bench_function("survivors of 64 GiB", |b| b.iter(|| black_box(drive.survivors(7))));
    c.bench_function("survivors, power on, first write", |b| {
        b.iter_batched(
            || drive.survivors(7),
            |state| {
                let drive = Ssd::power_on(state, Timing::Instant, 1);
                drive.submit(0, 0, write(3, &block));
                drive.wait(0)
            },
            BatchSize::SmallInput,
        );
    });
}

criterion_group!(benches, commands, cuts);
criterion_main!(benches);
