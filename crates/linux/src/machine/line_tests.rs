//! Lines that are cut, garbled or silent, between two pseudoterminals.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};

use super::link::{Link, Patience, Place, SECOND};
use super::tests::{BAUD, agent, answer_one};
use super::wire::{Ask, Heard, receive};
use super::{Kind, Machine, Own, Trouble, greet};

/// What becomes of bytes on their way.
type Fault = Box<dyn FnMut(&mut Vec<u8>) + Send>;

/// A cable between two serial ports.
pub(super) struct Modem {
    masters: [File; 2],
    /// Held, or a port would be dead between two users.
    ports: [OwnedFd; 2],
    cut: Arc<AtomicBool>,
    cable: Vec<cores::JoinHandle<()>>,
}

impl Modem {
    /// With a fault for what each end says.
    pub(super) fn new(faults: [Fault; 2]) -> Self {
        let masters = [(); 2].map(|()| {
            let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
            let master = openpt(flags).expect("a pseudoterminal");
            unlockpt(&master).expect("ours");
            File::from(master)
        });
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
        let ports = [0, 1].map(|i| ioctl_tiocgptpeer(&masters[i], flags).expect("its port"));
        let cut = Arc::new(AtomicBool::new(false));
        let cable = faults.into_iter().enumerate().map(|(from, fault)| {
            let copy = |i: usize| masters[i].try_clone().expect("a descriptor");
            let (from, to, cut) = (copy(from), copy(1 - from), cut.clone());
            cores::spawn("cable", None, move || carry(from, to, fault, &cut))
        });
        let cable = cable.collect();
        Self { masters, ports, cut, cable }
    }

    /// The device at end `i`.
    pub(super) fn end(&self, i: usize) -> String {
        let name = ptsname(&self.masters[i], Vec::new()).expect("a name");
        name.into_string().expect("ASCII")
    }

    /// Something that nobody asked for comes to end `i`.
    pub(super) fn say(&self, i: usize, bytes: &[u8]) {
        (&self.masters[i]).write_all(bytes).expect("room");
    }

    fn echoes(&self, i: usize) -> bool {
        let found = tcgetattr(&self.ports[i]).expect("a terminal");
        found.local_modes.contains(LocalModes::ECHO)
    }
}

impl Drop for Modem {
    fn drop(&mut self) {
        self.cut.store(true, Ordering::Release);
        self.cable.drain(..).for_each(cores::JoinHandle::join);
    }
}

fn carry(mut from: File, mut to: File, mut fault: Fault, cut: &AtomicBool) {
    let step = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
    while !cut.load(Ordering::Acquire) {
        if poll(&mut [PollFd::new(&from, PollFlags::IN)], Some(&step)).expect("a file") == 0 {
            continue;
        }
        let mut bytes = vec![0; 4096];
        let Ok(count) = from.read(&mut bytes) else { return };
        bytes.truncate(count);
        fault(&mut bytes);
        if to.write_all(&bytes).is_err() {
            return;
        }
    }
}

fn none() -> Fault {
    Box::new(|_| ())
}

/// The bytes at these places are lost.
pub(super) fn lose(places: &[usize]) -> Fault {
    let (mut places, mut passed) = (places.to_vec(), 0);
    Box::new(move |bytes| {
        let here = passed..passed + bytes.len();
        passed = here.end;
        let hit = |place: &usize| here.contains(place);
        places.iter().rev().filter(|place| hit(place)).for_each(|place| {
            bytes.remove(place - here.start);
        });
        places.retain(|place| !hit(place));
    })
}

/// The machine at the cable's first end, with an agent at the other.
fn machine(modem: &Modem, dir: &tempfile::TempDir) -> Machine {
    drop(agent(modem.end(1), dir.path().to_owned()));
    start(modem.end(0).into())
}

fn start(line: PathBuf) -> Machine {
    let own = Own { at: Place::Line(line), baud: BAUD, listen: None };
    Machine::start(Kind::Own(own), |_| ()).expect("an agent")
}

fn mkdir() -> Ask {
    Ask::Mknod { path: "d".into(), mode: 0o040_755, rdev: 0 }
}

#[test]
fn what_was_done_is_not_done_again_when_its_answer_is_lost() {
    let dir = tempfile::tempdir().expect("a directory");
    let lost = Arc::new(AtomicBool::new(false));
    let seen = lost.clone();
    let garble: Fault = Box::new(move |bytes| {
        // The second answer: the first is to the greeting.
        let second = bytes.windows(10).any(|part| part == b" 1 0 \"done");
        if second && !seen.swap(true, Ordering::AcqRel) {
            bytes.pop();
        }
    });
    let modem = Modem::new([none(), garble]);
    let machine = machine(&modem, &dir);
    assert!(machine.ask(&mkdir(), b"").is_ok(), "made once");
    assert!(lost.load(Ordering::Acquire), "nothing was lost");
    let again = machine.ask(&mkdir(), b"");
    assert!(matches!(again, Err(Trouble::Refused { errno: vfs::Errno::EXIST, .. })));
}

#[test]
fn a_machine_that_dies_is_told_with_its_last_words() {
    let modem = Modem::new([none(), none()]);
    let mut link = Link::line(&PathBuf::from(modem.end(1)), BAUD).expect("a line");
    let dying = cores::spawn("dying", None, move || {
        answer_one(&mut link);
        let words = b"\r\n[    7.123456] Kernel panic - not syncing: \x1b[0mtest\r\n";
        link.to().write_all(words).expect("the host");
        link
    });
    let line = PathBuf::from(modem.end(0));
    let mut running = greet(&line, BAUD, false, cores::now() + 60 * SECOND).expect("an answer");
    let Err(Trouble::Lost(why)) = running.ask(&mkdir(), b"", SECOND) else { panic!("an answer") };
    let words = "[    7.123456] Kernel panic - not syncing:  [0mtest";
    assert_eq!(why, format!("no answer for 1 s; it said: {words}"));
    drop(dying.join());
    drop(modem);
    let Err(Trouble::Lost(why)) = running.ask(&mkdir(), b"", SECOND) else { panic!("an answer") };
    assert_eq!(why, format!("it hung up; it said: {words}"));
}

#[test]
fn who_only_repeats_what_is_said_is_no_agent() {
    let modem = Modem::new([none(), none()]);
    // A login at the other end: its terminal echoes.
    let until = cores::now() + SECOND;
    let nobody = greet(&PathBuf::from(modem.end(0)), BAUD, false, until);
    assert!(matches!(nobody, Err(Trouble::Start(why)) if why == "no agent came"));
    assert!(cores::now() < until + SECOND, "it took too long");
    let gone = greet(&PathBuf::from("/nowhere/line"), BAUD, false, u64::MAX);
    assert!(matches!(gone, Err(Trouble::Start(why)) if why.starts_with("/nowhere/line: ")));
}

/// Neither a line that never ends nor one without a word holds up who listens.
#[test]
fn noise_without_end_comes_to_an_end() {
    let modem = Modem::new([none(), none()]);
    let mut link = Link::line(&PathBuf::from(modem.end(0)), BAUD).expect("a line");
    let loud = Arc::new(AtomicBool::new(true));
    let (going, mut master) = (loud.clone(), modem.masters[0].try_clone().expect("a descriptor"));
    let noise = cores::spawn("noise", None, move || {
        while going.load(Ordering::Acquire) {
            master.write_all(b"noise ").expect("a reader");
            cores::sleep(SECOND / 1000);
        }
    });
    link.wait(Patience { silence: SECOND / 2, until: cores::now() + SECOND / 2 });
    let heard = receive::<Ask>(link.from()).expect_err("no end");
    assert_eq!(heard.kind(), ErrorKind::TimedOut);
    loud.store(false, Ordering::Release);
    noise.join();
    link.wait(Patience::silence(SECOND / 10));
    while let Ok(Heard::Noise(_)) = receive::<Ask>(link.from()) {}
    let heard = receive::<Ask>(link.from()).expect_err("silence");
    assert_eq!(heard.kind(), ErrorKind::TimedOut);
}

#[test]
fn a_terminal_is_left_as_it_was_found() {
    let modem = Modem::new([none(), none()]);
    assert!(modem.echoes(0));
    let link = Link::line(&PathBuf::from(modem.end(0)), BAUD).expect("a line");
    assert!(!modem.echoes(0));
    drop(link);
    assert!(modem.echoes(0));
}

/// As QEMU has a guest's serial port.
#[test]
fn a_socket_is_a_line() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("port");
    let port = UnixListener::bind(&path).expect("a socket");
    let other = cores::spawn("port", None, move || {
        let (stream, _) = port.accept().expect("the host");
        answer_one(&mut Link::over(stream).expect("a line"));
    });
    let machine = start(path);
    assert!(matches!(machine.ask(&Ask::Uname, b""), Err(Trouble::Lost(_))));
    other.join();
    let file = dir.path().join("file");
    std::fs::write(&file, "").expect("a file");
    assert!(Link::line(&file, BAUD).is_err(), "a file is no line");
}
