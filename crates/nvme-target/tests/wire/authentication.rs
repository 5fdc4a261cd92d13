//! In-band authentication as a host sees it: a host that knows the secret gets in, others get
//! nothing, whatever they send and in which order.
//!
//! The host's side is written here from NVMe base 2.0, section 8.13, and shares no code with the
//! server's; what both agree on is checked against other code by the server's unit tests.

use std::sync::Arc;

use crate::host::{
    BLOCK, Data, Done, HOST_NQN, NQN, Queue, Setup, connect_data, pattern, serve_with, sqe,
};
use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Resize};
use hmac::{Hmac, Mac};
use nvme_target::{DISCOVERY_NQN, Keys, Secret, Server};
use sha2::{Digest, Sha256, Sha512};

const SECRET: &str = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
const OWN_SECRET: &str = "DHHC-1:02:ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7fH1+f4CBgoOEhYaHiImKi4yNjo+\
                          QkZKTvGwQfg==:";
/// The key in `SECRET`.
fn key() -> Vec<u8> {
    (0..32).collect()
}

const AUTHENTICATION_REQUIRED: u16 = 0x191;
const INVALID_FIELD: u16 = 0x002;
/// Explanations of failures.
const FAILED: u8 = 1;
const PROTOCOL: u8 = 2;
const CONCATENATION: u8 = 3;
const HASH: u8 = 4;
const GROUP: u8 = 5;
const PAYLOAD: u8 = 6;
const MESSAGE: u8 = 7;

fn server(own: bool) -> Server {
    let secret = |text: &str| text.parse::<Secret>().expect("a secret");
    let controller = own.then(|| secret(OWN_SECRET));
    serve_with(drive::ram(64), |options| {
        options.keys = Some(Arc::new(Keys { host: secret(SECRET), controller }));
        options.handshake = 2_000_000_000;
    })
}

/// SHA-256 is 1, SHA-512 is 3.
fn mac(hash: u8, key: &[u8], bytes: &[u8]) -> Vec<u8> {
    match hash {
        1 => {
            let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
            mac.update(bytes);
            mac.finalize().into_bytes().to_vec()
        }
        3 => {
            let mut mac = Hmac::<Sha512>::new_from_slice(key).unwrap();
            mac.update(bytes);
            mac.finalize().into_bytes().to_vec()
        }
        _ => panic!("hash {hash}"),
    }
}

fn send(queue: &mut Queue, message: &[u8]) -> Done {
    let mut command = sqe(0x7f, 5, &[0xe901_0100, message.len() as u32]);
    command[4] = 5;
    queue.call(&command, Data::Capsule(message))
}

fn receive(queue: &mut Queue) -> Vec<u8> {
    let command = sqe(0x7f, 6, &[0xe901_0100, 4096]);
    queue.call(&command, Data::Want(4096)).ok().data
}

/// A connection with its Connect done; what is left is to authenticate.
fn connected(server: &Server, qid: u16, controller: u16) -> (Queue, u16) {
    let mut queue = Queue::open(server.address(), Setup::default());
    let result = queue.connect(qid, controller, NQN, 0).ok().result;
    assert_eq!(result >> 16, 2, "an authentication transaction is required");
    (queue, result as u16)
}

fn negotiate(hashes: &[u8], groups: &[u8]) -> Vec<u8> {
    let mut message = vec![0; 72];
    message[4..6].copy_from_slice(&7_u16.to_le_bytes());
    message[7] = 1;
    message[8] = 1;
    (message[10], message[11]) = (hashes.len() as u8, groups.len() as u8);
    message[12..12 + hashes.len()].copy_from_slice(hashes);
    message[42..42 + groups.len()].copy_from_slice(groups);
    message
}

/// A challenge, taken apart.
struct Challenge {
    hash: u8,
    value: Vec<u8>,
    sequence: [u8; 4],
    public: Vec<u8>,
}

fn challenge(queue: &mut Queue, hashes: &[u8], groups: &[u8]) -> Challenge {
    send(queue, &negotiate(hashes, groups)).ok();
    let message = receive(queue);
    assert_eq!((&message[..2], &message[4..6]), (&[1, 1][..], &[7, 0][..]), "a challenge");
    let (len, public) =
        (usize::from(message[6]), usize::from(message[10]) + 256 * usize::from(message[11]));
    Challenge {
        hash: message[8],
        value: message[16..16 + len].to_vec(),
        sequence: message[12..16].try_into().unwrap(),
        public: message[16 + len..][..public].to_vec(),
    }
}

/// The reply of a host that has `key`, with a challenge of ours if that is not empty.
fn reply(asked: &Challenge, key: &[u8], ours: &[u8], sequence: u32) -> Vec<u8> {
    let (mut value, mut public) = (asked.value.clone(), Vec::new());
    if !asked.public.is_empty() {
        let (theirs, session) = exchange(&asked.public);
        public = theirs;
        let digest = match asked.hash {
            1 => Sha256::digest(session).to_vec(),
            _ => Sha512::digest(session).to_vec(),
        };
        value = mac(asked.hash, &digest, &value);
    }
    let names = format!("HostHost{HOST_NQN}\0{NQN}");
    let text = [&value[..], &asked.sequence, &[7, 0, 0], names.as_bytes()].concat();
    let mut message = vec![1, 2, 0, 0, 7, 0, asked.value.len() as u8, 0];
    message.extend([u8::from(!ours.is_empty()), 0]);
    message.extend((public.len() as u16).to_le_bytes());
    message.extend(sequence.to_le_bytes());
    message.extend(mac(asked.hash, key, &text));
    let mut filled = ours.to_vec();
    filled.resize(asked.value.len(), 0);
    message.extend(filled);
    message.extend(public);
    message
}

/// A host's half of an exchange in ffdhe2048: its public value and the session key.
fn exchange(theirs: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let prime = BoxedUint::from_be_hex(FFDHE2048, 2048).unwrap().into_odd().unwrap();
    let params = BoxedMontyParams::new_vartime(prime);
    let exponent = BoxedUint::from(0x1234_5678_9abc_def1_u64);
    let power = |base: BoxedUint| {
        BoxedMontyForm::new(base, &params).pow(&exponent).retrieve().to_be_bytes().into_vec()
    };
    let public = power(BoxedUint::from(2_u32).resize(2048));
    (public, power(BoxedUint::from_be_slice(theirs, 2048).unwrap()))
}

/// Does everything that a host has to do on a connected queue.
fn authenticate(queue: &mut Queue) {
    let asked = challenge(queue, &[1, 2, 3], &[0, 1, 2, 3, 4, 5]);
    assert_eq!((asked.hash, asked.value.len(), asked.public.len()), (3, 64, 256));
    send(queue, &reply(&asked, &key(), &[], 0)).ok();
    assert_eq!(receive(queue)[..2], [1, 3], "success");
}

/// Takes a failure, and sees that this was the end.
fn refused(mut queue: Queue, why: u8) {
    let message = receive(&mut queue);
    assert_eq!(message[..2], [0, 0xf1], "a failure");
    assert_eq!(message[6..8], [1, why], "why");
    assert!(queue.reap().is_none(), "the end");
}

#[test]
fn who_knows_the_secret_is_let_in() {
    let server = server(false);
    let (mut admin, controller) = connected(&server, 0, 0xffff);
    authenticate(&mut admin);
    admin.set_property(0x14, 0x0046_0061).ok();
    let (mut io, _) = connected(&server, 1, controller);
    assert_eq!(io.read(1, 0, 1).status, AUTHENTICATION_REQUIRED);
    authenticate(&mut io);
    io.write(1, 0, &pattern(1, 1)).ok();
    assert!(io.read(1, 0, 1).ok().data == pattern(1, 1));
    // Once more, as a host may at any time; meanwhile it is known.
    authenticate(&mut io);
    assert!(io.read(1, 0, 1).ok().data == pattern(1, 1));
}

/// Without an exchange, and with the weakest hash, if the host supports nothing better.
#[test]
fn the_least_a_host_can() {
    let server = server(false);
    let (mut admin, _) = connected(&server, 0, 0xffff);
    let asked = challenge(&mut admin, &[1], &[0]);
    assert_eq!((asked.hash, asked.value.len(), asked.public.len()), (1, 32, 0));
    send(&mut admin, &reply(&asked, &key(), &[], 0)).ok();
    assert_eq!(receive(&mut admin)[..2], [1, 3]);
    admin.property(0, true).ok();
}

/// 8.13.5.6: what a host that challenges us has to find right before anything else is served.
#[test]
fn a_host_that_asks_who_we_are() {
    let own: Vec<u8> = (100..148).collect();
    let transformed = {
        let mut mac = Hmac::<sha2::Sha384>::new_from_slice(&own).unwrap();
        mac.update(format!("{NQN}NVMe-over-Fabrics").as_bytes());
        mac.finalize().into_bytes().to_vec()
    };
    let server = server(true);
    let (mut admin, _) = connected(&server, 0, 0xffff);
    let asked = challenge(&mut admin, &[1], &[0]);
    send(&mut admin, &reply(&asked, &key(), &[5; 32], 0x0403_0201)).ok();
    let success = receive(&mut admin);
    assert_eq!((&success[..2], success[8]), (&[1, 3][..], 1), "with a response");
    let names = format!("Controller{NQN}\0{HOST_NQN}");
    let text = [&[5; 32][..], &[1, 2, 3, 4, 7, 0, 0], names.as_bytes()].concat();
    assert_eq!(success[16..48], mac(1, &transformed, &text));
    assert_eq!(admin.property(0, true).status, AUTHENTICATION_REQUIRED, "not yet");
    let mut content = vec![0; 16];
    (content[0], content[1], content[4]) = (1, 4, 7);
    send(&mut admin, &content).ok();
    admin.property(0, true).ok();
}

#[test]
fn hosts_we_cannot_answer_are_refused() {
    let without = server(false);
    let (mut admin, _) = connected(&without, 0, 0xffff);
    let asked = challenge(&mut admin, &[1], &[0]);
    send(&mut admin, &reply(&asked, &key(), &[5; 32], 1)).ok();
    refused(admin, FAILED);
    // Our own challenge sent back is not answered.
    let with = server(true);
    let (mut admin, _) = connected(&with, 0, 0xffff);
    let asked = challenge(&mut admin, &[1], &[0]);
    let mirrored = asked.value.clone();
    send(&mut admin, &reply(&asked, &key(), &mirrored, 1)).ok();
    refused(admin, FAILED);
}

#[test]
fn a_wrong_key_gets_nothing() {
    let server = server(false);
    for wrong in [vec![0; 32], (1..33).collect(), Vec::new()] {
        let (mut admin, _) = connected(&server, 0, 0xffff);
        let asked = challenge(&mut admin, &[3], &[1]);
        send(&mut admin, &reply(&asked, &wrong, &[], 0)).ok();
        assert_eq!(admin.property(0, true).status, AUTHENTICATION_REQUIRED);
        refused(admin, FAILED);
    }
    // Its connection gone, the controller goes.
    while server.controllers() > 0 {
        cores::sleep(1_000_000);
    }
}

/// A reply that was right once is wrong for every other challenge.
#[test]
fn a_replayed_reply_gets_nothing() {
    let server = server(false);
    let (mut first, _) = connected(&server, 0, 0xffff);
    let asked = challenge(&mut first, &[1], &[0]);
    let heard = reply(&asked, &key(), &[], 0);
    send(&mut first, &heard).ok();
    assert_eq!(receive(&mut first)[..2], [1, 3]);
    let (mut second, _) = connected(&server, 0, 0xffff);
    let other = challenge(&mut second, &[1], &[0]);
    assert!(other.value != asked.value);
    send(&mut second, &heard).ok();
    refused(second, FAILED);
    // Nor on its own connection.
    send(&mut first, &heard).ok();
    refused(first, MESSAGE);
}

/// Nothing but authentication before authentication.
#[test]
fn early_commands_get_nothing() {
    let server = server(false);
    let (mut admin, controller) = connected(&server, 0, 0xffff);
    let required = |done: Done| {
        assert_eq!((done.status, done.data.len()), (AUTHENTICATION_REQUIRED, 0));
        assert!(done.do_not_retry);
    };
    required(admin.property(0, true));
    required(admin.set_property(0x14, 0x0046_0061));
    required(admin.identify(0, 1, 0));
    required(admin.identify(1, 0, 0));
    required(admin.log(0, 2, 0, 0, 512));
    required(admin.set_feature(0x07, 0));
    required(admin.call(&sqe(0x18, 0, &[]), Data::None));
    required(admin.call(&sqe(0x0c, 0, &[]), Data::None));
    // No I/O queue either, as the controller is not ready.
    let mut io = Queue::open(server.address(), Setup::default());
    assert_eq!(io.connect(1, controller, NQN, 0).status, 0x181);
    assert_eq!(io.read(1, 0, 1).status, 0x00c);
    // Once there is one: I/O, with data or without, in the capsule or to be asked for.
    authenticate(&mut admin);
    admin.set_property(0x14, 0x0046_0061).ok();
    let (mut io, _) = connected(&server, 1, controller);
    required(io.read(1, 0, 1));
    required(io.write(1, 0, &pattern(1, 1)));
    required(io.write(1, 0, &pattern(1, 8)));
    required(io.flush(1));
    required(io.read(99, 0, 1));
    let mut connect = sqe(0x7f, 1, &[1 << 16, 31, 0]);
    connect[4] = 1;
    let data = connect_data(controller, NQN, HOST_NQN);
    required(io.call(&connect, Data::Capsule(&data)));
    authenticate(&mut io);
    assert_eq!(io.read(1, 0, 1).ok().data, vec![0; BLOCK], "nothing was written");
}

/// The discovery subsystem tells where the drives are, only to authenticated hosts.
#[test]
fn discovery_is_for_those_who_know() {
    let server = server(false);
    let mut queue = Queue::open(server.address(), Setup::default());
    assert_eq!(queue.connect(0, 0xffff, DISCOVERY_NQN, 0).ok().result >> 16, 2);
    assert_eq!(queue.log(0, 0x70, 0, 0, 1024).status, AUTHENTICATION_REQUIRED);
}

/// Every message that is not as it should be, and what the failure says.
#[test]
fn messages_that_are_wrong() {
    let server = server(false);
    let sound = || negotiate(&[1, 3], &[0, 1]);
    let with = |at: usize, value: u8| {
        let mut message = sound();
        message[at] = value;
        message
    };
    let first = [
        (with(0, 1), MESSAGE),
        (with(1, 9), MESSAGE),
        (with(6, 1), CONCATENATION),
        (with(7, 0), PROTOCOL),
        (with(7, 2), PAYLOAD),
        (with(7, 255), PAYLOAD),
        (with(8, 2), PROTOCOL),
        (with(10, 31), PAYLOAD),
        (with(11, 255), PAYLOAD),
        (negotiate(&[], &[0]), HASH),
        (negotiate(&[0, 4, 255], &[0]), HASH),
        (negotiate(&[1], &[]), GROUP),
        (negotiate(&[1], &[6, 255]), GROUP),
        (sound()[..5].to_vec(), PAYLOAD),
        (sound()[..7].to_vec(), PAYLOAD),
        (sound()[..71].to_vec(), PAYLOAD),
        (vec![0xff; 4096], MESSAGE),
    ];
    for (message, why) in first {
        let (mut queue, _) = connected(&server, 0, 0xffff);
        send(&mut queue, &message).ok();
        refused(queue, why);
    }
    // Replies: wrong in a byte of the header, too short, with a forbidden public value.
    for group in [0, 1] {
        for (at, value, why) in
            [(4, 8, PAYLOAD), (6, 31, PAYLOAD), (6, 0, PAYLOAD), (11, 200, PAYLOAD)]
        {
            let (mut queue, _) = connected(&server, 0, 0xffff);
            let asked = challenge(&mut queue, &[1], &[group]);
            let mut message = reply(&asked, &key(), &[], 0);
            message[at] = value;
            send(&mut queue, &message).ok();
            refused(queue, why);
        }
        for cut in [1, 15, 16, 47, 79] {
            let (mut queue, _) = connected(&server, 0, 0xffff);
            let asked = challenge(&mut queue, &[1], &[group]);
            send(&mut queue, &reply(&asked, &key(), &[], 0)[..cut]).ok();
            refused(queue, PAYLOAD);
        }
    }
    for fill in [0, 0xff] {
        let (mut queue, _) = connected(&server, 0, 0xffff);
        let asked = challenge(&mut queue, &[1], &[1]);
        let mut message = reply(&asked, &key(), &[], 0);
        message[80..].fill(fill);
        send(&mut queue, &message).ok();
        refused(queue, PAYLOAD);
    }
}

/// Messages in an order that is not that of the protocol.
#[test]
fn messages_out_of_turn() {
    let server = server(false);
    let fresh = || connected(&server, 0, 0xffff).0;
    refused(fresh(), MESSAGE);
    // Negotiates twice, with the challenge not taken and taken.
    let mut queue = fresh();
    send(&mut queue, &negotiate(&[1], &[0])).ok();
    send(&mut queue, &negotiate(&[1], &[0])).ok();
    refused(queue, MESSAGE);
    let mut queue = fresh();
    challenge(&mut queue, &[1], &[0]);
    send(&mut queue, &negotiate(&[1], &[0])).ok();
    refused(queue, MESSAGE);
    // Takes more than there is.
    let mut queue = fresh();
    challenge(&mut queue, &[1], &[0]);
    refused(queue, MESSAGE);
    // Confirms before it was answered, or refuses us.
    let mut queue = fresh();
    challenge(&mut queue, &[1], &[0]);
    send(&mut queue, &[1, 4, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).ok();
    refused(queue, MESSAGE);
    let mut queue = fresh();
    challenge(&mut queue, &[1], &[0]);
    send(&mut queue, &[0, 0xf0, 0, 0, 7, 0, 1, 1]).ok();
    assert!(queue.reap().is_none(), "the end, without a word");
}

/// Commands around the messages: lengths, and who else they could be for.
#[test]
fn commands_that_are_wrong() {
    let server = server(false);
    let (mut queue, _) = connected(&server, 0, 0xffff);
    let message = negotiate(&[1], &[0]);
    let mut of = |kind: u8, dwords: [u32; 2], data: Data<'_>| {
        let mut command = sqe(0x7f, 0, &dwords);
        command[4] = kind;
        queue.call(&command, data).status
    };
    let protocol = 0xe901_0100;
    assert_eq!(of(5, [0, 72], Data::Capsule(&message)), INVALID_FIELD);
    assert_eq!(of(5, [0xe901_0200, 72], Data::Capsule(&message)), INVALID_FIELD);
    assert_eq!(of(5, [protocol, 0], Data::None), INVALID_FIELD);
    assert_eq!(of(5, [protocol, 4097], Data::Send(&[0; 4097])), INVALID_FIELD);
    assert_eq!(of(5, [protocol, u32::MAX], Data::None), INVALID_FIELD);
    assert_eq!(of(5, [protocol, 71], Data::Capsule(&message)), 0x00f, "another length");
    assert_eq!(of(6, [protocol, 0], Data::None), INVALID_FIELD);
    assert_eq!(of(6, [protocol, 64], Data::Want(32)), 0x00f);
    // None of this was a message; one that is asked for is as good as one in the capsule.
    assert_eq!(of(5, [protocol, 72], Data::Send(&message)), 0);
    assert_eq!(of(6, [protocol, 47], Data::Want(47)), INVALID_FIELD, "16 and 32 do not fit");
    assert_eq!(of(6, [protocol, u32::MAX], Data::Want(4096)), 0);
}

/// A host that does not finish in time is disconnected, however much it says.
#[test]
fn who_takes_too_long() {
    let server = server(false);
    let (mut admin, controller) = connected(&server, 0, 0xffff);
    authenticate(&mut admin);
    admin.set_property(0x14, 0x0046_0061).ok();
    let (mut silent, _) = connected(&server, 1, controller);
    silent.stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    let (mut busy, _) = connected(&server, 0, 0xffff);
    let start = cores::now();
    while let Some(done) = {
        busy.submit(&sqe(0x18, 0, &[]), Data::None);
        busy.reap()
    } {
        assert_eq!(done.status, AUTHENTICATION_REQUIRED);
        assert!(cores::now() - start < 20_000_000_000, "it was let go");
    }
    assert!(silent.reap().is_none());
    admin.property(0, true).ok();
    assert!(cores::now() - start > 1_000_000_000, "in time");
}

/// RFC 7919, appendix A.1.
const FFDHE2048: &str = "\
    FFFFFFFFFFFFFFFFADF85458A2BB4A9AAFDC5620273D3CF1D8B9C583CE2D3695A9E13641146433FBCC939DCE\
    249B3EF97D2FE363630C75D8F681B202AEC4617AD3DF1ED5D5FD65612433F51F5F066ED0856365553DED1AF3\
    B557135E7F57C935984F0C70E0E68B77E2A689DAF3EFE8721DF158A136ADE73530ACCA4F483A797ABC0AB182\
    B324FB61D108A94BB2C8E3FBB96ADAB760D7F4681D4F42A3DE394DF4AE56EDE76372BB190B07A7C8EE0A6D70\
    9E02FCE1CDF7E2ECC03404CD28342F619172FE9CE98583FF8E4F1232EEF28183C3FE3B1B4C6FAD733BB5FCBC\
    2EC22005C58EF1837D1683B2C6F34A26C1B2EFFA886B423861285C97FFFFFFFFFFFFFFFF";
