//! A drive that completes writes and flushes late, in whatever order their delays say, and until
//! then answers reads from what was there before.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cores::{Mutex, Nanos};
use drive::{Command, Completion, Drive, Identify, Ssd};

/// Over a drive that answers at once.
pub struct Late {
    below: Arc<Ssd>,
    delay: AtomicU64,
    writes: Mutex<Vec<Write>>,
}

/// A write that the drive below has not seen yet.
struct Write {
    due: Nanos,
    queue: u16,
    cid: u16,
    command: Command,
}

impl Late {
    pub fn new(below: Arc<Ssd>) -> Self {
        Self { below, delay: AtomicU64::new(0), writes: Mutex::new(Vec::new()) }
    }

    /// The drive below, which has only the writes that are due.
    pub fn below(&self) -> &Arc<Ssd> {
        &self.below
    }

    /// Writes and flushes submitted from now on take this long.
    pub fn set_delay(&self, delay: Nanos) {
        self.delay.store(delay, Ordering::Relaxed);
    }

    /// Writes the drive has been given and has not completed.
    pub fn waiting(&self) -> usize {
        self.settle();
        self.writes.lock().len()
    }

    /// Carries out what is due, the earliest first.
    fn settle(&self) {
        let mut writes = self.writes.lock();
        writes.sort_by_key(|write| write.due);
        let now = cores::now();
        let due = writes.iter().take_while(|write| write.due <= now).count();
        for write in writes.drain(..due) {
            self.below.submit(write.queue, write.cid, write.command);
        }
    }

    /// When the earliest write of this queue is due that `wanted` picks.
    fn next_due(&self, queue: u16, wanted: impl Fn(&Write) -> bool) -> Option<Nanos> {
        let writes = self.writes.lock();
        writes.iter().filter(|w| w.queue == queue && wanted(w)).map(|w| w.due).min()
    }
}

impl Drive for Late {
    fn identify(&self) -> &Identify {
        self.below.identify()
    }

    fn submit(&self, queue: u16, cid: u16, command: Command) {
        self.settle();
        if matches!(command, Command::Write { .. } | Command::Flush) {
            let due = cores::now() + self.delay.load(Ordering::Relaxed);
            self.writes.lock().push(Write { due, queue, cid, command });
        } else {
            self.below.submit(queue, cid, command);
        }
    }

    fn poll(&self, queue: u16) -> Option<Completion> {
        self.settle();
        self.below.poll(queue)
    }

    fn wait(&self, queue: u16) -> Option<Completion> {
        loop {
            if let Some(completion) = self.poll(queue) {
                return Some(completion);
            }
            match self.next_due(queue, |_| true) {
                Some(due) => cores::sleep_until(due),
                None => return self.poll(queue),
            }
        }
    }

    fn wait_for(&self, queue: u16, cid: u16) -> Option<Completion> {
        while let Some(due) = self.next_due(queue, |write| write.cid == cid) {
            cores::sleep_until(due);
            self.settle();
        }
        self.below.wait_for(queue, cid)
    }
}
