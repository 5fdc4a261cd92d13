//! The agent and the host's side of it, on a directory of this machine: what a workload did through
//! them the oracle finds, and what somebody else did as well.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lab::oracle::{Damage, Memo, Model, Oracle, Verdict, verify};
use lab::recorder::Recorder;
use lab::workload::{Script, Workload};

use super::line_tests::{Modem, lose};
use super::link::{Link, Place};
use super::remote::{Blocks, Remote};
use super::wire::{Answer, Ask, Heard, frame, receive};
use super::{Kind, Machine, Own, Trouble};
use crate::agent::{self, Meeting};

/// Speed of a line.
pub(super) const BAUD: u32 = 115_200;

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

/// What is at an address or a line, as host and agent name it.
fn own(at: Place) -> Kind {
    Kind::Own(Own { at, baud: BAUD, listen: None })
}

/// An agent for the host at `at`. It ends when the machine is dropped.
pub(super) fn agent(at: String, dir: PathBuf) -> cores::JoinHandle<()> {
    let meeting = Meeting { at, baud: BAUD, host: None };
    cores::spawn("agent", None, move || {
        while agent::serve_at(&meeting, dir.clone()).is_err() {
            cores::sleep(10_000_000);
        }
    })
}

fn machine(dir: PathBuf) -> Arc<Machine> {
    let address = free_address();
    drop(agent(address.to_string(), dir));
    Arc::new(Machine::start(own(Place::Address(address)), |_| ()).expect("the agent comes"))
}

/// Answers one question, whatever it is, and takes another.
pub(super) fn answer_one(link: &mut Link) {
    let number = question(link);
    let answer = frame(number, &Answer::Done, b"").expect("memory");
    link.to().write_all(&answer).expect("the host is there");
    question(link);
}

/// The number of the next question.
fn question(link: &mut Link) -> u64 {
    loop {
        match receive::<Ask>(link.from()).expect("a link") {
            Heard::Message(number, ..) => return number,
            Heard::Noise(_) => {}
            Heard::End => panic!("no question"),
        }
    }
}

/// A machine that hangs up is an error to who asks, and can be started anew.
#[test]
fn a_machine_that_is_lost_is_started_anew() {
    let address = free_address();
    let dir = tempfile::tempdir().expect("a directory");
    let mount = dir.path().to_owned();
    drop(cores::spawn("first", None, move || {
        // The first is greeted, takes a question and goes; the second stays.
        let first = loop {
            match TcpStream::connect(address) {
                Ok(stream) => break stream,
                Err(_) => cores::sleep(10_000_000),
            }
        };
        answer_one(&mut Link::tcp(first).expect("a connection"));
        drop(agent(address.to_string(), mount));
    }));
    let machine = Machine::start(own(Place::Address(address)), |_| ()).expect("the first comes");
    assert!(matches!(machine.ask(&Ask::Uname, b""), Err(Trouble::Lost(_))));
    assert!(matches!(machine.ask(&Ask::Uname, b""), Err(Trouble::Lost(_))));
    machine.restart().expect("the second comes");
    let (_, release) = machine.ask(&Ask::Uname, b"").expect("an answer");
    assert!(!release.is_empty());
    let refused = machine.ask(&Ask::Rmdir { path: "nothing".into() }, b"");
    assert!(matches!(refused, Err(Trouble::Refused { errno: vfs::Errno::NOENT, .. })));
}

#[test]
fn what_the_agent_did_the_oracle_finds() {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a directory");
    let machine = machine(dir.path().to_owned());
    judge(&machine, dir.path());
}

/// The same over a serial line on which a machine boots, and bytes get lost.
#[test]
fn a_line_loses_bytes_and_nothing_else() {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a directory");
    let [first, second] = [3_000, 2_000_000].map(|at| lose(&[at, at + 2_500_000]));
    let modem = Modem::new([first, second]);
    modem.say(0, b"\x1b[2J\0\xffBooting 'Debian'\r\n[    0.000000] Linux\r\n\r\nhost login: ");
    modem.say(1, b"# strandline what? 1 2\n# strandline ");
    let agent = agent(modem.end(1), dir.path().to_owned());
    let place = Place::Line(modem.end(0).into());
    let machine = Arc::new(Machine::start(own(place), |_| ()).expect("the agent answers"));
    judge(&machine, dir.path());
    // A line does not hang up: the agent is told.
    drop(machine);
    agent.join();
}

/// Runs the script in `dir`; what it left is found, and what somebody else did besides.
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
    // What is damaged is found, each by its kind.
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
