//! How a block layer is set up: what Linux has in `/sys/block/*/queue`, and in its versions.

/// In which order requests go to the drive (`queue/scheduler`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheduler {
    /// As they come.
    #[default]
    None,
    /// Sorted by address in batches, and none waits for too long: [`crate::deadline`].
    MqDeadline,
}

/// How writes to one sequential zone keep their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZoneOrder {
    /// They are sent at once. This is sound on a drive that starts the commands of one queue in the
    /// order in which they came.
    Free,
    /// The scheduler keeps a zone's writes while another one is under way, as Linux's mq-deadline
    /// did up to 6.9. Without that scheduler it is the same as [`ZoneOrder::WritePlug`].
    WriteLock,
    /// A zone's writes wait ahead of tags and scheduler while another one is under way, as in Linux
    /// since 6.10.
    #[default]
    WritePlug,
}

/// What the cores of a hardware queue share when they take a tag and give it back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Linux {
    /// As up to 4.20, the many-core study's kernel: a tag is free as soon as it is given back; and
    /// every request is counted on the cache line from which all cores read where the tags are
    /// (`blk_mq_hw_ctx::queued`, until 5.15).
    V4,
    /// As since 6.11: tags given back are gathered, and no line is shared but theirs.
    #[default]
    V6,
}

/// How a [`crate::BlockQueue`] is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Requests of a hardware queue (`queue/nr_requests`): its tags, at most as many as the drive
    /// is deep; with a scheduler, the requests that it may hold. By default the depth of the drive.
    pub nr_requests: Option<u16>,
    /// Hardware queues in use (`blk_mq_tag_set::nr_hw_queues`): at most, and by default, all that
    /// the drive has.
    pub nr_hw_queues: Option<u16>,
    /// In which order requests go to the drive.
    pub scheduler: Scheduler,
    /// How writes to one sequential zone keep their order.
    pub zone_order: ZoneOrder,
    /// Waiters look for completions without sleeping (`queue/io_poll`). On a drive that answers at
    /// once, a request keeps its tag until its ticket is waited for. So who has tickets must not
    /// sleep for a tag ([`crate::BlockQueue::try_submit`]).
    pub polled: bool,
    /// The drive's own forced writes are used (`queue/fua`). Otherwise one is a write and a flush.
    pub fua: bool,
    /// Whose tags these are.
    pub linux: Linux,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            nr_requests: None,
            nr_hw_queues: None,
            scheduler: Scheduler::None,
            zone_order: ZoneOrder::WritePlug,
            polled: false,
            fua: true,
            linux: Linux::V6,
        }
    }
}

/// What a hardware queue has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueStats {
    /// Commands that callers submitted.
    pub submitted: u64,
    /// Of those, commands that joined another one's request.
    pub merged: u64,
    /// Requests sent to the drive.
    pub sent: u64,
    /// Requests that the drive has answered.
    pub answered: u64,
    /// Times that a caller had to wait for a tag.
    pub tag_waits: u64,
}

impl std::ops::AddAssign for QueueStats {
    fn add_assign(&mut self, other: Self) {
        self.submitted += other.submitted;
        self.merged += other.merged;
        self.sent += other.sent;
        self.answered += other.answered;
        self.tag_waits += other.tag_waits;
    }
}
