//! The page's glossary: a line for each word that it uses in a meaning of its own.

use std::fmt::Write;

use super::svg::escape;

const WORDS: [(&str, &str); 17] = [
    ("power cut", "the drive loses its power at one moment of the run; what NAND holds is kept"),
    ("recovery", "the mount after a cut, which brings back what the last fsyncs made durable"),
    ("failed cut", "a cut after which anything was lost, garbage, torn or corrupt"),
    ("lost", "a file is missing, or back at an older version, although its fsync had returned"),
    ("garbage", "a block holds bytes that were never written there"),
    ("torn", "a file has some blocks of one fsync and some of another"),
    ("corrupt", "the volume did not mount, or its structures disagree"),
    ("promise", "what a mode guarantees on this drive; a cut breaks it, or does not touch it"),
    ("no guarantee", "cuts failed, but only in ways that the mode does not exclude on this drive"),
    ("node", "a block of metadata that says where a file's data is; recovery starts from nodes"),
    ("flush", "the command that makes everything durable that the drive has acknowledged"),
    ("NAND", "the flash itself; an acknowledged write may still be in the drive's buffer"),
    ("zone", "a part of the drive that can only be written in order, and reset as a whole"),
    ("wp_zns, wp_nand", "how far a zone is written for the host, and how far on NAND"),
    ("PLP", "power-loss protection: what is in the drive's buffer survives a cut"),
    ("p50, p99", "half of the fsyncs, or 99 of 100, took no longer"),
    ("simulated", "computed by a model of drive and machine; the same seed gives the same figure"),
];

/// The list of words.
pub(super) fn glossary() -> String {
    let mut out = String::from("<dl>");
    for (word, meaning) in WORDS {
        let _ = write!(out, "<dt>{}</dt><dd>{}</dd>", escape(word), escape(meaning));
    }
    out + "</dl>"
}
