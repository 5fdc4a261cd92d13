//! Choices read from bytes. Behind the last byte every choice is the first one.

/// A cursor over a case's bytes.
pub struct Tape<'a>(&'a [u8]);

impl<'a> Tape<'a> {
    pub fn new(data: &'a [u8]) -> Self {
        Self(data)
    }

    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub fn word(&mut self) -> u32 {
        u32::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    /// A number in `0..end`; 0 if that is empty.
    pub fn below(&mut self, end: usize) -> usize {
        let wide = if end > 256 {
            usize::from(u16::from_le_bytes([self.byte(), self.byte()]))
        } else {
            usize::from(self.byte())
        };
        wide.checked_rem(end).unwrap_or(0)
    }

    /// One of `choices`, which must not be empty.
    pub fn pick<'c, T>(&mut self, choices: &'c [T]) -> &'c T {
        &choices[self.below(choices.len())]
    }
}
