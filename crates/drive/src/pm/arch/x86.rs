//! x86-64. `std::arch` has neither `clwb` nor `clflushopt`, and its streaming stores forbid to
//! touch the memory again before an `sfence`, which here the callers' types see to.

use std::arch::asm;
use std::arch::x86_64::__cpuid_count;

/// Words up to which a loop is faster than the start of `rep movsq`.
const FEW_WORDS: usize = 16;

/// The instruction that writes back a line: the best that the processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::pm) enum Flush {
    /// `clwb`: the line may stay in the cache.
    Clwb,
    /// `clflushopt`: the line leaves the cache; ordered by fences only.
    ClflushOpt,
    /// `clflush`: as that, but one after the other.
    Clflush,
}

impl Flush {
    /// From CPUID leaf 7, subleaf 0, EBX: bit 24 is `clwb`, bit 23 `clflushopt`. Every x86-64
    /// processor has `clflush`.
    pub(in crate::pm) fn detect() -> Option<Self> {
        // Leaf 0 says which leaves there are.
        let leaves = __cpuid_count(0, 0).eax;
        let features = if leaves >= 7 { __cpuid_count(7, 0).ebx } else { 0 };
        Some(if features >> 24 & 1 != 0 {
            Self::Clwb
        } else if features >> 23 & 1 != 0 {
            Self::ClflushOpt
        } else {
            Self::Clflush
        })
    }

    pub(in crate::pm) const fn name(self) -> &'static str {
        match self {
            Self::Clwb => "clwb",
            Self::ClflushOpt => "clflushopt",
            Self::Clflush => "clflush",
        }
    }

    /// Starts writing back the line at `at`.
    ///
    /// # Safety
    ///
    /// `at` must be mapped, and [`Flush::detect`] must have returned `self`.
    pub(in crate::pm) unsafe fn line(self, at: *const u8) {
        // SAFETY: the processor has the instruction, which changes no contents.
        unsafe {
            match self {
                Self::Clwb => asm!("clwb [{}]", in(reg) at, options(nostack, preserves_flags)),
                Self::ClflushOpt => {
                    asm!("clflushopt [{}]", in(reg) at, options(nostack, preserves_flags));
                }
                Self::Clflush => {
                    asm!("clflush [{}]", in(reg) at, options(nostack, preserves_flags));
                }
            }
        }
    }
}

/// Copies bytes out of the memory.
///
/// # Safety
///
/// `from` must be readable for `len` bytes and `to` writable.
pub(in crate::pm) unsafe fn read(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: within both ranges, as the caller says; the direction flag is clear.
    unsafe {
        asm!("rep movsb", inout("rcx") len => _, inout("rdi") to => _, inout("rsi") from => _,
            options(nostack, preserves_flags));
    }
}

/// # Safety
///
/// `at` must be readable and aligned.
pub(in crate::pm) unsafe fn load(at: *const u64) -> u64 {
    let word;
    // SAFETY: as the caller says.
    unsafe {
        asm!("mov {}, [{}]", out(reg) word, in(reg) at,
            options(nostack, preserves_flags, readonly));
    }
    word
}

/// # Safety
///
/// `at` must be writable and aligned.
pub(in crate::pm) unsafe fn store_word(at: *mut u64, word: u64) {
    // SAFETY: as the caller says.
    unsafe {
        asm!("mov [{}], {}", in(reg) at, in(reg) word, options(nostack, preserves_flags));
    }
}

/// Stores words in ascending order, none of them torn: `rep movsq` is interrupted between words
/// only.
///
/// # Safety
///
/// `to` must be writable for `words` words and aligned, `from` readable for as many bytes.
pub(in crate::pm) unsafe fn store_words(to: *mut u64, from: *const u8, words: usize) {
    if words > FEW_WORDS {
        // SAFETY: within both ranges, as the caller says; the direction flag is clear.
        unsafe {
            asm!("rep movsq", inout("rcx") words => _, inout("rdi") to => _,
                inout("rsi") from => _, options(nostack, preserves_flags));
        }
        return;
    }
    for i in 0..words {
        // SAFETY: within both ranges, as the caller says.
        unsafe { store_word(to.add(i), from.cast::<u64>().add(i).read_unaligned()) }
    }
}

/// Streams whole lines past the cache (SSE2, which every x86-64 processor has).
///
/// # Safety
///
/// `to` must be writable for `lines` lines and aligned to one, `from` readable for as many bytes.
pub(in crate::pm) unsafe fn stream_lines(to: *mut u8, from: *const u8, lines: usize) {
    if lines == 0 {
        return;
    }
    // SAFETY: within both ranges, as the caller says.
    unsafe {
        asm!(
            "2:",
            "movdqu {a}, [{from}]",
            "movdqu {b}, [{from} + 16]",
            "movdqu {c}, [{from} + 32]",
            "movdqu {d}, [{from} + 48]",
            "movntdq [{to}], {a}",
            "movntdq [{to} + 16], {b}",
            "movntdq [{to} + 32], {c}",
            "movntdq [{to} + 48], {d}",
            "add {from}, 64",
            "add {to}, 64",
            "dec {lines}",
            "jnz 2b",
            a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
            from = inout(reg) from => _, to = inout(reg) to => _, lines = inout(reg) lines => _,
            options(nostack)
        );
    }
}

/// `sfence`: orders write-backs and streaming stores.
pub(in crate::pm) fn fence() {
    // SAFETY: it changes nothing.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) }
}
