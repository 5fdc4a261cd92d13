//! What no host should send, and hosts that vanish, stall or come in thousands: an error for them
//! alone, no panic, and memory within its bounds.
//!
//! `FUZZ_EXECUTIONS=1000000 cargo test --release -p strandline-nvme-target --test robustness` makes
//! a million cases, `FUZZ_SEED` others. A failure prints the bytes of the case.

mod host;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use drive::Timing;
use host::{
    BLOCK, Data, HOST_NQN, Host, NQN, Queue, Setup, admin, at, connect_data, icreq, pattern,
    serve_with, sqe, zoned,
};
#[cfg(feature = "auth")]
use nvme_target::{Keys, Options, Secret};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

fn from_environment(name: &str, default: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.map_or(default, |v| v.parse().unwrap_or_else(|e| panic!("{name}={v}: {e}")))
}

/// Counts panics of the server's threads, whose results are not collected.
fn count_panics() -> Arc<AtomicU64> {
    let count = Arc::new(AtomicU64::new(0));
    let (counted, hook) = (count.clone(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |info| {
        // A failing test panics, too.
        let of_a_test = info.location().is_some_and(|at| at.file().contains("tests/"));
        counted.fetch_add(u64::from(!of_a_test), Ordering::Relaxed);
        hook(info);
    }));
    count
}

/// Writes cases: mostly sound conversations with something wrong in them.
struct Author {
    chance: Xoshiro256PlusPlus,
    queue: Queue,
    controller: u16,
    /// How often a command is one of authentication.
    authenticates: f64,
}

impl Author {
    fn case(&mut self) -> Vec<u8> {
        let digests = if self.chance.random_bool(0.2) { 3 } else { 0 };
        self.queue.setup = Setup {
            header_digest: digests & 1 != 0,
            data_digest: digests & 2 != 0,
            ..self.queue.setup
        };
        let mut pdus = vec![icreq(self.chance.random_range(0..4), digests)];
        if self.chance.random_bool(0.9) {
            pdus.push(self.connect());
        }
        for _ in 0..self.chance.random_range(0..6) {
            let pdu = self.pdu();
            pdus.push(pdu);
        }
        for _ in 0..self.chance.random_range(0..4) {
            self.spoil(&mut pdus);
        }
        pdus.concat()
    }

    fn connect(&mut self) -> Vec<u8> {
        let io = self.chance.random_bool(0.7);
        let qid = if io { self.chance.random_range(1..=64_u32) } else { 0 };
        let controller = if io { self.controller } else { 0xffff };
        let mut command = sqe(0x7f, 1, &[qid << 16, 31, 0]);
        command[4] = 1;
        let data = connect_data(controller, NQN, HOST_NQN);
        self.queue.capsule(&command, Data::Capsule(&data)).0
    }

    /// A step of authentication, in any order.
    fn authentication(&mut self) -> Vec<u8> {
        let sends = self.chance.random_bool(0.6);
        let mut message = vec![0; [8, 72, 80, 1168][self.chance.random_range(0..4)]];
        let begin: [&[u8]; 4] = [
            &[0, 0, 0, 0, 7, 0, 0, 1, 1, 0, 3, 2, 1, 2, 3],
            &[1, 2, 0, 0, 7, 0, 32, 0, 1, 0, 0, 0, 5],
            &[1, 4, 0, 0, 7],
            &[0, 0xf0, 0, 0, 7],
        ];
        // Now and then in the middle of a conversation: one that is sound so far.
        let begin = begin[self.chance.random_range(0..4)];
        let length = begin.len().min(message.len());
        message[..length].copy_from_slice(&begin[..length]);
        let length = if sends { message.len() } else { 4096 };
        let mut command = sqe(0x7f, 0, &[0xe901_0100, length as u32]);
        command[4] = if sends { 5 } else { 6 };
        let data = match (sends, self.chance.random_bool(0.9)) {
            (true, true) => Data::Capsule(&message),
            _ => Data::Want(length),
        };
        self.queue.capsule(&command, data).0
    }

    fn pdu(&mut self) -> Vec<u8> {
        if self.chance.random_bool(self.authenticates) {
            return self.authentication();
        }
        let opcodes = [0, 1, 2, 5, 8, 9, 0xc, 0x79, 0x7a, 0x7d, 6, 0xa, 0x7f, 0x18];
        let opcode = opcodes[self.chance.random_range(0..opcodes.len())];
        let nsid = self.chance.random_range(0..4);
        let lba = self.chance.random_range(0..500);
        let blocks = self.chance.random_range(1..40);
        let block = pattern(lba, 2);
        let data = match self.chance.random_range(0..5) {
            0 => Data::None,
            1 => Data::Capsule(&block[..BLOCK]),
            2 => Data::Capsule(&block),
            3 => Data::Want(blocks as usize * BLOCK),
            _ => Data::Want(4096),
        };
        match self.chance.random_range(0..12) {
            0 => {
                let tag = self.chance.random_range(0..3);
                let cid = 0x1000 + self.chance.random_range(0..50);
                let flags = if self.chance.random() { 4 } else { 0 };
                self.queue.data_pdu(cid, tag, 0, &block, flags)
            }
            1 => {
                let mut bytes = vec![0; self.chance.random_range(1..200)];
                self.chance.fill(&mut bytes[..]);
                bytes
            }
            _ => {
                let mut command = at(opcode, nsid, lba, blocks, 0);
                if self.chance.random_bool(0.5) {
                    let dword = self.chance.random_range(10..16) * 4;
                    command[dword..dword + 4]
                        .copy_from_slice(&self.chance.random::<u32>().to_le_bytes());
                }
                self.queue.capsule(&command, data).0
            }
        }
    }

    /// Something goes wrong on the way.
    fn spoil(&mut self, pdus: &mut Vec<Vec<u8>>) {
        let which = self.chance.random_range(0..pdus.len());
        let pdu = &mut pdus[which];
        match self.chance.random_range(0..6) {
            0 | 1 => {
                // Headers are worth more than data.
                let end = if self.chance.random_bool(0.8) { pdu.len().min(80) } else { pdu.len() };
                let byte = self.chance.random_range(0..end.max(1));
                if let Some(byte) = pdu.get_mut(byte) {
                    *byte = self.chance.random();
                }
            }
            2 => pdu.truncate(self.chance.random_range(0..=pdu.len())),
            3 => {
                let copy = pdu.clone();
                pdus.insert(which, copy);
            }
            4 => {
                pdus.remove(which);
                if pdus.is_empty() {
                    pdus.push(vec![0]);
                }
            }
            _ => {
                let field = self.chance.random_range(0..8);
                if let Some(byte) = pdu.get_mut(field) {
                    *byte = [0, 1, 0x7f, 0x80, 0xff][self.chance.random_range(0..5)];
                }
            }
        }
    }
}

/// Sends `bytes`, ends its side of the stream, and reads until the server has closed.
fn converse(address: SocketAddr, bytes: &[u8]) -> Result<(), String> {
    let told = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect(address).map_err(told)?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).map_err(told)?;
    let gone = |error: &std::io::Error| {
        matches!(
            error.kind(),
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::NotConnected
        )
    };
    match stream.write_all(bytes) {
        Err(error) if !gone(&error) => return Err(told(error)),
        _ => {}
    }
    let _ = stream.shutdown(Shutdown::Write);
    let mut buffer = [0; 1 << 14];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if gone(&error) => return Ok(()),
            // The test was stopped and went on.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(format!("no end: {error}")),
        }
    }
}

#[test]
fn malformed_conversations_are_survived() {
    let count = from_environment("FUZZ_EXECUTIONS", 4000);
    let seed = from_environment("FUZZ_SEED", 1);
    let panics = count_panics();
    let mut servers = vec![(Timing::Instant, false), (Timing::Paced, false)];
    if cfg!(feature = "auth") {
        servers.push((Timing::Instant, true));
    }
    for &(timing, keys) in &servers {
        let server = serve_with(zoned("zn540-noplp", 6, timing), |options| {
            options.handshake = 1_000_000_000;
            #[cfg(feature = "auth")]
            if keys {
                demand_secret(options);
            }
        });
        let mut good = (!keys).then(|| admin(server.address(), Setup::default(), 0));
        let controller = good.as_ref().map_or(1, |(_, controller)| *controller);
        let queue = Queue::open(server.address(), Setup::default());
        let chance = Xoshiro256PlusPlus::seed_from_u64(seed);
        let authenticates = if keys { 0.6 } else { 0.02 };
        let mut author = Author { chance, queue, controller, authenticates };
        for n in 0..count.div_ceil(servers.len() as u64) {
            let bytes = author.case();
            let hex = || bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            let ended = converse(server.address(), &bytes);
            let panicked = panics.load(Ordering::Relaxed) > 0;
            assert!(ended.is_ok() && !panicked, "seed {seed}, case {n}: {ended:?}\n{}", hex());
            if let Some((good, _)) = good.as_mut().filter(|_| n % 256 == 0) {
                good.identify(0, 1, 0).ok();
            }
        }
        drop((good, author));
        server.close();
    }
    assert_eq!(panics.load(Ordering::Relaxed), 0);
}

#[cfg(feature = "auth")]
fn demand_secret(options: &mut Options) {
    let text = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
    let host: Secret = text.parse().expect("a secret");
    options.keys = Some(Arc::new(Keys { host, controller: None }));
}

fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// A thousand hosts, each of which promises megabytes and sends all but a little of them.
#[test]
fn a_thousand_connections() {
    const HOSTS: usize = 1000;
    const LIMIT: usize = 64 << 20;
    let mut limits = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limits.current = limits.maximum;
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limits).expect("descriptors");
    let server = serve_with(drive::ram(1024), |options| {
        (options.connections, options.transfer_bytes) = (HOSTS + 24, LIMIT as u64);
        (options.handshake, options.patience) = (600_000_000_000, 600_000_000_000);
    });
    let before = resident();
    let (_admin, controller) = admin(server.address(), Setup::default(), 0);
    let mut hosts: Vec<Queue> = (0..HOSTS)
        .map(|n| {
            let mut queue = Queue::open(server.address(), Setup::default());
            if n < 64 {
                queue.connect(n as u16 + 1, controller, NQN, 0).ok();
            } else {
                queue.connect(0, 0xffff, NQN, 0).ok();
            }
            queue
        })
        .collect();
    assert_eq!(server.connections(), HOSTS + 1);
    let half = vec![7; 128 * BLOCK];
    for queue in &mut hosts[..64] {
        let cids: Vec<u16> = (0..64)
            .map(|_| queue.submit(&at(0x01, 1, 0, 128, 0), Data::Want(128 * BLOCK)))
            .collect();
        // What is asked for is sent, but for the last byte.
        queue.stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let mut requests = vec![0; 24 * 64];
        let read = queue.stream.read(&mut requests).unwrap_or(0);
        for r2t in requests[..read].chunks_exact(24) {
            let tag = u16::from_le_bytes([r2t[10], r2t[11]]);
            let cid = u16::from_le_bytes([r2t[8], r2t[9]]);
            assert!(r2t[0] == 9 && cids.contains(&cid), "{r2t:02x?}");
            let bytes = queue.data_pdu(cid, tag, 0, &half, 4);
            queue.stream.write_all(&bytes[..bytes.len() - 1]).unwrap();
        }
    }
    let grown = resident().saturating_sub(before);
    // A thread that moves data has a list of free pages; one that does not has its buffers.
    let bound = LIMIT + 64 * (half.len() + (4 << 20)) + (HOSTS + 24) * (192 << 10);
    assert!(grown < bound, "{} MiB of at most {}", grown >> 20, bound >> 20);
    // All of them vanish, and a new one finds all as it should be.
    drop(hosts);
    let mut host = Host::connect(server.address(), Setup::default());
    host.io.write(1, 0, &pattern(1, 128)).ok();
    while server.connections() > 3 {
        cores::sleep(1_000_000);
    }
}

/// A host that does not read what it asks for is no longer listened to; others are.
#[test]
fn who_does_not_read_waits() {
    let server = serve_with(drive::ram(1024), |options| options.patience = 1_000_000_000);
    let mut greedy = Host::connect(server.address(), Setup::default());
    let mut host = Host::connect(server.address(), Setup::default());
    greedy.io.stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    for _ in 0..100 {
        greedy.io.submit(&at(0x02, 1, 0, 256, 0), Data::Want(256 * BLOCK));
    }
    let start = cores::now();
    while server.connections() > 3 {
        host.io.read(1, 0, 1).ok();
        assert!(cores::now() - start < 20_000_000_000, "it was let go");
    }
}
