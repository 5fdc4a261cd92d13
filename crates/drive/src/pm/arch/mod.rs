//! Stores, write-backs and fences as instructions. All of it is inline assembly, which the compiler
//! neither reorders nor splits; racing readers get bytes and not undefined behaviour.

#[cfg(target_arch = "x86_64")]
mod x86;
#[cfg(target_arch = "x86_64")]
pub(super) use x86::{Flush, fence, load, read, store_word, store_words, stream_lines};

#[cfg(not(target_arch = "x86_64"))]
mod portable;
#[cfg(not(target_arch = "x86_64"))]
pub(super) use portable::{Flush, fence, load, read, store_word, store_words, stream_lines};
