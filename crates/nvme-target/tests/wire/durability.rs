//! Power cuts as a host sees them: what was acknowledged after a flush or with FUA is there when it
//! connects again, whenever the cut came; nothing is there that was never written; and write
//! pointers are where they were left.
//!
//! `CUTS=10000 cargo test -p strandline-nvme-target --test wire durability` makes more of them,
//! `SEED` others.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::host::{BLOCK, Data, FUA, Host, NQN, Queue, Setup, at, serve, sqe, zoned};
use drive::{Ssd, Timing};
use nvme_target::{After, Options, Server, Unit, When};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const ZONES: u64 = 6;
const ZONE: u64 = 64;
const CAPACITY: u64 = 48;
/// Blocks of the conventional namespace that are written.
const RANDOM: u64 = 12;

fn from_environment(name: &str, default: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.map_or(default, |v| v.parse().unwrap_or_else(|e| panic!("{name}={v}: {e}")))
}

/// A block that says which write it came from.
fn block(stamp: u64) -> Vec<u8> {
    let mut bytes = stamp.to_le_bytes().repeat(BLOCK / 8);
    bytes[0] ^= 0x55;
    bytes
}

/// What a host knows of a zone.
#[derive(Clone, Default)]
struct Zone {
    /// Stamps of all blocks written since the last reset, acknowledged or not.
    written: Vec<u64>,
    /// How many of them must be there.
    durable: usize,
    /// How many were acknowledged.
    acknowledged: usize,
    /// A reset was sent and not acknowledged: empty is fine, too.
    resetting: bool,
}

/// What a host knows of a block of the conventional namespace.
#[derive(Clone, Default)]
struct Cell {
    /// What must be there, or something newer.
    durable: u64,
    newer: Vec<u64>,
}

#[derive(Clone, Copy)]
enum Sent {
    Append { zone: usize, blocks: usize, fua: bool },
    Write { cell: u64, stamp: u64, fua: bool },
    Flush,
    Reset { zone: usize },
}

struct Oracle {
    chance: Xoshiro256PlusPlus,
    zones: Vec<Zone>,
    cells: BTreeMap<u64, Cell>,
    stamp: u64,
    in_flight: BTreeMap<u16, Sent>,
}

impl Oracle {
    fn new(seed: u64) -> Self {
        Self {
            chance: Xoshiro256PlusPlus::seed_from_u64(seed),
            zones: vec![Zone::default(); ZONES as usize],
            cells: (0..RANDOM).map(|cell| (cell, Cell::default())).collect(),
            stamp: 0,
            in_flight: BTreeMap::new(),
        }
    }

    fn stamp(&mut self) -> u64 {
        self.stamp += 1;
        self.stamp
    }

    /// Sends a command that makes sense now.
    fn send(&mut self, io: &mut Queue) {
        let fua = self.chance.random_bool(0.2);
        let flags = if fua { FUA } else { 0 };
        let busy = |of: usize| {
            move |sent: &Sent| match sent {
                Sent::Append { zone, .. } | Sent::Reset { zone } => *zone == of,
                _ => false,
            }
        };
        let zone = self.chance.random_range(0..ZONES as usize);
        // One command for a zone at a time, so that what was written is known in its order.
        let free = !self.in_flight.values().any(busy(zone));
        let (cid, sent) = match self.chance.random_range(0..10) {
            0 => (io.submit(&sqe(0, 2, &[]), Data::None), Sent::Flush),
            1 if free && self.zones[zone].acknowledged > 20 => {
                self.zones[zone].resetting = true;
                let command = sqe(0x79, 2, &[zone as u32 * ZONE as u32, 0, 0, 4]);
                (io.submit(&command, Data::None), Sent::Reset { zone })
            }
            2..=6 if free => {
                let room = CAPACITY as usize - self.zones[zone].written.len();
                let blocks = self.chance.random_range(1..8).min(room);
                if blocks == 0 {
                    return;
                }
                let stamps: Vec<u64> = (0..blocks).map(|_| self.stamp()).collect();
                let bytes: Vec<u8> = stamps.iter().flat_map(|stamp| block(*stamp)).collect();
                self.zones[zone].written.extend(stamps);
                let command = at(0x7d, 2, zone as u64 * ZONE, blocks as u32, flags);
                let data = if blocks > 2 { Data::Send(&bytes) } else { Data::Capsule(&bytes) };
                (io.submit(&command, data), Sent::Append { zone, blocks, fua })
            }
            _ => {
                let cell = self.chance.random_range(0..RANDOM);
                let same = |s: &Sent| matches!(s, Sent::Write { cell: of, .. } if *of == cell);
                if self.in_flight.values().any(same) {
                    return;
                }
                let stamp = self.stamp();
                self.cells.get_mut(&cell).unwrap().newer.push(stamp);
                let command = at(0x01, 1, cell, 1, flags);
                let cid = io.submit(&command, Data::Capsule(&block(stamp)));
                (cid, Sent::Write { cell, stamp, fua })
            }
        };
        self.in_flight.insert(cid, sent);
    }

    /// A command was acknowledged.
    fn learn(&mut self, cid: u16) {
        match self.in_flight.remove(&cid).expect("a command of ours") {
            Sent::Append { zone, blocks, fua } => {
                let zone = &mut self.zones[zone];
                zone.acknowledged += blocks;
                // What is durable of a zone is a prefix.
                zone.durable = if fua { zone.acknowledged } else { zone.durable };
            }
            Sent::Write { cell, stamp, fua } if fua => {
                let cell = self.cells.get_mut(&cell).unwrap();
                (cell.durable, cell.newer) = (stamp, Vec::new());
            }
            Sent::Write { .. } => {}
            Sent::Flush => {
                let unsettled: Vec<u64> = self.unsettled();
                for zone in self.zones.iter_mut().filter(|zone| !zone.resetting) {
                    zone.durable = zone.acknowledged;
                }
                for (number, cell) in &mut self.cells {
                    if !unsettled.contains(number)
                        && let Some(last) = cell.newer.pop()
                    {
                        (cell.durable, cell.newer) = (last, Vec::new());
                    }
                }
            }
            Sent::Reset { zone } => self.zones[zone] = Zone::default(),
        }
    }

    /// Conventional blocks with a write that is not acknowledged. A flush may have come before it.
    fn unsettled(&self) -> Vec<u64> {
        let of = |sent: &Sent| match sent {
            Sent::Write { cell, .. } => Some(*cell),
            _ => None,
        };
        self.in_flight.values().filter_map(of).collect()
    }

    /// Looks at the drive after a cut; what is found is durable from now on.
    fn judge(&mut self, io: &mut Queue) {
        self.in_flight.clear();
        let report = io.report(2, 0, 64 + ZONES as usize * 64, 0).ok().data;
        for (n, zone) in self.zones.iter_mut().enumerate() {
            let descriptor = &report[64 + n * 64..];
            let start = n as u64 * ZONE;
            let pointer = u64::from_le_bytes(descriptor[24..32].try_into().unwrap());
            let full = descriptor[1] >> 4 == 14;
            let found = if full { CAPACITY } else { pointer - start } as usize;
            if zone.resetting && found == 0 {
                *zone = Zone::default();
                continue;
            }
            let (least, most) = (zone.durable, zone.written.len());
            assert!((least..=most).contains(&found), "zone {n}: {found} of {least}..={most}");
            let data = io.read(2, start, CAPACITY as u32).ok().data;
            for (m, bytes) in data.chunks(BLOCK).enumerate() {
                let expected = if m < found { block(zone.written[m]) } else { vec![0; BLOCK] };
                assert!(bytes == expected, "zone {n}, block {m} of {found}");
            }
            zone.written.truncate(found);
            (zone.durable, zone.acknowledged, zone.resetting) = (found, found, false);
        }
        for (number, cell) in &mut self.cells {
            let data = io.read(1, *number, 1).ok().data;
            let is = |stamp: u64| data == if stamp == 0 { vec![0; BLOCK] } else { block(stamp) };
            let known = std::iter::once(cell.durable).chain(cell.newer.iter().copied());
            let found = known.into_iter().find(|stamp| is(*stamp));
            let found = found.unwrap_or_else(|| panic!("block {number}: {:02x?}", &data[..8]));
            (cell.durable, cell.newer) = (found, Vec::new());
        }
    }
}

/// Runs until the power fails: at a command of the drive's choice, or at ours.
fn live(server: &Server, oracle: &mut Oracle, seed: u64) {
    let mut host = Host::connect(server.address(), Setup::default());
    oracle.judge(&mut host.io);
    let at_random = oracle.chance.random_bool(0.5);
    if at_random {
        let commands = oracle.chance.random_range(0..30);
        server.cut(When::Commands(commands), seed, After::Back).expect("a cut to come");
    }
    for _ in 0..40 {
        let depth = oracle.chance.random_range(1..8);
        while oracle.in_flight.len() < depth {
            let before = oracle.in_flight.len();
            oracle.send(&mut host.io);
            if oracle.in_flight.len() == before {
                break;
            }
        }
        if oracle.in_flight.is_empty() {
            continue;
        }
        match host.io.reap() {
            Some(done) => oracle.learn(done.ok().cid),
            None => return,
        }
    }
    server.cut(When::Now, seed, After::Back).expect("a cut");
    // The connection is gone, and answers that were under way with it.
    while let Some(done) = host.io.reap() {
        oracle.learn(done.ok().cid);
    }
}

fn campaign(ssd: Arc<Ssd>, cuts: u64, seed: u64) {
    let server = serve(ssd);
    let mut oracle = Oracle::new(seed);
    for cut in 0..cuts {
        live(&server, &mut oracle, seed.wrapping_mul(1_000_003).wrapping_add(cut));
    }
    assert!(server.cuts() >= cuts * 9 / 10, "{} cuts", server.cuts());
}

#[test]
fn what_was_flushed_is_there_after_any_cut() {
    let (cuts, seed) = (from_environment("CUTS", 300), from_environment("SEED", 1));
    campaign(zoned("zn540-noplp", ZONES as u32, Timing::Instant), cuts, seed);
}

/// A host that loses its connection to a cut and connects again at once is let in: the power is
/// back. One time in some thousand it was turned away, while the power was still coming back.
#[test]
fn who_connects_again_at_once_is_let_in() {
    let server = serve(zoned("zn540-noplp", 4, Timing::Instant));
    for n in 0..from_environment("CUTS", 2000) {
        let mut host = Host::connect(server.address(), Setup::default());
        server.cut(When::Commands(0), n, After::Back).expect("a cut to come");
        host.io.submit(&sqe(0, 2, &[]), Data::None);
        assert!(host.io.reap().is_none(), "the controller is lost");
        Queue::open(server.address(), Setup::default());
    }
}

/// With power-loss protection nothing that was acknowledged is lost, flushed or not.
#[test]
fn a_protected_drive_keeps_everything() {
    let server = serve(zoned("zn540", 4, Timing::Instant));
    for n in 0..20_u64 {
        let mut host = Host::connect(server.address(), Setup::default());
        host.io.append(2, 0, &block(n + 1)).ok();
        server.cut(When::Now, n, After::Back).expect("a cut");
        let mut host = Host::connect(server.address(), Setup::default());
        assert!(host.io.read(2, n, 1).ok().data == block(n + 1));
    }
}

/// Thesis 5.3.1: the drive goes on saying yes, so that a host can unmount, and nothing is written.
#[test]
fn dead_but_polite() {
    let server = serve(zoned("zn540-noplp", 4, Timing::Instant));
    let mut host = Host::connect(server.address(), Setup::default());
    host.io.append(2, 0, &block(1)).ok();
    host.io.flush(2).ok();
    host.io.append(2, 0, &block(2)).ok();
    server.cut(When::Now, 1, After::Polite).expect("a cut");
    host.io.append(2, 0, &block(3)).ok();
    host.io.write(1, 0, &block(4)).ok();
    host.io.flush(2).ok();
    server.restore(None).expect("power");
    assert!(host.io.reap().is_none(), "the controller is lost now");
    let mut host = Host::connect(server.address(), Setup::default());
    assert_eq!(host.io.append(2, 0, &block(5)).ok().result, 1, "behind what was flushed");
    assert_eq!(host.io.read(1, 0, 1).ok().data, vec![0; BLOCK]);
}

/// One supply feeds all drives: the first that gets to a later cut takes the others along, also if
/// none of them says so.
#[test]
fn a_polite_cut_takes_all_drives() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let drive = |name| Unit::new(name, zoned("zn540-noplp", 4, Timing::Instant));
    let units = vec![drive("one.img"), drive("two.img")];
    let server = Server::start(listener, units, Options::new(NQN)).expect("a server");
    let mut host = Host::connect(server.address(), Setup::default());
    // Blocks of the first drive's conventional zones, and of the second's.
    let (first, second) = (1, 3);
    host.io.write_with(second, 0, &block(1), FUA).ok();
    server.cut(When::Commands(5), 1, After::Polite).expect("a cut to come");
    for n in 0..6 {
        assert_eq!(server.cuts(), 0);
        host.io.write_with(first, n, &block(n + 2), FUA).ok();
    }
    assert_eq!(server.cuts(), 1);
    host.io.write_with(second, 0, &block(9), FUA).ok();
    host.io.flush(second).ok();
    server.restore(None).expect("power");
    let mut host = Host::connect(server.address(), Setup::default());
    assert!(host.io.read(second, 0, 1).ok().data == block(1), "nothing is written any more");
    for n in 0..5 {
        assert!(host.io.read(first, n, 1).ok().data == block(n + 2));
    }
    assert_eq!(host.io.read(first, 5, 1).ok().data, vec![0; BLOCK]);
    assert_eq!(server.cuts(), 1);
}

/// NVMe base 2.0, 5.16.1.3: power cycles and unsafe shutdowns, as `nvme smart-log` prints them.
#[test]
fn a_cut_is_an_unsafe_shutdown() {
    let server = serve(zoned("zn540-noplp", 4, Timing::Instant));
    for cuts in 0..3_u128 {
        let mut host = Host::connect(server.address(), Setup::default());
        let health = host.admin.log(0, 2, 0, 0, 512).ok().data;
        let count = |at: usize| u128::from_le_bytes(health[at..at + 16].try_into().unwrap());
        assert_eq!((count(112), count(144)), (1 + cuts, cuts));
        server.cut(When::Now, 1, After::Back).expect("a cut");
    }
}

#[test]
fn power_that_stays_away_and_snapshots() {
    let server = serve(zoned("zn540-noplp", 4, Timing::Instant));
    let mut host = Host::connect(server.address(), Setup::default());
    host.io.append(2, 0, &block(1)).ok();
    assert!(!server.restore(None).expect("no change"), "the power is on");
    server.save("one block");
    host.io.append(2, 0, &block(2)).ok();
    server.cut(When::Now, 1, After::Off).expect("a cut");
    assert!(host.io.reap().is_none() && server.is_off());
    let mut refused = std::net::TcpStream::connect(server.address()).expect("a listener");
    let mut nothing = [0; 8];
    let read = std::io::Read::read(&mut refused, &mut nothing);
    assert!(matches!(read, Ok(0) | Err(_)), "nobody is there");
    assert!(server.restore(Some("one block")).expect("a snapshot"));
    assert!(server.restore(Some("another")).is_err());
    for _ in 0..3 {
        let mut host = Host::connect(server.address(), Setup::default());
        assert!(host.io.read(2, 0, 1).ok().data == block(1), "not flushed, but saved");
        assert_eq!(host.io.append(2, 0, &block(7)).ok().result, 1);
        host.io.flush(2).ok();
        server.restore(Some("one block")).expect("a snapshot");
    }
    assert!(server.forget("one block") && !server.forget("one block"));
}

#[test]
fn a_frozen_drive_hangs_and_goes_on() {
    let server = serve(zoned("zn540-noplp", 4, Timing::Instant));
    let mut host = Host::connect(server.address(), Setup::default());
    server.freeze(true);
    let cid = host.io.submit(&sqe(0, 2, &[]), Data::None);
    host.io.stream.set_read_timeout(Some(std::time::Duration::from_millis(200))).unwrap();
    let hangs = std::io::Read::read(&mut host.io.stream, &mut [0; 1]);
    assert!(hangs.is_err(), "no answer");
    server.freeze(false);
    host.io.stream.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
    assert_eq!(host.io.reap().unwrap().ok().cid, cid);
}
