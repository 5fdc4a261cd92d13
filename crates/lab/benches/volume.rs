//! A whole volume, from `vfs::FileSystem` down to a drive that takes no time, on the real machine.
//!
//! Targets: 150,000 overwrites with fsync a second, 60,000 creates with fsync, 1.5 GB/s of
//! sequential writes, 3 GB/s of reads, 50 ms to mount a clean volume of 64 GiB, 300 cuts a second.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use drive::{Drive, Spec, Ssd, Timing, image};
use f2fs::technique;
use lab::bench::{self, Bench, Kind};
use lab::campaign::{self, Job};
use lab::workload;

/// A volume of 64 GiB.
const BLOCKS_64_GIB: u64 = 16 << 20;

/// Cuts of one campaign.
const CUTS: usize = 300;

fn operations(c: &mut Criterion) {
    let mut group = c.benchmark_group("operations");
    group.sample_size(10).measurement_time(Duration::from_secs(8));
    operation(&mut group, "overwrite 4 KiB and fsync", Kind::Fsync, Throughput::Elements(1));
    operation(&mut group, "create 1 KiB and fsync", Kind::Create, Throughput::Elements(1));
    operation(&mut group, "write 1 MiB", Kind::SeqWrite, Throughput::Bytes(1 << 20));
    operation(&mut group, "read 1 MiB", Kind::SeqRead, Throughput::Bytes(1 << 20));
    group.finish();
}

/// As `strandline bench` measures it: each sample on a fresh volume, which is not timed.
fn operation(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    kind: Kind,
    throughput: Throughput,
) {
    let job = Bench {
        kind,
        format: subjects::named("f2fs").expect("built in"),
        drive: "ram".into(),
        machine: "real".into(),
        threads: 1,
        direct: false,
        mount_opts: String::new(),
        ops: None,
        seed: 1,
    };
    group.throughput(throughput);
    group.bench_function(name, |b| {
        b.iter_custom(|ops| {
            let result = bench::run(&Bench { ops: Some(ops), ..job.clone() }).expect("no fault");
            Duration::from_secs_f64(result.seconds)
        });
    });
}

fn mount(c: &mut Criterion) {
    let fs = subjects::named("f2fs").expect("built in");
    let spec = Spec::named("ram").expect("built in").blocks(BLOCKS_64_GIB);
    let dir = tempfile::tempdir().expect("a directory for the image");
    let path = dir.path().join("64g.img");
    let mut group = c.benchmark_group("mount a clean volume of 64 GiB");
    let ram: Arc<dyn Drive> = Ssd::new(spec.clone(), Timing::Instant, 1).expect("drive");
    for (name, drive) in [("in memory", ram), ("in a sparse file", sparse(&path, &spec))] {
        fs.make(&drive).expect("format");
        group.bench_function(name, |b| {
            b.iter_with_large_drop(|| black_box(fs.mount(drive.clone(), "ro").expect("mount")));
        });
    }
    group.finish();
}

fn sparse(path: &Path, spec: &Spec) -> Arc<dyn Drive> {
    image::create(path, spec).expect("create the image");
    image::open(path, false, Timing::Instant).expect("open the image")
}

fn crash(c: &mut Criterion) {
    let mut group = c.benchmark_group("crash campaign");
    group.sample_size(10).throughput(Throughput::Elements(CUTS as u64));
    for mode in [technique::POSIX, technique::STRICT, technique::OPRW] {
        let workload = workload::named("pattern", CUTS).expect("built in").into();
        let job = Job::new(&f2fs::Format, "zn540-noplp", workload, mode, 1);
        let job = Arc::new(Job { cuts: CUTS, threads: cores::core_count(), ..job });
        let silent: campaign::Progress = Arc::new(|_| true);
        group.bench_function(format!("pattern, {mode}"), |b| {
            b.iter(|| black_box(campaign::run(&job, &silent).expect("campaign")));
        });
    }
    group.finish();
}

criterion_group!(benches, operations, mount, crash);
criterion_main!(benches);
