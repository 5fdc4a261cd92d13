//! LZO1X as the kernel's decoder understands it, with and without runs of zeroes.
//!
//! Source: the kernel's description of the stream, `Documentation/staging/lzo.rst`. A stream is
//! instructions: literals to copy, or a distance back and a length; the low two bits of the latter
//! say how many literals follow at once. What an instruction below 16 means depends on how many
//! literals came before it.

use super::codec::Damage;

/// Distances of the long form begin behind this one.
const FAR: usize = 0x4000;
/// In a stream with runs of zeroes: the value in place of the distance.
const ZERO_RUN: usize = 0xfffc;
const MIN_ZERO_RUN: usize = 4;
/// First byte of a stream that names its version; no other stream begins so.
const VERSIONED: u8 = 17;
const SHORTEST_VERSIONED: usize = 5;

/// What came before an instruction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// This many literals, at most 3.
    Few(usize),
    /// A run of them.
    Run,
}

struct Stream<'a> {
    input: &'a [u8],
    output: &'a mut [u8],
    done: usize,
    /// The stream may hold runs of zeroes.
    runs: bool,
    state: State,
}

/// Decodes all of `input`; how many bytes of `output` that filled.
pub(super) fn decode(input: &[u8], output: &mut [u8]) -> Result<usize, Damage> {
    let mut stream = Stream { input, output, done: 0, runs: false, state: State::Few(0) };
    if input.len() >= SHORTEST_VERSIONED && input[0] == VERSIONED {
        stream.runs = input[1] > 0;
        stream.input = &input[2..];
    }
    if let Some(first) = stream.input.first().copied().filter(|&byte| byte > VERSIONED) {
        stream.byte()?;
        match usize::from(first - VERSIONED) {
            few @ ..4 => stream.literals(few, State::Few(few))?,
            many => stream.literals(many, State::Run)?,
        }
    }
    while stream.instruction()? {}
    if stream.input.is_empty() { Ok(stream.done) } else { Err(Damage("bytes behind the end")) }
}

impl Stream<'_> {
    fn byte(&mut self) -> Result<usize, Damage> {
        let (&byte, rest) = self.input.split_first().ok_or(Damage("stream cut off"))?;
        self.input = rest;
        Ok(byte.into())
    }

    /// A length whose field in the instruction was `field`: 0 means that it continues in the
    /// following bytes, where each zero byte stands for 255.
    fn length(&mut self, field: usize, most: usize) -> Result<usize, Damage> {
        if field > 0 {
            return Ok(field);
        }
        let mut length = most;
        loop {
            match self.byte()? {
                0 => length += 255,
                last => return Ok(length + last),
            }
        }
    }

    /// Executes one instruction; false if it was the end of the stream.
    fn instruction(&mut self) -> Result<bool, Damage> {
        let op = self.byte()?;
        match op {
            0..16 => self.short(op)?,
            16..32 => return self.far(op),
            32..64 => {
                let length = 2 + self.length(op & 31, 31)?;
                let word = self.word()?;
                self.copy((word >> 2) + 1, length, word & 3)?;
            }
            64..128 => {
                let distance = (self.byte()? << 3) + (op >> 2 & 7) + 1;
                self.copy(distance, 3 + (op >> 5 & 1), op & 3)?;
            }
            _ => {
                let distance = (self.byte()? << 3) + (op >> 2 & 7) + 1;
                self.copy(distance, 5 + (op >> 5 & 3), op & 3)?;
            }
        }
        Ok(true)
    }

    fn short(&mut self, op: usize) -> Result<(), Damage> {
        match self.state {
            State::Few(0) => {
                let length = 3 + self.length(op, 15)?;
                self.literals(length, State::Run)
            }
            State::Few(_) => {
                let distance = (self.byte()? << 2) + (op >> 2) + 1;
                self.copy(distance, 2, op & 3)
            }
            State::Run => {
                let distance = (self.byte()? << 2) + (op >> 2) + 2049;
                self.copy(distance, 3, op & 3)
            }
        }
    }

    fn far(&mut self, op: usize) -> Result<bool, Damage> {
        if self.runs
            && op & 8 != 0
            && let &[low, high, more, ..] = self.input
            && usize::from(u16::from_le_bytes([low, high])) & ZERO_RUN == ZERO_RUN
        {
            let literals = usize::from(low & 3);
            self.input = &self.input[3..];
            let length = (usize::from(more) << 3 | op & 7) + MIN_ZERO_RUN;
            self.room(length)?.fill(0);
            self.literals(literals, State::Few(literals))?;
            return Ok(true);
        }
        let length = 2 + self.length(op & 7, 7)?;
        let word = self.word()?;
        let distance = ((op & 8) << 11) + (word >> 2);
        if distance == 0 {
            return if length == 3 { Ok(false) } else { Err(Damage("a malformed end")) };
        }
        self.copy(FAR + distance, length, word & 3)?;
        Ok(true)
    }

    fn word(&mut self) -> Result<usize, Damage> {
        Ok(self.byte()? | self.byte()? << 8)
    }

    /// The next `length` bytes of the output, counted as done.
    fn room(&mut self, length: usize) -> Result<&mut [u8], Damage> {
        let start = self.done;
        let end = start.checked_add(length).ok_or(Damage("more than a cluster"))?;
        let room = self.output.get_mut(start..end).ok_or(Damage("more than a cluster"))?;
        self.done = end;
        Ok(room)
    }

    fn literals(&mut self, length: usize, state: State) -> Result<(), Damage> {
        let (literals, rest) =
            self.input.split_at_checked(length).ok_or(Damage("stream cut off"))?;
        self.input = rest;
        self.room(length)?.copy_from_slice(literals);
        self.state = state;
        Ok(())
    }

    /// Repeats `length` bytes from `distance` back, which may overlap, then copies literals.
    fn copy(&mut self, distance: usize, length: usize, literals: usize) -> Result<(), Damage> {
        let to = self.done;
        let from = to.checked_sub(distance).ok_or(Damage("a copy from before the start"))?;
        self.room(length)?;
        if distance >= length {
            self.output.copy_within(from..from + length, to);
        } else {
            for i in 0..length {
                self.output[to + i] = self.output[from + i];
            }
        }
        self.literals(literals, State::Few(literals))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes with as much room as allowed, and returns the output.
    fn decoded(input: &[u8]) -> Result<Vec<u8>, Damage> {
        let mut output = [0xaa; 600];
        let len = decode(input, &mut output)?;
        Ok(output[..len].to_vec())
    }

    #[test]
    fn literals_then_the_end() {
        assert_eq!(decoded(b"\x16hello\x11\0\0").unwrap(), b"hello");
        assert_eq!(decoded(b"\x11\0\0").unwrap(), b"");
    }

    #[test]
    fn copies_overlap_and_bring_literals() {
        // Four literals; five bytes from one back, with two literals.
        let stream = b"\x15abcd\x82\0xy\x11\0\0";
        assert_eq!(decoded(stream).unwrap(), b"abcdddddd\x78y");
        // A long copy: 2 + 31 + 4 bytes from two back.
        let stream = b"\x15abcd\x20\x04\x04\0\x11\0\0";
        assert_eq!(
            decoded(stream).unwrap(),
            [b"abcd".as_slice(), &b"cd".repeat(19)[..37]].concat()
        );
    }

    #[test]
    fn a_run_of_zeroes() {
        // Version 1: four literals, then (2 << 3 | 3) + 4 zeroes and one literal.
        let stream = b"\x11\x01\x15abcd\x1b\xfd\xff\x02z\x11\0\0";
        assert_eq!(decoded(stream).unwrap(), [b"abcd".as_slice(), &[0; 23], b"z"].concat());
    }

    #[test]
    fn damage_is_an_error() {
        for stream in [
            &b""[..],
            b"\x15abc",
            b"\x15abcd\x82\xff",
            b"\x15abcd\x11\0\0more",
            b"\x15abcd",
            b"\x15abcd\x20\0\0\0\0\0\0\0\x01\0\0",
            b"\x12\0\0",
        ] {
            assert!(decoded(stream).is_err(), "{stream:?}");
        }
    }
}
