//! Deliberate faults, for campaigns that must notice them.

use bitflags::bitflags;

bitflags! {
    /// Deliberate faults. Each breaks one promise, so that a campaign can show that it would
    /// notice.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Inject: u32 {
        /// An fsync ends without its flush.
        const DROP_FLUSH = 1;
        /// Strict leaves out the flush between data and nodes, as Linux 6.3 does on zones.
        const DROP_PREFLUSH = 2;
        /// Recovery believes every pointer, as with `nowp_check`.
        const SKIP_WP_CHECK = 4;
        /// New inodes are not marked for dentry recovery.
        const DROP_DENT_MARK = 8;
        /// The checkpoint's last block is written without flush or FUA.
        const PLAIN_CHECKPOINT = 16;
        /// Roll-forward does nothing.
        const SKIP_ROLL_FORWARD = 32;
        /// Strict marks every node of an fsync, not the last one only.
        const MARK_EVERY_NODE = 64;
        /// An fsync does not wait for the nodes ahead of its own.
        const NO_CHAIN_ORDER = 128;
        /// Two fsyncs of one file run at once.
        const NO_TURN = 256;
        /// What an fsync has to do is decided only once, when it begins.
        const DECIDE_ONCE = 512;
        /// The checkpoint's last block does not wait for writes that other threads have submitted.
        const EARLY_TAIL = 1024;
        /// Not a fault: recovery reads the chain one block at a time.
        const RECOVER_NO_READ_AHEAD = 2048;
        /// Not a fault: recovery applies every version of a node, as Linux does, and not only the
        /// last.
        const RECOVER_EVERY_VERSION = 4096;
        /// Recovery believes nodes that a cut tore.
        const BELIEVE_TORN = 8192;
        /// What is free is used again before the drive has been told that it is free.
        const EARLY_REUSE = 16384;
        /// Overwrites under `range_lock=page` do not lock their range, but one page after another.
        const NO_RANGE_LOCK = 32768;
        /// What was read with nothing locked counts, whatever was written meanwhile.
        const TRUST_READS = 65536;
    }
}
