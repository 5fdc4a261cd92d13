//! Software queues (`blk_mq_ctx`): one per core, for commands that a plug held back.
//!
//! Requests of a drive that answers at once have their tag from the beginning, and the thread that
//! runs the hardware queue carries out all it finds in the software queues mapped to it, also those
//! of other cores (`blk_mq_flush_busy_ctxs`). Their tickets are here, because nothing else knows
//! them.

use std::collections::VecDeque;

use cores::{Condvar, Mutex, MutexGuard, Rank};

use crate::request::{Limits, Request};
use crate::slots::Answer;

/// How many requests of the queue a command is compared with, from the newest on
/// (`blk_bio_list_merge`).
const LOOK_BACK: usize = 8;

/// Where the answer to a ticket is.
enum Place {
    Free,
    Waiting,
    Done(Answer),
    /// No thread will ask for it.
    Detached,
}

#[derive(Default)]
struct Answers {
    places: Vec<Place>,
    free: Vec<u32>,
    /// How many have not been answered.
    waiting: usize,
    sleepers: u32,
}

/// A core's requests that have not been sent.
pub(crate) struct SoftQueue {
    /// Protects the requests and their order.
    requests: Mutex<VecDeque<Request>>,
    /// Protects which tickets there are and what they have been answered.
    answers: Mutex<Answers>,
    answered: Condvar,
}

impl SoftQueue {
    pub(crate) fn new() -> Self {
        let answers = Answers::default();
        Self {
            requests: Mutex::ranked(Rank::Requests, "software queue", VecDeque::new()),
            answers: Mutex::ranked(Rank::Requests, "software queue's answers", answers),
            answered: Condvar::new(),
        }
    }

    /// Merges `request` with one that is here, or gives it back.
    pub(crate) fn merge(&self, request: Request, limits: Limits) -> Option<Request> {
        let mut requests = self.requests.lock();
        let mut newest = requests.iter_mut().rev().take(LOOK_BACK);
        newest.try_fold(request, |left, other| other.merge(left, limits))
    }

    pub(crate) fn push(&self, request: Request) {
        self.requests.lock().push_back(request);
    }

    pub(crate) fn next(&self) -> Option<Request> {
        self.requests.lock().pop_front()
    }

    /// Takes all requests out.
    pub(crate) fn take_all(&self, take: impl FnMut(Request)) {
        self.requests.lock().drain(..).for_each(take);
    }

    /// A ticket's slot.
    pub(crate) fn open(&self) -> u32 {
        let answers = &mut *self.answers.lock();
        answers.waiting += 1;
        if let Some(slot) = answers.free.pop() {
            answers.places[slot as usize] = Place::Waiting;
            return slot;
        }
        answers.places.push(Place::Waiting);
        u32::try_from(answers.places.len() - 1).unwrap_or(u32::MAX)
    }

    pub(crate) fn answer(&self, slot: u32, answer: Answer) {
        let mut answers = self.answers.lock();
        answers.waiting -= 1;
        match &mut answers.places[slot as usize] {
            place @ Place::Detached => {
                *place = Place::Free;
                answers.free.push(slot);
            }
            place => *place = Place::Done(answer),
        }
        if answers.sleepers > 0 {
            self.answered.notify_all();
        }
    }

    /// The answer, if it is there.
    pub(crate) fn take(&self, slot: u32) -> Option<Answer> {
        self.answers.lock().take(slot)
    }

    /// Sleeps until the answer is there. Some other thread is about to give it.
    pub(crate) fn wait(&self, slot: u32) -> Answer {
        let mut answers = self.answers.lock();
        loop {
            if let Some(answer) = answers.take(slot) {
                return answer;
            }
            self.sleep(&mut answers);
        }
    }

    /// Sleeps until every ticket has its answer.
    pub(crate) fn drain(&self) {
        let mut answers = self.answers.lock();
        while answers.waiting > 0 {
            self.sleep(&mut answers);
        }
    }

    fn sleep(&self, answers: &mut MutexGuard<'_, Answers>) {
        answers.sleepers += 1;
        self.answered.wait(answers);
        answers.sleepers -= 1;
    }

    pub(crate) fn detach(&self, slot: u32) {
        let mut answers = self.answers.lock();
        if answers.take(slot).is_none() {
            answers.places[slot as usize] = Place::Detached;
        }
    }
}

impl Answers {
    fn take(&mut self, slot: u32) -> Option<Answer> {
        let place = &mut self.places[slot as usize];
        match std::mem::replace(place, Place::Free) {
            Place::Done(answer) => {
                self.free.push(slot);
                Some(answer)
            }
            other => {
                *place = other;
                None
            }
        }
    }
}
