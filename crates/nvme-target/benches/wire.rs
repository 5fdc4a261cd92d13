//! How fast a RAM drive is over loopback, beside nbd-server and qemu-nbd on a file in memory.
//!
//! `cargo bench -p strandline-nvme-target`; the floors on two cores are 150,000 random reads a
//! second at depth 32, 2 GB/s in sequence, and at depth 1 two thirds of nbd-server's rate. Rounds
//! alternate, and the best of each is reported: other load on the machine can only slow one down.
//! All clients are this program, one thread, one connection.

#[path = "../tests/host/mod.rs"]
mod host;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use drive::ram;
use host::{BLOCK, Data, Host, Setup, at, serve};

const BLOCKS: u64 = 1 << 16;
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(1);
/// What the other servers call the drive they serve.
const EXPORT: &str = "bench";

/// Something that answers requests in order of arrival, or not.
trait Client {
    /// Sends a read of `blocks` blocks at `lba`.
    fn read(&mut self, lba: u64, blocks: u32, out: &mut Vec<u8>);
    /// Sends a write.
    fn write(&mut self, lba: u64, data: &[u8], out: &mut Vec<u8>);
    /// Takes what has come, and returns how many requests were answered. Data to be sent goes to
    /// `out`.
    fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> usize;
    fn stream(&mut self) -> &mut TcpStream;
}

/// Answers in a stream: headers of `N` bytes, each with a payload of its own length.
#[derive(Default)]
struct Answers<const N: usize> {
    head: Vec<u8>,
    /// Bytes of the payload that are still to come.
    left: usize,
}

/// What came of an answer.
enum Came<const N: usize> {
    /// Its header, from which the caller knows the length of the payload.
    Header([u8; N]),
    /// The end of its payload.
    Payload,
}

impl<const N: usize> Answers<N> {
    /// The next complete item, taken off `bytes`.
    fn next(&mut self, bytes: &mut &[u8]) -> Option<Came<N>> {
        let missing = if self.left > 0 { self.left } else { N - self.head.len() };
        let (now, rest) = bytes.split_at(missing.min(bytes.len()));
        *bytes = rest;
        if self.left > 0 {
            self.left -= now.len();
            return (self.left == 0).then_some(Came::Payload);
        }
        self.head.extend(now);
        let header = self.head[..].try_into().ok()?;
        self.head.clear();
        Some(Came::Header(header))
    }
}

struct Nvme {
    host: Host,
    answers: Answers<24>,
    /// The PDU that carries the data of a write, whose command is to be filled in.
    data: Vec<u8>,
}

impl Nvme {
    fn new(address: SocketAddr) -> Self {
        let host = Host::connect(address, Setup { no_flow_control: true, ..Setup::default() });
        Self { host, answers: Answers::default(), data: Vec::new() }
    }
}

impl Client for Nvme {
    fn read(&mut self, lba: u64, blocks: u32, out: &mut Vec<u8>) {
        let command = at(0x02, 1, lba, blocks, 0);
        out.extend(self.host.io.capsule(&command, Data::Want(blocks as usize * BLOCK)).0);
    }

    fn write(&mut self, lba: u64, data: &[u8], out: &mut Vec<u8>) {
        let command = at(0x01, 1, lba, (data.len() / BLOCK) as u32, 0);
        if data.len() <= 8192 {
            out.extend(self.host.io.capsule(&command, Data::Capsule(data)).0);
        } else {
            if self.data.len() != 24 + data.len() {
                self.data = self.host.io.data_pdu(0, 0, 0, data, 4);
            }
            out.extend(self.host.io.capsule(&command, Data::Want(data.len())).0);
        }
    }

    fn take(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) -> usize {
        let mut done = 0;
        while let Some(came) = self.answers.next(&mut bytes) {
            let Came::Header(header) = came else { continue };
            self.answers.left = u32::from_le_bytes(header[4..8].try_into().unwrap()) as usize - 24;
            match header[0] {
                0x05 => {
                    assert_eq!(header[22..24], [0, 0], "status");
                    done += 1;
                }
                0x07 => done += usize::from(header[1] & 8 != 0),
                0x09 => {
                    // Command and tag, where they are in both.
                    self.data[8..12].copy_from_slice(&header[8..12]);
                    out.extend(&self.data);
                }
                kind => panic!("PDU {kind:#x}"),
            }
        }
        done
    }

    fn stream(&mut self) -> &mut TcpStream {
        &mut self.host.io.stream
    }
}

/// The NBD protocol, new style (doc/proto.md of nbd), limited to reads and writes.
struct Nbd {
    stream: TcpStream,
    answers: Answers<16>,
    /// Bytes that the answers to come carry, in order: both servers answer a client in order if it
    /// asks for one thing at a time, and no more is asked of them here.
    expected: std::collections::VecDeque<usize>,
}

impl Nbd {
    fn new(port: u16) -> Self {
        let start = Instant::now();
        let mut stream = loop {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(stream) => break stream,
                Err(_) if start.elapsed() < Duration::from_secs(5) => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(error) => panic!("NBD server: {error}"),
            }
        };
        stream.set_nodelay(true).expect("nodelay");
        let mut hello = [0; 18];
        stream.read_exact(&mut hello).expect("NBD hello");
        assert_eq!(&hello[..16], b"NBDMAGICIHAVEOPT");
        let mut answer = 3_u32.to_be_bytes().to_vec();
        answer.extend(b"IHAVEOPT");
        answer.extend(1_u32.to_be_bytes());
        answer.extend((EXPORT.len() as u32).to_be_bytes());
        answer.extend(EXPORT.as_bytes());
        stream.write_all(&answer).expect("NBD export");
        let mut size = [0; 10];
        stream.read_exact(&mut size).expect("NBD size");
        Self { stream, answers: Answers::default(), expected: Default::default() }
    }

    fn header(&mut self, kind: u16, lba: u64, len: usize, out: &mut Vec<u8>) {
        out.extend(0x2560_9513_u32.to_be_bytes());
        out.extend(0_u16.to_be_bytes());
        out.extend(kind.to_be_bytes());
        out.extend(lba.to_be_bytes());
        out.extend((lba * BLOCK as u64).to_be_bytes());
        out.extend((len as u32).to_be_bytes());
        self.expected.push_back(if kind == 0 { len } else { 0 });
    }
}

impl Client for Nbd {
    fn read(&mut self, lba: u64, blocks: u32, out: &mut Vec<u8>) {
        self.header(0, lba, blocks as usize * BLOCK, out);
    }

    fn write(&mut self, lba: u64, data: &[u8], out: &mut Vec<u8>) {
        self.header(1, lba, data.len(), out);
        out.extend(data);
    }

    fn take(&mut self, mut bytes: &[u8], _out: &mut Vec<u8>) -> usize {
        let mut done = 0;
        while let Some(came) = self.answers.next(&mut bytes) {
            if let Came::Header(header) = came {
                assert_eq!(header[4..8], [0; 4], "NBD error");
                self.answers.left = self.expected.pop_front().expect("an answer to something");
            }
            done += usize::from(self.answers.left == 0);
        }
        done
    }

    fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }
}

#[derive(Clone, Copy)]
struct Load {
    name: &'static str,
    depth: usize,
    blocks: u32,
    write: bool,
}

const LOADS: [Load; 5] = [
    Load { name: "4 KiB random read, QD32", depth: 32, blocks: 1, write: false },
    Load { name: "4 KiB random read, QD1", depth: 1, blocks: 1, write: false },
    Load { name: "4 KiB random write, QD1", depth: 1, blocks: 1, write: true },
    Load { name: "1 MiB sequential read, QD8", depth: 8, blocks: 256, write: false },
    Load { name: "1 MiB sequential write, QD8", depth: 8, blocks: 256, write: true },
];

/// Requests answered in a second.
fn run(name: &str, client: &mut dyn Client, load: Load) -> f64 {
    let data = vec![0x5a; load.blocks as usize * BLOCK];
    let (mut buffer, mut out) = (vec![0; 1 << 20], Vec::new());
    let (mut state, mut lba) = (1_u64, 0_u64);
    let mut next = || {
        if load.blocks > 1 {
            lba = (lba + u64::from(load.blocks)) % BLOCKS;
            return lba;
        }
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % BLOCKS
    };
    let (mut in_flight, mut answered, mut sent, start) = (0, 0, 0, Instant::now());
    client.stream().set_nonblocking(load.depth > 1).expect("socket");
    loop {
        let over = start.elapsed() > ROUND;
        while !over && in_flight < load.depth {
            let at = next();
            if load.write {
                client.write(at, &data, &mut out);
            } else {
                client.read(at, load.blocks, &mut out);
            }
            in_flight += 1;
        }
        if in_flight == 0 {
            break;
        }
        while sent < out.len() {
            match client.stream().write(&out[sent..]) {
                Ok(n) => sent += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("send: {error}"),
            }
        }
        if sent == out.len() {
            out.clear();
            sent = 0;
        }
        match client.stream().read(&mut buffer) {
            Ok(0) => panic!("{}: {name} closed the connection", load.name),
            Ok(read) => {
                let done = client.take(&buffer[..read], &mut out);
                (in_flight, answered) = (in_flight - done, answered + done);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                wait(client.stream(), !out.is_empty());
            }
            Err(error) => panic!("receive: {error}"),
        }
    }
    client.stream().set_nonblocking(false).expect("socket");
    answered as f64 / start.elapsed().as_secs_f64()
}

fn wait(stream: &TcpStream, write: bool) {
    use rustix::event::{PollFd, PollFlags, poll};
    let interest = if write { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
    let _ = poll(&mut [PollFd::new(stream, interest)], None);
}

/// A server of another project, ended with this value.
struct Other {
    child: Child,
    files: [PathBuf; 2],
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.files.iter().for_each(|file| drop(std::fs::remove_file(file)));
    }
}

fn other(program: &str, port: u16) -> Option<Other> {
    let file = PathBuf::from(format!("/dev/shm/bench-{program}-{port}"));
    let settings = file.with_extension("conf");
    let made = std::fs::File::create(&file).and_then(|file| {
        // No holes: those would be read faster, or slower, than memory.
        let block = vec![1; 1 << 20];
        (0..(BLOCKS * BLOCK as u64) >> 20).try_for_each(|_| (&file).write_all(&block))
    });
    made.expect("a file in /dev/shm");
    let mut command = Command::new(program);
    if program == "qemu-nbd" {
        command.args(["-f", "raw", "-t", "-b", "127.0.0.1", "--cache=writeback", "-x", EXPORT]);
        command.args(["-p", &port.to_string()]).arg(&file);
    } else {
        // Given on the command line, its export would be read only.
        let name = file.display();
        let text = format!(
            "[generic]\nlistenaddr = 127.0.0.1\nport = {port}\n[{EXPORT}]\nexportname = {name}\n"
        );
        std::fs::write(&settings, text).expect("a file in /dev/shm");
        command.arg("-d").arg("-C").arg(&settings);
    }
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
    Some(Other { child, files: [file, settings] })
}

fn main() {
    let server = serve(ram(BLOCKS));
    let mut filler = Host::connect(server.address(), Setup::default());
    for lba in (0..BLOCKS).step_by(256) {
        filler.io.write(1, lba, &host::pattern(lba, 256)).ok();
    }
    drop(filler);
    let mut clients: Vec<(&str, Box<dyn Client>)> =
        vec![("strandline", Box::new(Nvme::new(server.address())))];
    let mut others = Vec::new();
    for (program, port) in [("nbd-server", 10_810), ("qemu-nbd", 10_811)] {
        match other(program, port) {
            Some(process) => {
                others.push(process);
                clients.push((program, Box::new(Nbd::new(port))));
            }
            None => println!("{program} is not installed, so not measured"),
        }
    }
    // `cargo bench -p strandline-nvme-target -- sequential` for some of it.
    let wanted = std::env::args().skip(1).find(|word| !word.starts_with('-')).unwrap_or_default();
    for load in LOADS.into_iter().filter(|load| load.name.contains(&wanted)) {
        let mut best = vec![0_f64; clients.len()];
        for _ in 0..ROUNDS {
            for ((name, client), best) in clients.iter_mut().zip(&mut best) {
                *best = best.max(run(name, client.as_mut(), load));
            }
        }
        for ((name, _), rate) in clients.iter().zip(&best) {
            let bytes = rate * f64::from(load.blocks) * BLOCK as f64 / 1e9;
            let latency = load.depth as f64 / rate * 1e6;
            println!(
                "{:28} {name:12} {rate:>10.0}/s {bytes:>6.2} GB/s {latency:>8.1} us",
                load.name
            );
        }
        if let [ours, others @ ..] = &best[..]
            && let Some(quickest) = others.iter().copied().reduce(f64::max)
        {
            println!("{:28} {:.2} times the quickest other's rate", load.name, ours / quickest);
        }
    }
}
