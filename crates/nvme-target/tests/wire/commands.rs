//! Commands from the wire: data, zones, and the status of each that is wrong.
//!
//! Clauses are those of NVM command set 1.0 and ZNS 1.1.

use crate::host::{
    self, BLOCK, DEALLOCATE, Data, FUA, Host, Setup, at, pattern, serve, sqe, zoned,
};
use drive::{Timing, ram};

const SETUPS: [Setup; 4] = [
    Setup { header_digest: false, data_digest: false, align: 0, no_flow_control: false },
    Setup { header_digest: true, data_digest: true, align: 0, no_flow_control: false },
    Setup { header_digest: false, data_digest: true, align: 31, no_flow_control: true },
    Setup { header_digest: true, data_digest: false, align: 1, no_flow_control: true },
];

/// What was written is read: in the capsule and after R2T, in any length, with any digests.
#[test]
fn data_goes_there_and_back() {
    let server = serve(ram(4096));
    for (n, setup) in SETUPS.into_iter().enumerate() {
        let mut host = Host::connect(server.address(), setup);
        for (m, blocks) in [1, 2, 3, 5, 64, 255, 256].into_iter().enumerate() {
            let (lba, bytes) =
                (n as u64 * 17 + m as u64 * 300, pattern((n * 8 + m) as u64, blocks));
            host.io.write(1, lba, &bytes).ok();
            assert!(host.io.read(1, lba, blocks as u32).ok().data == bytes, "{blocks} blocks");
            // A capsule is not the only way for what would fit in.
            let lba = lba + blocks as u64 % 256;
            let command = at(0x01, 1, lba, 1, FUA);
            host.io.call(&command, Data::Send(&bytes[..BLOCK])).ok();
            assert!(host.io.read(1, lba, 1).ok().data == bytes[..BLOCK]);
        }
        assert_eq!(host.io.read(1, 4095, 1).ok().data, vec![0; BLOCK]);
        host.io.flush(1).ok();
    }
}

#[test]
fn commands_of_the_nvm_command_set() {
    let server = serve(ram(1024));
    let mut host = Host::connect(server.address(), SETUPS[1]);
    let io = &mut host.io;
    let bytes = pattern(1, 16);
    io.write(1, 100, &bytes).ok();
    // 3.2.1 Compare
    let compare = at(0x05, 1, 100, 16, 0);
    io.call(&compare, Data::Send(&bytes)).ok();
    let mut other = bytes.clone();
    other[40_000] ^= 1;
    assert_eq!(io.call(&compare, Data::Send(&other)).status, 0x285, "compare failure");
    let small = at(0x05, 1, 101, 1, 0);
    io.call(&small, Data::Capsule(&bytes[BLOCK..2 * BLOCK])).ok();
    assert_eq!(io.call(&small, Data::Capsule(&bytes[..BLOCK])).status, 0x285);
    // 3.2.7 Verify
    io.call(&at(0x0c, 1, 100, 16, 0), Data::None).ok();
    // 3.2.8 Write Zeroes, with and without deallocation
    io.call(&at(0x08, 1, 102, 3, FUA), Data::None).ok();
    io.call(&at(0x08, 1, 110, 2, DEALLOCATE), Data::None).ok();
    let mut expected = bytes.clone();
    expected[2 * BLOCK..5 * BLOCK].fill(0);
    expected[10 * BLOCK..12 * BLOCK].fill(0);
    assert!(io.read(1, 100, 16).ok().data == expected);
    // 3.2.3 Dataset Management: two ranges, then the same without the deallocate attribute.
    let range = |lba: u64, blocks: u32| {
        let mut bytes = vec![0; 4];
        bytes.extend(blocks.to_le_bytes());
        bytes.extend(lba.to_le_bytes());
        bytes
    };
    let ranges = [range(100, 1), range(112, 4)].concat();
    io.call(&sqe(0x09, 1, &[1, 0]), Data::Capsule(&ranges)).ok();
    assert!(io.read(1, 100, 16).ok().data == expected);
    io.call(&sqe(0x09, 1, &[1, 4]), Data::Capsule(&ranges)).ok();
    expected[..BLOCK].fill(0);
    expected[12 * BLOCK..].fill(0);
    assert!(io.read(1, 100, 16).ok().data == expected);
    let beyond = [range(0, 1), range(1020, 5)].concat();
    assert_eq!(io.call(&sqe(0x09, 1, &[1, 4]), Data::Send(&beyond)).status, 0x80);
    // Linux sends 4096 bytes, however few are used.
    let padded = [&range(0, 1)[..], &[0xff; 4080]].concat();
    io.call(&sqe(0x09, 1, &[0, 4]), Data::Capsule(&padded)).ok();
    let all: Vec<u8> = (0..256).flat_map(|n| range(n, 1)).collect();
    io.call(&sqe(0x09, 1, &[255, 4]), Data::Send(&all)).ok();
    assert_eq!(io.read(1, 0, 256).ok().data, vec![0; 256 * BLOCK]);
}

#[test]
fn wrong_commands_get_their_status() {
    let server = serve(ram(1024));
    let mut host = Host::connect(server.address(), SETUPS[0]);
    let (io, block) = (&mut host.io, pattern(9, 1));
    let mut no_sgl = at(0x02, 1, 0, 1, 0);
    no_sgl[1] = 0;
    let mut fused = at(0x02, 1, 0, 1, 0);
    fused[1] = 0x41;
    let want = || Data::Want(BLOCK);
    let none = || Data::None;
    let cases = [
        ("unknown opcode", at(0x55, 1, 0, 1, 0), want(), 0x001),
        ("zone append without zones", at(0x7d, 1, 0, 1, 0), Data::Capsule(&block), 0x001),
        ("zone report without zones", sqe(0x7a, 1, &[0, 0, 1023, 0]), want(), 0x001),
        ("PRP", no_sgl, want(), 0x002),
        ("fused", fused, want(), 0x002),
        ("namespace 0", at(0x02, 0, 0, 1, 0), want(), 0x00b),
        ("namespace 2", at(0x02, 2, 0, 1, 0), want(), 0x00b),
        ("all namespaces", sqe(0x00, u32::MAX, &[]), none(), 0x00b),
        ("beyond the end", at(0x02, 1, 1024, 1, 0), want(), 0x080),
        ("over the end", at(0x02, 1, 1023, 2, 0), Data::Want(2 * BLOCK), 0x080),
        ("far beyond", at(0x02, 1, u64::MAX, 2, 0), Data::Want(2 * BLOCK), 0x080),
        ("too long", at(0x02, 1, 0, 257, 0), Data::Want(257 * BLOCK), 0x002),
        ("too long a write", at(0x01, 1, 0, 65536, 0), Data::Want(1 << 28), 0x002),
        ("too many zeroes", at(0x08, 1, 0, 257, 0), none(), 0x002),
        ("too short an SGL", at(0x02, 1, 0, 2, 0), want(), 0x00f),
        ("no SGL at all", at(0x02, 1, 0, 1, 0), none(), 0x00f),
        ("too short data", at(0x01, 1, 0, 2, 0), Data::Capsule(&block), 0x00f),
        ("too long data", at(0x01, 1, 0, 1, 0), Data::Want(2 * BLOCK), 0x00f),
        ("write of nothing", at(0x01, 1, 0, 1, 0), none(), 0x00f),
        ("answer in a capsule", at(0x02, 1, 0, 1, 0), Data::Capsule(&block), 0x011),
    ];
    for (name, command, data, status) in cases {
        let done = io.call(&command, data);
        assert_eq!((done.status, done.do_not_retry), (status, true), "{name}");
        assert!(done.data.is_empty(), "{name}");
    }
    io.read(1, 0, 1).ok();
}

/// Data that should be in the capsule and is not.
#[test]
fn capsules_are_looked_into_with_care() {
    let server = serve(ram(1024));
    let mut host = Host::connect(server.address(), SETUPS[0]);
    for (offset, length, status) in
        [(4_u64, 4096_u32, 0x16), (u64::MAX, 4096, 0x16), (0, 8192, 0x0f), (0, 0, 0x0f)]
    {
        let block = pattern(3, 1);
        let (mut bytes, _) = host.io.capsule(&at(0x01, 1, 0, 1, 0), Data::Capsule(&block));
        bytes[8 + 24..8 + 32].copy_from_slice(&offset.to_le_bytes());
        bytes[8 + 32..8 + 36].copy_from_slice(&length.to_le_bytes());
        std::io::Write::write_all(&mut host.io.stream, &bytes).unwrap();
        assert_eq!(host.io.reap().unwrap().status, status, "{offset} {length}");
    }
}

fn descriptor(report: &[u8], n: usize) -> (u8, u64, u64, u64) {
    let at = 64 + n * 64;
    let number = |at: usize| u64::from_le_bytes(report[at..at + 8].try_into().unwrap());
    assert_eq!(report[at], 2, "sequential write required");
    (report[at + 1] >> 4, number(at + 8), number(at + 16), number(at + 24))
}

fn states(io: &mut host::Queue, count: usize) -> Vec<u8> {
    let report = io.report(2, 0, 64 + count * 64, 0).ok().data;
    (0..count).map(|n| descriptor(&report, n).0).collect()
}

/// The conventional zones are namespace 1, the others namespace 2; blocks are counted from each
/// one's start.
#[test]
fn zones_from_the_wire() {
    let server = serve(zoned("zn540", 6, Timing::Instant));
    let mut host = Host::connect(server.address(), SETUPS[1]);
    let io = &mut host.io;
    // Over the boundary of conventional zones, which the host knows nothing of.
    let bytes = pattern(1, 20);
    io.write(1, 50, &bytes).ok();
    assert!(io.read(1, 50, 20).ok().data == bytes);
    assert_eq!(io.read(1, 127, 2).status, 0x80, "the other namespace is not behind");
    // 2.1.1.5: writes at the write pointer, and nowhere else.
    io.write(2, 64, &bytes).ok();
    assert_eq!(io.write(2, 64, &bytes).status, 0x1bc, "invalid write");
    assert_eq!(io.write(2, 85, &bytes).status, 0x1bc);
    io.write(2, 84, &bytes).ok();
    assert_eq!(io.write(2, 104, &bytes).status, 0x1b8, "boundary");
    assert!(io.read(2, 64, 20).ok().data == bytes);
    assert_eq!(io.read(2, 104, 1).ok().data, vec![0; BLOCK], "above the write pointer");
    // 3.4.1 Zone Append: at the zone's start, answered with where.
    assert_eq!(io.append(2, 64, &bytes[..2 * BLOCK]).ok().result, 104);
    assert_eq!(io.append(2, 65, &bytes[..BLOCK]).status, 0x002);
    assert_eq!(io.append(2, 128, &bytes).ok().result, 128);
    assert_eq!(io.append(2, 128, &bytes[..BLOCK]).ok().result, 148);
    let report = io.report(2, 0, 4096, 0).ok().data;
    assert_eq!(u64::from_le_bytes(report[..8].try_into().unwrap()), 6);
    assert_eq!(descriptor(&report, 0), (1, 48, 0, 0));
    assert_eq!(descriptor(&report, 1), (2, 48, 64, 106));
    assert_eq!(descriptor(&report, 2), (2, 48, 128, 149));
    // Write Zeroes is a write.
    assert_eq!(io.call(&at(0x08, 2, 64, 6, 0), Data::None).status, 0x1bc);
    io.call(&at(0x08, 2, 106, 6, 0), Data::None).ok();
    assert_eq!(states(io, 6), [1, 14, 2, 1, 1, 1], "full by writing");
    assert_eq!(descriptor(&io.report(2, 64, 128, 0).ok().data, 0), (14, 48, 64, u64::MAX));
    assert_eq!(io.append(2, 64, &bytes[..BLOCK]).status, 0x1b9, "full");
    assert_eq!(io.write(2, 64, &bytes[..BLOCK]).status, 0x1b9);
    // Deallocation is a hint, and not taken in sequential zones.
    let range = [&[0; 4][..], &8_u32.to_le_bytes(), &64_u64.to_le_bytes()].concat();
    io.call(&sqe(0x09, 2, &[0, 4]), Data::Capsule(&range)).ok();
    assert!(io.read(2, 64, 20).ok().data == bytes);
}

/// ZNS 1.1, 3.4.3: every action, on one zone and on all.
#[test]
fn zone_management() {
    const CLOSE: u32 = 1;
    const FINISH: u32 = 2;
    const OPEN: u32 = 3;
    const RESET: u32 = 4;
    const OFFLINE: u32 = 5;
    const ALL: u32 = 1 << 8;
    let server = serve(zoned("zn540", 8, Timing::Instant));
    let mut host = Host::connect(server.address(), SETUPS[0]);
    let (io, block) = (&mut host.io, pattern(1, 1));
    io.manage(2, 0, OPEN).ok();
    io.append(2, 64, &block).ok();
    io.append(2, 128, &block).ok();
    io.manage(2, 128, CLOSE).ok();
    io.manage(2, 192, FINISH).ok();
    assert_eq!(states(io, 8), [3, 2, 4, 14, 1, 1, 1, 1]);
    assert_eq!(io.manage(2, 256, CLOSE).status, 0x1bf, "close of an empty zone");
    assert_eq!(io.manage(2, 192, OPEN).status, 0x1bf, "open of a full zone");
    assert_eq!(io.manage(2, 65, RESET).status, 0x002, "not a zone's start");
    assert_eq!(io.manage(2, 512, RESET).status, 0x080, "beyond the end");
    assert_eq!(io.manage(2, 0, 0).status, 0x002, "no action");
    assert_eq!(io.manage(2, 0, 0x10).status, 0x002, "descriptor extensions");
    assert_eq!(io.manage(2, 0, OFFLINE).status, 0x1bf);
    // Open zones: at most four; implicitly opened ones make room.
    for zone in [4, 5, 6] {
        io.manage(2, zone * 64, OPEN).ok();
    }
    assert_eq!(states(io, 8), [3, 4, 4, 14, 3, 3, 3, 1], "the implicit one was closed");
    assert_eq!(io.manage(2, 7 * 64, OPEN).status, 0x1bd, "six are active");
    io.manage(2, 128, RESET).ok();
    assert_eq!(io.manage(2, 7 * 64, OPEN).status, 0x1be, "four are open");
    io.manage(2, 12_345, CLOSE | ALL).ok();
    assert_eq!(states(io, 8), [4, 4, 1, 14, 4, 4, 4, 1]);
    io.manage(2, 0, RESET | ALL).ok();
    assert_eq!(states(io, 8), [1; 8]);
    io.append(2, 0, &block).ok();
    io.manage(2, 0, FINISH | ALL).ok();
    assert_eq!(states(io, 8), [14, 1, 1, 1, 1, 1, 1, 1]);
    // Zones that fail.
    server.fail_zone(0, 128 + 64, drive::ZoneState::ReadOnly).unwrap();
    server.fail_zone(0, 128 + 128, drive::ZoneState::Offline).unwrap();
    assert_eq!(io.write(2, 64, &block).status, 0x1ba);
    assert_eq!(io.write(2, 128, &block).status, 0x1bb);
    assert_eq!(io.read(2, 128, 1).status, 0x1bb);
    assert_eq!(io.manage(2, 64, RESET).status, 0x1bf);
    io.manage(2, 0, OFFLINE | ALL).ok();
    assert_eq!(states(io, 8), [14, 15, 15, 1, 1, 1, 1, 1]);
}

/// ZNS 1.1, 3.4.2: what is counted, from where, and how much of it is returned.
#[test]
fn zone_reports() {
    let server = serve(zoned("zn540", 8, Timing::Instant));
    let mut host = Host::connect(server.address(), SETUPS[0]);
    let (io, block) = (&mut host.io, pattern(1, 1));
    io.append(2, 64, &block).ok();
    io.append(2, 192, &block).ok();
    io.manage(2, 320, 2).ok();
    let count = |done: host::Done| u64::from_le_bytes(done.ok().data[..8].try_into().unwrap());
    const PARTIAL: u32 = 1 << 16;
    let filter = |state: u32| state << 8;
    assert_eq!(count(io.report(2, 0, 64, 0)), 8, "all, though none is returned");
    assert_eq!(count(io.report(2, 0, 64, PARTIAL)), 0);
    assert_eq!(count(io.report(2, 200, 64 + 2 * 64, PARTIAL)), 2, "from within a zone");
    assert_eq!(count(io.report(2, 200, 64 + 2 * 64, 0)), 5);
    assert_eq!(count(io.report(2, 0, 4096, filter(2))), 2, "implicitly open");
    assert_eq!(count(io.report(2, 128, 4096, filter(2))), 1);
    assert_eq!(count(io.report(2, 0, 128, filter(2))), 2);
    assert_eq!(count(io.report(2, 0, 128, filter(2) | PARTIAL)), 1);
    assert_eq!(count(io.report(2, 0, 4096, filter(5))), 1, "full");
    assert_eq!(count(io.report(2, 0, 4096, filter(1))), 5, "empty");
    let report = io.report(2, 0, 4096, filter(2)).ok().data;
    assert_eq!((descriptor(&report, 0).2, descriptor(&report, 1).2), (64, 192));
    assert!(report[64 + 2 * 64..].iter().all(|&byte| byte == 0));
    assert_eq!(io.report(2, 512, 4096, 0).status, 0x080);
    assert_eq!(io.report(2, 0, 60, 0).status, 0x002, "shorter than its header");
    assert_eq!(io.report(2, 0, 4096, 1).status, 0x002, "extended");
    assert_eq!(io.report(2, 0, 4096, filter(8)).status, 0x002);
    assert_eq!(io.report(1, 0, 4096, 0).status, 0x001, "not a zoned namespace");
}
