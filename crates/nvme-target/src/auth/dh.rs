//! Diffie-Hellman groups (RFC 7919): a session key that an eavesdropper cannot compute, so that a
//! weak secret cannot be guessed from what was sent.
//!
//! The primes are not written down here. They are computed as the RFC defines them, from the digits
//! of e: `2^n - 2^(n-64) + (floor(2^(n-130) e) + X) 2^64 - 1`. `crypto_bigint` does the
//! exponentiation, in a time that does not depend on secrets.

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Limb, NonZero, Resize};
use rustix::io::Errno;

/// Bits of a private exponent: twice the strength of the largest group, and a few more (RFC 7919,
/// 5.2).
const EXPONENT: u32 = 512;

/// A group, by its identifier in the protocol. No group has the identifier 0, which stands for no
/// exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) id: u8,
    bits: u32,
    /// X of the definition.
    offset: u32,
}

impl Group {
    /// The smallest first: it is the fastest, and with 112 bits of strength good enough.
    pub(super) const ALL: [Self; 5] = [
        Self { id: 1, bits: 2048, offset: 560_316 },
        Self { id: 2, bits: 3072, offset: 2_625_351 },
        Self { id: 3, bits: 4096, offset: 5_736_041 },
        Self { id: 4, bits: 6144, offset: 15_705_020 },
        Self { id: 5, bits: 8192, offset: 10_965_728 },
    ];

    /// Bytes of a public value and of a session key.
    pub(super) fn len(self) -> usize {
        self.bits as usize / 8
    }

    pub(super) fn prime(self) -> BoxedUint {
        // Digits beyond those needed, to make up for rounding.
        const GUARD: u32 = 64;
        let one = BoxedUint::one_with_precision(self.bits);
        let mut term = one.shl(self.bits - 130 + GUARD);
        let mut e = term.clone();
        for k in 1_u32.. {
            let Some(divisor) = NonZero::<Limb>::new(k.into()).into_option() else { continue };
            term = term.div_rem_limb(divisor).0;
            if bool::from(term.is_zero()) {
                break;
            }
            e = e.wrapping_add(&term);
        }
        let offset = BoxedUint::from(self.offset).resize(self.bits);
        let middle = e.shr(GUARD).wrapping_add(&offset).shl(64);
        // 2^n has no room, and is zero anyway modulo the word size.
        middle.wrapping_sub(one.shl(self.bits - 64)).wrapping_sub(&one)
    }

    /// `base` to the power of `exponent`, in as many bytes as the group has.
    fn power(self, base: &BoxedUint, exponent: &BoxedUint) -> Option<Vec<u8>> {
        let params = BoxedMontyParams::new_vartime(self.prime().into_odd().into_option()?);
        let power = BoxedMontyForm::new(base.resize(self.bits), &params).pow(exponent);
        Some(power.retrieve().to_be_bytes().into_vec())
    }
}

/// Our half of an exchange.
pub(super) struct Exchange {
    group: Group,
    exponent: BoxedUint,
    /// The public value, for the other side.
    pub(super) public: Vec<u8>,
}

impl Exchange {
    pub(super) fn begin(group: Group) -> Result<Self, Errno> {
        let mut exponent = [0; EXPONENT as usize / 8];
        super::fill_with_chance(&mut exponent)?;
        Self::with(group, &exponent).ok_or(Errno::INVAL)
    }

    pub(super) fn with(group: Group, exponent: &[u8]) -> Option<Self> {
        let exponent = BoxedUint::from_be_slice(exponent, EXPONENT).ok()?;
        let public = group.power(&BoxedUint::from(2_u32), &exponent)?;
        Some(Self { group, exponent, public })
    }

    /// The session key, from the other side's public value. `None` if that value is not allowed.
    pub(super) fn session(&self, theirs: &[u8]) -> Option<Vec<u8>> {
        if theirs.len() != self.group.len() {
            return None;
        }
        let value = BoxedUint::from_be_slice(theirs, self.group.bits).ok()?;
        let one = BoxedUint::one_with_precision(self.group.bits);
        // With 0, 1 and -1, an eavesdropper would know the session key.
        let last = self.group.prime().wrapping_sub(&one);
        if value <= one || value >= last {
            return None;
        }
        self.group.power(&value, &self.exponent)
    }
}
