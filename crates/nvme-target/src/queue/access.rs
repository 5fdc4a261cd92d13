//! Who may use a queue: Connect, and what the host has to prove after it.

use cores::Nanos;

use super::Queue;
use crate::admin::Connect;
use crate::auth::{self, Authentication};
use crate::command::{Sqe, Status};
use crate::io::Answer;

impl Queue {
    /// When the host must have connected, or proved its identity. `None` if it has, or need not.
    pub(crate) fn introduce_by(&self) -> Option<Nanos> {
        match self.role {
            None => Some(self.connect_by),
            Some(_) => self.authentication.as_ref().and_then(Authentication::deadline),
        }
    }

    /// Whether the host has failed to prove its identity, and has been told.
    pub(crate) fn has_failed(&self) -> bool {
        self.authentication.as_ref().is_some_and(Authentication::has_failed)
    }

    pub(super) fn connect(&mut self, sqe: &Sqe, data: &[u8]) -> Result<Answer, Answer> {
        if self.busy {
            return Err(Status::CONNECT_BUSY.into());
        }
        // With the power off, the host gets no answer.
        self.power_lost = self.subsystem.is_off();
        let connect = Connect::parse(sqe, data)?;
        let local = self.link.local_addr().unwrap_or(self.subsystem.address);
        let controller = connect.admit(&self.subsystem, local)?;
        controller.attach(connect.qid, &self.link).map_err(Answer::from)?;
        self.entries = connect.entries;
        self.head = if self.entries == 0 { 0 } else { 1 };
        self.answers.no_flow_control = connect.no_flow_control;
        let host = &controller.host.nqn;
        let options = &self.subsystem.options;
        self.authentication = Authentication::demanded(options, host, &connect.subsystem);
        // AUTHREQ, bit 1: an authentication transaction is required.
        let required = u64::from(self.authentication.is_some()) << 17;
        let id = controller.id;
        self.role = Some((controller, connect.qid));
        Ok(Answer::with(u64::from(id) | required))
    }

    pub(super) fn authenticate(&mut self, transfer: auth::Transfer, bytes: &[u8]) -> Answer {
        let Some(authentication) = &mut self.authentication else {
            return Status::COMMAND_SEQUENCE.into();
        };
        authentication.go_on(transfer, bytes)
    }
}
