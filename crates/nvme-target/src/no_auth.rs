//! Takes the place of `auth` in a build without that feature. There are no keys, so no queue has an
//! authentication, and none of this is ever called.

use cores::Nanos;

use crate::command::{Sqe, Status};
use crate::io::Answer;
use crate::server::Options;

/// An authentication command, of which there is none.
#[derive(Clone, Copy)]
pub(crate) enum Transfer {}

impl Transfer {
    pub(crate) fn parse(_: &Sqe) -> Result<Option<Self>, Status> {
        Ok(None)
    }

    pub(crate) fn takes(self) -> usize {
        match self {}
    }

    pub(crate) fn wants(self) -> usize {
        match self {}
    }
}

/// The authentication of one queue, which no queue has.
pub(crate) enum Authentication {}

impl Authentication {
    pub(crate) fn demanded(_: &Options, _: &str, _: &str) -> Option<Self> {
        None
    }

    pub(crate) fn has_passed(&self) -> bool {
        match *self {}
    }

    pub(crate) fn deadline(&self) -> Option<Nanos> {
        match *self {}
    }

    pub(crate) fn has_failed(&self) -> bool {
        match *self {}
    }

    pub(crate) fn go_on(&mut self, _: Transfer, _: &[u8]) -> Answer {
        match *self {}
    }
}
