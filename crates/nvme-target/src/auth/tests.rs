//! Expected values are those that `vectors.py` prints.

use data_encoding::HEXLOWER;

use super::*;

const HOST: &str = "nqn.2026-11.com.example:host";
const SUBSYSTEM: &str = "nqn.2026-11.com.example:test";
const SECRET: &str = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
const SECRET_256: &str = "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
const SECRET_384: &str = "DHHC-1:02:ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7fH1+f4CBgoOEhYaHiImKi4yNj\
                          o+QkZKTvGwQfg==:";

fn hex(bytes: &[u8]) -> String {
    HEXLOWER.encode(bytes)
}

fn secret(text: &str) -> Secret {
    text.parse().expect("a secret")
}

fn respond(hash: Hash, session: Option<Vec<u8>>, of: &str, numbers: (u32, u16)) -> String {
    let key = secret(of).key_of(HOST);
    let proof = Proof { hash, session, transaction: numbers.1 };
    let challenge = vec![7; hash.len()];
    hex(&proof.response(&key, &challenge, numbers.0, ["HostHost", HOST, SUBSYSTEM]))
}

#[test]
fn responses_are_as_elsewhere() {
    let expected = [
        "bc16584424b08b491793779a8c9965fba3e0b344005ceb23fc588365091d1fc5",
        "1a6e6c23f56b8c0371e51090115aa43d2b6538c855e476042ed4a7ae84999d552ba6cbe7181f377609d350085e\
         31efce",
        "09862c6dee1c3e83384121652f771d482ca4f264df88f9dea0c366365dc38f2be80584cf5e626677ec7f968c2f\
         1ec206034b45e91cd2be6c0c2abac1a27c5774",
    ];
    for (hash, expected) in [Hash::Sha256, Hash::Sha384, Hash::Sha512].into_iter().zip(expected) {
        assert_eq!(respond(hash, None, SECRET, (0x0102_0304, 0xabcd)), expected, "{hash:?}");
    }
    assert_eq!(
        respond(Hash::Sha256, None, SECRET_256, (0x0102_0304, 0xabcd)),
        "53ebb3355c863d7c56606111366543eb0a06b841d71ba5ecf9dfbc9a03e86d4f"
    );
    let key = secret(SECRET_384).key_of(SUBSYSTEM);
    let proof = Proof { hash: Hash::Sha384, session: None, transaction: 6 };
    let names = ["Controller", SUBSYSTEM, HOST];
    assert_eq!(
        hex(&proof.response(&key, &[9; 48], 5, names)),
        "d4a30e398449be45637e0a893c564002ef326c37c1b191214abc0930ec142e01b3aeddd888aec4b4ea41a31905\
         fd00b5"
    );
}

/// The primes are those of RFC 7919's appendix A, a session key is what the other side computes.
#[test]
fn groups_are_as_elsewhere() {
    let primes = [
        "9cd3b7f336872f46c09428d1bbc19877a4d440512cda8d1c1cf0cd6e33698966",
        "0eaf67db3a839156d5013494a5318a772b5697d270d721f37f092efc69ea5a17",
        "4648414224ac881b3d0dc59b466f96d06a558278776807797ecf1f66ff397b3e",
        "227ac9066b3ddd9e193670cda2388fa884f65ba0cf98b742d1fe77a6687c79c7",
        "770b14efaf6f049929c523113b3fa99a8d11dab1b18af3609590122075d19833",
    ];
    for (group, expected) in Group::ALL.into_iter().zip(primes) {
        let prime = group.prime().to_be_bytes();
        assert_eq!(prime.len(), group.len());
        assert_eq!(hex(&Hash::Sha256.digest(&prime)), expected, "{group:?}");
    }
    let [group, ..] = Group::ALL;
    let x: Vec<u8> = (1..=64).collect();
    let mut y = [0; 64];
    y[56..].copy_from_slice(&12_345_678_901_234_567_890_u64.to_be_bytes());
    let (ours, theirs) = (Exchange::with(group, &x), Exchange::with(group, &y));
    let (ours, theirs) = (ours.expect("ours"), theirs.expect("theirs"));
    assert_eq!(
        hex(&Hash::Sha256.digest(&ours.public)),
        "1908b0773912e53f8b481d76c9723f551e22e7edcee9e562bf0cc763a9ce3958"
    );
    let session = ours.session(&theirs.public).expect("a session key");
    assert_eq!(
        hex(&Hash::Sha256.digest(&session)),
        "5851a79c04778f73395bd12c0981402ec2af25d30cb67fdec929c0ac883236bd"
    );
    assert_eq!(theirs.session(&ours.public), Some(session.clone()));
    assert_eq!(
        respond(Hash::Sha512, Some(session), SECRET, (1, 2)),
        "bdf0d58c7f3b8615ded4d87a770d78e5839bba98981453725848d2d827331030aa1be410ab91193189fb08d742\
         0aeab6834dca49078ecfe7e28c3c5f1b456455"
    );
}

/// Values with which an eavesdropper would know the session key.
#[test]
fn public_values_that_give_it_away() {
    let [group, ..] = Group::ALL;
    let ours = Exchange::begin(group).expect("an exchange");
    let prime = group.prime().to_be_bytes().into_vec();
    let number = |last: u8| [vec![0; group.len() - 1], vec![last]].concat();
    let mut less = prime.clone();
    *less.last_mut().expect("bytes") -= 1;
    let long = [vec![0], number(2)].concat();
    for bad in [number(0), number(1), less, prime, vec![0xff; group.len()], long, Vec::new()] {
        assert_eq!(ours.session(&bad), None, "{bad:?}");
    }
    assert!(ours.session(&number(2)).is_some());
}

#[test]
fn what_is_no_secret() {
    let wrong = [
        ("", SecretError::Form),
        ("DHHC-1:", SecretError::Form),
        ("DHHC-1:00", SecretError::Form),
        ("DHHC-1:0x:AAAA:", SecretError::Form),
        ("DHHC-1:04:AAAA:", SecretError::Hash(4)),
        ("DHHC-1:00:A*AA:", SecretError::Base64),
        ("DHHC-1:00::", SecretError::Length(0)),
        ("DHHC-1:00:AAAAAAAA:", SecretError::Length(2)),
    ];
    for (text, error) in wrong {
        assert_eq!(text.parse::<Secret>(), Err(error), "{text}");
    }
    let mistyped = SECRET.replace("AAEC", "AAED").parse::<Secret>();
    assert!(matches!(mistyped, Err(SecretError::Checksum { .. })));
    assert_eq!(format!("{:?}", secret(SECRET)), "Secret", "logs keep it");
}
