//! The hash of a name, by which hash trees are sorted (`ext4fs_dirhash`).
//!
//! Three versions, each with names as signed or as unsigned chars: which one depends on the machine
//! that made the volume (`s_flags`), the version on the directory.

/// `DX_HASH_LEGACY`.
pub const LEGACY: u8 = 0;
/// `DX_HASH_HALF_MD4`, the default.
pub const HALF_MD4: u8 = 1;
/// `DX_HASH_TEA`.
pub const TEA: u8 = 2;

/// No name has this hash: it would be the end of a directory (`EXT4_HTREE_EOF_32BIT`).
const EOF: u32 = 0xffff_fffe;

/// Hash of a name, and what tells apart names with the same hash when a directory is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NameHash {
    /// Sorts the tree. Bit 0 is never set.
    pub major: u32,
    /// Sorts names with the same hash.
    pub minor: u32,
}

/// How one directory hashes names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hasher {
    /// [`LEGACY`], [`HALF_MD4`] or [`TEA`].
    version: u8,
    /// Names are unsigned chars.
    unsigned: bool,
    /// `s_hash_seed`.
    seed: [u32; 4],
}

impl Hasher {
    /// Hashes by `version` with `s_hash_seed`; `None` for an unknown version.
    pub fn new(version: u8, unsigned: bool, seed: [u32; 4]) -> Option<Self> {
        (version <= TEA).then_some(Self { version, unsigned, seed })
    }

    /// The hash of `name`.
    pub fn hash(&self, name: &[u8]) -> NameHash {
        let (major, minor) = match self.version {
            LEGACY => (self.legacy(name), 0),
            HALF_MD4 => {
                let state = self.digest(name, 32, |state, piece| half_md4(state, &piece));
                (state[1], state[2])
            }
            _ => {
                let state = self.digest(name, 16, |state, [a, b, c, d, ..]| {
                    tea(state, [a, b, c, d]);
                });
                (state[0], state[1])
            }
        };
        let major = major & !1;
        NameHash { major: if major == EOF { EOF - 2 } else { major }, minor }
    }

    fn char(&self, byte: u8) -> u32 {
        if self.unsigned { byte.into() } else { byte as i8 as u32 }
    }

    /// `dx_hack_hash`.
    fn legacy(&self, name: &[u8]) -> u32 {
        let (mut hash, mut before) = (0x12a3_fe2d_u32, 0x37ab_e8f9_u32);
        for byte in name {
            let mut next = before.wrapping_add(hash ^ self.char(*byte).wrapping_mul(7_152_373));
            if next & 0x8000_0000 != 0 {
                next = next.wrapping_sub(0x7fff_ffff);
            }
            (before, hash) = (hash, next);
        }
        hash << 1
    }

    /// Feeds pieces of `len` bytes of the name to `step`.
    fn digest(&self, name: &[u8], len: usize, step: impl Fn(&mut [u32; 4], [u32; 8])) -> [u32; 4] {
        let md4 = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
        let mut state = if self.seed == [0; 4] { md4 } else { self.seed };
        let mut rest = name;
        while !rest.is_empty() {
            step(&mut state, self.words(rest, len / 4));
            rest = rest.get(len..).unwrap_or_default();
        }
        state
    }

    /// `str2hashbuf`: the first `count` words of the name, filled up with its length.
    fn words(&self, name: &[u8], count: usize) -> [u32; 8] {
        let pad = (name.len() as u32 & 0xff) * 0x0101_0101;
        let mut words = [pad; 8];
        for (word, piece) in words.iter_mut().take(count).zip(name.chunks(4)) {
            *word = piece.iter().fold(pad, |word, byte| self.char(*byte).wrapping_add(word << 8));
        }
        words
    }
}

/// One round of eight steps; which words, in which order, with which shifts and constant.
fn round(
    state: [u32; 4],
    words: &[u32; 8],
    order: [usize; 8],
    shifts: [u32; 4],
    mix: impl Fn(u32, u32, u32) -> u32,
) -> [u32; 4] {
    let mut state = state;
    for (step, index) in order.into_iter().enumerate() {
        // The four parts take turns: a, d, c, b.
        let at = |part: usize| (part + 4 - step % 4) % 4;
        let (a, b, c, d) = (at(0), at(1), at(2), at(3));
        let sum = state[a].wrapping_add(mix(state[b], state[c], state[d]));
        state[a] = sum.wrapping_add(words[index]).rotate_left(shifts[step % 4]);
    }
    state
}

/// `half_md4_transform`: three of MD4's rounds, each with half of its steps.
fn half_md4(state: &mut [u32; 4], words: &[u32; 8]) {
    const K2: u32 = 0x5a82_7999;
    const K3: u32 = 0x6ed9_eba1;
    let select = |x: u32, y: u32, z: u32| z ^ (x & (y ^ z));
    let majority = |x: u32, y: u32, z: u32| ((x & y) + ((x ^ y) & z)).wrapping_add(K2);
    let parity = |x: u32, y: u32, z: u32| (x ^ y ^ z).wrapping_add(K3);
    let mut new = round(*state, words, [0, 1, 2, 3, 4, 5, 6, 7], [3, 7, 11, 19], select);
    new = round(new, words, [1, 3, 5, 7, 0, 2, 4, 6], [3, 5, 9, 13], majority);
    new = round(new, words, [3, 7, 2, 6, 1, 5, 0, 4], [3, 9, 11, 15], parity);
    for (old, new) in state.iter_mut().zip(new) {
        *old = old.wrapping_add(new);
    }
}

/// `TEA_transform`: the Tiny Encryption Algorithm with the name as key.
fn tea(state: &mut [u32; 4], [a, b, c, d]: [u32; 4]) {
    const DELTA: u32 = 0x9e37_79b9;
    let mix = |half: u32, sum: u32, left: u32, right: u32| {
        (half << 4).wrapping_add(left) ^ half.wrapping_add(sum) ^ (half >> 5).wrapping_add(right)
    };
    let (mut x, mut y, mut sum) = (state[0], state[1], 0_u32);
    for _ in 0..16 {
        sum = sum.wrapping_add(DELTA);
        x = x.wrapping_add(mix(y, sum, a, b));
        y = y.wrapping_add(mix(x, sum, c, d));
    }
    state[0] = state[0].wrapping_add(x);
    state[1] = state[1].wrapping_add(y);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 11111111-2222-3333-4444-555555555555.
    const SEED: [u32; 4] = [0x1111_1111, 0x3333_2222, 0x5555_4444, 0x5555_5555];
    const LONG: &str = "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJ";

    fn hash(version: u8, unsigned: bool, name: &str) -> (u32, u32) {
        let hash = Hasher::new(version, unsigned, SEED).unwrap().hash(name.as_bytes());
        (hash.major, hash.minor)
    }

    /// Values of debugfs, `dx_hash -h VERSION -s SEED NAME`.
    #[test]
    fn hashes_are_those_of_debugfs() {
        assert_eq!(hash(HALF_MD4, false, "hello.txt"), (0x8d4f_0414, 0x6b91_6974));
        assert_eq!(hash(HALF_MD4, false, "1234"), (0x6f6e_6dc6, 0x53df_22f9));
        assert_eq!(hash(HALF_MD4, false, LONG), (0xf30f_9856, 0x8b94_119e));
        assert_eq!(hash(TEA, false, "hello.txt"), (0xf97f_49a0, 0x5f1b_7594));
        assert_eq!(hash(TEA, false, LONG), (0x5884_e9cc, 0xb210_050e));
        assert_eq!(hash(LEGACY, false, "hello.txt"), (0x65a0_5776, 0));
        assert_eq!(hash(LEGACY, false, LONG), (0x5246_f858, 0));
        assert_eq!(Hasher::new(3, false, SEED), None);
    }

    #[test]
    fn a_name_beyond_ascii_depends_on_the_sign() {
        assert_eq!(hash(HALF_MD4, false, "café").0, 0xa01b_c648);
        assert_eq!(hash(HALF_MD4, true, "café").0, 0x26e3_6cc2);
        assert_eq!(hash(TEA, false, "café").0, 0x4691_753e);
        assert_eq!(hash(LEGACY, false, "café").0, 0x96ca_5a2c);
    }
}
