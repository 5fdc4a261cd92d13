//! What the choice of machine costs on the real one: our locks beside bare `parking_lot`, and an
//! untraced span.
//!
//! `cargo bench -p strandline-cores --bench locks`

use std::sync::atomic::{AtomicU64, Ordering};

use criterion::{Criterion, criterion_group, criterion_main};

fn mutex(c: &mut Criterion) {
    let mut group = c.benchmark_group("mutex");
    let (ours, bare) = (cores::Mutex::new(0_u64), parking_lot::Mutex::new(0_u64));
    group.bench_function("cores", |b| b.iter(|| *ours.lock() += 1));
    group.bench_function("parking_lot", |b| b.iter(|| *bare.lock() += 1));
    group.finish();
}

fn rwlock(c: &mut Criterion) {
    let mut group = c.benchmark_group("rwlock_read");
    let (ours, bare) = (cores::RwLock::new(0_u64), parking_lot::RwLock::new(0_u64));
    group.bench_function("cores", |b| b.iter(|| *ours.read()));
    group.bench_function("parking_lot", |b| b.iter(|| *bare.read()));
    group.finish();
}

fn percore(c: &mut Criterion) {
    let mut group = c.benchmark_group("percore_rwlock");
    let shared = cores::PerCoreRwLock::named("bench", 0_u64);
    group.bench_function("read", |b| b.iter(|| *shared.read()));
    group.bench_function("write", |b| b.iter(|| *shared.write() += 1));
    group.finish();
}

fn line(c: &mut Criterion) {
    let mut group = c.benchmark_group("line_fetch_add");
    let (ours, bare) = (cores::Line::new(0), AtomicU64::new(0));
    group.bench_function("cores", |b| b.iter(|| ours.fetch_add(1)));
    group.bench_function("atomic", |b| b.iter(|| bare.fetch_add(1, Ordering::SeqCst)));
    group.finish();
}

fn spans(c: &mut Criterion) {
    let mut group = c.benchmark_group("real");
    group.bench_function("untraced_span", |b| b.iter(|| cores::span(cores::Stage::CopyPage)));
    cores::trace::start();
    group.bench_function("traced_span", |b| b.iter(|| cores::span(cores::Stage::CopyPage)));
    cores::trace::finish();
    group.bench_function("now", |b| b.iter(cores::now));
    group.bench_function("current_core", |b| b.iter(cores::current_core));
    group.finish();
}

criterion_group!(benches, mutex, rwlock, percore, line, spans);
criterion_main!(benches);
