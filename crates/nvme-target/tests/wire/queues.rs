//! Connections, controllers and queues from the wire: connect, properties, identify, features,
//! logs, events, keep-alive, discovery, and what breaks the rules of the transport.
//!
//! Clauses are those of NVMe base 2.0 and NVMe TCP transport 1.0.

use std::io::{Read, Write};

use crate::host::{
    self, BLOCK, Data, HOST_NQN, Host, NQN, Queue, Setup, admin, at, connect_data, io, pattern,
    serve, serve_with, sqe, zoned,
};
use drive::{Timing, ram};

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// What Linux 6.1 asks for, in its order.
#[test]
fn a_controller_comes_up_as_linux_wants_it() {
    let server = serve(zoned("zn540-noplp", 6, Timing::Instant));
    let (mut admin, controller) = admin(server.address(), Setup::default(), 5000);
    let cap = admin.property(0, true).ok().result;
    assert_eq!((cap & 0xffff, cap >> 16 & 1, cap >> 37 & 1, cap >> 43 & 1), (127, 1, 1, 1));
    assert_eq!(admin.property(8, false).ok().result, 0x20000);
    let id = admin.identify(0, 1, 0).ok().data;
    assert_eq!((u16_at(&id, 78), u32_at(&id, 80), id[111]), (controller, 0x20000, 1));
    assert_eq!((u16_at(&id, 320) > 0, u32_at(&id, 536) & 3, id[525] & 1), (true, 1, 1));
    assert_eq!((u32_at(&id, 1792), u32_at(&id, 1796), u16_at(&id, 1800)), (516, 1, 0));
    assert_eq!((id[512], id[513], u32_at(&id, 516)), (0x66, 0x44, 2));
    assert!(id[768..].starts_with(NQN.as_bytes()));
    for csi in [0, 2] {
        let effects = admin.log(0, 5, csi, 0, 4096).ok().data;
        assert_eq!(u32_at(&effects, 1024 + 4) & 1, 1, "write");
        assert_eq!(u32_at(&effects, 1024 + 0x7d * 4) & 1, u32::from(csi == 2), "append");
    }
    assert_eq!(admin.set_feature(7, 0x0003_0003).ok().result, 0x0003_0003);
    assert_eq!(admin.set_feature(7, 0xfffe_fffe).ok().result, 0x003f_003f);
    let mut queues: Vec<Queue> =
        (1..=4).map(|qid| io(server.address(), Setup::default(), controller, qid)).collect();
    assert_eq!(admin.set_feature(7, 0).status, 0x00c, "there are queues already");
    let active = admin.identify(0, 2, 0).ok().data;
    assert_eq!([0, 4, 8].map(|n| u32_at(&active, n)), [1, 2, 0]);
    assert_eq!(u32_at(&admin.identify(1, 2, 0).ok().data, 0), 2, "behind namespace 1");
    assert_eq!(u32_at(&admin.identify(0, 7, 2).ok().data, 0), 2, "zoned ones");
    let csi = |admin: &mut Queue, nsid| {
        let list = admin.identify(nsid, 3, 0).ok().data;
        assert_eq!((list[0], list[20], list[40]), (2, 3, 4));
        list[44]
    };
    assert_eq!((csi(&mut admin, 1), csi(&mut admin, 2)), (0, 2));
    let ns = admin.identify(2, 0, 0).ok().data;
    assert_eq!((u64_at(&ns, 0), u64_at(&ns, 8), ns[130]), (6 * 64, 6 * 48, 12));
    let zns = admin.identify(2, 5, 2).ok().data;
    assert_eq!((u64_at(&zns, 2816), u32_at(&zns, 4), u32_at(&zns, 8)), (64, 5, 3));
    assert_eq!((admin.identify(1, 5, 2).status, admin.identify(3, 0, 0).status), (0x002, 0x00b));
    assert_eq!(admin.identify(0, 0x55, 0).status, 0x002);
    for (n, queue) in queues.iter_mut().enumerate() {
        queue.write(1, n as u64, &pattern(n as u64, 1)).ok();
    }
    assert!(queues[0].read(1, 3, 1).ok().data == pattern(3, 1));
    // 3.6.2: shutdown.
    admin.set_property(0x14, 0x0046_4061).ok();
    assert_eq!(admin.property(0x1c, false).ok().result >> 2 & 3, 2, "shutdown complete");
    // 3.7.2: a reset ends the I/O queues.
    admin.set_property(0x14, 0x0046_0060).ok();
    assert_eq!(admin.property(0x1c, false).ok().result & 1, 0);
    assert!(queues[1].pdu().is_none());
    admin.set_property(0x14, 0x0046_0061).ok();
    io(server.address(), Setup::default(), controller, 1).read(1, 0, 1).ok();
}

/// 3.3.1 and 6.3: what Connect refuses, and which parameter it blames.
#[test]
fn connects_that_are_refused() {
    let server = serve(ram(64));
    let address = server.address();
    let try_connect = |change: &dyn Fn(&mut [u8; 64], &mut Vec<u8>)| {
        let mut queue = Queue::open(address, Setup::default());
        let mut command = sqe(0x7f, 1, &[0, 31, 0]);
        command[4] = 1;
        let mut data = connect_data(0xffff, NQN, HOST_NQN);
        change(&mut command, &mut data);
        let done = queue.call(&command, Data::Capsule(&data));
        (done.status, done.result)
    };
    let (admin, controller) = admin(address, Setup::default(), 0);
    assert_eq!(try_connect(&|_, data| data[270] = b'x'), (0x182, 1 << 16 | 256), "subsystem");
    assert_eq!(try_connect(&|_, data| data[256..512].fill(b'n')), (0x182, 1 << 16 | 256));
    assert_eq!(try_connect(&|_, data| data[512..].fill(0)), (0x182, 1 << 16 | 512), "host");
    assert_eq!(try_connect(&|_, data| data[16] = 9), (0x182, 1 << 16 | 16), "a static controller");
    assert_eq!(try_connect(&|sqe, _| sqe[44..46].fill(0)), (0x182, 44), "no entries");
    assert_eq!(try_connect(&|sqe, _| sqe[44] = 128), (0x182, 44), "too many");
    assert_eq!(try_connect(&|sqe, _| sqe[40] = 1), (0x180, 0), "format");
    let io_queue = |qid: u8, id: u16| {
        try_connect(&|sqe, data| {
            sqe[42] = qid;
            data[16..18].copy_from_slice(&id.to_le_bytes());
        })
    };
    assert_eq!(io_queue(1, 999), (0x182, 1 << 16 | 16), "no such controller");
    assert_eq!(io_queue(65, controller), (0x182, 42), "more queues than there are");
    let first = io(address, Setup::default(), controller, 1);
    assert_eq!(io_queue(1, controller), (0x00c, 0), "connected already");
    drop(first);
    let other_host = try_connect(&|sqe, data| {
        sqe[42] = 2;
        data[16..18].copy_from_slice(&controller.to_le_bytes());
        data[0] = 1;
    });
    assert_eq!(other_host, (0x182, 1 << 16 | 16), "another host's controller");
    drop(admin);
    // Before Connect nothing else is answered, and a controller that is not enabled does little.
    let mut queue = Queue::open(address, Setup::default());
    assert_eq!(queue.identify(0, 1, 0).status, 0x00c);
    let id = queue.connect(0, 0xffff, NQN, 0).ok().result as u16;
    assert_eq!(queue.connect(0, 0xffff, NQN, 0).status, 0x00c, "twice");
    assert_eq!(queue.identify(0, 1, 0).status, 0x00c, "not enabled");
    assert_eq!(io_queue(1, id), (0x181, 0), "not enabled");
    queue.set_property(0x14, 0x0046_0011).ok();
    assert_eq!(queue.property(0x1c, false).ok().result & 3, 2, "a command set there is not");
}

#[test]
fn features_and_logs() {
    let server = serve(zoned("zn540-noplp", 4, Timing::Instant));
    let mut host = Host::connect(server.address(), Setup::default());
    let admin = &mut host.admin;
    let get = |admin: &mut Queue, what: u32| admin.call(&sqe(0x0a, 0, &[what]), Data::None);
    assert_eq!(get(admin, 6).ok().result, 1, "write cache");
    admin.set_feature(6, 0).ok();
    assert_eq!((get(admin, 6).ok().result, get(admin, 0x106).ok().result), (0, 1));
    assert_eq!(get(admin, 0x306).ok().result, 4, "changeable");
    assert_eq!(get(admin, 0x0f).ok().result, 0);
    assert_eq!(get(admin, 0x55).status, 0x002);
    assert_eq!(admin.call(&sqe(0x09, 0, &[1 << 31 | 6, 1]), Data::None).status, 0x10d);
    assert_eq!(admin.set_feature(0x19, 1).status, 0x02b);
    let behaviour: Vec<u8> = (0..512).map(|n| u8::from(n == 2)).collect();
    admin.call(&sqe(0x09, 0, &[0x16]), Data::Send(&behaviour)).ok();
    let kept = admin.call(&sqe(0x0a, 0, &[0x16]), Data::Want(512)).ok();
    assert_eq!(kept.data, behaviour);
    // Without its cache every write is a forced one: durable before it is acknowledged.
    host.io.append(2, 0, &pattern(1, 3)).ok();
    let after = server.units()[0].ssd().survivors(5);
    assert_eq!(after.write_pointers().nth(2), Some(3));
    let admin = &mut host.admin;
    assert_eq!(admin.log(0, 0x44, 0, 0, 512).status, 0x109);
    assert_eq!(admin.log(0, 2, 0, 516, 4).status, 0x002, "beyond its end");
    assert_eq!(admin.log(0, 2, 0, 0, 512).ok().data[1..3], 300_u16.to_le_bytes());
    assert_eq!(admin.log(0, 2, 0, 500, 512).ok().data.len(), 512);
    assert_eq!(admin.log(0, 3, 0, 0, 512).ok().data[0], 1);
    assert_eq!(u32_at(&admin.log(0, 0, 0, 0, 1024).ok().data, 0xbf * 4), 1);
    assert_eq!(admin.call(&sqe(0x08, 0, &[0]), Data::None).ok().result, 1, "abort");
    assert_eq!(admin.call(&sqe(0x7e, 0, &[0]), Data::None).status, 0x001);
}

/// ZNS 1.1, 4.1.4.2 and 5.2 of the base: an event once, until its log has been read.
#[test]
fn a_zone_that_fails_is_told() {
    let server = serve(zoned("zn540", 4, Timing::Instant));
    let (mut admin, _) = admin(server.address(), Setup::default(), 0);
    admin.set_feature(0x0b, 1 << 27).ok();
    let asked: Vec<u16> = (0..4).map(|_| admin.submit(&sqe(0x0c, 0, &[]), Data::None)).collect();
    assert_eq!(admin.call(&sqe(0x0c, 0, &[]), Data::None).status, 0x105, "one too many");
    server.fail_zone(0, 128 + 70, drive::ZoneState::ReadOnly).unwrap();
    let told = admin.reap().unwrap().ok();
    assert_eq!((told.cid, told.result), (asked[0], 2 << 32 | 0x00bf_ef02));
    server.fail_zone(0, 128 + 128, drive::ZoneState::Offline).unwrap();
    let log = admin.log(2, 0xbf, 0, 0, 4096).ok().data;
    assert_eq!((u16_at(&log, 0), u64_at(&log, 8), u64_at(&log, 16)), (2, 64, 128));
    // What came meanwhile was read with it; what comes now is told again.
    assert_eq!(u16_at(&admin.log(2, 0xbf, 0, 0, 4096).ok().data, 0), 0);
    server.fail_zone(0, 128 + 200, drive::ZoneState::ReadOnly).unwrap();
    let told = admin.reap().unwrap().ok();
    assert_eq!((told.cid, told.result), (asked[1], 2 << 32 | 0x00bf_ef02));
    assert_eq!(admin.log(1, 0xbf, 0, 0, 4096).status, 0x002, "not zoned");
}

#[test]
fn discovery_tells_of_the_subsystem() {
    let server = serve(ram(64));
    let mut queue = Queue::open(server.address(), Setup::default());
    queue.connect(0, 0xffff, nvme_target::DISCOVERY_NQN, 0).ok();
    queue.set_property(0x14, 0x0046_0001).ok();
    let id = queue.identify(0, 1, 0).ok().data;
    assert_eq!(id[111], 2, "a discovery controller");
    let log = queue.log(0, 0x70, 0, 0, 1024).ok().data;
    assert_eq!((u64_at(&log, 0), u64_at(&log, 8)), (1, 1));
    let entry = queue.log(0, 0x70, 0, 1024, 1024).ok().data;
    assert_eq!((entry[0], entry[1], entry[2]), (3, 1, 2));
    let text = |range: std::ops::Range<usize>| {
        let text = String::from_utf8(entry[range].to_vec()).unwrap();
        text.trim_matches(['\0', ' ']).to_owned()
    };
    assert_eq!(text(256..512), NQN);
    assert_eq!(text(512..768), "127.0.0.1");
    assert_eq!(text(32..64), server.address().port().to_string());
    assert_eq!(queue.log(0, 2, 0, 0, 512).status, 0x109);
}

/// 3.9: a host that is not heard of loses its controller, and one that is does not.
#[test]
fn keep_alive() {
    let server = serve(ram(64));
    let (mut silent, controller) = admin(server.address(), Setup::default(), 200);
    let mut its_io = io(server.address(), Setup::default(), controller, 1);
    let (mut alive, _) = admin(server.address(), Setup::default(), 200);
    for _ in 0..20 {
        cores::sleep(100_000_000);
        alive.call(&sqe(0x18, 0, &[]), Data::None).ok();
    }
    assert!(silent.pdu().is_none() && its_io.pdu().is_none());
    assert_eq!(server.controllers(), 1);
}

/// Commands overtake one another as the drive's timing says, and each is due when it is due.
#[test]
fn completions_come_as_the_drive_has_them() {
    let server = serve(zoned("zn540-noplp", 6, Timing::Paced));
    let mut host = Host::connect(server.address(), Setup::default());
    host.io.append(2, 0, &pattern(1, 48)).ok();
    host.io.flush(2).ok();
    // A flush that has much to program, then reads of what is on NAND and of what never was.
    let start = cores::now();
    let write = host.io.submit(&at(0x7d, 2, 64, 32, 0), Data::Send(&pattern(2, 32)));
    assert_eq!(host.io.reap().unwrap().ok().cid, write);
    let (flush, of_flush) = host.io.capsule(&sqe(0, 2, &[]), Data::None);
    let (read, of_read) = host.io.capsule(&at(0x02, 2, 0, 1, 0), Data::Want(BLOCK));
    let (empty, of_empty) = host.io.capsule(&at(0x02, 2, 256, 1, 0), Data::Want(BLOCK));
    host.io.stream.write_all(&[flush, read, empty].concat()).unwrap();
    let order: Vec<u16> = (0..3).map(|_| host.io.reap().unwrap().ok().cid).collect();
    assert_eq!(order, [of_read, of_empty, of_flush], "what was asked for first comes last");
    let profile = drive::Profile::named("zn540-noplp").unwrap();
    assert!(cores::now() - start > profile.program_ns.value, "a program takes its time");
}

/// Many commands in flight on many queues, while writes wait for their data.
#[test]
fn depth() {
    for timing in [Timing::Instant, Timing::Paced] {
        let server = serve(zoned("zn540", 20, timing));
        let (_admin, controller) = admin(server.address(), Setup::default(), 0);
        let threads: Vec<_> = (1..=4_u16)
            .map(|qid| {
                let address = server.address();
                cores::spawn("host", None, move || {
                    let mut queue = io(address, Setup::default(), controller, qid);
                    let zone = u64::from(qid) * 4 * 64;
                    let written: Vec<_> = (0..8_u64)
                        .map(|n| {
                            let bytes = pattern(zone + n, 24);
                            let zone = zone + n / 2 * 64;
                            let command = at(0x7d, 2, zone, 24, 0);
                            (queue.submit(&command, Data::Send(&bytes)), bytes)
                        })
                        .collect();
                    let done: Vec<_> = (0..8).map(|_| queue.reap().unwrap().ok()).collect();
                    for (cid, bytes) in written {
                        let at = done.iter().find(|done| done.cid == cid).unwrap().result;
                        assert!(queue.read(2, at, 24).ok().data == bytes);
                    }
                    let reads: Vec<u16> = (0..100)
                        .map(|n| queue.submit(&at(0x02, 2, zone + n % 48, 1, 0), Data::Want(BLOCK)))
                        .collect();
                    let mut came: Vec<u16> =
                        (0..100).map(|_| queue.reap().unwrap().ok().cid).collect();
                    came.sort_unstable();
                    assert_eq!(came, reads);
                })
            })
            .collect();
        threads.into_iter().for_each(cores::JoinHandle::join);
    }
}

/// However much a host sends, it has to connect: its connection counts towards the limit.
#[test]
fn who_never_connects_is_let_go() {
    let server = serve_with(ram(64), |options| options.handshake = 500_000_000);
    let mut queue = Queue::open(server.address(), Setup::default());
    let start = cores::now();
    while let Some(done) = {
        queue.submit(&sqe(0x18, 0, &[]), Data::None);
        queue.reap()
    } {
        assert_eq!(done.status, 0x00c, "command sequence error");
        assert!(cores::now() - start < 10_000_000_000, "it was let go");
    }
    assert!(cores::now() - start > 400_000_000, "in time");
}

/// Commands that arrive while the answers have reached their limit are worked on when those have
/// gone. They used to be left until the host sent more, which a host that waits for them does not
/// do.
#[test]
fn more_answers_than_may_wait() {
    const DEPTH: usize = 16;
    const LENGTH: usize = 256 * BLOCK;
    let server = serve_with(ram(256), |options| options.patience = 2_000_000_000);
    let setup = Setup { no_flow_control: true, ..Setup::default() };
    let mut host = Host::connect(server.address(), setup);
    let mut answers = vec![0; DEPTH * (24 + LENGTH)];
    for round in 0..40 {
        let read = |_| host.io.capsule(&at(0x02, 1, 0, 256, 0), Data::Want(LENGTH)).0;
        let reads: Vec<u8> = (0..DEPTH).flat_map(read).collect();
        host.io.stream.write_all(&reads).unwrap();
        let all = host.io.stream.read_exact(&mut answers);
        all.unwrap_or_else(|error| panic!("round {round}: {error}"));
    }
}

/// Transport 1.0, 3.6.2.6: the error, what it blames, and the end of that connection alone.
#[test]
fn fatal_errors_end_one_connection() {
    let server = serve(ram(256));
    let mut host = Host::connect(server.address(), Setup::default());
    let sound = Setup { header_digest: true, data_digest: true, ..Setup::default() };
    type Abuse = fn(&mut Queue) -> Vec<u8>;
    let cases: [(&str, Abuse, u16, u32); 9] = [
        ("unknown PDU", |_| vec![0x33, 0, 8, 0, 8, 0, 0, 0], 1, 0),
        ("a PDU of ours", |_| vec![0x05, 1, 24, 0, 24, 0, 0, 0], 1, 0),
        ("ICReq again", |_| host::icreq(0, 3), 2, 0),
        ("data nobody asked for", |q| q.data_pdu(7, 9, 0, &[1; 512], 4), 1, 10),
        ("an endless PDU", |_| vec![0x04, 3, 72, 76, 255, 255, 255, 255], 1, 4),
        ("no digest", |_| vec![0x04, 0, 72, 0, 72, 0, 0, 0], 1, 1),
        (
            "a wrong digest",
            |q| {
                let mut bytes = q.capsule(&sqe(0, 1, &[]), Data::None).0;
                bytes[72..76].copy_from_slice(&[1, 2, 3, 4]);
                bytes
            },
            3,
            0x0403_0201,
        ),
        (
            "data beyond the end",
            |q| {
                let cid = q.submit(&at(0x01, 1, 0, 4, 0), Data::Want(4 * BLOCK));
                let r2t = q.pdu().unwrap();
                q.data_pdu(cid, u16_at(&r2t, 10), 0, &[0; 5 * BLOCK], 4)
            },
            4,
            0,
        ),
        (
            "data that leaves a gap",
            |q| {
                let cid = q.submit(&at(0x01, 1, 0, 4, 0), Data::Want(4 * BLOCK));
                let r2t = q.pdu().unwrap();
                q.data_pdu(cid, u16_at(&r2t, 10), BLOCK, &[0; BLOCK], 0)
            },
            4,
            0,
        ),
    ];
    for (name, abuse, status, information) in cases {
        let mut abuser = Host::connect(server.address(), sound);
        let queue = &mut abuser.io;
        let bytes = abuse(queue);
        queue.stream.write_all(&bytes).unwrap();
        let pdu = queue.pdu().unwrap_or_else(|| panic!("{name}: no farewell"));
        assert_eq!((pdu[0], u16_at(&pdu, 8), u32_at(&pdu, 10)), (3, status, information), "{name}");
        assert_eq!(pdu[24..32], bytes[..8], "{name}: the header that is to blame");
        assert!(queue.pdu().is_none(), "{name}");
        host.io.read(1, 0, 1).ok();
    }
}

/// A wrong data digest is the fault of one command.
#[test]
fn damaged_data_fails_its_command() {
    let server = serve(ram(256));
    let setup = Setup { header_digest: true, data_digest: true, ..Setup::default() };
    let mut host = Host::connect(server.address(), setup);
    let (queue, bytes) = (&mut host.io, pattern(1, 4));
    let (mut capsule, _) = queue.capsule(&at(0x01, 1, 0, 1, 0), Data::Capsule(&bytes[..BLOCK]));
    *capsule.last_mut().unwrap() ^= 1;
    queue.stream.write_all(&capsule).unwrap();
    let done = queue.reap().unwrap();
    assert_eq!((done.status, done.do_not_retry), (0x022, false));
    let cid = queue.submit(&at(0x01, 1, 0, 4, 0), Data::Want(4 * BLOCK));
    let r2t = queue.pdu().unwrap();
    let tag = u16_at(&r2t, 10);
    let mut first = queue.data_pdu(cid, tag, 0, &bytes[..BLOCK], 0);
    first[100] ^= 1;
    let second = queue.data_pdu(cid, tag, BLOCK, &bytes[BLOCK..], 4);
    queue.stream.write_all(&first).unwrap();
    queue.stream.write_all(&second).unwrap();
    assert_eq!(queue.reap().unwrap().status, 0x022);
    assert_eq!(queue.read(1, 0, 4).ok().data, vec![0; 4 * BLOCK], "nothing was written");
}

#[test]
fn limits_of_connections_and_patience() {
    let server = serve_with(ram(256), |options| {
        (options.connections, options.handshake) = (3, 300_000_000);
        (options.patience, options.transfer_bytes) = (300_000_000, 0);
    });
    let address = server.address();
    let mut host = Host::connect(address, Setup::default());
    // A silent host is disconnected.
    let mut mute = Queue::open(address, Setup::default());
    assert!(mute.pdu().is_none());
    drop(mute);
    // One transfer a connection always has; others wait for it.
    let bytes = pattern(5, 8);
    let cids: Vec<u16> =
        (0..10).map(|n| host.io.submit(&at(0x01, 1, n * 8, 8, 0), Data::Send(&bytes))).collect();
    let done: Vec<u16> = (0..10).map(|_| host.io.reap().unwrap().ok().cid).collect();
    assert_eq!(done, cids);
    // One connection too many hears that there are too many.
    while server.connections() > 2 {
        cores::sleep(1_000_000);
    }
    let _third = Queue::open(address, Setup::default());
    let mut fourth = Queue::open(address, Setup::default());
    assert_eq!(fourth.connect(0, 0xffff, NQN, 0).status, 0x181, "busy");
    // A host that promised data and does not send it is disconnected after a while, and nobody else
    // is.
    let mut other = Host { io: host.io, ..host };
    other.io.submit(&at(0x01, 1, 0, 8, 0), Data::Want(8 * BLOCK));
    assert_eq!(other.io.pdu().map(|r2t| r2t[0]), Some(9));
    assert!(other.io.pdu().is_none());
    other.admin.identify(0, 1, 0).ok();
}
