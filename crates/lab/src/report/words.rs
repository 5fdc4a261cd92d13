//! The page's glossary: a line for each word that it uses in a meaning of its own.

use std::fmt::Write;

use super::svg::escape;

/// Words, if need be in several forms, and what they mean.
const WORDS: &[(&str, &str)] = &[
    ("fsync", "the call that returns when a file's bytes are safe, as far as the mode promises"),
    ("F2FS", "the file system: it writes to flash in logs, out of place"),
    (
        "OPRW",
        "order-preserving recovery by write pointer: data and nodes are sent together, and \
        recovery believes no node whose data lies above a write pointer",
    ),
    ("posix", "the mode that writes data, then nodes, then flushes once"),
    (
        "strict",
        "the mode that flushes before the nodes and behind them, so that an fsync is whole \
        or did not happen",
    ),
    ("nobarrier", "the mode that never flushes; meant for drives with power-loss protection"),
    ("pattern", "the workload that overwrites random blocks of one file with what they held"),
    ("tree", "the workload that copies a directory tree, file by file"),
    ("versions", "the workload whose fsyncs are large, and each a new version of the whole file"),
    ("power cut", "the drive loses its power at one moment of the run; what NAND holds stays"),
    ("recovery", "the mount after a cut, which brings back what the last fsyncs made durable"),
    ("failed", "a cut after which anything was lost, garbage, torn or corrupt"),
    (
        "lost",
        "what an fsync that had returned made durable is missing, or back at an older version",
    ),
    ("garbage", "a block holds bytes that were never written there"),
    ("torn", "a file has some blocks of one fsync and some of another"),
    ("corrupt", "the volume did not mount, or its structures disagree"),
    (
        "fsync in flight",
        "beside those that had returned, one of the same file had not; what it writes may be \
        spoilt in modes that do not promise otherwise, such as posix",
    ),
    ("promise, BROKEN", "what a mode guarantees on this drive; it is kept, or was broken n times"),
    ("no guarantee", "cuts failed, but only in ways that the mode does not exclude on this drive"),
    ("node", "a block of metadata that says where a file's data is; recovery starts from nodes"),
    ("flush", "the command that makes everything durable that the drive has acknowledged"),
    ("NAND", "the flash itself; an acknowledged write may still be in the drive's buffer"),
    ("program", "the drive's write from its buffer to NAND"),
    ("ZNS", "zoned namespace: a drive of zones"),
    ("zone", "a part of the drive that can only be written in order, and reset as a whole"),
    ("wp_zns, wp_nand", "the write pointers: how far a zone is written for the host, and on NAND"),
    ("power-loss protection, PLP", "what is in the drive's buffer survives a cut"),
    ("zn540, zn540-noplp", "profiles of one zoned drive, with and without such protection"),
    ("CPU", "the processor of the simulated machine"),
    ("p50, p99", "half of the fsyncs, or 99 of 100, took no longer"),
    ("ms, µs", "thousandths and millionths of a second"),
    ("KiB, MiB", "1,024 and 1,048,576 bytes"),
    ("log", "a logarithmic axis: the same distance is the same factor"),
    ("JSON", "the file report.json beside this page"),
    ("simulated", "computed by a model of drive and machine; the same seed gives the same figure"),
];

/// The lines for the words of `page`.
pub(super) fn glossary(page: &str) -> String {
    let used = WORDS.iter().filter(|(word, _)| word.split(", ").any(|form| page.contains(form)));
    let mut out = String::from("<dl>");
    for (word, meaning) in used {
        let _ = write!(out, "<dt>{}</dt><dd>{}</dd>", escape(word), escape(meaning));
    }
    out + "</dl>"
}
