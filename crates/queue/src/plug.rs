//! Plugging: commands of one caller are held back for a while, so that adjacent ones become one
//! request (`blk_start_plug`).

use cores::Stage;
use drive::Command;

use crate::{BlockQueue, Ticket};

/// After so many commands, a plug lets all go (`BLK_MAX_REQUEST_COUNT`).
const MOST: u32 = 32;

/// Holds commands back until it is dropped, until it holds many, or until a thread waits for one of
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
