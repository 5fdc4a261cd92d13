//! A small NVMe/TCP host of our own, at the level of the wire: what a kernel would send, and what
//! none would. It knows nothing of the server but the specification.

#![allow(dead_code, reason = "each test uses its part")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use drive::{Spec, Ssd, Timing};
use nvme_target::{Options, Server, Unit};

pub(crate) const NQN: &str = "nqn.2026-11.com.example:test";
pub(crate) const HOST_NQN: &str = "nqn.2026-11.com.example:host";
pub(crate) const BLOCK: usize = 4096;

/// How a host sets a connection up.
#[derive(Clone, Copy, Default)]
pub(crate) struct Setup {
    pub(crate) header_digest: bool,
    pub(crate) data_digest: bool,
    /// HPDA, in dwords, counted from 0.
    pub(crate) align: u8,
    /// CATTR bit 2.
    pub(crate) no_flow_control: bool,
}

/// One connection.
pub(crate) struct Queue {
    pub(crate) stream: TcpStream,
    pub(crate) setup: Setup,
    next_cid: u16,
    max_h2c: usize,
    /// Data to send when asked, by command.
    owed: Vec<(u16, Vec<u8>)>,
    /// Data that came, by command.
    came: Vec<(u16, Vec<u8>)>,
    input: Vec<u8>,
}

/// A command's data.
pub(crate) enum Data<'a> {
    None,
    /// Goes in the capsule.
    Capsule(&'a [u8]),
    /// Goes when it is asked for.
    Send(&'a [u8]),
    /// So many bytes are wanted.
    Want(usize),
}

/// What a command came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) cid: u16,
    /// SCT << 8 | SC.
    pub(crate) status: u16,
    pub(crate) do_not_retry: bool,
    pub(crate) result: u64,
    pub(crate) data: Vec<u8>,
}

impl Done {
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.status, 0, "status {:#x}", self.status);
        self
    }
}

/// A submission queue entry of the given dwords 10 to 15.
pub(crate) fn sqe(opcode: u8, nsid: u32, dwords: &[u32]) -> [u8; 64] {
    let mut sqe = [0; 64];
    sqe[0] = opcode;
    sqe[1] = 0x40;
    sqe[4..8].copy_from_slice(&nsid.to_le_bytes());
    for (n, dword) in dwords.iter().enumerate() {
        sqe[40 + 4 * n..44 + 4 * n].copy_from_slice(&dword.to_le_bytes());
    }
    sqe
}

/// As [`sqe`], for `blocks` blocks at `lba`, with `flags` in the upper half of dword 12.
pub(crate) fn at(opcode: u8, nsid: u32, lba: u64, blocks: u32, flags: u32) -> [u8; 64] {
    sqe(opcode, nsid, &[lba as u32, (lba >> 32) as u32, (blocks - 1) | flags])
}

pub(crate) const FUA: u32 = 1 << 30;
pub(crate) const DEALLOCATE: u32 = 1 << 25;

impl Queue {
    /// Opens a connection, up to ICResp.
    pub(crate) fn open(address: SocketAddr, setup: Setup) -> Self {
        let stream = TcpStream::connect(address).expect("a server");
        stream.set_nodelay(true).expect("nodelay");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("timeout");
        let mut queue = Self {
            stream,
            setup,
            next_cid: 0x1000,
            max_h2c: 0,
            owed: Vec::new(),
            came: Vec::new(),
            input: Vec::new(),
        };
        let digests = u8::from(setup.header_digest) | u8::from(setup.data_digest) << 1;
        queue.stream.write_all(&icreq(setup.align, digests)).expect("ICReq");
        let pdu = queue.pdu().expect("ICResp");
        assert_eq!((pdu[0], pdu[2], pdu.len()), (1, 128, 128), "ICResp");
        assert_eq!((&pdu[8..10], pdu[10], pdu[11]), (&[0, 0][..], 0, digests));
        queue.max_h2c = u32::from_le_bytes(pdu[12..16].try_into().unwrap()) as usize;
        assert!(queue.max_h2c >= 4096 && queue.max_h2c.is_multiple_of(4));
        queue
    }

    /// Connect: the controller, or what was refused.
    pub(crate) fn connect(
        &mut self,
        qid: u16,
        controller: u16,
        nqn: &str,
        keep_alive: u32,
    ) -> Done {
        let attributes = u32::from(self.setup.no_flow_control) << 2;
        let entries = if qid == 0 { 31 } else { 127 };
        let mut command =
            sqe(0x7f, 1, &[u32::from(qid) << 16, entries | attributes << 16, keep_alive]);
        command[4] = 1;
        let data = connect_data(controller, nqn, HOST_NQN);
        self.call(&command, Data::Capsule(&data))
    }

    /// Sends a command; its identifier.
    pub(crate) fn submit(&mut self, sqe: &[u8; 64], data: Data<'_>) -> u16 {
        let (bytes, cid) = self.capsule(sqe, data);
        // If the connection is lost, waiting for the answer fails.
        let _ = self.stream.write_all(&bytes);
        cid
    }

    /// The bytes of a command capsule, and its identifier.
    pub(crate) fn capsule(&mut self, sqe: &[u8; 64], data: Data<'_>) -> (Vec<u8>, u16) {
        let cid = self.next_cid;
        self.next_cid = self.next_cid.wrapping_add(1).max(0x1000);
        let mut sqe = *sqe;
        sqe[2..4].copy_from_slice(&cid.to_le_bytes());
        let (kind, len, inside): (u8, usize, &[u8]) = match data {
            Data::None => (0x5a, 0, &[]),
            Data::Capsule(bytes) => (0x01, bytes.len(), bytes),
            Data::Send(bytes) => {
                self.owed.push((cid, bytes.to_vec()));
                (0x5a, bytes.len(), &[])
            }
            Data::Want(len) => (0x5a, len, &[]),
        };
        sqe[32..36].copy_from_slice(&(len as u32).to_le_bytes());
        sqe[39] = kind;
        (self.frame(0x04, 0, &sqe, inside), cid)
    }

    /// A PDU with our digests.
    pub(crate) fn frame(&self, kind: u8, flags: u8, body: &[u8], data: &[u8]) -> Vec<u8> {
        let header = 8 + body.len();
        let digest = if self.setup.header_digest { 4 } else { 0 };
        let start = header + digest;
        let with_data = self.setup.data_digest && !data.is_empty();
        let whole = start + data.len() + if with_data { 4 } else { 0 };
        let flags = flags | u8::from(self.setup.header_digest) | u8::from(with_data) << 1;
        let pdo = if data.is_empty() { 0 } else { start as u8 };
        let mut bytes = vec![kind, flags, header as u8, pdo];
        bytes.extend((whole as u32).to_le_bytes());
        bytes.extend(body);
        if self.setup.header_digest {
            bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        }
        bytes.extend(data);
        if with_data {
            bytes.extend(crc32c::crc32c(data).to_le_bytes());
        }
        bytes
    }

    /// Reads one PDU whole; `None` if the server closed the connection.
    pub(crate) fn pdu(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(whole) = self.input.get(4..8) {
                let whole = u32::from_le_bytes(whole.try_into().unwrap()) as usize;
                assert!((8..1 << 24).contains(&whole), "a PDU of {whole} bytes");
                if self.input.len() >= whole {
                    let rest = self.input.split_off(whole);
                    return Some(std::mem::replace(&mut self.input, rest));
                }
            }
            let mut buffer = [0; 1 << 16];
            match self.stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(read) => self.input.extend(&buffer[..read]),
                Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => return None,
                // The test was stopped and went on.
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => panic!("the server said nothing: {e}"),
            }
        }
    }

    /// Checks digests of a PDU; where its data is.
    fn check(&self, pdu: &[u8]) -> std::ops::Range<usize> {
        let (flags, header, pdo) = (pdu[1], usize::from(pdu[2]), usize::from(pdu[3]));
        let mut end = pdu.len();
        assert_eq!(flags & 1 != 0, self.setup.header_digest, "header digest flag");
        if self.setup.header_digest {
            let found = u32::from_le_bytes(pdu[header..header + 4].try_into().unwrap());
            assert_eq!(found, crc32c::crc32c(&pdu[..header]), "header digest");
        }
        if pdo == 0 {
            return end..end;
        }
        assert!(pdo.is_multiple_of((usize::from(self.setup.align) + 1) * 4), "PDO {pdo}");
        assert_eq!(flags & 2 != 0, self.setup.data_digest, "data digest flag");
        if self.setup.data_digest {
            end -= 4;
            let found = u32::from_le_bytes(pdu[end..].try_into().unwrap());
            assert_eq!(found, crc32c::crc32c(&pdu[pdo..end]), "data digest");
        }
        pdo..end
    }

    /// The next completion; requests for data are answered on the way. `None` if the connection
    /// was closed.
    pub(crate) fn reap(&mut self) -> Option<Done> {
        loop {
            let pdu = self.pdu()?;
            let u16_at = |at: usize| u16::from_le_bytes(pdu[at..at + 2].try_into().unwrap());
            let u32_at = |at: usize| u32::from_le_bytes(pdu[at..at + 4].try_into().unwrap());
            match pdu[0] {
                0x05 => {
                    self.check(&pdu);
                    let field = u16_at(8 + 14);
                    assert_eq!(field & 1, 0, "phase");
                    let result = u64::from_le_bytes(pdu[8..16].try_into().unwrap());
                    return Some(self.done(u16_at(8 + 12), field, result));
                }
                0x07 => {
                    let range = self.check(&pdu);
                    let (cid, offset, len) = (u16_at(8), u32_at(12) as usize, u32_at(16) as usize);
                    assert_eq!(range.len(), len);
                    let known = self.came.iter().position(|(of, _)| *of == cid);
                    let known = known.unwrap_or_else(|| {
                        self.came.push((cid, Vec::new()));
                        self.came.len() - 1
                    });
                    assert_eq!(self.came[known].1.len(), offset, "data in order");
                    self.came[known].1.extend(&pdu[range]);
                    if pdu[1] & 8 != 0 {
                        assert!(self.setup.no_flow_control && pdu[1] & 4 != 0, "success flag");
                        return Some(self.done(cid, 0, 0));
                    }
                }
                0x09 => {
                    self.check(&pdu);
                    let (cid, tag) = (u16_at(8), u16_at(10));
                    let (from, len) = (u32_at(12) as usize, u32_at(16) as usize);
                    self.send_data(cid, tag, from, len);
                }
                kind => panic!("PDU type {kind:#x}: {:?}", &pdu[..24.min(pdu.len())]),
            }
        }
    }

    fn done(&mut self, cid: u16, field: u16, result: u64) -> Done {
        let at = self.came.iter().position(|(of, _)| *of == cid);
        let data = at.map(|at| self.came.swap_remove(at).1).unwrap_or_default();
        self.owed.retain(|(of, _)| *of != cid);
        Done { cid, status: field >> 1 & 0x7ff, do_not_retry: field >> 15 != 0, result, data }
    }

    fn send_data(&mut self, cid: u16, tag: u16, from: usize, len: usize) {
        let owed = self.owed.iter().find(|(of, _)| *of == cid).expect("data was promised");
        let data = owed.1[from..from + len].to_vec();
        let parts = data.len().div_ceil(self.max_h2c);
        for (n, part) in data.chunks(self.max_h2c).enumerate() {
            let last = if n + 1 == parts { 4 } else { 0 };
            let bytes = self.data_pdu(cid, tag, from + n * self.max_h2c, part, last);
            let _ = self.stream.write_all(&bytes);
        }
    }

    /// An H2CData PDU.
    pub(crate) fn data_pdu(
        &self,
        cid: u16,
        tag: u16,
        offset: usize,
        data: &[u8],
        flags: u8,
    ) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend(cid.to_le_bytes());
        body.extend(tag.to_le_bytes());
        body.extend((offset as u32).to_le_bytes());
        body.extend((data.len() as u32).to_le_bytes());
        body.extend([0; 4]);
        self.frame(0x06, flags, &body, data)
    }

    /// Sends a command and waits for what becomes of it.
    pub(crate) fn call(&mut self, sqe: &[u8; 64], data: Data<'_>) -> Done {
        let cid = self.submit(sqe, data);
        let done = self.reap().expect("an answer");
        assert_eq!(done.cid, cid);
        done
    }

    pub(crate) fn write(&mut self, nsid: u32, lba: u64, bytes: &[u8]) -> Done {
        self.write_with(nsid, lba, bytes, 0)
    }

    pub(crate) fn write_with(&mut self, nsid: u32, lba: u64, bytes: &[u8], flags: u32) -> Done {
        let command = at(0x01, nsid, lba, (bytes.len() / BLOCK) as u32, flags);
        let data = if bytes.len() <= 8192 { Data::Capsule(bytes) } else { Data::Send(bytes) };
        self.call(&command, data)
    }

    pub(crate) fn append(&mut self, nsid: u32, zone: u64, bytes: &[u8]) -> Done {
        let command = at(0x7d, nsid, zone, (bytes.len() / BLOCK) as u32, 0);
        let data = if bytes.len() <= 8192 { Data::Capsule(bytes) } else { Data::Send(bytes) };
        self.call(&command, data)
    }

    pub(crate) fn read(&mut self, nsid: u32, lba: u64, blocks: u32) -> Done {
        self.call(&at(0x02, nsid, lba, blocks, 0), Data::Want(blocks as usize * BLOCK))
    }

    pub(crate) fn flush(&mut self, nsid: u32) -> Done {
        self.call(&sqe(0x00, nsid, &[]), Data::None)
    }

    /// Zone management: action, or'd with 1 << 8 for all zones.
    pub(crate) fn manage(&mut self, nsid: u32, zone: u64, action: u32) -> Done {
        let command = sqe(0x79, nsid, &[zone as u32, (zone >> 32) as u32, 0, action]);
        self.call(&command, Data::None)
    }

    /// A zone report of `len` bytes; `what` is dword 13.
    pub(crate) fn report(&mut self, nsid: u32, zone: u64, len: usize, what: u32) -> Done {
        let dwords = [zone as u32, (zone >> 32) as u32, (len / 4 - 1) as u32, what];
        self.call(&sqe(0x7a, nsid, &dwords), Data::Want(len))
    }

    pub(crate) fn identify(&mut self, nsid: u32, cns: u8, csi: u8) -> Done {
        let command = sqe(0x06, nsid, &[cns.into(), u32::from(csi) << 24]);
        self.call(&command, Data::Want(4096))
    }

    pub(crate) fn log(&mut self, nsid: u32, page: u8, csi: u8, offset: u64, len: usize) -> Done {
        let dwords = (len / 4 - 1) as u32;
        let command = sqe(
            0x02,
            nsid,
            &[
                u32::from(page) | dwords << 16,
                dwords >> 16,
                offset as u32,
                (offset >> 32) as u32,
                u32::from(csi) << 24,
            ],
        );
        self.call(&command, Data::Want(len))
    }

    pub(crate) fn property(&mut self, offset: u32, long: bool) -> Done {
        let mut command = sqe(0x7f, 0, &[u32::from(long), offset]);
        command[4] = 4;
        self.call(&command, Data::None)
    }

    pub(crate) fn set_property(&mut self, offset: u32, value: u32) -> Done {
        self.call(&sqe(0x7f, 0, &[0, offset, value]), Data::None)
    }

    pub(crate) fn set_feature(&mut self, feature: u8, value: u32) -> Done {
        self.call(&sqe(0x09, 0, &[feature.into(), value]), Data::None)
    }
}

pub(crate) fn icreq(align: u8, digests: u8) -> Vec<u8> {
    let mut bytes = vec![0; 128];
    bytes[2] = 128;
    bytes[4..8].copy_from_slice(&128_u32.to_le_bytes());
    bytes[10] = align;
    bytes[11] = digests;
    bytes
}

pub(crate) fn connect_data(controller: u16, nqn: &str, host: &str) -> Vec<u8> {
    let mut data = vec![0; 1024];
    data[..16].copy_from_slice(&[7; 16]);
    data[16..18].copy_from_slice(&controller.to_le_bytes());
    data[256..256 + nqn.len()].copy_from_slice(nqn.as_bytes());
    data[512..512 + host.len()].copy_from_slice(host.as_bytes());
    data
}

/// A controller that is ready, with its admin queue and one I/O queue.
pub(crate) struct Host {
    pub(crate) admin: Queue,
    pub(crate) io: Queue,
    pub(crate) controller: u16,
}

impl Host {
    pub(crate) fn connect(address: SocketAddr, setup: Setup) -> Self {
        let (admin, controller) = admin(address, setup, 0);
        let io = io(address, setup, controller, 1);
        Self { admin, io, controller }
    }
}

/// An admin queue whose controller is ready, and the controller.
pub(crate) fn admin(address: SocketAddr, setup: Setup, keep_alive: u32) -> (Queue, u16) {
    let mut admin = Queue::open(address, setup);
    let controller = admin.connect(0, 0xffff, NQN, keep_alive).ok().result as u16;
    admin.set_property(0x14, 0x0046_0061).ok();
    assert_eq!(admin.property(0x1c, false).ok().result & 3, 1, "ready");
    (admin, controller)
}

/// I/O queue `qid` of a controller.
pub(crate) fn io(address: SocketAddr, setup: Setup, controller: u16, qid: u16) -> Queue {
    let mut io = Queue::open(address, setup);
    io.connect(qid, controller, NQN, 0).ok();
    io
}

/// A server of one drive on a port of its own.
pub(crate) fn serve(ssd: Arc<Ssd>) -> Server {
    serve_with(ssd, |_| ())
}

pub(crate) fn serve_with(ssd: Arc<Ssd>, change: impl FnOnce(&mut Options)) -> Server {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut options = Options::new(NQN);
    change(&mut options);
    Server::start(listener, vec![Unit::new("test.img", ssd)], options).expect("a server")
}

/// Zones of 64 blocks of which 48 can be written: two conventional ones and `count` others.
pub(crate) fn zoned(profile: &str, count: u32, timing: Timing) -> Arc<Ssd> {
    let spec = Spec::named(profile).expect("profile").zone_size(64, 48).zones(count + 2, 2);
    Ssd::new(spec.limits(Some(4), Some(6)), timing, 1).expect("drive")
}

/// Blocks that contain their own number.
pub(crate) fn pattern(seed: u64, blocks: usize) -> Vec<u8> {
    let mut bytes = vec![0; blocks * BLOCK];
    for (n, word) in bytes.chunks_exact_mut(8).enumerate() {
        let value = (seed << 32 | n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}
