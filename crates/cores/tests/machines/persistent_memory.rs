//! What persistent memory costs on the virtual machine: a core's rate, a node's, a fence.

use cores::{Machine, Profile, now, pm_fence, pm_read, pm_stream, pm_write_back, spawn};

use super::virtual_machine::profile;

const MACHINE: &str = "e7-8870v2-120";
const PAGE: u64 = 4096;
const PAGES: u64 = 1000;
/// Cores of a node.
const NODE: usize = 15;

/// Time of `bytes` at the rate at `path`.
fn time(profile: &Profile, path: &str, bytes: u64) -> u64 {
    let picos_per_kib = profile.number(path).expect("it is there");
    bytes * picos_per_kib / (1024 * 1000)
}

/// The time until each of these cores has written so many pages to node 0, and fenced each.
fn writers(profile: &Profile, cores: &'static [usize]) -> u64 {
    let write = || {
        let writer = || {
            for _ in 0..PAGES {
                pm_stream(0, PAGE);
                pm_fence();
            }
        };
        let all = cores.iter().map(|&core| spawn("writer", Some(core), writer));
        let all: Vec<_> = all.collect();
        all.into_iter().for_each(cores::JoinHandle::join);
        now()
    };
    Machine::simulated(profile, 1).run(write).expect("no deadlock")
}

fn on(core: usize, profile: &Profile, work: impl FnOnce() + Send + 'static) -> u64 {
    let run = || {
        let timed = move || {
            let start = now();
            work();
            now() - start
        };
        spawn("core", Some(core), timed).join()
    };
    Machine::simulated(profile, 1).run(run).expect("no deadlock")
}

#[test]
fn a_core_has_its_rate_and_less_to_another_node() {
    let profile = profile(MACHINE);
    let fence = profile.number("pm.fence").unwrap();
    for (core, read, stream) in
        [(0, "pm.core_read", "pm.core_stream"), (NODE, "pm.remote_read", "pm.remote_stream")]
    {
        assert_eq!(on(core, &profile, || pm_read(0, PAGE)), time(&profile, read, PAGE));
        let stream = time(&profile, stream, PAGE);
        assert_eq!(on(core, &profile, || pm_stream(0, PAGE)), stream);
        let fenced = || {
            pm_stream(0, PAGE);
            pm_fence();
        };
        assert_eq!(on(core, &profile, fenced), stream + fence);
    }
    let line = profile.number("pm.write_back").unwrap();
    assert_eq!(on(0, &profile, || pm_write_back(0, 3)), 3 * line);
}

#[test]
fn a_node_serves_its_cores_at_its_own_rate_and_others_take_more_of_it() {
    const ALL: [usize; NODE] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14];
    const OTHERS: [usize; NODE] = [15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29];
    // Cores that alone would be fast enough to leave the node the bottleneck in each case.
    let fast = |profile: Profile| {
        let paths = ["pm.core_stream", "pm.remote_stream", "pm.fence"];
        paths.iter().fold(profile, |profile, path| profile.with(path, 1, "fast").unwrap())
    };
    let profile = fast(profile(MACHINE));
    let least = NODE as u64 * PAGES * time(&profile, "pm.node_stream", PAGE);
    let own = writers(&profile, &ALL);
    assert!((least..least + least / 50).contains(&own), "{own} ns, at least {least}");
    for share in [1, 2, 3] {
        let profile = profile.with("pm.remote_share", share, "varied").unwrap();
        let took = writers(&profile, &OTHERS);
        let expected = share * least;
        assert!((expected..expected + expected / 50).contains(&took), "{share}: {took} ns");
    }
}

#[test]
fn a_node_with_too_many_writers_falls() {
    const TWO: [usize; 2] = [0, 1];
    const FOUR: [usize; 4] = [0, 1, 2, 3];
    let text = profile(MACHINE).to_toml();
    let collapse = "[pm]\ncollapse = { writers = 2, gb_per_s = 1.0, source = \"a test\" }";
    let text = text.replacen("[pm]", collapse, 1);
    let profile = Profile::from_toml(&text).expect("it is whole");
    assert_eq!(
        Profile::from_toml(&profile.to_toml()).unwrap().number("pm.collapse"),
        Some(1_024_000)
    );
    let rate = |cores: &'static [usize]| {
        (cores.len() as u64 * PAGES * PAGE) as f64 / writers(&profile, cores) as f64
    };
    assert!(rate(&TWO) > 3.0, "{} GB/s", rate(&TWO));
    assert!(rate(&FOUR) < 1.1, "{} GB/s", rate(&FOUR));
}

#[test]
fn without_the_section_it_is_the_sockets_memory() {
    let profile = profile("xeon-4116");
    assert_eq!(profile.number("pm.node_read"), None);
    let page = profile.core_memory_time(PAGE);
    assert_eq!(on(0, &profile, || pm_stream(0, PAGE)), page);
    assert_eq!(on(0, &profile, || pm_read(0, PAGE)), page);
    assert_eq!(on(0, &profile, pm_fence), 0);
}
