//! A command's way: which hardware queue, and directly, through a software queue, or through the
//! scheduler.

use cores::Stage;
use drive::{Command, Lba};

use crate::at_once::AtOnce;
use crate::error::Verb;
use crate::hw::{Sent, Wire};
use crate::request::{Limits, Part, Parts, Request};
use crate::{BlockQueue, Ticket, ZoneOrder, describe};

impl BlockQueue {
    /// As [`BlockQueue::submit`], but gives `command` back where it would sleep for a tag
    /// (`REQ_NOWAIT`).
    pub fn try_submit(&self, mut command: Command) -> Result<Ticket, Command> {
        let _span = cores::span(Stage::QueueDispatch);
        if self.scheduler.is_some() {
            return Ok(self.take_in(command, false));
        }
        let (verb, lba, blocks) = describe(&command);
        let (queue, lane) = self.way(verb, lba);
        let flush_after = !self.options.fua && take_force(&mut command);
        let given_back = |mut command: Command| {
            if let Command::Write { fua, .. } | Command::Append { fua, .. } = &mut command {
                *fua |= flush_after;
            }
            command
        };
        let sent = match self.at_once.get(usize::from(queue)) {
            Some(at_once) => match at_once.try_tag() {
                Some(tag) => Ok(self.send_at_once(at_once, tag, command)),
                None => Err(command),
            },
            None => self
                .wired(queue, |wire| self.hw[usize::from(queue)].try_submit(wire, lane, command)),
        };
        let sent = sent.map_err(given_back)?;
        Ok(Ticket { queue, sent, verb, lba, blocks, flush_after })
    }

    /// Sends `command`, or queues it if a plug holds it back or a scheduler decides about it.
    #[inline]
    pub(crate) fn take_in(&self, mut command: Command, plugged: bool) -> Ticket {
        let (verb, lba, blocks) = describe(&command);
        let (queue, lane) = self.way(verb, lba);
        let flush_after = !self.options.fua && take_force(&mut command);
        let hw = &self.hw[usize::from(queue)];
        let queued =
            (plugged || self.scheduler.is_some()) && matches!(verb, Verb::Read | Verb::Write);
        let sent = self.wired(queue, |wire| {
            if let Some(at_once) = self.at_once.get(usize::from(queue)) {
                self.do_at_once(at_once, queue, command, queued)
            } else if queued {
                self.queue_up(wire, lane, command)
            } else {
                hw.submit(wire, lane, command)
            }
        });
        if queued && !plugged {
            self.run_queue(queue);
        }
        Ticket { queue, sent, verb, lba, blocks, flush_after }
    }

    /// A command's hardware queue and, if it has to wait for its turn in a zone, that zone.
    #[inline]
    fn way(&self, verb: Verb, lba: Lba) -> (u16, Option<u32>) {
        let zone = self.sequential_zone(verb, lba);
        let ordered = self.options.zone_order != ZoneOrder::Free && verb == Verb::Write;
        (self.queue_for(zone), zone.filter(|_| ordered))
    }

    /// Leaves `command` to the scheduler, or to the core's software queue if there is none.
    fn queue_up(&self, wire: Wire<'_>, lane: Option<u32>, command: Command) -> Sent {
        let hw = &self.hw[usize::from(wire.queue)];
        let locks = self.scheduler.is_some() && self.options.zone_order == ZoneOrder::WriteLock;
        let ahead = lane.filter(|_| !locks);
        let (_, _, blocks) = describe(&command);
        let (slot, command) = hw.enqueue(wire, ahead, command);
        let Some(command) = command else { return Sent::Slot(slot) };
        let parts = Parts::from_elem(Part { slot, blocks: blocks as u32 }, 1);
        let request = Request { command, queue: wire.queue, tag: None, lane, parts };
        let merged = match &self.scheduler {
            Some(scheduler) => scheduler.insert(request, self.limits()),
            None => {
                let soft = &self.soft[self.soft_queue(wire.queue)];
                soft.merge(request, self.limits()).map(|request| soft.push(request)).is_none()
            }
        };
        if merged {
            hw.count_merge();
        }
        Sent::Slot(slot)
    }

    /// Carries `command` out, or leaves it to the core's software queue.
    fn do_at_once(&self, at_once: &AtOnce, queue: u16, command: Command, queued: bool) -> Sent {
        if !queued {
            let tag = at_once.tag(|| self.run_queue(queue));
            return self.send_at_once(at_once, tag, command);
        }
        let core = self.soft_queue(queue);
        let soft = &self.soft[core];
        let (_, _, blocks) = describe(&command);
        let slot = soft.open();
        let parts = Parts::from_elem(Part { slot, blocks: blocks as u32 }, 1);
        let request = Request { command, queue, tag: None, lane: None, parts };
        match soft.merge(request, self.limits()) {
            None => at_once.note_merged(),
            Some(request) => {
                let tag = at_once.tag(|| self.run_queue(queue));
                soft.push(Request { tag: Some(tag), ..request });
                at_once.note_pending(core / self.hw.len());
            }
        }
        Sent::Soft { core: core as u16, slot }
    }

    fn send_at_once(&self, at_once: &AtOnce, tag: u16, command: Command) -> Sent {
        let answer = at_once.carry_out(self.drive.as_ref(), &self.failures, tag, command);
        if self.options.polled {
            return Sent::Held { tag, answer };
        }
        at_once.end(tag);
        Sent::Done(answer)
    }

    fn limits(&self) -> Limits {
        Limits {
            max_transfer: self.identify.max_transfer.max(1) as usize,
            zone_blocks: self.identify.zones.map(|zones| zones.size),
        }
    }

    /// Sends what is queued for hardware queue `queue`, as far as there are tags
    /// (`blk_mq_run_hw_queue`). The scheduler may choose requests of other hardware queues.
    pub(crate) fn run_queue(&self, queue: u16) {
        if let Some(at_once) = self.at_once.get(usize::from(queue)) {
            let soft = |index| self.soft.get(index * self.hw.len() + usize::from(queue));
            return at_once.run(self.drive.as_ref(), &self.failures, soft);
        }
        if self.hw[usize::from(queue)].is_full() {
            return;
        }
        let of_queue = self.soft.iter().skip(queue.into()).step_by(self.hw.len());
        let mut soft = of_queue.filter(|_| self.scheduler.is_none()).peekable();
        loop {
            let request = match (&self.scheduler, soft.peek()) {
                (Some(scheduler), _) => scheduler.next(),
                (None, Some(soft)) => soft.next(),
                (None, None) => None,
            };
            let Some(request) = request else {
                if soft.next().is_none() {
                    break;
                }
                continue;
            };
            let of = request.queue;
            let sent = self.wired(of, |wire| self.hw[usize::from(of)].dispatch(wire, request));
            if !sent && of == queue {
                break;
            }
        }
    }

    #[inline]
    pub(crate) fn wired<R>(&self, queue: u16, act: impl FnOnce(Wire<'_>) -> R) -> R {
        let run = || self.run_queue(queue);
        let scheduler = self.scheduler.as_ref();
        let (drive, failures) = (self.drive.as_ref(), &self.failures);
        act(Wire { drive, queue, scheduler, failures, run: &run })
    }

    /// The sequential zone to which `verb` would write at `lba`, if any.
    fn sequential_zone(&self, verb: Verb, lba: Lba) -> Option<u32> {
        let zones = self.identify.zones.as_ref()?;
        if !matches!(verb, Verb::Write | Verb::Append) {
            return None;
        }
        let zone = u32::try_from(lba.checked_div(zones.size)?).ok()?;
        (zones.conventional..zones.count).contains(&zone).then_some(zone)
    }

    fn queue_for(&self, zone: Option<u32>) -> u16 {
        let queues = self.hw.len();
        if queues == 1 {
            return 0;
        }
        let pick = zone.map_or_else(cores::current_core, |zone| zone as usize) % queues;
        u16::try_from(pick).unwrap_or(0)
    }

    /// The caller's software queue, if its core is mapped to hardware queue `queue`; otherwise that
    /// of the first core that is.
    fn soft_queue(&self, queue: u16) -> usize {
        let (core, queue) = (cores::current_core(), usize::from(queue));
        if core < self.soft.len() && core % self.hw.len() == queue { core } else { queue }
    }
}

/// Turns a forced write into a plain one; true if it was forced.
fn take_force(command: &mut Command) -> bool {
    match command {
        Command::Write { fua, .. } | Command::Append { fua, .. } => std::mem::take(fua),
        _ => false,
    }
}
