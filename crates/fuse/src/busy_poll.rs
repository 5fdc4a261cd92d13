//! Looking for the next request for a moment before sleeping (as `net.core.busy_poll` does for
//! sockets).
//!
//! A program that makes one request after another puts the server to sleep between them, and where
//! CPUs halt as soon as they have nothing to do, each wake-up takes longer than the request: tens
//! of microseconds on a virtual machine. A thread that has answered therefore polls for a while and
//! yields its CPU meanwhile. Where a wake-up is cheap this only uses up time, so what it takes here
//! is measured at the first mount.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;

use cores::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long a thread polls where waking another CPU is dear.
const TIME: Nanos = 20_000;
/// Dear is a message to another CPU and back that takes longer.
const DEAR: Nanos = 30_000;
/// Messages sent to find out. The fastest counts, because other programs only slow them down.
const ROUNDS: usize = 8;
const NO_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// How long threads of this process poll unless the mount says.
pub(crate) fn fitting_time() -> Nanos {
    static FITTING: OnceLock<Nanos> = OnceLock::new();
    *FITTING.get_or_init(|| if round_trip().is_some_and(|time| time > DEAR) { TIME } else { 0 })
}

/// How long a message to another CPU and back takes; `None` if there is only one, or that fails.
fn round_trip() -> Option<Nanos> {
    if cores::core_count() == 1 {
        return None;
    }
    let (mut asking, mut answering) = UnixStream::pair().ok()?;
    let ask = move || {
        (0..ROUNDS)
            .map(|_| {
                let start = cores::now();
                asking.write_all(&[0]).and_then(|()| asking.read_exact(&mut [0])).ok()?;
                Some(cores::now() - start)
            })
            .collect::<Option<Vec<_>>>()
    };
    let answer = move || {
        let mut byte = [0];
        while answering.read_exact(&mut byte).and_then(|()| answering.write_all(&byte)).is_ok() {}
    };
    let ask = cores::try_spawn("fuse asks", Some(0), ask).ok()?;
    // If this fails the other end is closed, and `ask` fails too.
    let answer = cores::try_spawn("fuse answers", Some(1), answer);
    let times = ask.join();
    answer.ok()?.join();
    times?.into_iter().min()
}

/// Returns when a request has come or `time` is over. Another thread may still be faster to take
/// the request.
pub(crate) fn wait(device: &impl AsFd, time: Nanos) {
    let end = cores::now() + time;
    while cores::now() < end
        && poll(&mut [PollFd::new(device, PollFlags::IN)], Some(&NO_WAIT)) == Ok(0)
    {
        cores::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Nanos = 3_600_000_000_000;

    #[test]
    fn a_request_or_the_time_ends_it() {
        let (mut kernel, device) = UnixStream::pair().unwrap();
        wait(&device, 1_000_000);
        let later = cores::spawn("later", None, move || {
            cores::sleep(1_000_000);
            kernel.write_all(&[0]).unwrap();
            kernel
        });
        wait(&device, HOUR);
        drop(later.join());
        wait(&device, HOUR);
    }

    #[test]
    fn another_cpu_answers() {
        assert_eq!(round_trip().is_some(), cores::core_count() > 1);
    }
}
