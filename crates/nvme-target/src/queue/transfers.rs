//! Slots, and room for the data that commands bring or ask for.

use super::{Queue, Room, Slot};
use crate::command::Status;
use crate::pdu::{DataHeader, Fatal};
use crate::request::Given;
use crate::transfer::Transfer;

impl Queue {
    pub(super) fn take_slot(&mut self) -> u16 {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::Free);
            (self.slots.len() - 1) as u16
        })
    }

    /// Lets waiting commands continue, in order, as long as there is room.
    pub(super) fn give_room_to_the_waiting(&mut self) {
        while let Some(&slot) = self.waiting.front() {
            let Slot::Waiting { sqe, request } = &self.slots[usize::from(slot)] else {
                self.waiting.pop_front();
                continue;
            };
            let (sqe, takes) = (*sqe, request.takes(sqe));
            let bytes = takes.max(request.wants()) as u64;
            let room = if !self.own_taken {
                self.own_taken = true;
                Room::Own
            } else if self.subsystem.take_room(bytes) {
                Room::Shared(bytes)
            } else {
                return;
            };
            self.waiting.pop_front();
            let waiting = std::mem::replace(&mut self.slots[usize::from(slot)], Slot::Free);
            let Slot::Waiting { request, .. } = waiting else { continue };
            if takes == 0 {
                self.run(slot, &sqe, request, Given::Bytes(&[]), room);
                continue;
            }
            let transfer = Transfer::new(takes);
            self.slots[usize::from(slot)] =
                Slot::Taking { sqe, request, transfer, damaged: false, room };
            self.taking += 1;
            self.answers.ready_to_transfer(sqe.cid.get(), slot, takes as u32);
        }
    }

    fn give_back(&mut self, room: Room) {
        match room {
            Room::None => {}
            Room::Own => self.own_taken = false,
            Room::Shared(bytes) => self.subsystem.give_room(bytes),
        }
    }

    /// Takes the header of an H2CData PDU, which says whose data follows.
    pub(crate) fn expect(&self, header: &DataHeader, last: bool) -> Result<u16, Fatal> {
        let tag = header.tag.get();
        let Some(Slot::Taking { sqe, transfer, .. }) = self.slots.get(usize::from(tag)) else {
            return Err(Fatal::HeaderField(10));
        };
        if sqe.cid != header.cid {
            return Err(Fatal::HeaderField(8));
        }
        let (offset, length) = (header.offset.get() as usize, header.length.get() as usize);
        let end = offset.saturating_add(length);
        if offset != transfer.got() || end > transfer.length() {
            return Err(Fatal::DataRange);
        }
        if last != (end == transfer.length()) {
            return Err(Fatal::HeaderField(1));
        }
        Ok(tag)
    }

    /// Where data for `slot` goes.
    pub(crate) fn transfer(&mut self, slot: u16) -> Option<&mut Transfer> {
        match self.slots.get_mut(usize::from(slot)) {
            Some(Slot::Taking { transfer, .. }) => Some(transfer),
            _ => None,
        }
    }

    /// A PDU of data for `slot` has ended; `damaged` if its digest is wrong.
    pub(crate) fn received(&mut self, slot: u16, now_damaged: bool) {
        let place = &mut self.slots[usize::from(slot)];
        let Slot::Taking { transfer, damaged, .. } = place else { return };
        *damaged |= now_damaged;
        if !transfer.is_whole() {
            return;
        }
        let taken = std::mem::replace(place, Slot::Free);
        let Slot::Taking { sqe, request, transfer, damaged, room } = taken else { return };
        self.taking -= 1;
        if damaged {
            self.finish(slot, &sqe, Status::TRANSPORT.into(), room);
        } else {
            self.run(slot, &sqe, request, Given::Pages(transfer.into_data()), room);
        }
    }

    pub(super) fn release(&mut self, slot: u16, room: Room) {
        self.slots[usize::from(slot)] = Slot::Free;
        self.free.push(slot);
        self.give_back(room);
        if !self.waiting.is_empty() {
            self.give_room_to_the_waiting();
        }
    }
}
