//! The agent and the host's side of it, on a directory of this machine: the oracle finds what a
//! workload did through them, and what somebody else did besides.

use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lab::oracle::{Damage, Memo, Model, Oracle, Verdict, verify};
use lab::workload::recorder::Recorder;
use lab::workload::{Script, Workload};

use super::remote::{Blocks, Remote};
use super::wire::{Answer, Ask, LONGEST, receive, send};
use super::{GREETING, Kind, Machine, Own, SECOND, Trouble, greet};
use crate::agent;

/// Everything that needs no root.
const SCRIPT: &str = "\
mkdir d\ncreate d/a\nwrite d/a 0+9000\nbegin\n\
open d/a h\nappend d/a 5000\nfdatasync d/a\nwrite #h 4096+4096\nlink d/a b\nfsync b\n\
rename b c\ntruncate c 6000\nfsync d\nfallocate c none 0+40000\n\
fallocate c punch_hole|keep_size 4096+4096\nfsync c\ncopy c 0+20000 d/a 50000\n\
read c 0+100000\nchmod c 600\nsetxattr c user.a 300\nfsync c\nremovexattr c user.a\n\
symlink nowhere s\nmknod p fifo 600 0\nfsync /\nunlink d/a\nunlink c\nwrite #h 0+100\nfsync #h\n\
close h\nrmdir d\nmkdir e\ncreate e/f\nwrite e/f 0+5000000\nrename e g\nfsync g/f\n\
truncate g/f 50000000\nappend g/f 100\nfsync g/f\nsetxattr g/f user.b 40\nchmod g/f 640\nsync\n";

fn free_address() -> SocketAddr {
    let free = TcpListener::bind("127.0.0.1:0").expect("loopback");
    free.local_addr().expect("bound")
}

/// An agent for the host at `at`. It ends when the machine is dropped.
fn agent(at: SocketAddr, dir: PathBuf) -> cores::JoinHandle<()> {
    cores::spawn("agent", None, move || {
        while agent::serve_at(&at.to_string(), dir.clone()).is_err() {
            cores::sleep(10_000_000);
        }
    })
}

/// The machine whose agent connects to `at`.
fn start(at: SocketAddr) -> Machine {
    Machine::start(Kind::Own(Own { at, listen: None }), |_| ()).expect("an agent comes")
}

/// Connects as soon as the host listens.
fn connect(at: SocketAddr) -> TcpStream {
    loop {
        match TcpStream::connect(at) {
            Ok(stream) => return stream,
            Err(_) => cores::sleep(10_000_000),
        }
    }
}

/// Is greeted as an agent, takes a question and goes.
fn answer_one(stream: TcpStream) {
    let mut link = BufReader::new(stream);
    let mut question = || receive::<Ask>(&mut link, &LONGEST).expect("a link").expect("a question");
    question();
    send(link.get_mut(), &Answer::Done, b"").expect("the host is there");
    drop(receive::<Ask>(&mut link, &LONGEST));
}

/// Whether a program passes for an agent within `limit` that answers the first question with
/// `said`, so many bytes every 20 ms.
fn is_agent(said: String, at_a_time: usize, limit: u64) -> bool {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let at = listener.local_addr().expect("bound");
    let peer = cores::spawn("peer", None, move || {
        let mut stream = connect(at);
        for piece in said.as_bytes().chunks(at_a_time) {
            // It fails once the host has hung up.
            if stream.write_all(piece).is_err() {
                return;
            }
            cores::sleep(20_000_000);
        }
    });
    let (stream, _) = listener.accept().expect("it connects");
    let is_agent = greet(stream, cores::now() + limit).is_ok();
    peer.join();
    is_agent
}

#[test]
fn only_an_agent_is_one() {
    let long = " ".repeat(5000);
    let passes = |said: &str| is_agent(said.into(), usize::MAX, GREETING);
    assert!(passes("3 \"done\"\n6.1"));
    assert!(!passes("0 {\"count\":1}\n"), "another answer");
    assert!(!passes(&format!("0 {long}\"done\"\n")), "a long line");
    assert!(!passes(&format!("5000 \"done\"\n{long}")), "a long name");
}

/// Not even a byte now and then holds up the host.
#[test]
fn a_slow_program_is_not_waited_for() {
    assert!(!is_agent(format!("0 {}\"done\"\n", " ".repeat(200)), 1, SECOND / 2));
}

/// If a machine hangs up, the request fails, and the machine can be started anew. Programs that
/// connect and are not agents are ignored.
#[test]
fn a_machine_that_is_lost_is_started_anew() {
    let address = free_address();
    let dir = tempfile::tempdir().expect("a directory");
    let mount = dir.path().to_owned();
    drop(cores::spawn("first", None, move || {
        connect(address).write_all(b"GET / HTTP/1.1\n").expect("the host is there");
        drop(connect(address));
        // The first is greeted, takes a question and goes; the second stays.
        answer_one(connect(address));
        drop(agent(address, mount));
    }));
    let machine = start(address);
    assert!(matches!(machine.ask(&Ask::Uname, b""), Err(Trouble::Lost(_))));
    assert!(matches!(machine.ask(&Ask::Uname, b""), Err(Trouble::Lost(_))));
    machine.restart().expect("the second comes");
    let (_, release) = machine.ask(&Ask::Uname, b"").expect("an answer");
    assert!(!release.is_empty());
    let refused = machine.ask(&Ask::Apply { op: "rmdir nothing".into() }, b"");
    assert!(matches!(refused, Err(Trouble::Refused { errno: vfs::Errno::NOENT, .. })));
}

#[test]
fn what_the_agent_did_the_oracle_finds() {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a directory");
    let address = free_address();
    let agent = agent(address, dir.path().to_owned());
    let machine = Arc::new(start(address));
    judge(&machine, dir.path());
    // It ends when its host has gone.
    drop(machine);
    agent.join();
}

/// Runs the script in `dir`; its results are found, and other changes, too.
fn judge(machine: &Arc<Machine>, dir: &Path) {
    let fs = Arc::new(Remote::new(machine.clone(), Blocks::default()).expect("a directory"));
    let oracle = Arc::new(Oracle::new());
    let script = Script::parse(SCRIPT, "agent").expect("it is right");
    script.run(&Recorder::new(fs, oracle.clone()), 1, &mut || ()).expect("it runs");
    let log = oracle.take_log();
    let look = || -> Vec<Verdict> {
        let mut model = Model::default();
        model.advance(&log, log.len());
        let fs = Remote::new(machine.clone(), Blocks::default()).expect("a directory");
        verify(&fs, &|_, _| (), &model, &mut Memo::default())
    };
    assert_eq!(look(), []);
    // Each kind of damage is found.
    let file = dir.join("g/f");
    let bytes = std::fs::read(&file).expect("a file");
    let mut wrong = bytes.clone();
    wrong[8192] ^= 1;
    std::fs::write(&file, &wrong).expect("a file");
    std::fs::remove_file(dir.join("s")).expect("a link");
    std::fs::write(dir.join("other"), "").expect("a file");
    let found = look();
    let kinds: Vec<Damage> = found.iter().map(|verdict| verdict.damage).collect();
    assert!(kinds.contains(&Damage::Garbage) && kinds.contains(&Damage::Lost), "{found:#?}");
    assert_eq!(found.iter().find_map(|verdict| verdict.block), Some(2), "{found:#?}");
    assert_eq!(found.len(), 3, "{found:#?}");
}
