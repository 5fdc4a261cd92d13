//! Commands on the drive: submitted, collected, and submitted again as long as their task goes on.

use cores::Nanos;
use drive::{Drive, Output as DriveOutput};

use super::{Queue, Room, Slot};
use crate::command::{Sqe, Status};
use crate::io::{Next, Task};

impl Queue {
    /// When to ask the drive for completions. `None` if nothing is under way.
    pub(crate) fn due(&self) -> Option<Nanos> {
        if self.running == 0 {
            return None;
        }
        let lanes = self.subsystem.units.iter().zip(&self.lanes);
        lanes.filter_map(|(unit, lane)| unit.ssd().due((*lane)?)).min()
    }

    /// Advances a task until it has to wait for the drive.
    pub(super) fn go(&mut self, slot: u16, sqe: &Sqe, mut task: Task, mut next: Next, room: Room) {
        loop {
            let command = match next {
                Next::Done(answer) => return self.finish(slot, sqe, answer, room),
                Next::Command(command) => command,
            };
            let subsystem = self.subsystem.clone();
            let (unit, number) = (&subsystem.units[task.unit], task.unit);
            let lane = match self.lanes[number] {
                Some(lane) => Some(lane),
                None => unit.ssd().open_queue(),
            };
            self.lanes[number] = lane;
            let Some(lane) = lane else {
                let none = Status::from(drive::Status::NotReady);
                return self.finish(slot, sqe, none.into(), room);
            };
            let Some(done) = unit.drive().issue(lane, slot, command) else {
                self.slots[usize::from(slot)] = Slot::Running { sqe: *sqe, task: Some(task), room };
                self.running += 1;
                return;
            };
            self.look_for_power(number, &done.result);
            match task.after(done.result) {
                (Some(again), then) => (task, next) = (again, then),
                (None, Next::Done(answer)) => return self.finish(slot, sqe, answer, room),
                (None, Next::Command(_)) => return,
            }
        }
    }

    fn look_for_power(&mut self, unit: usize, result: &Result<DriveOutput, drive::Status>) {
        if matches!(result, Err(drive::Status::NotReady)) {
            self.power_lost |= self.subsystem.units[unit].ssd().is_off();
        } else if self.subsystem.expects_polite_cut() {
            self.power_lost_politely |= self.subsystem.units[unit].ssd().is_off();
        }
    }

    /// Takes completions from the drive as long as the connection's answers are shorter than `most`
    /// bytes. True if there was one.
    pub(crate) fn collect(&mut self, most: usize) -> bool {
        let mut any = false;
        for unit in 0..self.lanes.len() {
            let Some(lane) = self.lanes[unit] else { continue };
            while self.running > 0 && self.answers.output.left() < most {
                let Some(done) = self.subsystem.units[unit].drive().poll(lane) else { break };
                any = true;
                let slot = done.cid;
                let Some(Slot::Running { sqe, task, room }) = self.slots.get_mut(usize::from(slot))
                else {
                    continue;
                };
                let (sqe, task, room) = (*sqe, task.take(), *room);
                self.running -= 1;
                self.look_for_power(unit, &done.result);
                let Some(task) = task else { continue };
                match task.after(done.result) {
                    (Some(task), next) => self.go(slot, &sqe, task, next, room),
                    (None, Next::Done(answer)) => self.finish(slot, &sqe, answer, room),
                    (None, Next::Command(_)) => {}
                }
            }
        }
        any
    }
}
