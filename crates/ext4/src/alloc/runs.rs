//! Runs of free blocks in a bitmap.

use std::ops::Range;

use crate::ondisk::bitmap;

/// Adjacent bits.
pub(crate) type Run = Range<u32>;

/// The first run of `most` zero bits in `range`, or else the longest one. `None` if all bits are
/// set.
pub(crate) fn longest_run(bits: &[u8], range: Range<u32>, most: u32) -> Option<Run> {
    let mut best: Option<Run> = None;
    let mut at = range.start;
    while let Some(start) = bitmap::first_free(bits, at..range.end) {
        let end = run_end(bits, start, range.end.min(start.saturating_add(most)));
        if best.as_ref().is_none_or(|best| best.end - best.start < end - start) {
            best = Some(start..end);
        }
        if end - start == most {
            break;
        }
        at = end;
    }
    best
}

/// The first run of zero bits in `range`, whole.
pub(crate) fn free_run(bits: &[u8], range: Range<u32>) -> Option<Run> {
    let start = bitmap::first_free(bits, range.clone())?;
    Some(start..run_end(bits, start, range.end))
}

/// Where the zero bits that begin at `start` end, at `most` at the latest.
fn run_end(bits: &[u8], start: u32, most: u32) -> u32 {
    let mut at = start;
    while at < most {
        if at.is_multiple_of(8) && most - at >= 8 && bits.get(at as usize / 8) == Some(&0) {
            at += 8;
        } else if bitmap::test(bits, at) {
            break;
        } else {
            at += 1;
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_run_that_is_long_enough_or_the_longest() {
        let mut bits = [0xff_u8; 16];
        for free in [3..5, 20..50, 60..61, 70..90] {
            free.for_each(|at| bitmap::clear(&mut bits, at));
        }
        let run = |range, most| longest_run(&bits, range, most);
        assert_eq!(run(0..128, 2), Some(3..5));
        assert_eq!(run(0..128, 10), Some(20..30));
        assert_eq!(run(0..128, 100), Some(20..50));
        assert_eq!(run(45..128, 100), Some(70..90));
        assert_eq!(run(5..20, 1), None);
        assert_eq!(run(60..75, 100), Some(70..75));
        assert_eq!(longest_run(&[0; 4], 0..32, 64), Some(0..32));
    }
}
