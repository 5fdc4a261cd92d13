//! In-band authentication: DH-HMAC-CHAP (NVMe base 2.0, section 8.13), the controller's side.
//!
//! Each queue begins with it, before any other command. The host says what it supports (Negotiate)
//! and takes our challenge; it replies with a keyed digest of it and takes our Success1. If it
//! challenged us, it confirms our response (Success2). Sends and receives are commands of the host;
//! [`Authentication`] is what happens between them. Anything irregular leads to a Failure1 and ends
//! the connection: there is one try for each connection, and a challenge is answered only once.

mod dh;
mod message;
mod secret;

use std::sync::Arc;

use cores::Nanos;
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use subtle::ConstantTimeEq;
use zerocopy::{FromBytes, IntoBytes};

use self::dh::{Exchange, Group};
use self::message::{
    Challenge, DH_HMAC_CHAP, Failure, Header, Negotiate, Protocol, Refusal, Reply, Success1, id,
};
use self::secret::Hash;
pub use self::secret::{Secret, SecretError};
use crate::command::{FABRICS, Sqe, Status};
use crate::io::Answer;
use crate::server::Options;

/// The longest message: a reply with the public value of the largest group has 1168 bytes.
const MESSAGE_MAX: usize = 4096;
/// Security protocol E9h, with its two bytes 01h: NVMe authentication.
const PROTOCOL: u32 = 0x00e9_0101;

/// Who may connect: hosts that know `host`.
#[derive(Clone, Debug)]
pub struct Keys {
    /// The secret that a host must prove to know.
    pub host: Secret,
    /// The secret that we prove to know if a host asks for that. Without it, such hosts are
    /// refused.
    pub controller: Option<Secret>,
}

/// An authentication command: its direction, and how many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transfer {
    Send(usize),
    Receive(usize),
}

impl Transfer {
    /// What `sqe` asks for. `None` if it is another command.
    pub(crate) fn parse(sqe: &Sqe) -> Result<Option<Self>, Status> {
        let length = sqe.cdw11.get() as usize;
        let transfer = match (sqe.opcode, sqe.fabrics_kind()) {
            (FABRICS, 0x05) if length <= MESSAGE_MAX => Self::Send(length),
            (FABRICS, 0x05) => return Err(Status::INVALID_FIELD),
            (FABRICS, 0x06) => Self::Receive(length.min(MESSAGE_MAX)),
            _ => return Ok(None),
        };
        if sqe.cdw10.get() >> 8 != PROTOCOL || length == 0 {
            return Err(Status::INVALID_FIELD);
        }
        Ok(Some(transfer))
    }

    /// Bytes the host has to send.
    pub(crate) fn takes(self) -> usize {
        if let Self::Send(length) = self { length } else { 0 }
    }

    /// Bytes the host wants.
    pub(crate) fn wants(self) -> usize {
        if let Self::Receive(room) = self { room } else { 0 }
    }
}

/// A challenge that the host has not answered yet.
struct Challenged {
    transaction: u16,
    hash: Hash,
    value: Vec<u8>,
    sequence: u32,
    exchange: Option<Exchange>,
}

enum State {
    Idle,
    Challenged(Challenged),
    /// The host has to confirm our response.
    Answered {
        transaction: u16,
    },
    Over,
}

/// The authentication of one queue.
pub(crate) struct Authentication {
    keys: Arc<Keys>,
    host: String,
    subsystem: String,
    state: State,
    /// The message that the host has to take before anything else.
    says: Option<Vec<u8>>,
    passed: bool,
    /// How long the host may take, and when that time is over.
    patience: Nanos,
    by: Nanos,
}

impl Authentication {
    /// For the host named `host`, which connected to the subsystem named `subsystem`. `None` if no
    /// authentication is required.
    pub(crate) fn demanded(options: &Options, host: &str, subsystem: &str) -> Option<Self> {
        let (keys, patience) = (options.keys.clone()?, options.handshake);
        let by = cores::now().saturating_add(patience);
        let (host, subsystem) = (host.to_owned(), subsystem.to_owned());
        let (state, says) = (State::Idle, None);
        Some(Self { keys, host, subsystem, state, says, passed: false, patience, by })
    }

    /// Whether the host is who it says.
    pub(crate) fn has_passed(&self) -> bool {
        self.passed
    }

    /// When it must be done. `None` if it is done.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        (!self.passed).then_some(self.by)
    }

    /// Whether it has failed, and the host has been told.
    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.state, State::Over) && self.says.is_none()
    }

    /// Executes an authentication command with the data from the host.
    pub(crate) fn go_on(&mut self, transfer: Transfer, sent: &[u8]) -> Answer {
        match transfer {
            Transfer::Send(length) => {
                self.hear(sent.get(..length).unwrap_or_default());
                Answer::done()
            }
            Transfer::Receive(room) => self.say(room).map_or_else(Answer::from, Answer::bytes),
        }
    }

    /// Takes a message from the host.
    fn hear(&mut self, message: &[u8]) {
        if matches!(self.state, State::Over) {
            return;
        }
        let Ok((header, _)) = Header::read_from_prefix(message) else {
            return self.refuse(0, Refusal::Payload);
        };
        let transaction = header.transaction.get();
        let state = std::mem::replace(&mut self.state, State::Over);
        let heard = match (state, header.id()) {
            (_, id::FAILURE2) => {
                (self.says, self.passed) = (None, false);
                return;
            }
            (_, _) if self.says.is_some() => Err(Refusal::Message),
            (State::Idle, id::NEGOTIATE) => self.challenge(message),
            (State::Challenged(challenged), id::REPLY) => self.judge(&challenged, message),
            (State::Answered { transaction: ours }, id::SUCCESS2) if transaction == ours => {
                self.passed = true;
                Ok(State::Idle)
            }
            (State::Answered { .. }, id::SUCCESS2) => Err(Refusal::Payload),
            _ => Err(Refusal::Message),
        };
        match heard {
            Ok(state) => self.state = state,
            Err(why) => self.refuse(transaction, why),
        }
    }

    /// Gives the host the message that it has to take, in up to `room` bytes.
    fn say(&mut self, room: usize) -> Result<Vec<u8>, Status> {
        if self.says.is_none() {
            self.refuse(0, Refusal::Message);
        }
        let mut message =
            self.says.take_if(|message| message.len() <= room).ok_or(Status::INVALID_FIELD)?;
        message.resize(room, 0);
        Ok(message)
    }

    fn refuse(&mut self, transaction: u16, why: Refusal) {
        let header = Header::new(id::FAILURE1, transaction);
        let failure = Failure { header, reason: 1, explanation: why as u8 };
        self.says = Some(failure.as_bytes().to_vec());
        if self.passed {
            // The host has as much time to fetch it as it had for the first message.
            self.by = cores::now().saturating_add(self.patience);
        }
        (self.state, self.passed) = (State::Over, false);
    }

    /// Answers Negotiate.
    fn challenge(&mut self, message: &[u8]) -> Result<State, Refusal> {
        let (transaction, hash, group) = choose(message)?;
        let failed = |_: Errno| Refusal::Failed;
        let mut value = vec![0; hash.len()];
        fill_with_chance(&mut value).map_err(failed)?;
        let mut sequence = [0; 4];
        fill_with_chance(&mut sequence).map_err(failed)?;
        // 0 means none.
        let sequence = u32::from_le_bytes(sequence).max(1);
        let exchange = group.map(Exchange::begin).transpose().map_err(failed)?;
        let public = exchange.as_ref().map_or(&[][..], |exchange| &exchange.public);
        let challenge = Challenge {
            header: Header::new(id::CHALLENGE, transaction),
            hash_len: hash.len() as u8,
            reserved: 0,
            hash: hash as u8,
            group: group.map_or(0, |group| group.id),
            public_len: (public.len() as u16).into(),
            sequence: sequence.into(),
        };
        self.says = Some([challenge.as_bytes(), &value, public].concat());
        Ok(State::Challenged(Challenged { transaction, hash, value, sequence, exchange }))
    }

    /// Checks a reply, and answers the challenge in it.
    fn judge(&mut self, asked: &Challenged, message: &[u8]) -> Result<State, Refusal> {
        let (reply, rest) = Reply::read_from_prefix(message).map_err(|_| Refusal::Payload)?;
        let length = asked.hash.len();
        let transaction = reply.header.transaction.get();
        if transaction != asked.transaction || usize::from(reply.hash_len) != length {
            return Err(Refusal::Payload);
        }
        let (response, rest) = rest.split_at_checked(length).ok_or(Refusal::Payload)?;
        let (theirs, rest) = rest.split_at_checked(length).ok_or(Refusal::Payload)?;
        let public = rest.get(..reply.public_len.get().into()).ok_or(Refusal::Payload)?;
        let session = match &asked.exchange {
            Some(exchange) => Some(exchange.session(public).ok_or(Refusal::Payload)?),
            None if public.is_empty() => None,
            None => return Err(Refusal::Payload),
        };
        let proof = Proof { hash: asked.hash, session, transaction };
        let (host, subsystem) = (&*self.host, &*self.subsystem);
        let key = self.keys.host.key_of(host);
        let names = ["HostHost", host, subsystem];
        let right = proof.response(&key, &asked.value, asked.sequence, names);
        if !bool::from(right.ct_eq(response)) {
            return Err(Refusal::Failed);
        }
        let header = Header::new(id::SUCCESS1, transaction);
        let sequence = reply.sequence.get();
        // A challenge without a sequence number is for TLS only.
        let challenges = reply.challenges & 1 != 0 && sequence != 0;
        let (ours, state) = if challenges {
            // Never answer our own challenge if it is sent back (reflection).
            let own = self.keys.controller.as_ref().filter(|_| theirs != asked.value);
            let key = own.ok_or(Refusal::Failed)?.key_of(subsystem);
            let names = ["Controller", subsystem, host];
            let response = proof.response(&key, theirs, sequence, names);
            (response, State::Answered { transaction })
        } else {
            self.passed = true;
            (vec![0; length], State::Idle)
        };
        let success = Success1 {
            header,
            hash_len: length as u8,
            reserved: 0,
            responds: challenges.into(),
            reserved_too: [0; 7],
        };
        self.says = Some([success.as_bytes(), &ours].concat());
        Ok(state)
    }
}

/// What both responses of a transaction are made from.
struct Proof {
    hash: Hash,
    session: Option<Vec<u8>>,
    transaction: u16,
}

impl Proof {
    /// The response to a challenge. `names` say who responds, in which role, and to whom.
    fn response(&self, key: &[u8], challenge: &[u8], sequence: u32, names: [&str; 3]) -> Vec<u8> {
        let bound = match &self.session {
            None => challenge.to_vec(),
            Some(session) => self.hash.keyed(&self.hash.digest(session), &[challenge]),
        };
        let [role, from, to] = names.map(str::as_bytes);
        let (sequence, transaction) = (sequence.to_le_bytes(), self.transaction.to_le_bytes());
        // The zero after the transaction means: no secure channel.
        self.hash.keyed(key, &[&bound, &sequence, &transaction, &[0], role, from, &[0], to])
    }
}

/// What to choose from a Negotiate message: transaction, the strongest hash, the fastest group.
fn choose(message: &[u8]) -> Result<(u16, Hash, Option<Group>), Refusal> {
    let (negotiate, rest) = Negotiate::read_from_prefix(message).map_err(|_| Refusal::Payload)?;
    if negotiate.concatenate != 0 {
        return Err(Refusal::Concatenation);
    }
    let count = negotiate.protocols.into();
    let (protocols, _) =
        <[Protocol]>::ref_from_prefix_with_elems(rest, count).map_err(|_| Refusal::Payload)?;
    let protocol = protocols.iter().find(|known| known.identifier == DH_HMAC_CHAP);
    let protocol = protocol.ok_or(Refusal::Protocol)?;
    let hashes = protocol.hashes().ok_or(Refusal::Payload)?;
    let groups = protocol.groups().ok_or(Refusal::Payload)?;
    let hash = Hash::ALL.into_iter().find(|hash| hashes.contains(&(*hash as u8)));
    let group = Group::ALL.into_iter().find(|group| groups.contains(&group.id));
    if group.is_none() && !groups.contains(&0) {
        return Err(Refusal::Group);
    }
    Ok((negotiate.header.transaction.get(), hash.ok_or(Refusal::Hash)?, group))
}

/// Fills `bytes` with unpredictable ones, from the kernel and not from a seed.
fn fill_with_chance(bytes: &mut [u8]) -> Result<(), Errno> {
    let filled = getrandom(&mut *bytes, GetRandomFlags::empty())?;
    if filled == bytes.len() { Ok(()) } else { Err(Errno::AGAIN) }
}

#[cfg(test)]
mod tests;
