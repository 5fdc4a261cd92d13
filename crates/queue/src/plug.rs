//! Plugging: commands of one caller are held back for a while, so that adjacent ones become one
//! request (`blk_start_plug`).

use std::collections::VecDeque;

use cores::{Mutex, Stage};
use drive::Command;

use crate::request::{Limits, Request};
use crate::{BlockQueue, Ticket};

/// How many requests of the software queue a command is compared with, from the newest on
/// (`blk_bio_list_merge`).
const LOOK_BACK: usize = 8;

/// After so many commands, a plug lets all go (`BLK_MAX_REQUEST_COUNT`).
const MOST: u32 = 32;

/// A core's requests that have not been sent (`blk_mq_ctx`).
pub(crate) struct SoftQueue {
    requests: Mutex<VecDeque<Request>>,
}

impl SoftQueue {
    pub(crate) fn new() -> Self {
        Self { requests: Mutex::named("software queue", VecDeque::new()) }
    }

    /// Takes a request; true if it was merged with one that is here.
    pub(crate) fn insert(&self, request: Request, limits: Limits) -> bool {
        let mut requests = self.requests.lock();
        let mut request = request;
        for other in requests.iter_mut().rev().take(LOOK_BACK) {
            match other.merge(request, limits) {
                None => return true,
                Some(back) => request = back,
            }
        }
        requests.push_back(request);
        false
    }

    pub(crate) fn next(&self) -> Option<Request> {
        self.requests.lock().pop_front()
    }
}

/// Holds commands back until it is dropped, until it holds many, or until somebody waits for one of
/// them.
pub struct Plug<'a> {
    queue: &'a BlockQueue,
    held: u32,
    /// The hardware queues of what is held, each once.
    queues: smallvec::SmallVec<[u16; 4]>,
}

impl BlockQueue {
    /// A plug. Reads and writes submitted through it are merged where they are adjacent.
    pub fn plug(&self) -> Plug<'_> {
        Plug { queue: self, held: 0, queues: smallvec::SmallVec::new() }
    }
}

impl Plug<'_> {
    /// As [`BlockQueue::submit`], but the command is held back.
    pub fn submit(&mut self, command: Command) -> Ticket {
        let _span = cores::span(Stage::QueueDispatch);
        let ticket = self.queue.take_in(command, true);
        if !self.queues.contains(&ticket.queue) {
            self.queues.push(ticket.queue);
        }
        self.held += 1;
        if self.held >= MOST {
            self.let_go();
        }
        ticket
    }

    fn let_go(&mut self) {
        self.held = 0;
        for queue in self.queues.drain(..) {
            self.queue.run_queue(queue);
        }
    }
}

impl Drop for Plug<'_> {
    fn drop(&mut self) {
        self.let_go();
    }
}
