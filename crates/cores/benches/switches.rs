//! How fast the virtual machine is: switches between 192 cores (the target is at least 5 million a
//! second), charges that need no switch, and machines that start and end.
//!
//! A virtual machine is one OS thread; its processor time is measured, so that what else the
//! computer does meanwhile counts as little as it can.
//!
//! `cargo bench -p strandline-cores --bench switches`

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use cores::{JoinHandle, Line, Machine, Mutex, Profile, spawn, switches};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rustix::time::{ClockId, clock_gettime};

const THREADS: usize = 192;

fn big() -> Machine {
    Machine::simulated(&Profile::named("e7-8890v4-192").expect("built in"), 1)
}

/// The processor time this OS thread has used.
fn processor_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().expect("not negative")
}

/// Runs `step` at least `iters` times in all on every core, and returns the time per `iters`
/// switches that the machine made meanwhile, by the machine's own count.
fn per_switch(iters: u64, step: impl Fn(usize) + Clone + Send + 'static) -> Duration {
    let rounds = iters.div_ceil(THREADS as u64).max(50);
    let run = || {
        let worker = |core: usize| {
            let step = step.clone();
            spawn("worker", Some(core), move || (0..rounds).for_each(|_| step(core)))
        };
        let threads: Vec<_> = (0..THREADS).map(worker).collect();
        let (start, before) = (processor_time(), switches());
        threads.into_iter().for_each(JoinHandle::join);
        (processor_time() - start, switches() - before)
    };
    let (time, switched) = big().run(run).expect("no deadlock");
    assert!(switched >= rounds * THREADS as u64, "only {switched} switches");
    time.mul_f64(iters as f64 / switched as f64)
}

fn switch_rates(c: &mut Criterion) {
    let mut group = c.benchmark_group("switch_192_cores");
    group.throughput(Throughput::Elements(1));
    let unlike = |core: usize| cores::spend(100 + core as u64 * 7 % 31);
    group.bench_function("spend", |b| b.iter_custom(|iters| per_switch(iters, unlike)));
    let alike = |_| cores::spend(100);
    group.bench_function("spend_with_ties", |b| b.iter_custom(|iters| per_switch(iters, alike)));
    let sleep = |core: usize| cores::sleep(100 + core as u64 * 7 % 31);
    group.bench_function("sleep", |b| b.iter_custom(|iters| per_switch(iters, sleep)));
    let line = Arc::new(Line::new(0));
    group.bench_function("one_line", |b| {
        b.iter_custom(|iters| {
            let line = line.clone();
            per_switch(iters, move |_| {
                line.fetch_add(1);
            })
        });
    });
    let mutex = Arc::new(Mutex::new(0));
    group.bench_function("one_mutex", |b| {
        b.iter_custom(|iters| {
            let mutex = mutex.clone();
            per_switch(iters, move |_| *mutex.lock() += 1)
        });
    });
    group.finish();
}

fn without_switch(c: &mut Criterion) {
    let machine = Machine::simulated(&Profile::named("uniform-1").expect("built in"), 1);
    let mut group = c.benchmark_group("one_thread");
    group.bench_function("spend", |b| {
        machine.run(|| b.iter(|| cores::spend(black_box(1)))).expect("no deadlock");
    });
    group.bench_function("mutex", |b| {
        let mutex = Mutex::new(0_u64);
        machine.run(|| b.iter(|| *mutex.lock() += 1)).expect("no deadlock");
    });
    group.bench_function("sleep", |b| {
        machine.run(|| b.iter(|| cores::sleep(black_box(100)))).expect("no deadlock");
    });
    group.finish();
}

fn machines(c: &mut Criterion) {
    let mut group = c.benchmark_group("machine");
    for name in ["uniform-1", "xeon-4116", "e7-8890v4-192"] {
        let profile = Profile::named(name).expect("built in");
        group.bench_function(name, |b| {
            b.iter(|| Machine::simulated(&profile, black_box(1)).run(cores::now).expect("runs"));
        });
    }
    group.finish();
}

criterion_group!(benches, switch_rates, without_switch, machines);
criterion_main!(benches);
