//! What a persistent memory costs on this machine: the floors below which no file system on it can
//! be. Each figure is the best of several rounds, so that a busy machine spoils none of them.

use cores::now;
use drive::pm::{LINE, Pm};
use serde::Serialize;

/// Bytes that are moved again and again: more than caches hold, little enough to be soon done.
const AREA_MAX: u64 = 64 << 20;
const CHUNK: usize = 1 << 20;
const ROUNDS: usize = 5;
const OPS: u64 = 100_000;

/// The floors of one memory.
#[derive(Clone, Debug, Serialize)]
pub struct Floors {
    /// What survives: `memory`, `caches` or `process`.
    pub domain: &'static str,
    /// Streaming stores, with a fence after each MiB.
    pub stream_bytes_per_s: f64,
    /// Stores through the cache, without write-backs.
    pub store_bytes_per_s: f64,
    /// Loads into a buffer in the cache.
    pub read_bytes_per_s: f64,
    /// Streaming 4 KiB, and a fence.
    pub block_ns: f64,
    /// Storing a word, writing back its line, and a fence; other lines each time.
    pub line_ns: f64,
    /// A fence with nothing to wait for.
    pub fence_ns: f64,
}

/// Measures, and overwrites what `pm` holds.
pub fn floors(pm: &dyn Pm) -> Floors {
    let area = area(pm);
    let mut buffer = vec![0x5a; CHUNK.min(area as usize)];
    let unit = buffer.len() as u64;
    let places = |unit: u64| (0..area / unit).map(move |n| n * unit);
    let rate = |ns: f64| (area / unit * unit) as f64 / ns * 1e9;
    let store = best(|| places(unit).for_each(|at| pm.store(at, &buffer)));
    let blocks = || places(4096).cycle().take(OPS as usize);
    let block = best(|| {
        for at in blocks() {
            pm.stream(at, &buffer[..4096]);
            pm.fence();
        }
    });
    let line = best(|| {
        for at in places(LINE).cycle().take(OPS as usize) {
            pm.store_word(at, at);
            pm.write_back(at, 8);
            pm.fence();
        }
    });
    let fence = best(|| (0..OPS).for_each(|_| pm.fence()));
    let read = best(|| places(unit).for_each(|at| pm.read(at, &mut buffer)));
    Floors {
        domain: pm.info().domain.name(),
        stream_bytes_per_s: stream_rate(pm),
        store_bytes_per_s: rate(store),
        read_bytes_per_s: rate(read),
        block_ns: block / OPS as f64,
        line_ns: line / OPS as f64,
        fence_ns: fence / OPS as f64,
    }
}

/// Bytes per second of streaming stores with a fence after each MiB. Overwrites what `pm` holds.
fn stream_rate(pm: &dyn Pm) -> f64 {
    let area = area(pm);
    let buffer = vec![0x5a; CHUNK.min(area as usize)];
    let unit = buffer.len() as u64;
    let took = best(|| {
        for at in (0..area / unit).map(|n| n * unit) {
            pm.stream(at, &buffer);
            pm.fence();
        }
    });
    (area / unit * unit) as f64 / took * 1e9
}

/// Bytes that are moved again and again.
fn area(pm: &dyn Pm) -> u64 {
    let area = (pm.info().bytes.min(AREA_MAX) / CHUNK as u64).max(1) * CHUNK as u64;
    area.min(pm.info().bytes)
}

/// The shortest of some rounds, in nanoseconds, after one that touches everything.
fn best(mut work: impl FnMut()) -> f64 {
    work();
    let round = |_| {
        let start = now();
        work();
        now().saturating_sub(start)
    };
    (0..ROUNDS).map(round).min().unwrap_or(0).max(1) as f64
}

#[cfg(test)]
mod tests {
    use drive::pm::{Domain, PmSim, PmState};

    use super::*;

    #[test]
    fn a_memory_smaller_than_a_chunk_is_measured_too() {
        let pm = PmSim::power_on(PmState::new(8192), Domain::Process);
        assert_eq!(pm.info().bytes, 8192);
        let mut word = [0; 8];
        pm.stream(0, &[1; 64]);
        pm.read(0, &mut word);
        assert_eq!(word, [1; 8]);
        assert!(best(|| ()) >= 1.0);
    }
}
